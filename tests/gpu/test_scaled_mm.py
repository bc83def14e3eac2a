"""Products of 8-bit floating point: every variant with every kind of scales, accumulation and output."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.gpu.test_kernels import _measure_all
from tuner.devices.local import LocalDevice
from tuner.kernel.load import load_kernel
from tuner.kernel.space import SearchSpace

SIZES = [(130, 136, 400), (24, 264, 1040), (513, 384, 2064), (300, 264, 272)]
KINDS = [
    (scales, accumulation)
    for scales, accumulation in itertools.product(("tensor", "rows", "blocks"), ("promoted", "fast"))
    if (scales, accumulation) != ("blocks", "fast")
]


@pytest.mark.parametrize("output", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize(("scales", "accumulation"), KINDS)
@pytest.mark.parametrize("variant", load_kernel("scaled_mm").variants)
def test_right_with_every_kind_of_scales(
    device: LocalDevice, variant: str, scales: str, accumulation: str, output: str
) -> None:
    kernel, wrong = load_kernel("scaled_mm"), []
    for sizes in SIZES:
        problem = kernel.problem(
            dict(zip("mnk", sizes, strict=True)),
            {"output": output},
            {"scales": scales, "accumulation": accumulation},
        )
        if reason := kernel.usable_variants(problem, device.gpu)[1].get(variant):
            pytest.skip(reason)
        [space] = SearchSpace.from_kernel(kernel, problem, device.gpu, [variant]).variants
        rows = random.Random(str(problem)).sample(range(len(space)), min(6, len(space)))
        found = _measure_all(device, problem, [space.configuration(row) for row in rows])
        wrong += [f"{problem} {c}: {m}" for c, m in found.items()]
    assert not wrong, "\n".join(wrong)
