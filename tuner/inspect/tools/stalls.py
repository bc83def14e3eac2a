"""Why warps wait: the reasons that the hardware counts, what each means, and what helps against it.

The counters are the cycles that a warp spends in each state between two instructions that it issues, averaged over
warps; their sum is the latency of an instruction as a warp sees it. What each state means is in NVIDIA's Nsight Compute
documentation ("Warp Stall Reasons" in its profiling guide); the remedies are this project's reading of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.inspect.tools.figures import BUSY, Figures

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


@dataclass(frozen=True)
class Reason:
    """A state in which a warp issues nothing."""

    meaning: str
    remedy: str


REASONS: dict[str, Reason] = {
    "long_scoreboard": Reason(
        "waits for data from global or local memory",
        "more bytes in flight: more items per thread, wider loads, all loads before the first use, asynchronous copies "
        "with more stages, or more warps",
    ),
    "short_scoreboard": Reason(
        "waits for shared memory, or for a special function (exp, sin, a square root)",
        "padding or a swizzle against bank conflicts, values kept in registers, fewer special functions; since "
        "compute capability 10.0 misses of the constant cache count here, too",
    ),
    "barrier": Reason(
        "waits for the other warps of its block at __syncthreads()",
        "equal work for all warps, fewer barriers (two buffers in turn need one for each tile), smaller blocks so that "
        "another one can work meanwhile",
    ),
    "mio_throttle": Reason(
        "the queue of the shared memory, special functions and dynamic branches is full",
        "fewer and wider accesses to shared memory (128 bits, ldmatrix), more of each tile in registers",
    ),
    "lg_throttle": Reason(
        "the queue of global and local memory instructions is full",
        "fewer and wider instructions: vectors of 16 bytes per thread instead of single elements",
    ),
    "math_pipe_throttle": Reason(
        "the pipe that its next instruction needs is busy",
        "this is how a kernel looks that computes all the time: a faster pipe (tensor cores, two 16-bit values at "
        "once), or fewer instructions",
    ),
    "not_selected": Reason(
        "is ready, but another warp was issued",
        "nothing to repair: there are more ready warps than the scheduler can issue, so fewer warps with more "
        "registers each may do as well",
    ),
    "wait": Reason(
        "waits the fixed latency of the instruction before",
        "independent work between dependent instructions: several items per thread, unrolled, or several accumulators",
    ),
    "membar": Reason(
        "waits at a memory fence until its writes are visible",
        "fewer or narrower fences (block before device before system), and fewer writes still on their way there",
    ),
    "tex_throttle": Reason(
        "the queue of the texture unit is full",
        "plain loads in the place of texture fetches, or fewer of them",
    ),
    "drain": Reason(
        "has ended, and waits for its last stores",
        "wide, contiguous stores, and not all of them at the very end",
    ),
    "imc_miss": Reason(
        "waits for a constant or a kernel argument that is not in its cache",
        "more work for each block, so that the first touch counts less; one constant for all lanes of a warp at a time",
    ),
    "no_instruction": Reason(
        "waits for its next instruction to be fetched",
        "a shorter loop body (less unrolling), fewer jumps; with less than one wave of blocks it is the kernel's start",
    ),
    "branch_resolving": Reason(
        "waits for the target of a branch",
        "fewer branches in the inner loop: unrolling, predicates in the place of jumps, tails outside of the loop",
    ),
    "dispatch_stall": Reason(
        "was chosen, but the dispatcher held it back",
        "a mix of instructions that needs fewer ports of the register file at a time; rarely worth an attempt",
    ),
    "sleeping": Reason("sleeps on purpose (nanosleep)", "shorter or fewer sleeps in the loops that poll"),
    "gmma": Reason(
        "waits for the operands of a warp group's matrix product (wgmma)",
        "more stages of tiles ahead, larger tiles, and a second warp group that computes while this one waits",
    ),
    "misc": Reason("waits for something else", "look for the finding elsewhere"),
}
REASONS["warpgroup_arrive"] = REASONS["gmma"]


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


def top_stalls(metrics: Mapping[str, float], figures: Figures) -> list[Stall]:
    """Return the reasons that cost most, the largest first, each with what helps in this launch."""
    cycles = {match[1]: value for name, value in metrics.items() if (match := _METRIC.fullmatch(name))}
    whole = sum(cycles.values())
    stalls = []
    for reason, value in sorted(cycles.items(), key=lambda item: -item[1]):
        if reason == "selected" or not whole or value < LEAST_SHARE * whole:  # selected: it issues
            continue
        stall = REASONS.get(reason, REASONS["misc"])
        stalls.append(Stall(reason, value, value / whole, stall.meaning, remedy_of(reason, figures)))
    return stalls[:MOST]


def remedy_of(reason: str, figures: Figures) -> str:
    """Return what helps against a reason, in the light of the launch's other figures."""
    general = REASONS.get(reason, REASONS["misc"]).remedy
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
