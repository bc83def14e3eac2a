"""For ``tune ablate``: a kernel with a limited parameter, and a device that times the neighbours of its best."""

from __future__ import annotations

from pathlib import Path

from tests.faults.bench_device import BenchDevice, kernel_with_baselines
from tests.faults.kernels import configuration
from tests.faults.ladder_device import Times
from tests.faults.stub_device import good
from tuner.kernel.spec import KernelSpec

BEST = configuration("ok", 256, 2)
LIMITED = """
[variants.plain.constraints]
"blocks of 32 are too small" = "block_size > 32"
"""


def ablated_kernel(folder: Path) -> KernelSpec:
    return kernel_with_baselines(folder / "kernel", LIMITED)


def ablated_device() -> BenchDevice:
    times = Times({BEST: 1e5})
    times |= {configuration("ok", block, 2): 1e5 * factor for block, factor in ((64, 1.5), (128, 1.1))}
    times |= {
        configuration("ok", 256, items): 1e5 * factor for items, factor in ((1, 1.0002), (3, 1.05), (4, 0.9))
    }
    device = BenchDevice(times)
    device.answer = lambda c: good(device.times_ns[c])
    return device
