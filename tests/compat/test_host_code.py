"""Kernel Tuner's host code, compiled by the host's compiler, and timed by what it returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuner.compat.kernel_tuner as kernel_tuner
import tuner.compat.pycuda_driver as drv
from tests.compat.test_kernel_tuner import N, X, refused
from tuner.core.errors import UsageError

pytestmark = pytest.mark.usefixtures("forked_children")

HOST = """
#include <stdlib.h>
float twice(float *x, int n) {
    if (wait == 3) exit(0);
    for (int i = 0; i < n; ++i) x[i] *= factor;
    return wait * 0.5f;
}
"""


def test_host_code_is_timed_by_what_it_returns(capsys: pytest.CaptureFixture[str]) -> None:
    x = drv.pagelocked_empty(N, np.float32)
    np.copyto(x, X)
    call: dict[str, Any] = {
        "lang": "C", "answer": [2 * X, None], "restrictions": ["wait < 4"], "cache": "seen", "quiet": False,
    }  # fmt: skip
    params = {"factor": [2, 3], "wait": [-1, 1, 3, 4]}
    results, env = kernel_tuner.tune_kernel("twice", HOST, 1, [x, np.int32(N)], params, **call)
    ended = {(one["factor"], one["wait"]): one.get("time", one.get("status")) for one in results}
    assert ended == {
        (2, -1): "launch_error", (2, 1): 0.5, (2, 3): "launch_error",
        (3, -1): "launch_error", (3, 1): "wrong_result", (3, 3): "launch_error",
    }  # fmt: skip
    assert env["best_config"]["wait"] == 1 and np.array_equal(x, X)
    assert (
        "host code is timed by what it returns: 6 of 6 configurations, drawn at random\n"
        in capsys.readouterr().out
    )
    other, call["cache"] = [X.astype(X.dtype.newbyteorder()), np.int32(N)], "other"
    swapped, _ = kernel_tuner.tune_kernel("twice", HOST, 1, other, {"factor": [2], "wait": [1]}, **call)
    assert swapped[0]["time"] == 0.5
    call["cache"] = "seen"
    Path("x.cu").write_text("not C")
    again, _ = kernel_tuner.tune_kernel("twice", "not C", 1, [x, np.int32(N)], params, **call)
    assert sorted(one.get("time", 9) for one in again) == sorted(one.get("time", 9) for one in results)
    assert "no configuration of twice succeeded; the first: compile_error" in refused(
        lambda: kernel_tuner.tune_kernel("twice", "not C", 1, [x, np.int32(N)], params)
    )
    with pytest.raises(UsageError, match=r"seen\.json has the parameters factor, wait"):
        kernel_tuner.tune_kernel("twice", HOST, 1, [x, np.int32(N)], {"factor": [2]}, lang="C", cache="seen")
