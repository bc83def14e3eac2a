"""Kernels that only move elements compile for every architecture; here, where there are cores enough."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.stored_winners import results
from tests.templates.machine_code import gpu
from tests.templates.sources import GENERATIONS, compiled, draw
from tuner.core.model import Configuration
from tuner.devices.local import LocalDevice
from tuner.kernel.load import load_kernel

KERNELS = ("transpose", "permute", "rope", "reduce_axis")


@pytest.mark.parametrize("cc", GENERATIONS)
@pytest.mark.parametrize("name", KERNELS)
def test_a_sample_compiles_for_every_architecture(name: str, cc: int) -> None:
    kernel, device, rng = load_kernel(name), gpu(cc), random.Random(f"{name} {cc}")
    tried, spilled = 0, []
    for dtype in kernel.dtypes["input"]:
        for size in (64, 771, 1600):
            problem = kernel.problem(dict.fromkeys(kernel.sizes, size), {"": dtype})
            for variant in kernel.usable_variants(problem, device)[0]:
                chosen = Configuration.of(variant.name, draw(kernel, variant, problem, device, rng))
                for cubin in compiled(kernel, chosen, problem, device):
                    tried += 1
                    spilled += [chosen] if cubin.resources.spill_bytes else []
    assert len(spilled) <= tried / 20, spilled  # a constraint refuses these, after they have been compiled


@pytest.mark.parametrize("over", ["columns", "rows"])
@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("shape", [(129, 1000), (3, 100_003), (40_000, 8)])
def test_places_are_torchs(
    device: LocalDevice, tmp_path: Path, op: str, over: str, shape: tuple[int, int]
) -> None:
    torch = pytest.importorskip("torch")
    sizes = dict(zip(("rows", "columns"), shape, strict=True))
    problem = load_kernel("reduce_axis").problem(sizes, {"": "bfloat16"}, {"op": op, "over": over})
    x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    x[1:3, 5] = torch.nan
    x[:, 7] = -0.0
    for found in results(device.gpu, tmp_path, problem, lambda operation: operation.torch()(x), 2):
        assert torch.equal(found, getattr(x, op)(1 if over == "columns" else 0))
