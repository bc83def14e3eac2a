"""``tuner.tune`` on the fake device, in a folder of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuner
from tests.faults import tune_fake
from tuner.api import tune as module

STENCIL = """
extern "C" __global__ void stencil(const float* x, float* y, int n) {
    const int first = (blockIdx.x * BLOCK + threadIdx.x) * TILE;
    for (int i = first; i < first + TILE && i < n; ++i) {
        y[i] = 0.5f * x[i] + 0.25f * (x[i > 0 ? i - 1 : 0] + x[i < n - 1 ? i + 1 : i]);
    }
}
"""
X = np.linspace(-1.0, 1.0, 5000, dtype=np.float32)
STENCIL_CALL: dict[str, Any] = {
    "args": [X, np.zeros_like(X), len(X)],
    "params": {"BLOCK": [64, 128, 256], "TILE": [1, 2, 4]},
    "grid": "ceil_div(n, BLOCK * TILE)",
    "block": "BLOCK",
    "where": ["BLOCK * TILE <= 512"],
    "reference": "0.5 * x + 0.25 * (concatenate([x[:1], x[:-1]]) + concatenate([x[1:], x[-1:]]))",
    "trials": 5,
}
KERNEL = {name: value for name, value in STENCIL_CALL.items() if name != "trials"}

Tune = Callable[..., tuner.Result]


@pytest.fixture
def tune(tmp_path: Path, any_code: None, monkeypatch: pytest.MonkeyPatch) -> Tune:
    """Tune the stencil with other arguments of the call, by name."""
    monkeypatch.setattr(module, "open_device", tune_fake.open_fake)
    monkeypatch.chdir(tmp_path)

    def run(kernel: Any = STENCIL, **changes: Any) -> tuner.Result:
        return tuner.tune(kernel, **{**(STENCIL_CALL if kernel is STENCIL else {}), **changes})

    return run
