"""Kernels whose results are compared with those of their default configuration, on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inspect.check.test_default import CODE, written
from tuner.core.errors import TunerError
from tuner.core.model import Configuration, Status
from tuner.devices.local import LocalDevice
from tuner.kernel.load import read_kernel


@pytest.mark.parametrize("missing", [0, 1])
def test_another_order_of_summing_up_is_right_and_another_sum_is_not(
    device: LocalDevice, tmp_path: Path, missing: int
) -> None:
    kernel = read_kernel(written(tmp_path))
    problem, configuration = kernel.problem(), Configuration.of("v", {"block_size": 256, "missing": missing})
    device.prepare(kernel, problem, seed=3)
    answer = device.verify_at(problem, configuration, 60.0, contents=True)
    assert answer is not None
    assert answer.status is (Status.WRONG_RESULT if missing else Status.OK), answer.error
    if not missing:
        assert len(answer.contents) > 4 and not any(answer.contents.values())


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("y[0] = parts[0], count", "count", "the default configuration leaves NaN in 1 of 1 elements of y"),
        ("y[0] = parts[0]", "y[1] = y[0] = parts[0]", "the default configuration wrote outside of y"),
        ("total(", "totals(", "the default configuration, .*, does not run"),
    ],
)
def test_a_default_that_is_wrong_itself_ends_the_tuning_in_one_line(
    device: LocalDevice, tmp_path: Path, was: str, now: str, said: str
) -> None:
    kernel = read_kernel(written(tmp_path, CODE.replace(was, now)))
    with pytest.raises(TunerError, match=said) as caught:
        device.prepare(kernel, kernel.problem(), seed=3)
    assert "\n" not in str(caught.value)
