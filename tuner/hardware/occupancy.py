"""How many blocks of a kernel an SM holds, what keeps it from holding more, and how full the waves are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tuner.expressions.evaluation import ceil_div, round_up
from tuner.model import Gpu

WARP = 32
PARTITIONS = 4
"""An SM's registers and schedulers come in four parts, and a warp lives in one of them."""
REGISTER_UNIT = 256
"""Registers are given to a warp in units of this many."""
KIB = 1 << 10

# What of the L1's memory an SM can set aside as shared memory, by compute capability: "Shared Memory" in the CUDA
# programming guide's part on each of them, as cuda_occupancy.h of CUDA 13 has it, too. KiB.
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
    """One of the things that an SM has only so much of."""

    name: str
    """``threads``, ``blocks`` (slots), ``registers``, ``shared memory`` or ``barriers``."""
    blocks: int
    """Blocks for which there is enough of it."""
    too_much: int | None
    """How much less of it a block must take for one more block than are resident now: threads of a block, registers of
    a thread, bytes of a block, barriers of a block. 0 where it is not in the way, None where nothing helps."""


@dataclass(frozen=True)
class Occupancy:
    """How many blocks of a kernel an SM holds at once, and what keeps it from holding more."""

    active_blocks: int
    limiter: str
    """The first of :attr:`limits` that allows no more."""
    fraction: float
    """Active warps over the most that the SM can hold."""
    warps: int = 0
    """Active warps."""
    max_warps: int = 0
    limits: tuple[Limit, ...] = ()
    """Each limit by itself."""

    @property
    def limiters(self) -> tuple[Limit, ...]:
        """All limits that allow no more: each of them is in the way of one more block."""
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
    """Count the blocks that fit on one SM, by the rules of NVIDIA's ``cuda_occupancy.h``.

    Args:
        gpu: its limits.
        threads: of one block.
        registers: of one thread; 0 if not known.
        shared_bytes: of one block, static and dynamic together.
        carveout: percentage of the L1 that is asked for as shared memory; None assumes the most, as the driver gives
            where it helps. A block that needs more than was asked for gets it.
        barriers: named barriers of one block; 0 if not known. They count from compute capability 9.0 on.
    """
    asked = {"threads": threads, "blocks": 0, "registers": registers, "shared memory": shared_bytes}
    rules: dict[str, Callable[[int], int]] = {
        "threads": lambda value: _by_threads(gpu, value),
        "blocks": lambda _: gpu.max_blocks_per_sm,
        "registers": lambda value: _by_registers(gpu, threads, value),
        "shared memory": lambda value: _by_shared_memory(gpu, value, carveout),
    }
    if not registers:
        del asked["registers"]
    if barriers and gpu.cc >= 90:
        asked["barriers"] = barriers
        rules["barriers"] = lambda value: _barriers(gpu) // value
    found = {name: rules[name](value) for name, value in asked.items()}
    limiter = min(found, key=lambda name: found[name])
    active = found[limiter]
    limits = tuple(
        Limit(name, found[name], _too_much(rules[name], _less(name, value, gpu), value, active + 1))
        for name, value in asked.items()
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
    """Named barriers of an SM, which its blocks share: two for each block that it can hold; one on small Blackwells."""
    return gpu.max_blocks_per_sm * (2 if gpu.cc in (90, 100) else 1)


def shared_granularity(gpu: Gpu) -> int:
    """Bytes in whose multiples blocks get shared memory."""
    return 128 if gpu.cc >= 80 else 256


def shared_capacity(gpu: Gpu, taken: int, carveout: int | None) -> int:
    """Return the bytes of shared memory that an SM sets aside.

    Args:
        gpu: its limits.
        taken: bytes that one block takes: what it asks for, what the system adds, rounded up.
        carveout: percentage asked for, as in :func:`occupancy`.
    """
    most = gpu.shared_bytes_per_sm
    if carveout is None:
        return most
    cc = gpu.cc if gpu.cc in _CARVEOUTS else max(known for known in (75, 80, 90, 120) if known <= gpu.cc)
    sizes = [size * KIB for size in _CARVEOUTS[cc] if size * KIB <= most]
    wanted = max(carveout * most // 100, taken)
    return next((size for size in sizes if size >= wanted), most)


def _less(name: str, value: int, gpu: Gpu) -> Iterable[int]:
    """Smaller amounts, each the largest that costs less than the one before."""
    match name:
        case "threads":
            return range(WARP * (int(ceil_div(value, WARP)) - 1), 0, -WARP)
        case "registers" | "barriers":
            return range(value - 1, 0, -1)
        case "shared memory":
            unit, reserved = shared_granularity(gpu), gpu.reserved_shared_bytes
            return range((value + reserved) // unit * unit - reserved, -1, -unit)
    return ()


def _too_much(rule: Callable[[int], int], less: Iterable[int], value: int, blocks: int) -> int | None:
    if rule(value) >= blocks:
        return 0
    return next((value - smaller for smaller in less if rule(smaller) >= blocks), None)


@dataclass(frozen=True)
class Waves:
    """How a grid falls onto the SMs: as many blocks as fit at once, then the next ones as those end."""

    blocks: int
    """Of the grid."""
    per_sm: int
    """Resident on one SM at once, at most."""
    sm_count: int

    @property
    def slots(self) -> int:
        """Blocks that the whole GPU holds at once."""
        return self.per_sm * self.sm_count

    @property
    def count(self) -> float:
        """Waves; below 1 not even all slots are filled once."""
        return self.blocks / self.slots if self.slots else 0.0

    @property
    def at_once(self) -> bool:
        """Whether all blocks are resident together, so that none ever waits for another to end."""
        return 0 < self.blocks <= self.slots

    @property
    def sms_used(self) -> int:
        """SMs that get a block."""
        return min(self.blocks, self.sm_count)

    @property
    def last_idle(self) -> float:
        """Share of the last wave's slots that stay empty; of the SMs' turns where there is but one wave."""
        if not self.slots:
            return 0.0
        if self.at_once:
            return self.idle
        rest = self.blocks % self.slots
        return (self.slots - rest) / self.slots if rest else 0.0

    @property
    def idle(self) -> float:
        """Share of all slots of all waves that stay empty, if every block takes equally long.

        Where all blocks are resident at once it is the share of time that SMs with fewer blocks wait for those with
        most of them: an SM with two of the blocks needs twice the time of one with a single one.
        """
        if not self.slots:
            return 0.0
        room = self.sm_count if self.at_once else self.slots
        turns = -(-self.blocks // room)
        return 1.0 - self.blocks / (turns * room)
