"""The dozen figures of a profile that matter, from whatever counters an architecture has, and why its warps wait."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

BUSY = 80.0
"""Percent of its peak from which a unit counts as the limit: a rule of thumb, as in Nsight Compute's own rules."""
IDLE = 60.0
"""Percent below which it certainly is not: if everything is, the kernel waits more than it works."""
SECTOR_BYTES = 32

_LSU = "l1tex__t_{}_pipe_lsu_mem_{}_op_{}.sum"
_PER_SECTOR = "smsp__sass_average_data_bytes_per_sector_mem_global_op_{}.{}"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"


Metrics = Mapping[str, float]


def _of(work_out: Callable[[Metrics], float | None]) -> Any:
    """Return a field that a function works out of the counters."""
    return field(metadata={"of": work_out})


def _counter(*names: str) -> Any:
    """Return a field that is a counter as it is, under the first of these names that there is."""
    return _of(lambda metrics: _first(metrics, *names))


def _first(metrics: Metrics, *names: str) -> float | None:
    return next((metrics[name] for name in names if name in metrics), None)


def _sum(metrics: Metrics, *names: str) -> float | None:
    return sum(metrics[name] for name in names) if all(name in metrics for name in names) else None


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _duration_s(metrics: Metrics) -> float | None:
    return _first(metrics, "gpu__time_duration.sum", "gpu__time_duration.avg")


def _dram_rate(metrics: Metrics) -> float | None:
    moved = _sum(metrics, "dram__bytes_read.sum", "dram__bytes_write.sum")
    if moved is None:
        moved = _sum(metrics, "dram__bytes_op_read.sum", "dram__bytes_op_write.sum")
    if moved is None:
        moved = metrics.get("dram__bytes.sum")
    duration_s = _duration_s(metrics)
    return (
        moved / duration_s if moved is not None and duration_s else metrics.get("dram__bytes.sum.per_second")
    )


def _issued(metrics: Metrics) -> float | None:
    percent = _first(
        metrics, "smsp__issue_active.avg.pct_of_peak_sustained_active", "smsp__issue_active.avg.pct"
    )
    return (
        _times(metrics.get("smsp__issue_active.avg.per_cycle_active"), 100.0) if percent is None else percent
    )


def _shared(metrics: Metrics) -> float | None:
    name = "launch__shared_mem_per_block"
    return metrics[name] if name in metrics else _sum(metrics, f"{name}_static", f"{name}_dynamic")


def _local(metrics: Metrics) -> float | None:
    return _times(_sum(metrics, *(_LSU.format("sectors", "local", op) for op in ("ld", "st"))), SECTOR_BYTES)


def _efficiency(metrics: Metrics, op: str) -> float | None:
    share = _times(metrics.get(_PER_SECTOR.format(op, "ratio")), 100.0 / SECTOR_BYTES)
    percent = metrics.get(_PER_SECTOR.format(op, "pct")) if share is None else share
    return percent or None  # 0 says that there was no such access


def _per_request(metrics: Metrics, op: str) -> float | None:
    requests = metrics.get(_LSU.format("requests", "global", op))
    sectors = metrics.get(_LSU.format("sectors", "global", op))
    return sectors / requests if requests and sectors is not None else None


