"""`tune check` finds each planted fault of a variant: rendered, compiled, and run on the CPU."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.commands import said_by
from tests.inspect.check.planted import Fault, finds, planted, with_variants
from tuner.inspect.emulator import building
from tuner.inspect.emulator.building import COMPILER, NotForHost, machine
from tuner.inspect.emulator.host import HostArray, HostKernel, Schedule

pytestmark = pytest.mark.usefixtures("forked_children")


ROOT = Path(__file__).parents[3]


TOML, PLAIN, STAGED, REFERENCE = "blend.toml", "blend.cu", "staged.cu.j2", "blend_reference.cu"


ROWS = 'shape = ["rows"], dtype = "input"'


ARGUMENTS = 'arguments = ["x", "bias", "out", "scale", "columns"]'
CONSTRAINT = "block_size * items <= columns"
FLOAT = '{ value = "columns", dtype = "float32" }'
OF_VARIANTS = [
    Fault("sum", TOML, CONSTRAINT, "block_size + items", "block_size + items", "no condition"),
    Fault("never", TOML, CONSTRAINT, "block_size > columns + 9999", "9999", "no valid"),
    Fault("chosen", TOML, CONSTRAINT, "items == 4", "items == 4", "default of .* breaks"),
    Fault(
        "block",
        TOML,
        'block = ["block_size"]',
        'block = ["32 * block_size"]',
        "32 *",
        "launched: block of 4096",
    ),
    Fault("grid", TOML, '"ceil_div(columns, width)"', '"columns // 2**20"', "2**20", "= 0"),
    Fault("rows", TOML, 'width)", "rows"]', 'width)", "64 * rows"]', "64 * rows", "launched: grid of 65536"),
    Fault("threads", TOML, '["width"]', '["width", "64"]', '"width", "64"', "a block of 2048 threads"),
    Fault("shared", TOML, '"4 * width"', '"width * 2**20"', "2**20", "shared memory"),
    Fault("gpu", TOML, '"cc >= 75"', '"cc >= 990"', "cc >= 990", "no known GPU"),
    Fault(
        "parameter", TOML, "items = {", "some = { values = [1, 2] }\nitems = {", "some =", "parameter some"
    ),
    Fault("scratch", TOML, "scaled = {", f"other = {{ {ROWS} }}\nscaled = {{", "other = {", "scratch other"),
    Fault("output", TOML, '"out", "columns"]', '"scaled", "columns"]', "launches]]", "gets the output out"),
    Fault("count", TOML, ARGUMENTS, ARGUMENTS[:-1] + ', "rows"]', '"rows"]', "takes 5 parameters.*passes 6"),
    Fault(
        "real",
        TOML,
        ARGUMENTS,
        ARGUMENTS.replace('"columns"', FLOAT),
        FLOAT,
        "argument 5 .*integer; give it as .*int32",
    ),
    Fault("entry", TOML, 'entry = "blend"', 'entry = "blemd"', "launches]]", "blemd"),
    Fault("code", PLAIN, "const int column =", "const int colunm =", "column < columns", "column"),
    Fault("source", STAGED, "to_float(bias[column])", "to_flaot(bias[column])", "to_flaot", "to_flaot"),
    Fault("half", PLAIN, "float(bias[column])", "bias[column] + 0.5", "0.5", r"operator.*float16"),
    Fault(
        "host",
        STAGED,
        '{% include "common/types.cuh.j2" %}',
        '#include <blas.h>\n{% include "common/types.cuh.j2" %}',
        "<blas.h>",
        "between #ifndef __CUDACC_RTC__",
    ),
    Fault("cudas", PLAIN, "<cuda_fp16.h>", "<cuda_fp61.h>", "<cuda_fp61.h>", "comes with a CUDA toolkit"),
    Fault(
        "texture",
        PLAIN,
        "const int column =",
        "texture<float> old; const int column =",
        "texture<float>",
        "no texture references any more; let the kernel read by a pointer",
    ),
    Fault(
        "letters", PLAIN, "const int column =", "int größe; const int column =", "größe", "the letters a to z"
    ),
    Fault("macro", PLAIN, "int columns)", "int items)", "int items)", "items is a macro here"),
    Fault(
        "closure",
        PLAIN,
        "const int column =",
        "auto f = [] __device__ { return items; }; const int column =",
        "__device__ {",
        r"annotation on lambda .*; leave it out: a lambda of a kernel is the device's( \(|$)",
    ),
    Fault(
        "cluster",
        PLAIN,
        "__global__ void",
        "__global__ void __cluster_dims__(2, 1, 1)",
        "__cluster_dims__",
        r"give the variant requires = \"cc >= 90\"",
    ),
    Fault("jinja", STAGED, "{{ width }} - 1", "{{ wdith }} - 1", "wdith", "wdith"),
]
"""Found by compiling."""

ON_CPU = [
    Fault("edge", PLAIN, "if (column < columns) {", "{", "variants.", "array|wrong", TOML),
    Fault(
        "input",
        PLAIN,
        "const long long row",
        "const_cast<input_type*>(x)[0] = 1;\n    const long long row",
        "variants.",
        "input x is written",
        TOML,
    ),
    Fault(
        "waits",
        STAGED,
        "__syncthreads();",
        "if (threadIdx.x < 5) { __syncthreads(); } else { __syncwarp(); }",
        "variants.",
        "a standstill: ",
        TOML,
    ),
    Fault(
        "added",
        PLAIN,
        "out[row * columns + column] =",
        "out[row * columns + column] = float(out[row * columns + column]) +",
        "variants.",
        'role = "inout"',
        TOML,
    ),
    Fault("lost", STAGED, "i < count", "i < count - 1", "variants.", "is nan", TOML),
]
"""Found by running it."""


def of_variant(lines: list[str], kernel: Path) -> set[str]:
    """Return the variants in whose part of the file, or of whose templates, findings are."""
    names, text = set(), kernel.read_text().splitlines()
    for line in lines:
        file, number = line.split(":")[:2]
        if file == str(kernel):
            before = (re.match(r"\[+variants\.(\w+)", one) for one in text[: int(number)])
            names.add([match[1] for match in before if match][-1])
        else:
            names.add(Path(file).name.split("_")[0])
    return names


@pytest.mark.parametrize("on_cpu", [False, True], ids=["compiled", "run"])
def test_faults_of_variants(on_cpu: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All at once, a variant for each: every one is found, and nothing is found in the right variants."""
    if on_cpu and COMPILER is None:
        pytest.skip("no g++")
    faults = ON_CPU if on_cpu else OF_VARIANTS
    kernel = with_variants(tmp_path, faults)
    more = [] if on_cpu else ["--no-cpu"]
    said = said_by(capsys, "check", str(kernel), "--configurations", "1", "--cc", "80", "-j", "1", *more)
    lines = said.out.splitlines()
    assert said.code == 1
    missed = []
    for fault in faults:
        template = PLAIN if fault.file == PLAIN else STAGED
        file = kernel if TOML in (fault.file, fault.found_in) else tmp_path / f"{fault.name}_{template}"
        if not finds(lines, file, fault):
            missed.append(fault.name)
    assert not missed, f"{missed}\n{said.out}{said.err}"
    assert of_variant(lines, kernel) == {fault.name for fault in faults}, said.out + said.err


