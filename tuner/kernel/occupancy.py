"""Occupancy: how many blocks of a kernel an SM holds, which limits prevent more, and how full the waves are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.core.model import Gpu
from tuner.runtime.expressions import ceil_div, round_up

WARP = 32
PARTITIONS = 4
"""An SM's registers and schedulers are in four partitions, and a warp stays in one of them."""
REGISTER_UNIT = 256
"""Registers are allocated to a warp in multiples of this."""
KIB = 1 << 10

# KiB of the L1 that an SM can use as shared memory, by compute capability: "Shared Memory" in the CUDA programming
# guide's section on each of them, and cuda_occupancy.h of CUDA 13.
_CARVEOUTS = {
    75: (32, 64),
    80: (0, 8, 16, 32, 64, 100, 132, 164),
    86: (0, 8, 16, 32, 64, 100),
    87: (0, 8, 16, 32, 64, 100, 132, 164),
    89: (0, 8, 16, 32, 64, 100),
    90: (0, 8, 16, 32, 64, 100, 132, 164, 196, 228),
    120: (0, 8, 16, 32, 64, 100),
}


@dataclass(frozen=True)
class Limit:
    """A limited resource of an SM."""

    name: str
    """``threads``, ``blocks`` (slots), ``registers``, ``shared memory`` or ``barriers``."""
    blocks: int
    """Blocks for which it suffices."""
    too_much: int | None
    """How much less of it a block must use for one more resident block: threads of a block, registers of a thread,
    bytes of a block, barriers of a block. 0 if it does not limit, None if no reduction suffices."""


@dataclass(frozen=True)
class Occupancy:
    """How many blocks of a kernel an SM holds at once, and which limits prevent more."""

    active_blocks: int
    limiter: str
    """Name of the first of :attr:`limits` that allows no more."""
    fraction: float
    """Active warps over the SM's maximum."""
    warps: int = 0
    """Active warps."""
    max_warps: int = 0
    limits: tuple[Limit, ...] = ()
    """Each limit by itself."""

    @property
    def limiters(self) -> tuple[Limit, ...]:
        """All limits that prevent one more block."""
        return tuple(limit for limit in self.limits if limit.blocks == self.active_blocks)


