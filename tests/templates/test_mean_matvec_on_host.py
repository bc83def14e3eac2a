"""mean_matvec run on the host, in many orders."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.on_host import HostConfiguration
from tests.templates.mean_matvec import KERNEL, LAYOUTS, mean_share, problem
from tests.templates.sources import broken
from tuner.core.model import Configuration
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import HostArray, HostKernel, Schedule
from tuner.kernel.plan import tensors_of
from tuner.kernel.render import render_launch
from tuner.kernel.roofline import ARCHITECTURES

needs_gpp = pytest.mark.skipif(COMPILER is None, reason="needs g++")

SMALL = {"block_m": 16, "block_n": 16, "block_k": 32, "warps_m": 1, "warps_n": 1, "warps_k": 2}
"""Few warps, since each thread is a fiber."""
HOST_CASES: list[tuple[str, tuple[int, int, int], str, str, str, dict[str, Any]]] = [
    ("first", (5, 7, 9), "bfloat16", "nml", "float32", {"block_size": 32}),
    ("coalesced", (5, 7, 37), "float32", "mnl", "float32", {"block_size": 64}),
    ("mean_then_product", (19, 17, 37), "float32", "nml", "float32",
     {**SMALL, "block_size": 128, "slice": 128, "parts": 4}),
    ("mean_then_product", (35, 9, 36), "bfloat16", "mnl", "tf32",
     {**SMALL, "block_size": 128, "slice": 1024, "vector_width": 8, "parts": 1, "block_m": 32, "warps_m": 2}),
    ("fused", (37, 9, 40), "float32", "nml", "float32",
     {**SMALL, "stream_warps": 4, "slice": 128, "unroll": 4, "parts": 2}),
    ("fused", (18, 5, 33), "float32", "mnl", "tf32",
     {**SMALL, "stream_warps": 4, "slice": 512, "vector_width": 1, "unroll": 4, "parts": 1}),
    ("fused_bulk", (21, 19, 36), "float32", "nml", "float32",
     {**SMALL, "stream_warps": 2, "slice": 256, "stage_rows": 4, "stages": 3, "parts": 2}),
    ("fused_bulk", (18, 9, 40), "bfloat16", "mnl", "tf32",
     {**SMALL, "stream_warps": 2, "slice": 256, "stage_rows": 8, "stages": 3, "parts": 4}),
]  # fmt: skip


class OnHost:
    """A configuration built for the host, and for two SMs."""

    def __init__(self, case: int, folder: Path, edit: Callable[[str], str] = str) -> None:
        name, sizes, self.dtype, layout, product, given = HOST_CASES[case]
        self.problem = problem(self.dtype, layout, product, sizes)
        device = dataclasses.replace(ARCHITECTURES[90], sm_count=2)
        parameters = {**KERNEL.variants[name].defaults, **given}
        assert not [
            r
            for r in broken(KERNEL, KERNEL.variants[name], parameters, self.problem, device)
            if "KiB" not in r
        ]
        configuration = Configuration.of(name, parameters)
        self.host = HostConfiguration(KERNEL, self.problem, device, configuration, folder, edit)
        rng = np.random.default_rng(case)
        self.tensors = {}
        for buffer in tensors_of(KERNEL, self.problem, device):
            self.tensors[buffer.name] = HostArray(buffer.count, buffer.dtype, 16)
            if buffer.role == "input":
                self.tensors[buffer.name].fill(rng.normal(size=buffer.count))
        groups, vectors, length = sizes
        shape = (groups, vectors, length) if layout == "nml" else (vectors, groups, length)
        x = self.tensors["x"].numbers.astype(np.float64).reshape(shape)
        w = self.tensors["w"].numbers.astype(np.float64).reshape(length, length)
        self.expected = x.mean(axis=1 if layout == "nml" else 0) @ w.T

    def run(self, schedules: list[Schedule]) -> list[npt.NDArray[np.float64]]:
        """Run it once for each schedule, on the same scratch memory."""
        scratch = self.host.scratch(self.problem.sizes)
        results = []
        for schedule in schedules:
            y = self.tensors["y"]
            y.elements.view(np.uint8)[:] = 0xFF
            self.host.run(self.problem.sizes, {**self.tensors, **scratch}, schedule)
            results.append(y.numbers.astype(np.float64).reshape(self.expected.shape))
        return results


SCHEDULES = [Schedule(1), Schedule(2, shuffled=True), Schedule(3, resident=1)]


@needs_gpp
@pytest.mark.parametrize(
    "case", range(len(HOST_CASES)), ids=[f"{c[0]}-{i}" for i, c in enumerate(HOST_CASES)]
)
def test_results_are_right_in_any_order(case: int, tmp_path: Path) -> None:
    host = OnHost(case, tmp_path)
    results = host.run(SCHEDULES)
    rounding = 2.0**-8 if host.dtype == "bfloat16" else 1e-5
    rounding += 2.0**-9 if host.problem.options["product"] == "tf32" else 0
    for result in results:
        assert np.abs(result - host.expected).max() <= rounding * 4
        assert (result == results[0]).all(), "it depends on the order"


@needs_gpp
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_reference_is_right(layout: str, tmp_path: Path) -> None:
    launch = KERNEL.reference.cuda
    assert launch is not None
    sizes = groups, vectors, length = 3, 11, 300
    of = problem(layout=layout, sizes=sizes)
    source, entry = render_launch(KERNEL, launch, of, ARCHITECTURES[90], Configuration.of("", {}))
    share = mean_share(of)
    kernel = HostKernel(source, entry, tmp_path)
    rng = np.random.default_rng(2)
    shape = (groups, vectors, length) if layout == "nml" else (vectors, groups, length)
    x, w = HostArray(vectors * groups * length, "float32", 4), HostArray(length * length, "float32", 4)
    y, magnitude = HostArray(groups * length, "float64", 8), HostArray(groups * length, "float32", 4)
    for memory in (x, w):
        memory.fill(rng.normal(size=memory.elements.size))
    kernel(groups, 256, 0, Schedule(), x, w, y, magnitude, *map(np.int32, sizes), np.float64(share))
    axis, wide = (1 if layout == "nml" else 0), x.numbers.reshape(shape).astype(np.float64)
    mean, size = wide.mean(axis=axis), np.abs(wide).mean(axis=axis)
    factors = w.numbers.reshape(length, length).astype(np.float64)
    found, largest = (memory.elements.reshape(groups, length) for memory in (y, magnitude))
    assert np.allclose(found, mean @ factors.T, rtol=1e-12, atol=1e-12)
    assert np.allclose(largest, (np.abs(mean) + share * size) @ np.abs(factors).T, rtol=1e-6)