def test_a_compiler_that_is_killed_has_a_second_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if COMPILER is None:
        pytest.skip("no g++")
    machine()
    compiler, mark = tmp_path / "g++", tmp_path / "tried"
    compiler.write_text(f"#!/bin/sh\nif mkdir '{mark}'; then kill -9 $$; fi\nexec '{COMPILER}' \"$@\"\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(building, "COMPILER", str(compiler))
    HostKernel('extern "C" __global__ void one(float* x) { x[0] = 1; }', "one", tmp_path / "right")
    assert mark.is_dir()
    compiler.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(NotForHost, match="status 3"):
        HostKernel("", "one", tmp_path / "wrong")


def test_without_a_compiler_that_works_the_rest_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> Path:
        raise NotForHost("k.cpp:1: fatal error:\n  No space left on device")

    monkeypatch.setattr(building, "machine", full)
    said = said_by(capsys, "check", str(planted(tmp_path)), "--configurations", "1", "--cc", "80", "-j", "1")
    assert said.code == 0, said.out + said.err
    assert "nothing was run on the CPU: k.cpp:1: fatal error: No space left on device\n" in said.err


def test_functions_of_cuda_are_there_on_the_cpu(tmp_path: Path) -> None:
    if COMPILER is None:
        pytest.skip("no g++")
    right = {
        "warpSize": 32, "__brev(1u)": 2**31, "__clzll(1)": 63, "__ffsll(8)": 4, "__mulhi(1 << 30, -4)": -1,
        "make_ulong4(1, 2, 3, 4).w": 4, "CUDART_VERSION >= 9000": 1, "__CUDACC_VER_MAJOR__ >= 9": 1,
        "__fma_rn(2.0, 3.0, 4.0)": 10, "__dsqrt_rn(9.0)": 3, "__float2uint_rn(2.5f)": 2,
        "signbit(-1.0f)": 1, "dim3(1, 2).y": 2, "uint3(blockDim).x": 1,
        "__float2uint_rz(-1.5f)": 0, "__float2int_rn(3e9f)": 2**31 - 1, "__double2ll_rd(-1e30)": -(2**63),
        "__float2int_rz(NAN)": 0, "__double2int_rz(NAN)": -(2**31),
    }  # fmt: skip
    lines = "".join(f"y[{number}] = {text};\n" for number, text in enumerate(right))
    first = "#define block_size 256\n#include <random>\n#include <iostream>\n"  # <random> has the name, too
    source = f'{first}extern "C" __global__ void values(double* y) {{ {lines} }}'
    y = HostArray(len(right), "float64", 8)
    HostKernel(source, "values", tmp_path)(1, 1, 0, Schedule(), y)
    assert list(y.numbers) == list(right.values())


def test_what_does_not_compile_or_fit_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = [fault for fault in OF_VARIANTS if fault.name in ("jinja", "count")]
    kernel = planted(tmp_path, *faults)
    said = said_by(capsys, "check", str(kernel), "--configurations", "1", "--cc", "80", "-j", "1")
    lines = said.out.splitlines()
    assert len(lines) == 2
    assert all(sum(bool(re.search(fault.says, line)) for line in lines) == 1 for fault in faults)
    assert "emulator" not in said.err


def test_a_variant_that_no_small_problem_suits_is_said_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right, wrong = '"ceil_div(columns, width)"', '"rows * columns // 2097152"'
    file = planted(tmp_path, Fault("grid", TOML, right, wrong, "", ""))
    said = said_by(capsys, "check", str(file), "--configurations", "1", "--cc", "80", "-j", "1")
    (note,) = [line for line in said.err.splitlines() if "was not run" in line]
    assert "rows * columns // 2097152 = 0" in note


def rms_norm_with(folder: Path, condition: str) -> Path:
    """Return a copy of the example with another constraint of its variant vectors."""
    shutil.copytree(ROOT / "docs" / "examples" / "rms_norm", folder, dirs_exist_ok=True)
    file = folder / "rms_norm.toml"
    file.write_text(file.read_text().replace('"columns % vector_width == 0"', f'"{condition}"'))
    return file


@pytest.mark.parametrize("condition", ["columns % vector_width", "columns // 1024"])
def test_a_constraint_whose_value_is_0_or_1_is_no_condition(
    condition: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = rms_norm_with(tmp_path, condition)
    said = said_by(capsys, "check", str(file), "--configurations", "1", "--cc", "90", "--no-cpu")
    (line,) = said.out.splitlines()
    number = 1 + file.read_text().split(condition)[0].count("\n")
    assert line.startswith(f"{file}:{number}: ") and f"{condition!r} is no condition" in line


def test_a_variant_that_only_a_size_of_1_suits_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = rms_norm_with(tmp_path, "columns % vector_width == 1")
    said = said_by(capsys, "check", str(file), "--configurations", "1", "--cc", "90", "--no-cpu")
    assert "vectors is checked at rows=8192 columns=1" in said.err and "whole vectors" in said.err
