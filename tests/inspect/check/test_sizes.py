"""`tune check` runs kernels at sizes that they are for, and at which the reference says what is right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.commands import said_by
from tests.inspect.check.planted import findings
from tuner.inspect.emulator.building import COMPILER

pytestmark = [
    pytest.mark.usefixtures("forked_children"),
    pytest.mark.skipif(COMPILER is None, reason="no g++"),
]

KERNEL = """\
kernel = { name = "shifted" }
problem.sizes = { n = 40960 }
problem.dtypes = { input = "float32" }
@PRESET@
tensors.x = { shape = ["n"], dtype = "input" }
tensors.y = { shape = ["n"], dtype = "input", role = "output" }
scalars.known = { dtype = "float32", value = "@KNOWN@" }
reference = { numpy = "x + 1 + 0 / (0 * x + known)" }
work = { bytes = "8 * n" }
variants.v.parameters = { block = { values = [64, 32], default = 64 }, items = { values = [5] } }
variants.v.constraints."the sizes" = "@SIZES@"
[[variants.v.launches]]
template = "shifted.cu"
entry = "shifted"
arguments = ["x", "y", "n"]
grid = ["ceil_div(n, block * items)"]
block = ["block"]
"""
CODE = """\
extern "C" __global__ void shifted(const float* x, float* y, int n) {
    for (int k = 0; k < items; ++k) {
        const int i = (blockIdx.x * items + k) * block + threadIdx.x;
        if (i < n @BUT@) y[i] = x[i] + 1;
    }
}
"""
LOST = "&& k < items - 1"


def kernel(folder: Path, sizes: str, known: str = "1", but: str = LOST) -> str:
    """Write a kernel, of which ``but`` is the fault, and return its file; ``known`` is 0 where there is no answer."""
    path = folder / "shifted.toml"
    preset = "problem.presets.small = { n = 700 }" if "700" in sizes else ""
    path.write_text(KERNEL.replace("@SIZES@", sizes).replace("@KNOWN@", known).replace("@PRESET@", preset))
    (folder / "shifted.cu").write_text(CODE.replace("@BUT@", but))
    return str(path)


ALONE = ("--configurations", "1", "--cc", "80", "-j", "1")


@pytest.mark.parametrize(
    "sizes", ["n % (block * items) == 0", "n % 4096 == 0", "is_pow2(n // 5)", "n == 40960 or n == 700"]
)
def test_a_kernel_of_certain_sizes_is_run_at_them(
    sizes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = findings(capsys, kernel(tmp_path, sizes), *ALONE)
    assert code == 1
    (line,) = lines
    assert "elements are wrong, at n=" in line


def test_a_kernel_of_any_size_is_run_without_a_rest_and_at_presets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a variant for each fault, each is found."""
    path = Path(kernel(tmp_path, "n % 4096 != 9 or n == 700"))
    head, launch = path.read_text().split("[[")
    buts = ("n % (block * items)", "(n < 100 || n & n - 1)", "n != 700", "(n < 3 || n % 4 != 2)", "n % 4096")
    for number, but in enumerate(buts):
        (tmp_path / f"but{number}.cu").write_text(CODE.replace("@BUT@", f"&& {but}"))
        if number:
            lines = [line for line in head.splitlines() if line.startswith("variants.v.")]
            head += "\n".join(lines).replace("variants.v.", f"variants.v{number}.") + "\n"
    path.write_text(
        head
        + "".join(
            f"[[{launch}".replace(".v.", f".v{number or ''}.").replace("shifted.cu", f"but{number}.cu")
            for number in range(len(buts))
        )
    )
    code, lines = findings(capsys, str(path), *ALONE)
    assert code == 1 and len(lines) == len(buts)
    assert all("elements are wrong, at n=" in line for line in lines)


def test_a_size_without_a_right_answer_makes_room_for_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reference is 0/0 at even sizes."""
    said = said_by(capsys, "check", kernel(tmp_path, "n > 0", "n % 2", ""), *ALONE)
    assert said.code == 0 and "1 run on the CPU at 8 sizes" in said.err


def test_a_kernel_that_is_compared_at_no_size_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kernel(tmp_path, "n > 64", "1 if n < 20 else 0")
    said = said_by(capsys, "check", path, *ALONE)
    assert "was compared at NO size: the reference of y is not a number" in said.err


def test_a_size_that_the_source_fixes_is_free_under_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(kernel(tmp_path, "n == 81920000"))
    code = CODE.replace(", int n", "").replace("n @BUT@", "LENGTH")
    (tmp_path / "shifted.cu").write_text("#define LENGTH 81920000\n" + code)
    text = path.read_text().replace("40960", "81920000").replace('"y", "n"', '"y"')
    path.write_text(text)
    said = said_by(capsys, "check", str(path), *ALONE)
    remedy = "a size of the name LENGTH takes the place of the source's number"
    assert remedy in said.err
    path.write_text(text.replace("== 81920000", "> 0"))
    assert remedy in said_by(capsys, "check", str(path), *ALONE).out
    path.write_text(re.sub(r"\bn\b", "LENGTH", text.replace("== 81920000", "> 0")))
    said = said_by(capsys, "check", str(path), *ALONE)
    assert said.code == 0 and "shifted.cu: the problem's LENGTH takes the place of its own number" in said.err
    assert "1 run on the CPU at " in said.err


@pytest.mark.parametrize(
    ("declared", "fixed"),
    [
        ("constexpr std::size_t n = 40;", False),
        ("constexpr long long n = 0x2'8;", False),
        ("constexpr int n{40};", False),
        ("enum { n = 40 };", True),
        ("namespace of { constexpr int n = 40; } using namespace of;", True),
        ("#define n (TEN * 4)\n#define TEN 10", True),
        ("__constant__ int n = 40;", True),
        ("__device__ int f() { const int n = 40; return n; }", False),
    ],
)
def test_a_number_of_the_sources_own_makes_room_or_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], declared: str, fixed: bool
) -> None:
    path = Path(kernel(tmp_path, "n > 0"))
    (tmp_path / "shifted.cu").write_text(f"{declared}\n{CODE.replace(', int n', '').replace('@BUT@', '> i')}")
    path.write_text(path.read_text().replace('"y", "n"', '"y"'))
    told = said_by(capsys, "check", str(path), *ALONE, "--no-cpu")
    assert ("shifted.cu: n is what it says there, whatever the problem is" in told.err) == fixed
    replaced = "shifted.cu: the problem's n takes the place of its own number"
    assert (replaced in told.err) == (not fixed and "return n" not in declared)
