"""What ``tune init`` reads from a source's own headers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.init_sources import init, launch
from tests.commands import said_by

pytestmark = pytest.mark.usefixtures("in_empty_folder")


def test_a_kernel_in_a_header_of_the_program_is_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With what the program declares before it, and the structs of other headers."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "span.h").write_text(
        "#pragma once\nnamespace of { struct Span { int n; float by; }; }\n"
    )
    (tmp_path / "parts" / "scale.cuh").write_text(
        """\
#ifndef SCALE_CUH
#define SCALE_CUH 1
#include "span.h"
template <int TILE> __global__ void scale(const float* x, float* y, const of::Span span) {
    const int first = (blockIdx.x * blockDim.x + threadIdx.x) * TILE;
    for (int t = 0; t < TILE; ++t) if (first + t < span.n) y[first + t] = span.by * twice(x[first + t]);
}
#endif
"""
    )
    data, said = init(
        capsys,
        """\
#include <vector>
__device__ float twice(float x) { return 2 * x; }
#include "parts/scale.cuh"
int main() {
    of::Span span = {atoi(argv[1]), 1.5f};
    scale<4><<<span.n / 1024, 256>>>(x, y, span);
}
""",
    )
    assert (launch(data)["template"], launch(data)["entry"]) == ("kernel.cu", "scale<{{ TILE }}>")
    assert list(data["variants"]["main"]["parameters"]) == ["TILE", "block_size"], said.out
    assert (data["problem"]["sizes"], data["scalars"]["span_by"]["value"]) == ({"span_n": "2**24"}, 0.5)
    source = said_by(capsys, "render", "kernel.toml").out
    assert "float twice" in source and "main()" not in source and "#define TILE" not in source


def test_headers_of_another_folder_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What one would define is not tuned instead; the file has the folder for all other commands."""
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "shape.h").write_text("#define TILE 16\n")
    source = """\
#include "shape.h"
#include <cuda_runtime.h>
#include <vector>
__global__ void scale(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = TILE * x[i];
}
"""
    data, said = init(capsys, source)
    assert "TILE" in data["variants"]["main"]["parameters"] and "compile" not in data
    assert "shape.h not found" in said.err and "-I FOLDER" in said.err and "vector" not in said.err
    data, said = init(capsys, source, "-I", "common", "--force")
    assert list(data["variants"]["main"]["parameters"]) == ["block_size"] and "not found" not in said.err
    assert data["compile"]["include"] == ["common"]
    assert "kernel.cu" not in said_by(capsys, "check", "kernel.toml", "--configurations", "1").out
    absent = said_by(capsys, "init", "kernel.cu", "-I", "nowhere")
    assert absent.code == 2 and "nowhere" in absent.err
