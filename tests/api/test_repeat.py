"""A source that the host launches in loops, described by a call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuner
from tests.api.conftest import Tune
from tuner.core.errors import CallError, UsageError
from tuner.core.model import Configuration
from tuner.kernel.functions import load_function
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.roofline import ARCHITECTURES

STEP = """
__global__ void step(float* x, int n, unsigned size, int stride) {
    int t = blockIdx.x * BLOCK + threadIdx.x, a = 2 * t - (t & (stride - 1)), b = a + stride;
    if (b < n && (x[a] > x[b]) == ((a & size) == 0)) { float p = x[a]; x[a] = x[b]; x[b] = p; }
}
"""
X = np.random.default_rng(0).standard_normal(256).astype(np.float32)
CALL: dict[str, Any] = {
    "args": [X, len(X), "2 ** (level + 1)", "2 ** (level - at)"],
    "params": {"BLOCK": [32, 64]},
    "grid": "ceil_div(n, 2 * BLOCK)",
    "block": "BLOCK",
    "where": "is_pow2(n) and n > 1",
    "repeat": {"level": "log2(n)", "at": "level + 1"},
}


def test_a_network_sorts(tmp_path: Path) -> None:
    """Its launches, as a plan has them, done by NumPy."""
    (tmp_path / "reference.py").write_text("import numpy\n\n\ndef ordered(x):\n    return numpy.sort(x)\n")
    path = tmp_path / "saved" / "sort.toml"
    tuner.Kernel(STEP, **CALL, reference=f"{tmp_path}/reference.py:ordered").save(path)
    kernel, x = load_kernel(str(path)), X.copy()
    assert load_function("ordered", path.with_name("reference.py"))(X).tolist() == sorted(X)
    plan = make_plan(kernel, kernel.problem(), ARCHITECTURES[90], Configuration.of("main", {"BLOCK": 32}))
    for launch in plan.launches:
        n, size, stride = (int(argument[-1]) for argument in launch.arguments[1:])
        t = np.arange(launch.grid[0] * launch.block[0])
        a = 2 * t - (t & (stride - 1))
        a = a[a + stride < n]
        b = a + stride
        swapped = a[(x[a] > x[b]) == ((a & size) == 0)]
        x[swapped], x[swapped + stride] = x[swapped + stride], x[swapped]
    assert x.tolist() == sorted(X)


def test_its_result_is_called_without_them(tune: Tune) -> None:
    result = tune(STEP, **CALL, trials=1)
    for wrong in ([X], [X, 256, 2, 1]):
        with pytest.raises(CallError, match=r"it takes x, n(;|$)"):
            result(*wrong)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"repeat": {"n": 2}}, "'n' names two things"),
        ({"repeat": {"level": "log2(m)", "at": 1}}, "unknown name 'm'"),
        ({"args": [X, 256, "level", "steps"]}, "unknown name 'steps'"),
        ({"args": ["X", 256, 2, 1]}, "x is a str"),
    ],
)
def test_what_is_refused(tune: Tune, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        tune(STEP, **{**CALL, **changes}, trials=2)
