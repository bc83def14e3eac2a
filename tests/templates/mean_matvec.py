"""The kernel mean_matvec and its problems, for tests of its templates."""

from __future__ import annotations

from tuner.core.model import Problem
from tuner.kernel.load import load_kernel
from tuner.kernel.roofline import ARCHITECTURES

KERNEL = load_kernel("mean_matvec")
DTYPES = ("float32", "float16", "bfloat16")
LAYOUTS = ("nml", "mnl")
PRODUCTS = ("float32", "tf32")


def problem(
    dtype: str = "float32", layout: str = "nml", product: str = "float32", sizes: tuple[int, ...] = ()
) -> Problem:
    return KERNEL.problem(
        dict(zip(KERNEL.sizes, sizes, strict=False)), {"": dtype}, {"layout": layout, "product": product}
    )


def mean_share(of: Problem) -> float:
    """Return the last argument of the reference."""
    launch = KERNEL.reference.cuda
    assert launch is not None
    value = launch.arguments[-1].value
    assert value is not None
    return float(value.evaluate(KERNEL.environment(of, ARCHITECTURES[90])))