def occupancy(
    gpu: Gpu,
    threads: int,
    registers: int,
    shared_bytes: int,
    *,
    carveout: int | None = None,
    barriers: int = 0,
) -> Occupancy:
    """Return the blocks that fit on one SM, by the rules of NVIDIA's ``cuda_occupancy.h``.

    Args:
        gpu: its limits.
        threads: of one block.
        registers: of one thread; 0 if unknown.
        shared_bytes: of one block, static and dynamic together.
        carveout: percentage of the L1 requested as shared memory; a block that needs more gets it. None assumes the
            maximum, as the driver chooses where it helps.
        barriers: named barriers of one block; 0 if unknown. They count from compute capability 9.0 on.
    """
    unit, reserved = shared_granularity(gpu), gpu.reserved_shared_bytes
    # Of each resource: what a block takes, the blocks that fit if it takes so much, and smaller amounts, by the unit
    # in which it is allocated.
    rules: dict[str, tuple[int, Callable[[int], int], Sequence[int]]] = {}
    fewer_threads = range(WARP * (int(ceil_div(threads, WARP)) - 1), 0, -WARP)
    rules["threads"] = threads, lambda value: _by_threads(gpu, value), fewer_threads
    rules["blocks"] = 0, lambda _: gpu.max_blocks_per_sm, ()
    if registers:
        fewer = range(registers - 1, 0, -1)
        rules["registers"] = registers, lambda value: _by_registers(gpu, threads, value), fewer
    less_shared = range((shared_bytes + reserved) // unit * unit - reserved, -1, -unit)
    rules["shared memory"] = shared_bytes, lambda value: _by_shared_memory(gpu, value, carveout), less_shared
    if barriers and gpu.cc >= 90:
        rules["barriers"] = barriers, lambda value: _barriers(gpu) // value, range(barriers - 1, 0, -1)
    blocks = {name: rule(demand) for name, (demand, rule, _) in rules.items()}
    limiter = min(blocks, key=lambda name: blocks[name])
    active = blocks[limiter]
    limits = tuple(
        Limit(name, blocks[name], _too_much(rule, less, demand, active + 1))
        for name, (demand, rule, less) in rules.items()
    )
    warps, most = active * ceil_div(threads, WARP), gpu.max_threads_per_sm // WARP
    return Occupancy(active, limiter, warps / most, warps, most, limits)


def _by_threads(gpu: Gpu, threads: int) -> int:
    if threads > gpu.max_threads_per_block:
        return 0
    return gpu.max_threads_per_sm // WARP // int(ceil_div(threads, WARP))


def _by_registers(gpu: Gpu, threads: int, registers: int) -> int:
    warps = ceil_div(threads, WARP)
    of_a_warp = round_up(registers * WARP, REGISTER_UNIT)
    # A launch is checked as if its warps filled all partitions evenly.
    if of_a_warp * round_up(warps, PARTITIONS) > gpu.registers_per_sm:
        return 0
    return int(gpu.registers_per_sm // PARTITIONS // of_a_warp * PARTITIONS // warps)


def _by_shared_memory(gpu: Gpu, shared_bytes: int, carveout: int | None) -> int:
    if shared_bytes > gpu.shared_bytes_optin:
        return 0
    taken = int(round_up(shared_bytes + gpu.reserved_shared_bytes, shared_granularity(gpu)))
    return shared_capacity(gpu, taken, carveout) // taken if taken else gpu.max_blocks_per_sm


def _barriers(gpu: Gpu) -> int:
    """Return the named barriers that an SM's blocks share: two for each block that it can hold, one on small
    Blackwells."""
    return gpu.max_blocks_per_sm * (2 if gpu.cc in (90, 100) else 1)


def shared_granularity(gpu: Gpu) -> int:
    """Return the unit in which shared memory is allocated, in bytes."""
    return 128 if gpu.cc >= 80 else 256


def shared_capacity(gpu: Gpu, taken: int, carveout: int | None) -> int:
    """Return the bytes of an SM's shared memory.

    Args:
        gpu: its limits.
        taken: bytes of one block with what the system reserves, rounded up.
        carveout: requested percentage, as in :func:`occupancy`.
    """
    most = gpu.shared_bytes_per_sm
    if carveout is None:
        return most
    cc = gpu.cc if gpu.cc in _CARVEOUTS else max(listed for listed in (75, 80, 90, 120) if listed <= gpu.cc)
    sizes = [size * KIB for size in _CARVEOUTS[cc] if size * KIB <= most]
    requested = max(carveout * most // 100, taken)
    return next((size for size in sizes if size >= requested), most)


def _too_much(rule: Callable[[int], int], less: Sequence[int], value: int, blocks: int) -> int | None:
    if rule(value) >= blocks:
        return 0
    return next((value - smaller for smaller in less if rule(smaller) >= blocks), None)


@dataclass(frozen=True)
class Waves:
    """How a grid runs on the SMs: in waves of as many blocks as fit at once."""

    blocks: int
    """Of the grid."""
    per_sm: int
    """Most blocks resident on one SM."""
    sm_count: int

    @property
    def slots(self) -> int:
        """Blocks that the GPU holds at once."""
        return self.per_sm * self.sm_count

    @property
    def count(self) -> float:
        """Number of waves; below 1 if the grid does not fill all slots once."""
        return self.blocks / self.slots if self.slots else 0.0

    @property
    def at_once(self) -> bool:
        """Whether all blocks are resident at once, so that none waits for another to end."""
        return 0 < self.blocks <= self.slots

    @property
    def sms_used(self) -> int:
        """SMs that get a block."""
        return min(self.blocks, self.sm_count)

    @property
    def last_idle(self) -> float:
        """Share of the last wave's slots that stay empty; with a single wave, :attr:`idle`."""
        if not self.slots:
            return 0.0
        if self.at_once:
            return self.idle
        rest = self.blocks % self.slots
        return (self.slots - rest) / self.slots if rest else 0.0

    @property
    def idle(self) -> float:
        """Share of all slots of all waves that stay empty, if all blocks take equally long.

        If all blocks are resident at once, it is the share of time in which SMs with fewer blocks wait for those with
        the most: an SM with two blocks needs twice the time of an SM with one.
        """
        if not self.slots:
            return 0.0
        room = self.sm_count if self.at_once else self.slots
        turns: int = ceil_div(self.blocks, room)
        return 1.0 - self.blocks / (turns * room)
