"""A source that the host launches in loops, described by a call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuner
from tests.api.conftest import Tune
from tests.commands import said_by
from tuner.core.errors import CallError, UsageError

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


def test_a_network_sorts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "reference.py").write_text("import numpy\n\n\ndef ordered(x):\n    return numpy.sort(x)\n")
    path = tmp_path / "saved" / "sort.toml"
    tuner.Kernel(STEP, **CALL, reference=f"{tmp_path}/reference.py:ordered").save(path)
    said = said_by(capsys, "check", str(path), "--configurations", "1", "--cc", "90", "-j", "1")
    assert said.code == 0 and "1 run on the CPU at " in said.err, said.out + said.err


def test_its_result_is_called_without_them(tune: Tune) -> None:
    result = tune(STEP, **CALL, trials=2)
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
