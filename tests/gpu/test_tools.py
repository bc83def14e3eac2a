"""Nsight Compute and Compute Sanitizer on a real GPU, where they are installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.kernels import write_kernel
from tuner.inspect.tools.nvidia import NCU, SANITIZER, Tool, ToolMissingError, find
from tuner.inspect.tools.sanitizer import TOOLS

BEYOND = """\
extern "C" __global__ void scale__{{ fault }}(const float* x, float* y, long long n) {
    const long long i = blockIdx.x * {{ block_size * items }}ll + threadIdx.x;
    __shared__ float tile[{{ block_size }}];
{% if fault == "beyond" %}
    for (int j = 0; j < {{ items }}; ++j) {
        const long long k = i + j * {{ block_size }};
        if (k <= n) y[k] = k < n ? 2.0f * x[k] : 0.0f;
    }
{% elif fault == "race" %}
    for (int j = 0; j < {{ items }}; ++j) {
        const long long k = i + j * {{ block_size }};
        tile[threadIdx.x] = k < n ? x[k] : 0.0f;
        const float other = tile[{{ block_size }} - 1 - threadIdx.x];
        if (k < n) y[k] = 2.0f * tile[threadIdx.x] + 0.0f * other;
    }
{% elif fault == "unwritten" %}
    for (int j = 0; j < {{ items }}; ++j) {
        const long long k = i + j * {{ block_size }};
        if (k + 1 < n) y[k] = 2.0f * x[k];
    }
{% else %}
    for (int j = 0; j < {{ items }}; ++j) {
        const long long k = i + j * {{ block_size }};
        if (k < n) y[k] = 2.0f * x[k];
    }
{% endif %}
}
"""
FAULTS = ("ok", "beyond", "race", "unwritten")


def installed(tool: Tool) -> bool:
    try:
        find(tool)
    except ToolMissingError:
        return False
    return True


needs_ncu = pytest.mark.skipif(not installed(NCU), reason="needs Nsight Compute")
needs_sanitizer = pytest.mark.skipif(not installed(SANITIZER), reason="needs Compute Sanitizer")


def tune(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "tuner", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scale")
    return write_kernel(folder, faults=FAULTS, blocks=(64, 256), items=(1, 4), source=BEYOND)


@needs_ncu
@pytest.mark.parametrize("mode", ["cold", "warm"])
def test_the_figures_are_plausible(tmp_path: Path, mode: str) -> None:
    done = tune(tmp_path, "profile", "vector_add", "--size", "n=2**24", "--mode", mode, "--json")
    if "ERR_NVGPUCTRPERM" in done.stderr or "resource was unavailable" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    (launch,) = (data := json.loads(done.stdout))["launches"]
    figures = launch["figures"]
    assert "vector_add" in launch["kernel"] and Path(tmp_path / data["report"]).stat().st_size > 1000
    missing = [name for name, value in figures.items() if value is None]
    assert set(missing) <= {"bank_conflict_percent", "tensor_percent", "sm_clock_hz"}, missing
    assert 10e3 < figures["duration_ns"] < 10e6
    if mode == "cold":  # twice 64 MiB read, 64 MiB written
        moved = figures["dram_bytes_per_s"] * figures["duration_ns"] * 1e-9
        assert 0.6 * 3 * 2**26 < moved < 1.3 * 3 * 2**26
    assert figures["load_efficiency_percent"] > 99 and figures["local_bytes"] == 0
    assert 0 < figures["achieved_occupancy_percent"] <= figures["theoretical_occupancy_percent"] <= 100
    assert launch["stalls"] and launch["stalls"][0]["reason"] == "long_scoreboard"


@needs_ncu
def test_all_launches_of_a_candidate_are_there(tmp_path: Path) -> None:
    done = tune(
        tmp_path, "profile", "gemm", "--size", "m=256,n=256,k=2048", "--config", "split_k", "--json",
    )  # fmt: skip
    if "ERR_NVGPUCTRPERM" in done.stderr or "resource was unavailable" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["launches"]) == 2


@needs_sanitizer
@pytest.mark.parametrize("tool", TOOLS)
def test_right_kernels_are_clean(tmp_path: Path, kernel: Path, tool: str) -> None:
    done = tune(tmp_path, "sanitize", str(kernel), "--config", "fault=ok items=4", "--tool", tool)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "clean: 3 runs" in done.stdout


@needs_sanitizer
@pytest.mark.parametrize(
    ("tool", "fault", "words"),
    [
        ("memcheck", "beyond", "behind the end of tensor y"),
        ("racecheck", "race", "same shared memory"),
        ("initcheck", "unwritten", "unwritten"),
    ],
)
def test_only_faulty_configurations_have_findings(
    tmp_path: Path, kernel: Path, tool: str, fault: str, words: str
) -> None:
    done = tune(
        tmp_path, "sanitize", str(kernel), "--sample", "16", "--tool", tool, "--at", "n=1000", "--json",
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    verdicts = json.loads(done.stdout)["tools"][tool]["verdicts"]
    assert len(verdicts) == 16
    found = {verdict["parameters"]["fault"] for verdict in verdicts if verdict["findings"]}
    assert found == {fault}
    blamed = [verdict for verdict in verdicts if verdict["parameters"]["fault"] == fault]
    assert all(verdict["findings"] for verdict in blamed)
    assert any(words in finding["text"] for verdict in blamed for finding in verdict["findings"])


@needs_sanitizer
@pytest.mark.parametrize("name", ["vector_add", "gemm"])
def test_built_in_kernels_are_clean(tmp_path: Path, name: str) -> None:
    done = tune(tmp_path, "sanitize", name, "--edges", "2", "--tool", "memcheck,racecheck")
    assert done.returncode == 0, done.stdout + done.stderr
