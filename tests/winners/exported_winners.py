"""Winners as a database has them, and what a header made of them needs to compile."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.compiled_once import run_once
from tuner.core.errors import TunerError
from tuner.core.model import Configuration, Gpu, Problem, Run, RunOptions, Status, Trial, Value
from tuner.database.records import Metrics, StoredWinner, Winner
from tuner.kernel.spec import KernelSpec

COMPILERS = [name for name in ("g++", "clang++") if shutil.which(name)]
FLAGS = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
H200 = Gpu("NVIDIA H200", 90, 132, 60 << 20, 1 << 37, 232448, 233472, driver="580.95")
H100 = replace(H200, name="NVIDIA H100 PCIe", sm_count=114)
A100 = replace(H200, name="NVIDIA A100-SXM4-80GB", cc=80)
DTYPES = {"input": "float16", "accumulate": "float32", "output": "float16"}


def make(
    sizes: dict[str, int],
    block_m: Value,
    gpu: Gpu = H200,
    dtypes: dict[str, str] = DTYPES,
    options: dict[str, Value] | None = None,
    kernel: str = "gemm",
    variant: str = "tiled",
    more: dict[str, Value] | None = None,
    device: str = "cuda:0",
    verdict: str = "faster",
    run_id: str = "f" * 32,
) -> StoredWinner:
    configuration = Configuration.of(variant, {"block_m": block_m, **(more or {})})
    problem = Problem(kernel, sizes, dtypes, {"layout": "nn"} if options is None else options)
    run = Run(run_id, problem, gpu, device, RunOptions(seed=1, sampler="tpe", trials=10))
    trial = Trial(3, configuration, Status.OK, 190_100.0, 189_800.0, 190_400.0, id=12)
    winner = Winner(
        12, configuration, 190_000.0, 1, 240_000.0, 1.263, 1.25, 1.27, verdict, 190_300.0, True, True
    )
    return StoredWinner(trial, run, Metrics(), "2026-11-21T01:02:03.000000Z", id=1, winner=winner)


def cube(n: int) -> dict[str, int]:
    return {"m": n, "n": n, "k": n}


WINNERS = [
    make(cube(4096), 128, more={"double_buffer": True, "raster": "row"}),
    make(cube(512), 64, more={"double_buffer": False, "raster": "128b"}),
    make(cube(4096), 32, options={"layout": "nt"}),
    make(cube(4096), 48, dtypes=dict.fromkeys(DTYPES, "float32")),
    make(cube(1024), 96, gpu=H100),
    make(cube(4096), 80, gpu=A100, device="replay:a100"),
    make({"n": 1 << 40}, 1, kernel="vector_add", dtypes={"input": "float32"}, options={}),
]

needs_compiler = pytest.mark.skipif(not COMPILERS, reason="needs g++ or clang++")


def compile_cpp(folder: Path, *lines: str, flags: list[str] = FLAGS) -> None:
    """Check lines, in front of an empty program, with each compiler that is there."""
    source = folder / "use.cpp"
    source.write_text("\n".join([*lines, "int main() { return 0; }", ""]))
    for compiler in COMPILERS:
        result = run_once(compiler, *flags, "-I.", "-fsyntax-only", "use.cpp", folder=folder)
        assert result.returncode == 0, result.stderr[:3000]


def files_of(*kernels: KernelSpec) -> Callable[[Run], KernelSpec]:
    """Return what finds a run's kernel among some."""
    named = {kernel.name: kernel for kernel in kernels}

    def kernel_of(run: Run) -> KernelSpec:
        if run.problem.kernel not in named:
            raise TunerError(f"no file of {run.problem.kernel}")
        return named[run.problem.kernel]

    return kernel_of


def winner_of(problem: Problem, configuration: Configuration, gpu: Gpu = H200) -> StoredWinner:
    stored = make(problem.sizes, 1, gpu, problem.dtypes, dict(problem.options), problem.kernel)
    return replace(stored, winner=replace(stored.winner, configuration=configuration))


TOKEN = re.compile(
    r"""\#(?:ifndef|define|endif|include <(?:optional|string_view)>)|//[^\n]*|"[A-Za-z0-9 ._,:;()+=/@#*<>!-]*"|"""
    r"""[A-Za-z_][A-Za-z0-9_]*|[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"""
    r"""|::|&&|==|[<>{}()\[\];,:=*&.-]|\n|\s"""
)


def assert_harmless(text: str) -> None:
    """Nothing but known lines, comments and declarations of the shapes that the template has."""
    assert text.isascii()
    assert not re.search(r"[\\\0\r`$@]|\?\?|/\*|\*/", re.sub(r'"[^"\n]*"|//[^\n]*', "", text))
    assert "\\" not in text
    assert "??" not in text
    position = 0
    while position < len(text):
        match = TOKEN.match(text, position)
        assert match, text[position : position + 60]
        position = match.end()
    directives = [line.split()[0] for line in text.splitlines() if line.lstrip().startswith("#")]
    parts = len(directives) // 3
    assert directives == ["#include", "#include", *["#ifndef", "#define", "#endif"] * parts]
    assert parts >= 1
    plain = re.sub(r'"[^"\n]*"|//[^\n]*', "", text)
    assert plain.count("{") == plain.count("}")
