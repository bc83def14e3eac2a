"""Expressions of a kernel file that have no value are refused, and the message names the file and the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernel_files import GOOD, write
from tuner.core.errors import KernelError
from tuner.core.model import Configuration
from tuner.kernel.load import read_kernel
from tuner.kernel.plan import invalid_reason, make_plan
from tuner.kernel.reference import settle_reference
from tuner.kernel.roofline import ARCHITECTURES, roof_of
from tuner.kernel.space import SearchSpace

CONSTRAINT = "variants: plain: constraints: a block is not larger than the problem: "
# Text to replace and its replacement; where the message must say it is, and what is wrong.
VALUELESS: dict[str, tuple[str, str, str, str]] = {
    "exponent": ("block_size <= n", "2 ** 99999999 > block_size", CONSTRAINT, "exponent above 64; use a smaller"),
    "text in a sum": ("block_size <= n", "block_size + input > 3", CONSTRAINT, "text cannot be added, repeated"),
    "no dtype": ("block_size <= n", "itemsize('foo') > 3", CONSTRAINT, "not a dtype; use one of float64"),
    "power": ("block_size <= n", "block_size ** (0 - 1) > 3", CONSTRAINT, "powers are not allowed; use"),
    "requires": ('"cc >= 75"', '"1 // (n - 1024)"', "variants: plain: requires: ", "by zero; write a // b if"),
    "work": ("2 * n * itemsize", "n / 0 * itemsize", "work: bytes: ", "division by zero; write a // b if"),
    "shape": ('x = { shape = ["n"]', 'x = { shape = ["n - 1024"]', "tensors: x: shape: ", "n - 1024 = 0; it must"),
    "grid": ('"ceil_div(n, block_size)"', '"n - 1024"', "variants: plain: launches[0]: grid: ", "= 0; it must be"),
    "tolerance": ('"alpha * x"', '"alpha * x"\ntolerance = "n - 1024"', "reference: tolerance: ", "above 0"),
}  # fmt: skip


@pytest.mark.parametrize("case", VALUELESS)
def test_what_has_no_value_names_its_file_and_key(case: str, tmp_path: Path) -> None:
    old, new, where, what = VALUELESS[case]
    assert old in GOOD
    file, gpu = write(tmp_path, GOOD.replace(old, new, 1)), ARCHITECTURES[90]
    with pytest.raises(KernelError) as caught:
        kernel = read_kernel(file)
        problem = kernel.problem()
        space = SearchSpace.from_kernel(kernel, problem, gpu)
        settle_reference(kernel, problem, gpu)
        roof_of(kernel, problem, gpu)
        make_plan(kernel, problem, gpu, space.default)
    message = str(caught.value)
    assert message.startswith(f"scale.toml: {where}")
    assert what in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("wrong", "where"),
    [("'yes'", CONSTRAINT), ("2", CONSTRAINT), ("1 / 0", CONSTRAINT), ("0 / 0", "scalars: alpha: value")],
)
def test_constants_that_are_no_condition_or_number_are_refused_when_read(
    wrong: str, where: str, tmp_path: Path
) -> None:
    right = "block_size <= n" if where == CONSTRAINT else "2.0"
    text = GOOD.replace(right, wrong, 1)
    with pytest.raises(KernelError, match=f"scale.toml: {where}"):
        read_kernel(write(tmp_path, text))


def test_an_axis_that_no_tensor_has_is_refused_when_read(tmp_path: Path) -> None:
    text = GOOD.replace('numpy = "', 'numpy = "sum(x, axis=5) + ', 1)
    assert text != GOOD
    with pytest.raises(KernelError, match=r"scale.toml: reference: numpy .* names axis 5"):
        read_kernel(write(tmp_path, text))


def test_one_configuration_is_refused_like_all(tmp_path: Path) -> None:
    kernel = read_kernel(write(tmp_path, GOOD.replace("block_size <= n", "input > 3")))
    configuration = Configuration.of("plain", kernel.variants["plain"].defaults)
    assert invalid_reason(kernel, kernel.problem(), ARCHITECTURES[90], configuration).startswith(
        f"scale.toml: {CONSTRAINT}'input > 3' has no value here"
    )
