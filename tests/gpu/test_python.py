"""``tuner.tune`` on a GPU: from an empty folder to a kernel that is called."""

from __future__ import annotations

import importlib.util
import os
import runpy
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuner
from tests.api.conftest import STENCIL, STENCIL_CALL

pytestmark = pytest.mark.gpu

ALONE = "PYTEST_XDIST_WORKER" not in os.environ
"""Whether no other test uses the GPU and the processors at the same time."""
N = 1 << 20
X = np.random.default_rng(0).standard_normal(N).astype(np.float32)
CALL = {name: STENCIL_CALL[name] for name in ("params", "grid", "block", "where")}


def smoothed(x: np.ndarray) -> np.ndarray:
    padded = np.pad(x, 1, mode="edge")
    return 0.5 * x + 0.25 * (padded[:-2] + padded[2:])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_five_lines() -> None:
    began = time.monotonic()
    y = np.zeros_like(X)
    result = tuner.tune(STENCIL, [X, y, N], **CALL, reference=lambda x: smoothed(x), trials=20)
    assert not ALONE or time.monotonic() - began < 20.0  # with the calibration of a card that is new
    assert result.confirmed, result.verdict
    assert result.checked_against == "reference"
    assert not y.any()
    assert result(X, y, N) is y
    np.testing.assert_allclose(y, smoothed(X), rtol=1e-5, atol=1e-6)


def test_a_slow_function_of_the_caller_is_asked_a_few_times(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The README's example with a lambda: it is asked for each content of its size twice, and twice more in all."""
    example = Path(__file__).parents[2] / "docs" / "examples" / "matmul" / "tune.py"
    asked, began = list[int](), 0.0

    def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        asked.append(len(a))
        return a @ b

    def tune(*args: Any, **given: Any) -> tuner.Result:
        del given["reduction"]
        tuner.tune("vector_add", trials=1)  # a card that is new is calibrated
        nonlocal began
        began = time.monotonic()
        jobs = len(os.sched_getaffinity(0))  # as many as a user has
        return real(*args, **{**given, "jobs": jobs, "reference": lambda a, b: product(a, b)})

    real = tuner.tune
    (folder / "matmul.cu").write_bytes(example.with_name("matmul.cu").read_bytes())
    monkeypatch.setattr(
        tuner, "tune", lambda *a, **k: real(*a, **k) if a[0] == "vector_add" else tune(*a, **k)
    )
    result = runpy.run_path(str(example))["r"]
    seconds = time.monotonic() - began
    with capsys.disabled():
        print(f"\n{seconds:.1f} s, {len(asked)} calls, {asked.count(2048)} of them at 2048\n{result}")
    assert result.confirmed, result.verdict
    assert not {"wrong_result", "unverified"} & {trial["status"] for trial in result.trials}
    assert asked.count(2048) <= 8
    assert not ALONE or seconds < 20.0


def test_a_wrong_configuration_is_found_without_a_reference() -> None:
    source = STENCIL.replace("0.5f *", "(TILE == 4 ? 0.4f : 0.5f) *")
    result = tuner.tune(source, [X, np.zeros_like(X), N], **CALL, outputs=["y"])
    wrong = {trial["TILE"] for trial in result.trials if trial["status"] == "wrong_result"}
    assert wrong == {4}
    assert result.checked_against == "default" and result.confirmed


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
def test_a_triton_kernel_that_a_function_builds(folder: Path) -> None:
    """The page's example, as a program of its own."""
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    (text,) = (block.partition("```")[0] for block in page.split("```python\n") if "@triton.jit" in block)
    shown = "print(result.confirmed, result.best, result.verdict)\n"
    (folder / "example.py").write_text(text.replace("result(x, ", shown + "y = result(x, ", 1))
    done = subprocess.run([sys.executable, "example.py"], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("True {'num_warps'"), done


def test_a_torch_function_is_built_and_returns(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    (folder / "scaled.py").write_text(
        "import torch\n\ndef build(parts):\n    if parts == 3:\n        raise ValueError('no thirds')\n"
        "    return lambda x: torch.cat([2 * part for part in x.chunk(parts)])\n"
    )
    x = torch.arange(1 << 20, dtype=torch.float32, device="cuda")
    call = {"args": {"x": x, "y": x}, "params": {"parts": [1, 2, 3, 64]}, "outputs": ["y"]}
    result = tuner.tune("scaled.py:build", **call, reference="2 * x")
    assert result.confirmed and result.best == {"parts": 1}, result.verdict
    found = {trial["parts"]: trial["status"] for trial in result.trials}
    assert found == {1: "ok", 2: "ok", 3: "compile_error", 64: "ok"}, result.trials
    assert torch.equal(result(x), 2 * x)
    assert tuner.tune("scaled.py:build", **call, from_scratch=True).checked_against == "default"


def test_a_failing_reference_names_its_line() -> None:
    def fails(x: np.ndarray) -> np.ndarray:
        raise ArithmeticError("no result")

    with pytest.raises(
        tuner.core.errors.TunerError, match=r"test_python\.py:\d+: ArithmeticError: no result"
    ) as failed:
        tuner.tune(STENCIL, [X, np.zeros_like(X), N], **CALL, reference=fails, trials=3)
    assert isinstance(failed.value.__cause__, ArithmeticError)


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    source = """#include <cuda_bf16.h>
    __global__ void smooth(const __nv_bfloat16* x, __nv_bfloat16* y, int n) {
        const int first = (blockIdx.x * BLOCK + threadIdx.x) * TILE;
        for (int i = first; i < first + TILE && i < n; ++i) {
            const float left = x[i > 0 ? i - 1 : 0], centre = x[i], right = x[i < n - 1 ? i + 1 : i];
            y[i] = 0.5f * centre + 0.25f * (left + right);
        }
    }"""
    x = torch.randn(N, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)
    result = tuner.tune(
        source, [x, y, N], **CALL, outputs=["y"], trials=10,
        reference=lambda x: torch.from_numpy(smoothed(x.numpy())), tolerance=2,
    )  # fmt: skip
    assert result.confirmed, result.verdict
    result(x, y, N)
    expected = smoothed(x.float().cpu().numpy())
    np.testing.assert_allclose(y.float().cpu().numpy(), expected, rtol=1e-2, atol=1e-2)


def test_a_problem_is_tuned_when_it_is_first_called() -> None:
    torch = pytest.importorskip("torch")
    add = tuner.load("vector_add", db="tuning.db", policy="tune", trials=5, time_s=20)
    a, b = torch.randn(N, device="cuda"), torch.randn(N, device="cuda")
    torch.testing.assert_close(add(a, b), a + b)
    assert add.plan(dtypes={"input": "float32"}, n=N).match == "exact"
    began = time.monotonic()
    torch.testing.assert_close(add(a, b), a + b)
    assert time.monotonic() - began < 0.1
