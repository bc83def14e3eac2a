"""The programs that call bundles: the one that times them, and the example of the documentation."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.bundles import write_bundle
from tests.cpp_interface import ROOT, STRICT, compiled, output_of
from tests.test_cpp_bundles import bundle_of

PROBLEMS = """m=512 n=512 k=512 | input=bfloat16 | layout=nt
m=64 n=32 k=16 | input=float32
"""


def test_every_problem_has_a_line_of_times(tmp_path: Path) -> None:
    program = compiled(ROOT / "scripts" / "cpp" / "measure.cpp", tmp_path / "measure", "-O1")
    (tmp_path / "problems").write_text(PROBLEMS)
    output = output_of(program, write_bundle(tmp_path / "bundle"), tmp_path / "problems")
    lines = [json.loads(line) for line in output.splitlines()]
    assert [line["configuration"].split()[0] for line in lines] == ["split", "plain"]
    assert all(min(line[key] for key in ("cold_ms", "host_us", "kernel_us")) > 0 for line in lines)


@pytest.mark.skipif(
    not (shutil.which("cmake") and shutil.which("nvcc")), reason="needs CMake and the toolkit"
)
def test_the_example_builds_with_cmake(tmp_path: Path) -> None:
    source, build = ROOT / "docs" / "examples" / "cpp", tmp_path / "build"
    bundle = bundle_of("gemm", tmp_path, varied_too=False)
    flags = f"-DCMAKE_CXX_FLAGS={' '.join(STRICT[1:])}"
    for command in (
        ["cmake", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={bundle}", flags],
        ["cmake", "--build", build],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert (build / "product").is_file()
