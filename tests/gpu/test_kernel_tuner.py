"""Kernel Tuner's scripts on a GPU: answers, the first configuration as reference, functions that judge, host code."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuner.compat.kernel_tuner as kernel_tuner
import tuner.compat.pycuda_driver as drv
from tests.compat.test_kernel_tuner import ARGUMENTS, PARAMETERS, SCALE, N, X

DIVIDED = {"grid_div_x": ["block_size_x", "tile"]}
WRONG = SCALE.replace("by * x[j]", "by * x[j] + (tile == 2 && j == 77)")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("how", [{"answer": [3 * X, None, None, None]}, {}])
def test_a_wrong_configuration_is_not_the_best(how: dict[str, Any]) -> None:
    results, env = kernel_tuner.tune_kernel("scale", WRONG, N, ARGUMENTS, PARAMETERS, **DIVIDED, **how)
    wrong = {one["tile"] for one in results if one.get("status") == "wrong_result"}
    assert wrong == {2} and env["best_config"]["tile"] == 1
    assert env["checked_against"] == ("reference" if how else "default")


def test_parameters_that_change_what_is_computed(capsys: pytest.CaptureFixture[str]) -> None:
    source = SCALE.replace("by * x[j]", "block_size_x * x[j]")
    results, env = kernel_tuner.tune_kernel(
        "scale", source, N, ARGUMENTS, {**PARAMETERS, "tile": [1]}, **DIVIDED
    )
    assert all("time" in one for one in results) and env["checked_against"] == "nothing"
    assert "give other results than the first; so they are timed" in capsys.readouterr().out


def test_a_function_judges_what_one_launch_writes() -> None:
    params = {"block_size_x": 64, "tile": 2, "loop_unroll_factor": 0}
    after = kernel_tuner.run_kernel("scale", SCALE, N, ARGUMENTS, params, **DIVIDED)
    assert np.array_equal(after[0], 3 * X) and np.array_equal(after[1], X) and not ARGUMENTS[0].any()
    _, env = kernel_tuner.tune_kernel(
        "scale",
        WRONG,
        N,
        ARGUMENTS,
        PARAMETERS,
        **DIVIDED,
        verify=lambda _, after: np.allclose(after[0], 3 * X),
    )
    assert env["best_config"]["tile"] == 1


HOST = """
__constant__ float factor[1];
__global__ void kernel(float *x, int n) {
    int i = blockIdx.x * block_size_x + threadIdx.x;
    if (i < n) x[i] *= factor[0];
}
extern "C" float scaled(float *x, float *by, int n) {
    cudaEvent_t start, stop;
    float time;
    cudaEventCreate(&start);
    cudaEventCreate(&stop);
    cudaMemcpyToSymbol(factor, by, sizeof(float));
    cudaEventRecord(start);
    kernel<<<grid_size_x, block_size_x>>>(x, n);
    cudaEventRecord(stop);
    cudaDeviceSynchronize();
    cudaEventElapsedTime(&time, start, stop);
    return cudaGetLastError() ? -1 : time;
}
"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_host_code_with_page_locked_memory() -> None:
    x = drv.pagelocked_empty(N, np.float32)
    np.copyto(x, X)
    results, env = kernel_tuner.tune_kernel(
        "scaled", HOST, N, [x, np.array([3], np.float32), np.int32(N)], {"block_size_x": [64, 128, 2048]},
        lang="C", answer=[3 * X, None, None], compiler_options=["-arch=sm_52"],
    )  # fmt: skip
    assert {one["block_size_x"] for one in results if "time" in one} == {64, 128}
    assert 0 < env["best_config"]["time"] < 10
