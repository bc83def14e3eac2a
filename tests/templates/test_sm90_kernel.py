"""gemm on Hopper, whole, on the CPU: loads, barriers, instructions, divided rounds, exchanges and all stores."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.templates.sm90 import HOPPER, Emulated, chosen, problem, slices_of_c
from tuner.core.model import Configuration, Gpu, Problem, Value
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import Schedule
from tuner.kernel.load import load_kernel

OVERLAPPED: dict[str, Value] = {"epilogue": "overlapped", "store_buffers": 1, "block_k": 64}
SERIAL: dict[str, Value] = {"epilogue": "serial", "block_k": 64}
TURNS: dict[str, Value] = {**SERIAL, "schedule": "pingpong", "block_m": 128, "block_n": 128, "stages": 5}
DIVIDED: dict[str, Value] = {"stream_k": True}
SWAPPED: dict[str, Value] = {"swap_ab": True, "block_n": 128}
LONG, SHORT, ROUNDS = (264, 264, 264), (208, 392, 200), (208, 840, 264)
ODD, EIGHTHS = (205, 265, 259), (133, 392, 259)

CASES: dict[str, tuple[str, str, tuple[int, int, int], dict[str, Value]]] = {
    # Through TMA.
    "overlapped": (
        "wgmma", "nn", LONG, {**OVERLAPPED, **DIVIDED, "block_m": 128, "block_n": 256, "stages": 3},
    ),
    "overlapped, swapped": (
        "wgmma", "nt", LONG,
        {**OVERLAPPED, **SWAPPED, "block_m": 208, "stages": 4, "cluster_n": 2, "l2_evict_last": "b"},
    ),
    "three multiply, in two, one in flight": (
        "wgmma", "tn", (208, 456, 200),
        {**SERIAL, "block_m": 192, "block_n": 224, "stages": 3, "consumers": 3, "mma_inflight": 1},
    ),
    "pairs along m": (
        "wgmma", "tt", (136, 456, 264),
        {**SERIAL, **DIVIDED, "block_m": 128, "block_n": 208, "stages": 4, "cluster_m": 2},
    ),
    "two instructions wide": (
        "wgmma", "nn", (136, 392, 264),
        {**SERIAL, **DIVIDED, "block_m": 64, "block_n": 320, "stages": 3, "consumers": 1, "raster": "hilbert"},
    ),
    "taking turns": ("wgmma", "tn", ROUNDS, {**TURNS, **DIVIDED}),
    "taking turns, pairs": (
        "wgmma", "nn", (336, 712, 264),
        {**TURNS, **DIVIDED, **SWAPPED, "block_m": 160, "cluster_n": 2, "raster": "along_n"},
    ),
    "four of a cluster": (
        "wgmma", "tt", (136, 264, 328),
        {**SERIAL, "block_m": 128, "block_n": 128, "stages": 3, "cluster_m": 2, "cluster_n": 2, "prefetch": True},
    ),
    # By the threads.
    "odd columns, swapped": (
        "wgmma_padded", "tt", ODD,
        {**OVERLAPPED, **DIVIDED, **SWAPPED, "block_m": 176, "stages": 4, "c_vector_width": 1},
    ),
    "whole vectors": (
        "wgmma_padded", "nn", EIGHTHS,
        {**SERIAL, **DIVIDED, "block_m": 128, "block_n": 176, "stages": 4, "c_vector_width": 8},
    ),
}  # fmt: skip
TWICE = ("taking turns",)


def few_sms(of: Problem, configuration: Configuration) -> Gpu:
    """Return a GPU of few SMs on which the configuration is valid, and has several rounds unless it is for one."""
    kernel = load_kernel(of.kernel)
    variant = kernel.variants[configuration.variant]
    first = 16 if configuration.values["prefetch"] else 4
    for count in range(first, 40):
        gpu = replace(HOPPER, sm_count=count)
        names = {**kernel.environment(of, gpu), **configuration.values}
        if all(condition.holds(names) for _, condition in variant.constraints_before):
            return gpu
    raise AssertionError(f"no number of SMs suits {configuration}")


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("case", CASES)
def test_every_element_is_right_and_nothing_beside(case: str, tmp_path: Path) -> None:
    """In orders drawn from a seed. The second launch finds what the first has left, and NaNs where sums go."""
    name, layout, (m, n, k), values = CASES[case]
    of, configuration = problem(m, n, k, layout), chosen(name, values)
    emulated = Emulated(of, configuration, few_sms(of, configuration), tmp_path)
    divided = bool(configuration.values["stream_k"])
    for seed in range(2 if case in TWICE else 1):
        if divided:
            emulated.memory["partials"].elements[:] = np.nan
        assert np.array_equal(*emulated.run(Schedule(seed, shuffled=True)))
        if divided:
            assert not emulated.memory["counters"].elements.any(), "the next launch finds counts"
            check_slots(emulated, configuration)
    # The other warpgroup's instructions are queued behind those that are still under way.
    assert not emulated.report.elements.any(), "a warpgroup takes its turn when the other's products are made"


def check_slots(emulated: Emulated, configuration: Configuration) -> None:
    """Each block writes all but its own share of a tile: slots that overlapped would hold fewer numbers."""
    values = configuration.values
    cluster = values["cluster_m"] * values["cluster_n"]
    tile = values["block_m"] * values["block_n"]
    m, n, k = (emulated.problem.sizes[name] for name in "mnk")
    clusters_m = math.ceil(math.ceil(m / values["block_m"]) / values["cluster_m"])
    clusters_n = math.ceil(math.ceil(n / values["block_n"]) / values["cluster_n"])
    workers = emulated.launch.clusters
    last = clusters_m * clusters_n % workers
    parts = min(workers // last, slices_of_c(configuration), math.ceil(k / values["block_k"]))
    assert last > 0 and parts > 1
    written = np.count_nonzero(~np.isnan(emulated.memory["partials"].elements))
    assert written == (parts - 1) * last * cluster * tile


# -- with a tile for each cluster

SMALL: dict[str, Value] = {"block_m": 64, "block_n": 64, "block_k": 64, "stages": 3, "consumers": 1}
INTERLEAVED: dict[str, Value] = {"k_order": "interleaved"}
ONE_TILE: dict[str, tuple[str, str, dict[str, Value]]] = {
    "a cluster divides k": ("wgmma_split_k", "tn", {**SMALL, "block_n": 128, "cluster_k": 2}),
    "rows in turn": ("wgmma_split_k", "nn", {**SMALL, "split_k": 2, "block_m": 128, **INTERLEAVED}),
    "both divide k": ("wgmma_split_k", "nt", {**SMALL, "split_k": 2, "cluster_k": 2, "gpc_locality": True}),
    "three pieces side by side": ("wgmma_split_k", "nt", {**SMALL, "block_n": 96, "cluster_k": 4}),
    "few rows, k divided": ("wgmma_skinny_m", "nn", {**SMALL, "block_m": 24, "cluster_k": 4, "stages": 2}),
    "shares of rows": ("wgmma_skinny_m", "tt", {**SMALL, "block_m": 8, "block_n": 128, "cluster_k": 2, "consumers": 2}),
    "more rows": ("wgmma_skinny_m", "nt", {**SMALL, "block_m": 104, "cluster_m": 2, "cluster_k": 2, **INTERLEAVED}),
}  # fmt: skip


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("case", ONE_TILE)
def test_c_is_the_product_to_the_last_bit(case: str, tmp_path: Path) -> None:
    name, layout, values = ONE_TILE[case]
    of = problem(104 if name == "wgmma_split_k" else 40, 136, 456, layout)
    emulated = Emulated(of, chosen(name, values), HOPPER, tmp_path)
    assert np.array_equal(*emulated.run(Schedule(1, shuffled=True)))
    if "counters" in emulated.memory:
        assert not emulated.memory["counters"].elements.any(), "the next launch finds counts"
