"""From a CUDA source alone to a winner, by ``tune init``, ``tune check`` and ``tune``, on a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.init_sources import GATHER, STENCIL, TILED, VOLUME, WARPS

PROGRAM = """
#include <cstdio>
#include <cuda_runtime.h>
#define CHECK(call) if ((call) != cudaSuccess) { printf("failed\\n"); return 1; }
__constant__ float factors[3];
__global__ void blend(const float* x, float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        y[i] = factors[0] + factors[1] * x[i] + factors[2] * x[i] * x[i];
}
int main() {
    const int n = 1 << 22;
    float *x, *y;
    CHECK(cudaMalloc(&x, n * sizeof(float)));
    CHECK(cudaMalloc(&y, n * sizeof(float)));
    blend<<<(n + 255) / 256, 256>>>(x, y, n);
}
"""


@pytest.mark.parametrize("text", [STENCIL, TILED, WARPS, VOLUME, GATHER, PROGRAM])
def test_three_commands_lead_to_a_winner(text: str, tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text(text)
    for words in (
        ("init", "kernel.cu"),
        ("check", "kernel.toml", "--configurations", "2", "--cc", "90"),
        ("kernel.toml", "--trials", "12"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "tuner", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "winner" in done.stdout
    assert "checked against the default only" in done.stdout