def _conflicts(metrics: Metrics) -> float | None:
    count = _sum(metrics, f"{_CONFLICTS}_op_ld.sum", f"{_CONFLICTS}_op_st.sum")
    if count is None:
        count = metrics.get(f"{_CONFLICTS}.sum")
    wavefronts = metrics.get("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    return 100.0 * count / wavefronts if wavefronts and count is not None else None


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a reader wants to know about one launch; None for what this GPU's counters do not say."""

    duration_ns: float | None = _of(lambda metrics: _times(_duration_s(metrics), 1e9))
    dram_percent: float | None = _counter(
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    )
    """Of the memory's peak."""
    dram_bytes_per_s: float | None = _of(_dram_rate)
    """Read and written."""
    l2_percent: float | None = _counter("lts__throughput.avg.pct_of_peak_sustained_elapsed")
    l2_hit_percent: float | None = _counter("lts__t_sector_hit_rate.pct")
    l1_percent: float | None = _counter(
        "l1tex__throughput.avg.pct_of_peak_sustained_active",
        "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    )
    l1_hit_percent: float | None = _counter("l1tex__t_sector_hit_rate.pct")
    sm_percent: float | None = _counter("sm__throughput.avg.pct_of_peak_sustained_elapsed")
    """Of the busiest pipe in the SMs."""
    tensor_percent: float | None = _counter(
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
    )
    """Cycles in which the tensor pipe works."""
    issue_percent: float | None = _of(_issued)
    """Cycles in which a scheduler issues an instruction."""
    theoretical_occupancy_percent: float | None = _counter("sm__maximum_warps_per_active_cycle_pct")
    achieved_occupancy_percent: float | None = _counter("sm__warps_active.avg.pct_of_peak_sustained_active")
    waves: float | None = _counter("launch__waves_per_multiprocessor")
    """Times that the grid fills the GPU."""
    registers: float | None = _counter("launch__registers_per_thread")
    """Of a thread."""
    shared_bytes: float | None = _of(_shared)
    """Of a block: static, dynamic, and what the system takes."""
    local_bytes: float | None = _of(_local)
    """Moved between registers and local memory, which is where spills go."""
    load_efficiency_percent: float | None = _of(lambda metrics: _efficiency(metrics, "ld"))
    """Bytes that global loads use of each sector of 32 bytes that they move."""
    store_efficiency_percent: float | None = _of(lambda metrics: _efficiency(metrics, "st"))
    sectors_per_load: float | None = _of(lambda metrics: _per_request(metrics, "ld"))
    """Sectors that one load instruction of a warp asks for: 4 for 4 bytes a thread, 16 for 16, when none is wasted."""
    sectors_per_store: float | None = _of(lambda metrics: _per_request(metrics, "st"))
    bank_conflict_percent: float | None = _of(_conflicts)
    """Share of the shared memory's wavefronts that conflicts cost."""
    sm_clock_hz: float | None = _counter(
        "smsp__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.avg.per_second"
    )
    """During the profile: no process locks it."""


def figures_of(metrics: Metrics) -> Figures:
    """Work the figures out; of counters that differ between architectures the first that is there counts."""
    return Figures(**{figure.name: figure.metadata["of"](metrics) for figure in fields(Figures)})


def limit_of(figures: Figures) -> str:
    """Say which unit is the limit, by the rule of thumb that 80 % of a peak is one and below 60 % is none."""
    units = {
        "DRAM": figures.dram_percent,
        "the L2": figures.l2_percent,
        "the L1 and shared memory": figures.l1_percent,
        "the SMs' pipes": figures.sm_percent,
    }
    counted = {name: percent for name, percent in units.items() if percent is not None}
    if not counted:
        return ""
    name = max(counted, key=lambda unit: counted[unit])
    text = f"{name} at {counted[name]:.0f} %{' of its peak' if name == 'DRAM' else ''}"
    if counted[name] >= BUSY:
        return f"{text}: that is the limit"
    if counted[name] >= IDLE:
        return f"{text} are the busiest, and not saturated"
    return f"latency: nothing is busy ({text} at most), so warps wait; see the stalls"


# -- why warps wait: the reasons that the hardware counts, what each means, and what helps against it
#
# The counters are the cycles that a warp spends in each state between two instructions that it issues, averaged over
# warps; their sum is the latency of an instruction as a warp sees it. What each state means is in the documentation of
# Nsight Compute ("Warp Stall Reasons" in its profiling guide); the remedies are this project's reading of it.

# Rules of thumb, all of them: they choose which sentence is printed, and decide nothing else.
LEAST_SHARE = 0.05
"""Of the cycles between two instructions: reasons below it are not worth a line."""
MOST = 4
ISSUING = 80.0
"""Percent of the cycles with an instruction issued from which waiting costs next to nothing."""
WASTEFUL = 80.0
"""Percent of each sector below which loads are called scattered."""
CONFLICTING = 10.0
"""Percent of the shared memory's wavefronts from which bank conflicts are named before anything else."""
_METRIC = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")


REASONS = {
    "long_scoreboard": (
        "waits for data from global or local memory",
        "more bytes in flight: more items per thread, wider loads, all loads before the first use, asynchronous copies "
        "with more stages, or more warps",
    ),
    "short_scoreboard": (
        "waits for shared memory, or for a special function (exp, sin, a square root)",
        "padding or a swizzle against bank conflicts, values kept in registers, fewer special functions; since "
        "compute capability 10.0 misses of the constant cache count here, too",
    ),
    "barrier": (
        "waits for the other warps of its block at __syncthreads()",
        "equal work for all warps, fewer barriers (two buffers in turn need one for each tile), smaller blocks so that "
        "another one can work meanwhile",
    ),
    "mio_throttle": (
        "the queue of the shared memory, special functions and dynamic branches is full",
        "fewer and wider accesses to shared memory (128 bits, ldmatrix), more of each tile in registers",
    ),
    "lg_throttle": (
        "the queue of global and local memory instructions is full",
        "fewer and wider instructions: vectors of 16 bytes per thread instead of single elements",
    ),
    "math_pipe_throttle": (
        "the pipe that its next instruction needs is busy",
        "this is how a kernel looks that computes all the time: a faster pipe (tensor cores, two 16-bit values at "
        "once), or fewer instructions",
    ),
    "not_selected": (
        "is ready, but another warp was issued",
        "nothing to repair: there are more ready warps than the scheduler can issue, so fewer warps with more "
        "registers each may do as well",
    ),
    "wait": (
        "waits the fixed latency of the instruction before",
        "independent work between dependent instructions: several items per thread, unrolled, or several accumulators",
    ),
    "membar": (
        "waits at a memory fence until its writes are visible",
        "fewer or narrower fences (block before device before system), and fewer writes still on their way there",
    ),
    "tex_throttle": (
        "the queue of the texture unit is full",
        "plain loads in the place of texture fetches, or fewer of them",
    ),
    "drain": (
        "has ended, and waits for its last stores",
        "wide, contiguous stores, and not all of them at the very end",
    ),
    "imc_miss": (
        "waits for a constant or a kernel argument that is not in its cache",
        "more work for each block, so that the first touch counts less; one constant for all lanes of a warp at a time",
    ),
    "no_instruction": (
        "waits for its next instruction to be fetched",
        "a shorter loop body (less unrolling), fewer jumps; with less than one wave of blocks it is the kernel's start",
    ),
    "branch_resolving": (
        "waits for the target of a branch",
        "fewer branches in the inner loop: unrolling, predicates in the place of jumps, tails outside of the loop",
    ),
    "dispatch_stall": (
        "was chosen, but the dispatcher held it back",
        "a mix of instructions that needs fewer ports of the register file at a time; rarely worth an attempt",
    ),
    "sleeping": ("sleeps on purpose (nanosleep)", "shorter or fewer sleeps in the loops that poll"),
    "gmma": (
        "waits for the operands of a warp group's matrix product (wgmma)",
        "more stages of tiles ahead, larger tiles, and a second warp group that computes while this one waits",
    ),
    "misc": ("waits for something else", "look for the finding elsewhere"),
}
REASONS["warpgroup_arrive"] = REASONS["gmma"]
"""What each state in which a warp issues nothing means, and what helps against it."""


@dataclass(frozen=True)
class Stall:
    """One reason and how much it costs."""

    reason: str
    cycles: float
    """Of a warp, for each instruction that it issues."""
    share: float
    """Of all its cycles."""
    meaning: str
    remedy: str


def top_stalls(metrics: Metrics, figures: Figures) -> list[Stall]:
    """Return the reasons that cost most, the largest first, each with what helps in this launch."""
    cycles = {match[1]: value for name, value in metrics.items() if (match := _METRIC.fullmatch(name))}
    whole = sum(cycles.values())
    stalls = []
    for reason, value in sorted(cycles.items(), key=lambda item: -item[1]):
        if reason == "selected" or not whole or value < LEAST_SHARE * whole:  # selected: it issues
            continue
        meaning, _ = REASONS.get(reason, REASONS["misc"])
        stalls.append(Stall(reason, value, value / whole, meaning, remedy_of(reason, figures)))
    return stalls[:MOST]


def remedy_of(reason: str, figures: Figures) -> str:
    """Return what helps against a reason, in the light of the launch's other figures."""
    _, general = REASONS.get(reason, REASONS["misc"])
    dram, loads = figures.dram_percent, figures.load_efficiency_percent
    conflicts = figures.bank_conflict_percent
    if reason == "long_scoreboard" and dram is not None and dram >= BUSY:
        return f"the memory is busy already ({dram:.0f} % of its peak): only fewer bytes help"
    if reason in ("long_scoreboard", "lg_throttle") and loads is not None and loads < WASTEFUL:
        scattered = f"loads use {loads:.0f} % of what they move: neighbouring threads should read neighbours"
        return f"{scattered}; then {general}"
    if reason == "lg_throttle" and figures.local_bytes:
        return f"registers spill to local memory: fewer live values, or more registers per thread; then {general}"
    if reason in ("short_scoreboard", "mio_throttle") and conflicts is not None and conflicts >= CONFLICTING:
        return f"{conflicts:.0f} % of the shared memory's wavefronts are bank conflicts: padding or a swizzle first"
    return general


def worth_looking_at(figures: Figures) -> bool:
    """Return whether waiting costs anything: not where nearly every cycle issues an instruction."""
    return figures.issue_percent is None or figures.issue_percent < ISSUING
