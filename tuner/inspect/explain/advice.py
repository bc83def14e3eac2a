"""What the numbers of a configuration suggest, each with its reason; what is a rule of thumb says so."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from tuner.core.model import Gpu
from tuner.inspect.emulator.accesses import Pattern
from tuner.inspect.explain.code import WIDEST
from tuner.inspect.explain.explanation import Explanation, LaunchExplanation, UnderWay
from tuner.inspect.explain.sass import Kind
from tuner.kernel.batching import LAUNCH_NS
from tuner.kernel.occupancy import WARP, Limit
from tuner.report.tables import counted

TAIL = 0.2
"""Share of the block slots that stay empty, from which it is worth a try to change the grid."""
FAIR_SHARE = 0.125
"""Share of the bytes on the main path below which it does not matter how wide an access is."""
FEW_WARPS = 0.5
"""Share of an SM's warps below which latency may show. A rule of thumb."""


WASTE = 2.0
"""As many times the sectors, or the turns of the banks, that its data fill are worth a try, and more a problem: of rows
that begin anywhere a warp takes 5 sectors for 4, and of bytes 2 for 1."""
MOST_PATTERNS = 3
"""Lines that are named, the most wasteful first."""


class AdviceVerdict(StrEnum):
    """What to do about it."""

    OK = "ok"
    TRY = "worth a try"
    PROBLEM = "problem"
    UNKNOWN = "not known"
    """What can be read does not decide it."""


OK, TRY, PROBLEM, UNKNOWN = AdviceVerdict


@dataclass(frozen=True)
class Advice:
    """One line."""

    name: str
    verdict: AdviceVerdict
    text: str
    """The reason, with its numbers."""
    rule_of_thumb: bool = False
    launch: int = 0
    """Which launch it is about, from 1; 0 for the configuration as a whole."""


def advise(explanation: Explanation) -> tuple[Advice, ...]:
    """Go through all that can be said without running anything."""
    lines = list(_whole(explanation))
    for number, launch in enumerate(explanation.launches, 1):
        own = [
            *_launch(explanation, launch),
            *itertools.chain(*map(_patterns, explanation.patterns[number - 1 :][:1])),
        ]
        lines += [replace(line, launch=number) for line in own]
    return tuple(lines)


def _whole(explanation: Explanation) -> Iterator[Advice]:
    least_ns, launches = explanation.roof.speed_of_light_ns, sum(one.times for one in explanation.launches)
    if 0 < least_ns < launches * LAUNCH_NS:
        what = "the launch" if launches == 1 else f"the {launches} launches"
        repeated = any(one.times > 1 for one in explanation.launches)
        so = "fewer are faster" if repeated else "no configuration is much faster than another"
        yield Advice(
            "launch latency",
            PROBLEM,
            f"{what} cost{'s' if launches == 1 else ''} about {launches * LAUNCH_NS / 1e3:.1f} us, the work at the "
            f"speed of light {least_ns / 1e3:.2g} us: {so}; give a launch more work, or join it with its neighbours",
        )
    if explanation.pipe == "matrix":
        count = sum(number for launch in explanation.launches for number in _matrix(launch))
        if count:
            yield Advice("tensor cores", OK, f"{count} instructions for them in the code, counted once")
        elif all(launch.facts for launch in explanation.launches) and explanation.binding == "matrix":
            yield Advice("tensor cores", TRY, "the roof is theirs, and the code has no instruction for them")


def _matrix(launch: LaunchExplanation) -> Iterator[int]:
    if launch.facts:
        yield from (count for _, count in launch.facts.whole.matrix)


def _launch(explanation: Explanation, launch: LaunchExplanation) -> Iterator[Advice]:
    yield from _block_size(explanation, launch)
    yield _resident(explanation, launch)
    yield from _stack(launch)
    if launch.waves.slots:
        yield _tail(explanation.gpu, launch)
    if explanation.binding == "bandwidth" and launch.facts is not None:
        yield from _width(launch)
        yield from _under_way(explanation, launch)


def _in_tiles(explanation: Explanation, launch: LaunchExplanation) -> bool:
    """Return whether the tensor cores bind: their tiles take registers and shared memory, and few warps are enough."""
    return explanation.binding == "matrix" and any(_matrix(launch))


# -- rules of thumb for the block size


def _block_size(explanation: Explanation, launch: LaunchExplanation) -> Iterator[Advice]:
    missed = UNKNOWN if _in_tiles(explanation, launch) else TRY
    for name, holds, text in _rules(explanation.gpu, launch):
        yield Advice(f"block size: {name}", OK if holds else missed, text, rule_of_thumb=True)


