"""Variables of a kernel's code that its launches fill, on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inspect.check.test_constants import CODE, DECLARED, written
from tuner.core.model import Configuration, Status
from tuner.devices.local import LocalDevice
from tuner.kernel.load import read_kernel


@pytest.mark.parametrize(
    "declared", [DECLARED, "__device__ float weights[3];", "static __constant__ float weights[40];"]
)
def test_a_variable_holds_the_input_with_all_contents_and_when_it_is_timed(
    device: LocalDevice, tmp_path: Path, declared: str
) -> None:
    kernel = read_kernel(written(tmp_path, CODE.replace(DECLARED, declared)))
    problem, configuration = kernel.problem(), Configuration.of("v", {"block_size": 64})
    device.prepare(kernel, problem, seed=3)
    measured = device.confirm(configuration, 1e4)
    assert measured.status is Status.OK, measured.error
    answer = device.verify_at(problem, configuration, 60.0, contents=True)
    assert answer is not None and answer.status is Status.OK, answer
    assert len(answer.contents) > 4 and not any(answer.contents.values())


def test_a_wrong_result_names_the_variable_that_nothing_fills(device: LocalDevice, tmp_path: Path) -> None:
    kernel = read_kernel(written(tmp_path, constants=""))
    device.prepare(kernel, kernel.problem(), seed=3)
    answer = device.verify_at(
        kernel.problem(), Configuration.of("v", {"block_size": 64}), 60.0, contents=False
    )
    assert answer is not None and answer.status is Status.WRONG_RESULT
    assert "__constant__ weights is zero: no launch fills it" in answer.error


def test_a_cuda_reference_is_filled_too(device: LocalDevice, tmp_path: Path) -> None:
    """Its magnitudes are those of its sums."""
    reference = CODE.replace("float* y, int n", "double* y, float* m, int n").replace(
        "y[i] = ", "m[i] = 1000.0f, y[i] = "
    )
    (tmp_path / "reference.cu").write_text(reference.replace("block_size", "256"))
    table = """
[reference]
reduction = 3
[reference.cuda]
template = "reference.cu"
entry = "smooth"
arguments = ["x", "y", "y_magnitude", "n"]
grid = ["ceil_div(n, 256)"]
block = [256]
constants.weights = "w"
"""
    file = written(tmp_path)
    text = file.read_text()
    before = next(line for line in text.splitlines() if line.startswith("reference ="))
    file.write_text(text.replace(before + "\n", "") + table)
    kernel = read_kernel(file)
    device.prepare(kernel, kernel.problem(), seed=3)
    answer = device.verify_at(
        kernel.problem(), Configuration.of("v", {"block_size": 64}), 60.0, contents=False
    )
    assert answer is not None and answer.status is Status.OK, answer
