"""`tune explain` says where warps take more sectors, or more turns of the banks, than their data fill."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import said_by
from tuner.inspect.emulator.building import COMPILER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")
KERNEL = """\
kernel = { name = "scattered" }
problem = { sizes = { n = 65536 }, dtypes = { input = "float32" } }
tensors.x = { shape = ["n", 2], dtype = "input" }
tensors.y = { shape = ["n"], dtype = "input", role = "output" }
reference = { numpy = "x[:, 0] + x[:, 1]" }
variants.v.parameters.block_size = { values = [128] }
variants.v.constraints."a GPU of many SMs" = "sm_count > 3"
[[variants.v.launches]]
template = "k.cu"
entry = "k"
arguments = ["x", "y", "n"]
grid = ["ceil_div(n, block_size)"]
block = ["block_size"]
"""
CODE = """\
extern "C" __global__ void k(const float* x, float* y, int n) {
    __shared__ float2 room[block_size * STEP];
    const int i = blockIdx.x * block_size + threadIdx.x;
    if (i >= n) return;
    const float2 pair = LOAD;
    room[threadIdx.x * STEP] = pair;
    const float2 back = room[threadIdx.x * STEP];
    y[i] = back.x + pair.y;
}
"""
WIDE, NARROW = "reinterpret_cast<const float2*>(x)[i]", "make_float2(x[2 * i], x[2 * i + 1])"


@pytest.fixture(autouse=True)
def without_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def explained(folder: Path, capsys: pytest.CaptureFixture[str], code: str, *options: str) -> list[str]:
    (folder / "k.cu").write_text(code)
    (folder / "k.toml").write_text(KERNEL)
    told = said_by(capsys, "explain", str(folder / "k.toml"), *options)
    assert told.code == 0, told.err
    return [
        line for line in told.out.splitlines() if line.startswith(("problem  ", "worth", "ok", "addresses"))
    ]


def test_what_lies_side_by_side_is_ok(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = explained(tmp_path, capsys, CODE.replace("STEP", "1").replace("LOAD", WIDE), "--full")
    assert any("requests of warps, as it runs on the CPU at n=" in line for line in lines)
    assert any(line.split()[:3] == ["ok", "memory", "access"] for line in lines)
    assert any(line.split()[:3] == ["ok", "bank", "conflicts"] for line in lines)


def test_strides_and_banks_are_named_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = CODE.replace("STEP", "16").replace("LOAD", NARROW)
    lines = explained(tmp_path, capsys, code.replace("x[2 * i]", "x[2 * (i * 33 % n)]"))
    said = "\n".join(lines)
    assert "k.cu:6 writes shared memory in 32 turns" not in said  # of eight bytes half of the lanes at a time
    assert "k.cu:6 writes shared memory in 16 turns" in said
    assert said.count("k.cu:5 reads x in 32 sectors a warp, where 4 hold the data") == 1  # of its two loads
    assert "k.cu:7" in said and "writes y" not in said


def test_twice_as_much_as_the_data_fill_is_worth_a_try(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = CODE.replace("STEP", "2").replace("LOAD", NARROW)
    said = [" ".join(line.split()) for line in explained(tmp_path, capsys, code)]
    banks, sectors = (
        "k.cu:7 reads shared memory in 2 turns",
        "k.cu:5 reads x in 8 sectors a warp, where 4 hold",
    )
    for about, text in (("bank conflicts", banks), ("memory access", sectors)):
        assert any(line.startswith(f"worth a try {about} {text}") for line in said), said


def test_why_it_was_not_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = CODE.replace("STEP", "1").replace("LOAD", WIDE).replace("return;", '{ asm("exit;"); }')
    lines = explained(tmp_path, capsys, code)
    assert any(line.startswith("addresses") and "not examined: " in line for line in lines)
