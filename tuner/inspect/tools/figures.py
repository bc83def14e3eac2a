"""The dozen figures of a profile that matter, from whatever counters an architecture has."""

from __future__ import annotations

from collections.abc import Mapping
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


def _counter(*names: str) -> Any:
    """Return a field that is a counter as it is, under the first of these names that there is."""
    return field(metadata={"counters": names})


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a reader wants to know about one launch; None for what this GPU's counters do not say."""

    duration_ns: float | None
    dram_percent: float | None = _counter(
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    )
    """Of the memory's peak."""
    dram_bytes_per_s: float | None
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
    issue_percent: float | None
    """Cycles in which a scheduler issues an instruction."""
    theoretical_occupancy_percent: float | None = _counter("sm__maximum_warps_per_active_cycle_pct")
    achieved_occupancy_percent: float | None = _counter("sm__warps_active.avg.pct_of_peak_sustained_active")
    waves: float | None = _counter("launch__waves_per_multiprocessor")
    """Times that the grid fills the GPU."""
    registers: float | None = _counter("launch__registers_per_thread")
    """Of a thread."""
    shared_bytes: float | None
    """Of a block: static, dynamic, and what the system takes."""
    local_bytes: float | None
    """Moved between registers and local memory, which is where spills go."""
    load_efficiency_percent: float | None
    """Bytes that global loads use of each sector of 32 bytes that they move."""
    store_efficiency_percent: float | None
    sectors_per_load: float | None
    """Sectors that one load instruction of a warp asks for: 4 for 4 bytes a thread, 16 for 16, when none is wasted."""
    sectors_per_store: float | None
    bank_conflict_percent: float | None
    """Share of the shared memory's wavefronts that conflicts cost."""
    sm_clock_hz: float | None = _counter(
        "smsp__cycles_elapsed.avg.per_second",
        "sm__cycles_elapsed.avg.per_second",
    )
    """During the profile: no process locks it."""


def figures_of(metrics: Mapping[str, float]) -> Figures:
    """Work the figures out; of counters that differ between architectures the first that is there counts."""

    def first(*names: str) -> float | None:
        return next((metrics[name] for name in names if name in metrics), None)

    duration_s = first("gpu__time_duration.sum", "gpu__time_duration.avg")
    moved = _sum(metrics, ("dram__bytes_read.sum", "dram__bytes_write.sum"))
    if moved is None:
        moved = _sum(metrics, ("dram__bytes_op_read.sum", "dram__bytes_op_write.sum"))
    if moved is None:
        moved = first("dram__bytes.sum")
    rate = moved / duration_s if moved is not None and duration_s else first("dram__bytes.sum.per_second")
    local = _sum(metrics, [_LSU.format("sectors", "local", op) for op in ("ld", "st")])
    issued = first("smsp__issue_active.avg.pct_of_peak_sustained_active", "smsp__issue_active.avg.pct")
    if issued is None:
        issued = _times(first("smsp__issue_active.avg.per_cycle_active"), 100.0)
    shared = first("launch__shared_mem_per_block")
    if shared is None:
        parts = [f"launch__shared_mem_per_block_{part}" for part in ("static", "dynamic")]
        shared = _sum(metrics, parts)
    counted = {f.name: first(*f.metadata["counters"]) for f in fields(Figures) if f.metadata}
    return Figures(
        **counted,
        duration_ns=_times(duration_s, 1e9),
        dram_bytes_per_s=rate,
        issue_percent=issued,
        shared_bytes=shared,
        local_bytes=_times(local, SECTOR_BYTES),
        load_efficiency_percent=_efficiency(metrics, "ld"),
        store_efficiency_percent=_efficiency(metrics, "st"),
        sectors_per_load=_per_request(metrics, "ld"),
        sectors_per_store=_per_request(metrics, "st"),
        bank_conflict_percent=_conflicts(metrics),
    )


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
    text = (
        f"{name} at {counted[name]:.0f} % of its peak"
        if name == "DRAM"
        else f"{name} at {counted[name]:.0f} %"
    )
    if counted[name] >= BUSY:
        return f"{text}: that is the limit"
    if counted[name] >= IDLE:
        return f"{text} are the busiest, and not saturated"
    return f"latency: nothing is busy ({text} at most), so warps wait; see the stalls"


def _sum(metrics: Mapping[str, float], names: tuple[str, ...] | list[str]) -> float | None:
    return sum(metrics[name] for name in names) if all(name in metrics for name in names) else None


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _efficiency(metrics: Mapping[str, float], op: str) -> float | None:
    share = _times(metrics.get(_PER_SECTOR.format(op, "ratio")), 100.0 / SECTOR_BYTES)
    percent = metrics.get(_PER_SECTOR.format(op, "pct")) if share is None else share
    return percent or None  # 0 says that there was no such access


def _per_request(metrics: Mapping[str, float], op: str) -> float | None:
    requests = metrics.get(_LSU.format("requests", "global", op))
    sectors = metrics.get(_LSU.format("sectors", "global", op))
    return sectors / requests if requests and sectors is not None else None


def _conflicts(metrics: Mapping[str, float]) -> float | None:
    count = _sum(metrics, [f"{_CONFLICTS}_op_{op}.sum" for op in ("ld", "st")])
    if count is None:
        count = metrics.get(f"{_CONFLICTS}.sum")
    wavefronts = metrics.get("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    return 100.0 * count / wavefronts if wavefronts and count is not None else None
