"""Which configurations `tune check` runs on the CPU, and when; what it says to do about an access outside of an array,
and of tensors beyond all GPUs and parameters that were not compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import said_by
from tests.inspect.check.planted import FILE_ALONE, findings
from tuner.inspect.check import check
from tuner.inspect.emulator.building import COMPILER

pytestmark = [
    pytest.mark.usefixtures("forked_children"),
    pytest.mark.skipif(COMPILER is None, reason="no g++"),
]
KERNEL = """\
reference.numpy = "2 * x"
kernel = { name = "twofold" }
problem.sizes = { n = 4096 }
problem.dtypes = { input = "float32" }
tensors.x = { shape = ["n"], dtype = "input" }
tensors.y = { shape = ["n"], dtype = "input", role = "output" }
variants.v.parameters.block = { values = [32, 64, 96, 128, 160, 192], default = 128 }
variants.v.parameters.fast = { values = [0, 1] }
[[variants.v.launches]]
template = "twofold.cu"
entry = "twice"
arguments = ["x", "y", "n"]
grid = ["ceil_div(n, block)"]
block = ["block"]
"""
CODE = """\
extern "C" __global__ void twice(const float* x, float* y, int n) {
    const int i = blockIdx.x * block + threadIdx.x;
    if (i < n) y[i] = (fast ? 2 : 2) * x[i];
}
"""
GUARD = "if (i < n) "
ONE = ("--cc", "80", "-j", "1")


def written(folder: Path, code: str, text: str = KERNEL) -> str:
    assert code != CODE or text != KERNEL
    (folder / "twofold.cu").write_text(code)
    (folder / "twofold.toml").write_text(text)
    return str(folder / "twofold.toml")


@pytest.mark.parametrize("asked", [("--seed", "1"), ("--configurations", "all")])
def test_each_value_of_each_parameter_is_run(
    asked: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, CODE.replace("fast ? 2", "fast ? 3"))
    code, (line,) = findings(capsys, file, *ONE, *asked)
    assert code == 1 and "elements are wrong, at n=" in line and "fast=1" in line
    if "--seed" in asked:
        assert findings(capsys, file, *ONE, *asked) == (code, [line])


def test_a_value_that_few_configurations_have_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spread = "".join(f"variants.v.parameters.p{i} = {{ values = [1, 2] }}\n" for i in range(2))
    seldom = 'variants.v.constraints."seldom" = "not fast or (block == 96 and p0 + p1 == 4)"\n'
    text = KERNEL.replace("[[", f"{spread}{seldom}[[")
    file = written(tmp_path, CODE.replace("fast ? 2", "fast * p0 * p1 ? 3"), text)
    _, lines = findings(capsys, file, *ONE)
    assert any("elements are wrong, at n=" in line and "fast=1" in line for line in lines), lines


def test_of_many_values_some_are_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = ", ".join(str(32 * k) for k in range(1, 10))
    text = KERNEL.replace("32, 64, 96, 128, 160, 192", values).replace("[0, 1]", "[0]")
    said = said_by(capsys, "check", written(tmp_path, CODE, text), *ONE, "--configurations", "all")
    assert said.code == 0 and "9 compilations" in said.err and "; 8 runs on the CPU" in said.err


def test_what_is_wrong_in_the_default_is_found_before_the_others_are_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, CODE.replace("2 : 2", "2 : 3"))
    said = said_by(capsys, "check", file, *ONE)
    assert said.code == 1 and "elements are wrong, at n=" in said.out and "block=128 fast=0" in said.out
    assert "1 compilation for" in said.err and "only the first configuration was compiled" in said.err

    def stopped(*_: object) -> set[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(check, "check_compiling", stopped)
    assert "elements are wrong, at n=" in said_by(capsys, "check", file, *ONE).out


def test_what_does_not_fit_is_said_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = KERNEL.replace('"x", "y", "n"', '"y", "x", "n"').replace(
        'tensors.x = { shape = ["n"], dtype = "input"', 'tensors.x = { shape = ["n"], dtype = "int8"'
    )
    code, (line,) = findings(capsys, written(tmp_path, CODE, text), *ONE)
    assert code == 1 and "argument 2 of twice is the tensor x of int8" in line


def test_an_access_outside_of_an_array_names_the_constraint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = CODE.replace(GUARD, "")
    constraint = '"n is a whole number of blocks" = "n % block == 0"'
    _, (line,) = findings(capsys, written(tmp_path, code), *ONE)
    assert line.endswith(f"; guard it, or exclude such sizes by a constraint: {constraint}")
    items = KERNEL.replace("ceil_div(n, block)", "ceil_div(n, block * (1 + fast))")
    _, (line,) = findings(capsys, written(tmp_path, code, items), *ONE)
    assert line.endswith('"n % (block * (1 + fast)) == 0"')
    for grid, sizes in (("n // block + 1", "4096"), ("ceil_div(n, block)", "4097")):  # which it would exclude
        text = KERNEL.replace("ceil_div(n, block)", grid).replace("4096", sizes)
        _, (line,) = findings(capsys, written(tmp_path, code, text), *ONE)
        assert line.endswith("; guard it, or exclude such sizes by a constraint of the variant")
    right = KERNEL.replace("[[", f"variants.v.constraints.{constraint.replace(' = ', '=', 1)}\n[[")
    assert findings(capsys, written(tmp_path, code, right), *ONE) == (0, [])


def test_indices_that_may_be_meant_come_behind_the_guard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = CODE.replace(GUARD, "").replace("float* y,", "float* y, const int* image,")
    text = KERNEL.replace('"y", "n"', '"y", "image", "n"').replace(
        "tensors.y", 'tensors.image = { shape = ["n"], dtype = "int32" }\ntensors.y'
    )
    _, lines = findings(capsys, written(tmp_path, code, text), *ONE)
    (line,) = (line for line in lines if "outside an array" in line)
    assert line.index("guard it") < line.index("constraint") < line.index("if image has indices")


@pytest.mark.parametrize(
    ("was", "now", "key"),
    [
        ('block)"]', 'block)"]  # TODO: of n threads', "grid"),
        ("grid = ", "# TODO: of n threads\ngrid = ", "grid"),
        ('dtype = "input" }\ntensors.y', 'dtype = "input" }  # TODO\ntensors.y', "tensors.x"),
        ('["block"]', '["block"]  # TODO', "block"),
    ],
)
def test_a_line_that_is_a_guess_is_named_first(
    was: str, now: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = KERNEL.replace(was, now)
    number = next(i for i, of in enumerate(text.splitlines(), 1) if of.startswith(f"{key} = "))
    _, (line,) = findings(capsys, written(tmp_path, CODE.replace(GUARD, ""), text), *ONE)
    assert f"correct line {number}, marked TODO; else guard it, or " in line


def test_a_guess_is_named_where_a_result_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = KERNEL.replace('block)"]', 'block) - 1 + (n <= block)"]  # TODO: blocks')
    assert text != KERNEL
    number = next(i for i, of in enumerate(text.splitlines(), 1) if of.startswith("grid = "))
    _, (line,) = findings(capsys, written(tmp_path, CODE, text), *ONE)
    assert f"correct line {number}, marked TODO" in line and "outside an array" not in line


def test_tensors_that_no_gpu_holds_are_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    large = KERNEL.replace("n = 4096", 'n = "2**24"').replace('["n"]', '["n", 1024]')
    code, (line,) = findings(capsys, written(tmp_path, CODE, large), *FILE_ALONE)
    assert code == 1 and ":3: " in line and "137.4 GB" in line and line.endswith("; make the sizes smaller")
    preset = KERNEL.replace("tensors.x", 'problem.presets.large = { n = "2**40" }\ntensors.x', 1)
    code, lines = findings(capsys, written(tmp_path, CODE, preset), *FILE_ALONE)
    assert code == 1 and any(":5: " in line and "8.796 TB" in line for line in lines)
    assert findings(capsys, written(tmp_path, CODE, KERNEL + "\n"), *FILE_ALONE) == (0, [])


def test_why_parameters_were_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = (*ONE, "--configurations", "1", "--no-cpu")
    said = said_by(capsys, "check", written(tmp_path, f"#define short int\n{CODE}"), *alone)
    assert said.code == 0 and "parameters were not compared: " in said.err
    assert "has already been defined" in said.err and "stands for several" not in said.err
    (tmp_path / "host.h").write_text(
        "#include <chrono>\nstruct Watch { std::chrono::steady_clock::time_point t; };\n"
    )
    said = said_by(capsys, "check", written(tmp_path, f'#include "host.h"\n{CODE}'), *alone)
    assert said.code == 0 and "parameters were not compared" not in said.err
    several = CODE.replace("if (i < n)", "if (n < 0) twice(y); else if (i < n)").replace('extern "C" ', "")
    template = several.replace("block +", "{{ block }} +").replace("fast", "{{ fast }}")
    (tmp_path / "twofold.cu.j2").write_text(f"__device__ void twice(float* y) {{ *y = 0; }}\n{template}")
    file = written(tmp_path, several, KERNEL.replace("twofold.cu", "twofold.cu.j2"))
    said = said_by(capsys, "check", file, *alone)
    assert "parameters were not compared: its entry stands for several kernels" in said.err
