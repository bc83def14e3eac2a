"""The programs that call bundles: the one that times them, and the example of the documentation."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.compiled_once import run_once
from tests.cpp_interface import ROOT, STRICT, program_output
from tests.runtime.manifests import product_manifest, write_bundle
from tuner.winners.bundle import bundle_files
from tuner.winners.bundle import write_bundle as write_folder

NVCC = shutil.which("nvcc")

pytestmark = pytest.mark.usefixtures("forked_children")

PROBLEMS = "m=512;n=512;k=512\tinput=bfloat16\tlayout=nt\nm=64;n=32;k=16\tinput=float32\n"


def test_every_problem_has_a_line_of_times(tmp_path: Path) -> None:
    (tmp_path / "problems").write_text(PROBLEMS)
    bundle = write_bundle(tmp_path / "bundle")
    output, once = (
        program_output("measure", bundle, tmp_path / "problems", *more) for more in ((), ("once",))
    )
    lines = [json.loads(line) for line in output.splitlines()]
    for each in (lines, [json.loads(line) for line in once.splitlines()]):
        assert [line["configuration"].split()[0] for line in each] == ["split", "plain"]
    assert all(min(line[key] for key in ("cold_ms", "host_us", "kernel_us")) > 0 for line in lines)


@pytest.mark.skipif(not (shutil.which("cmake") and NVCC), reason="needs CMake and the toolkit")
def test_the_example_builds_with_cmake_and_a_bundle_that_was_moved(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs" / "examples" / "cpp", tmp_path / "source")
    write_folder(
        tmp_path / "made", bundle_files({**product_manifest(), "kernel": "gemm"}, {}, {}), force=False
    )
    (tmp_path / "made").rename(tmp_path / "gemm_bundle")
    (tmp_path / "build").mkdir()
    steps = 'cmake -S source -B build -DCMAKE_PREFIX_PATH="$PWD/gemm_bundle" -DCMAKE_CXX_FLAGS="$3"'
    compiler = shutil.which("clang++") or shutil.which("g++")  # which takes twice as long
    steps += f" -DCMAKE_CXX_COMPILER={compiler} && cmake --build build"
    flags, tools = " ".join(STRICT[1:]), [str(tool) for tool in (shutil.which("cmake"), compiler, NVCC)]
    done = run_once("sh", "-c", steps, *tools, flags, folder=tmp_path, output="build/product")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert (tmp_path / "build" / "product").is_file()