def _rules(gpu: Gpu, launch: LaunchExplanation) -> Iterator[tuple[str, bool, str]]:
    """Return the name of each rule, whether it holds, and the numbers that it goes by."""
    threads, registers = launch.launch.threads, launch.resources.registers
    most, slots = gpu.max_threads_per_sm, gpu.max_blocks_per_sm
    idle = -threads % WARP
    yield "warp_multiple", not idle, f"{threads} threads leave {idle} lanes of the last warp idle"
    fewest, needed = -(-most // slots), -(-most // threads)
    text = f"{needed} blocks of {threads} threads fill an SM; its {slots} slots are enough from {fewest} threads on"
    yield "occupancy", needed <= slots, text
    blocks, empty = divmod(most, threads)
    text = f"{blocks} blocks of {threads} leave {empty} of the {most} threads of an SM empty"
    yield "divides_sm", not empty, text
    if registers:
        fit = {limit.name: limit.blocks for limit in launch.occupancy.limits}
        others = min(fit["threads"], fit["blocks"])
        text = f"an SM has registers for {fit['registers']} blocks of {registers} per thread, and room for {others}"
        yield "registers", fit["registers"] >= others, text


# -- the SM


def _resident(explanation: Explanation, launch: LaunchExplanation) -> Advice:
    fit = launch.occupancy
    if not fit.active_blocks:
        return Advice("resident warps", PROBLEM, f"not one block fits on an SM: too many {fit.limiter}")
    share = f"{fit.warps} of {fit.max_warps} warps are resident ({100 * fit.fraction:.0f} %)"
    if fit.fraction >= FEW_WARPS:
        return Advice("resident warps", OK, share, rule_of_thumb=True)
    sufficient = launch.under_way is not None and launch.under_way.bytes >= explanation.wanted_bytes[0] > 0
    if explanation.binding == "bandwidth" and sufficient:
        return Advice("resident warps", OK, f"{share}: few, but enough bytes are in flight")
    reason = f"{share}; one more block needs {one_more(fit.limiters)}"
    if _in_tiles(explanation, launch):
        reason = f"{reason}; kernels of large tiles for tensor cores need few warps"
        return Advice("resident warps", UNKNOWN, reason, rule_of_thumb=True)
    return Advice("resident warps", TRY, reason, rule_of_thumb=True)


def size_text(size_bytes: float) -> str:
    """Return a size as people read it."""
    if size_bytes >= 1024:
        return f"{size_bytes / 1024:.3g} KiB"
    return f"{size_bytes:.2g} B" if 0 < size_bytes < 1 else f"{size_bytes:.0f} B"


def in_flight_text(under_way: UnderWay) -> str:
    """Return the bytes that an SM has in flight."""
    return f"{'at most ' if under_way.at_most else ''}{size_text(under_way.bytes)} per SM"


def one_more(limits: tuple[Limit, ...]) -> str:
    """Say what one more resident block takes: everything that is in its way."""
    return " and ".join(_less(limit) for limit in limits)


def _less(limit: Limit) -> str:
    if limit.too_much is None:
        return f"more {'slots for blocks' if limit.name == 'blocks' else limit.name} than an SM has"
    if limit.name == "shared memory":
        return f"{size_text(limit.too_much)} less shared memory per block"
    of = {"registers": " per thread", "threads": " per block"}.get(limit.name, "")
    return f"{counted(limit.too_much, limit.name.removesuffix('s'))}{of} fewer"


def _stack(launch: LaunchExplanation) -> Iterator[Advice]:
    spilled, stack = launch.resources.spill_bytes, launch.resources.stack_bytes
    if spilled:
        yield Advice(
            "spills",
            PROBLEM,
            f"{spilled} bytes of spill stores and loads: registers go to memory and back; smaller tiles, fewer items a "
            "thread, or fewer blocks asked for on an SM",
        )
    elif stack:
        yield Advice(
            "stack",
            TRY,
            f"{stack} bytes: an array whose index is not known when compiling lies in memory; unroll its loop",
        )
    else:
        yield Advice("spills", OK, "none")


def _tail(gpu: Gpu, launch: LaunchExplanation) -> Advice:
    waves = launch.waves
    if waves.sms_used < gpu.sm_count:
        blocks, idle = counted(waves.blocks, "block"), gpu.sm_count - waves.sms_used
        text = f"{blocks}: {idle} of {gpu.sm_count} SMs get none"
        if launch.grows:
            return Advice("waves", OK, f"{text}, on purpose: the grid goes by their number")
        return Advice("waves", PROBLEM, f"{text}; smaller tiles, or a split of the longest dimension")
    text = waves_text(launch)
    if waves.idle <= TAIL:
        return Advice("waves", OK, text)
    spread = f"a multiple of {gpu.sm_count} blocks is spread evenly"
    return Advice(
        "waves", TRY, f"{text}; {spread if waves.at_once else 'other tiles, or a grid that stays resident'}"
    )


def waves_text(launch: LaunchExplanation) -> str:
    """Return how the blocks of a launch follow each other on the SMs."""
    waves = launch.waves
    idle = f"{100 * waves.idle:.0f} %"
    if waves.at_once:
        further = " that loop over further tiles" if launch.persistent else ""
        blocks = counted(waves.blocks, "block")
        return f"one, of {blocks}{further}: SMs with fewer of them wait {idle} of the time"
    return f"{waves.count:.2f} waves of {waves.slots} blocks: {idle} of the slots stay empty"


# -- memory


def _patterns(patterns: Sequence[Pattern]) -> Iterator[Advice]:
    """Say where warps take more sectors, or more turns of the banks, than their data fill."""
    for shared, name in ((False, "memory access"), (True, "bank conflicts")):
        own = [one for one in patterns if one.shared is shared]
        wasteful = [
            one for one in own if one.cost >= WASTE * one.best and (shared or one.cost > one.best + 1)
        ]
        # A line may have several accesses of one pattern.
        texts = {_waste(one): PROBLEM if one.cost > WASTE * one.best else TRY for one in wasteful}
        yield from (Advice(name, verdict, text) for text, verdict in [*texts.items()][:MOST_PATTERNS])
        if own and not wasteful:
            of_global = "warps take few more sectors than their data fill"
            yield Advice(name, OK, "few lanes meet in the same bank" if shared else of_global)


def _waste(one: Pattern) -> str:
    where = f"{one.line or 'a line of its headers'} {'writes' if one.writes else 'reads'}"
    if one.shared:
        return f"{where} shared memory in {one.cost:.3g} turns: lanes meet in the same bank; pad the rows"
    return (
        f"{where} {one.name} in {one.cost:.3g} sectors a warp, where {one.best:.3g} hold the data: "
        "let neighbouring threads take neighbouring elements"
    )


def _width(launch: LaunchExplanation) -> Iterator[Advice]:
    assert launch.facts is not None
    part = launch.facts.walk
    if part.count(Kind.BULK_COPY):
        yield Advice("width of loads", OK, "the copy engine moves whole tiles")
        return
    for what, *kinds in (("loads", Kind.GLOBAL_LOAD, Kind.ASYNC_COPY), ("stores", Kind.GLOBAL_STORE)):
        width = part.widest(*kinds)
        if width >= WIDEST:
            yield Advice(f"width of {what}", OK, f"{width} bytes, the widest that every GPU has")
        elif part.moved(*kinds) >= FAIR_SHARE * part.global_bytes > 0:
            yield Advice(
                f"width of {what}",
                TRY,
                f"{width} byte{'s' * (width > 1)}; {WIDEST} move the same data with 1/{WIDEST // width} of the "
                f"{what}",
            )


def _under_way(explanation: Explanation, launch: LaunchExplanation) -> Iterator[Advice]:
    under_way, (least_bytes, most_bytes) = launch.under_way, explanation.wanted_bytes
    if under_way is None or not least_bytes or not under_way.bytes:
        return
    have = in_flight_text(under_way)
    want = f"Little's law asks for {least_bytes / 1024:.0f} to {most_bytes / 1024:.0f} KiB"
    if under_way.bytes >= least_bytes:
        yield Advice("bytes in flight", OK, f"{have}; {want}")
    elif launch.waves.sms_used < explanation.gpu.sm_count and not launch.grows:
        yield Advice("bytes in flight", PROBLEM, f"{have} on average: the grid is too small; {want}")
        return
    else:
        verdict = PROBLEM if under_way.bytes < least_bytes / 2 else TRY
        yield Advice(
            "bytes in flight",
            verdict,
            f"{have}; {want}: wider loads, more of them before the first use, or more resident threads",
        )
    customary = explanation.customary_bytes
    yield Advice(
        "bytes in flight, CUB's",
        TRY if under_way.bytes < customary else OK,
        f"{have}; CUB chooses items per thread for {customary >> 10} KiB on this architecture",
        rule_of_thumb=True,
    )
