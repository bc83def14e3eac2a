"""Why a configuration is as fast as it is, for people, in short or in full, and for programs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click
from msgspec import structs

from tuner.inspect.explain.advice import Advice, AdviceVerdict, advise, in_flight_text, one_more, waves_text
from tuner.inspect.explain.code import Access, CodeFacts, Part
from tuner.inspect.explain.explanation import Explanation, LaunchExplanation
from tuner.inspect.explain.sass import GLOBAL, Kind
from tuner.kernel.occupancy import Limit
from tuner.kernel.roofline import LATENCY_NS, Ceiling, Roof
from tuner.report import tables
from tuner.report.configurations import Texts, timed_text
from tuner.report.terminal import printable

MANY_LOOPS = 12
"""Rows of the table of loops at most."""
URGENCY = (AdviceVerdict.PROBLEM, AdviceVerdict.TRY, AdviceVerdict.UNKNOWN, AdviceVerdict.OK)
"""The order of the advice."""
FLOP_NOT_KNOWN = "not known: the kernel's file gives no FLOP; add work.flops"
"""What bounds a kernel of which only the bytes are known."""


def show_explanation(explanation: Explanation) -> None:
    """Print everything."""
    more = ("addresses", explanation.addresses), *notes_of(explanation)
    tables.show_pairs([*head(explanation, explanation.configuration), *_roofline(explanation), *more])
    several = len(explanation.launches) > 1
    for number, launch in enumerate(explanation.launches, 1):
        name = f"launch {number} of {len(explanation.launches)}" if several else "launch"
        name += f", the largest of {launch.times}" if launch.times > 1 else ""
        click.echo(f"\n--- {name}: {printable(launch.code.name)}")
        tables.show_pairs(_launch(explanation, launch))
        click.echo()
        columns = ("limit", "blocks", "binds", "one more block takes")
        tables.show(columns, _limits(launch), right=("blocks",))
        if launch.facts is not None:
            _show_code(launch.facts)
    click.echo("\n--- advice")
    columns = ("verdict", "about", *(("launch",) if several else ()), "because")
    tables.show(columns, advice_rows(advise(explanation), several))


def head(explanation: Explanation, configuration: object) -> Iterator[tuple[str, object]]:
    """Yield what is explained, its time, and what bounds it, as names and values."""
    gpu = explanation.gpu
    yield "problem", f"{explanation.problem} on {gpu.name} (cc {gpu.cc}, {gpu.sm_count} SMs)"
    yield "configuration", f"{configuration} ({explanation.source})"
    how = f" ({explanation.conditions})" if explanation.conditions else ""
    time_ns, metrics = explanation.time_ns, explanation.metrics
    yield "time", f"{timed_text(time_ns, metrics)}{how}" if time_ns else "not measured"
    yield "bound", _bound(explanation)


def notes_of(explanation: Explanation) -> Iterator[tuple[str, object]]:
    """Yield what a reader should know besides."""
    yield from (("note", note) for note in (*explanation.notes, explanation.launch_note))


def _bound(explanation: Explanation) -> str:
    roof, least_ns = explanation.roof, explanation.roof.speed_of_light_ns
    if not roof.flops:
        least = f"; its bytes take at least {tables.duration(least_ns)}" if least_ns else ""
        return f"{FLOP_NOT_KNOWN}{least}"
    rate = f"{_rate(roof.peak_flops, 'FLOP/s')} for {explanation.problem.dtype}"
    if explanation.binding == "bandwidth":
        rate = _rate(roof.peak_bytes_per_s, "B/s")
    least = f", so at least {tables.duration(least_ns)}" if least_ns else ""
    return f"{explanation.binding}: {rate} by the data sheet{least}"


def _roofline(explanation: Explanation) -> Iterator[tuple[str, object]]:
    roof, ceiling, time_ns = explanation.roof, explanation.ceiling, explanation.time_ns
    if not roof.flops:
        yield "work", f"at least {tables.si(roof.bytes, 'B')}"
        return
    yield "work", f"at least {tables.si(roof.flops, 'FLOP')} and {tables.si(roof.bytes, 'B')}"
    ridge = f"; this GPU's ridge is at {roof.ridge:.3g}" if 0 < roof.ridge < math.inf else ""
    yield "arithmetic intensity", f"{roof.intensity:{'.3g' if roof.intensity < 1e3 else '.0f'}} FLOP/B{ridge}"
    if ceiling is not None and time_ns != 0:
        reached = f", of which it reaches {tables.percent(ceiling.time_ns / time_ns)}" if time_ns else ""
        yield "measured ceiling", f"{_ceiling(roof, ceiling)}{reached}"


def _rate(rate: float, unit: str) -> str:
    return "not known" if math.isinf(rate) else tables.si(rate, unit)


def _ceiling(roof: Roof, ceiling: Ceiling) -> str:
    work, unit = (roof.bytes, "B/s") if ceiling.name in ("copy", "read") else (roof.flops, "FLOP/s")
    rate = tables.si(work / ceiling.time_ns * 1e9, unit)
    return f"{ceiling.name} {rate} on this GPU: {tables.duration(ceiling.time_ns)}"


# -- one launch


def _launch(explanation: Explanation, launch: LaunchExplanation) -> Iterator[tuple[str, object]]:
    plan, resources, fit = launch.launch, launch.resources, launch.occupancy
    noun = "block" if math.prod(plan.grid) == 1 else "blocks"
    yield "grid", f"{_extent(plan.grid)} {noun} of {_extent(plan.block)} threads"
    if plan.cluster:
        size = math.prod(plan.cluster)
        yield "cluster", f"{_extent(plan.cluster)}: {size} blocks start together on SMs of one GPC"
    yield "registers", f"{resources.registers} per thread"
    yield "shared memory", _shared(explanation, launch)
    yield "spills", f"{resources.spill_bytes} B" if resources.spill_bytes else "none"
    yield "stack", f"{resources.stack_bytes} B per thread" if resources.stack_bytes else ""
    yield "resident", f"{resident_text(launch)} ({100 * fit.fraction:.0f} % occupancy)"
    if launch.waves.slots:
        yield "waves", waves_text(launch)
    yield "note", launch.code.note
    if explanation.binding != "matrix":  # what bounds the tensor cores is not the bytes in flight
        yield from _under_way(explanation, launch)


def _shared(explanation: Explanation, launch: LaunchExplanation) -> str:
    resources = launch.resources
    sizes = {"static": resources.static_shared_bytes, "dynamic": resources.dynamic_shared_bytes}
    parts = [f"{size} B {name}" for name, size in sizes.items() if size]
    reserved = explanation.gpu.reserved_shared_bytes
    text = f"{' and '.join(parts) or 'none'} per block"
    text += f", and {reserved} B of the system's" if reserved else ""
    carveout = launch.launch.carveout
    return f"{text}; {carveout} % of the L1 requested" if carveout is not None else text


def _under_way(explanation: Explanation, launch: LaunchExplanation) -> Iterator[tuple[str, object]]:
    under_way, facts = launch.under_way, launch.facts
    if under_way is None or facts is None:
        return
    seen, count = facts.in_flight, under_way.threads
    threads = f"{count:.0f} threads" if count >= 10 else f"{count:.2g} threads"
    have = in_flight_text(under_way)
    if launch.waves.blocks < launch.waves.slots:
        threads += " on average"
    if under_way.at_most:
        how = "what the copy engine can fill of the resident blocks' shared memory"
    elif seen.copies:
        copies = f"{seen.copy_bytes} B in {tables.counted(seen.copies, 'asynchronous copy', 'asynchronous copies')}"
        how = f"{threads} x {tables.counted(seen.groups, 'group')} of {copies}"
    elif seen.loads:
        how = f"{threads} x {under_way.of_a_thread} B in {tables.counted(seen.loads, 'load')} before one is needed"
    else:
        yield "bytes in flight", "none by loads, by the SASS"
        return
    yield "bytes in flight", f"{have}: {how}, by the SASS"
    least_bytes, most_bytes = explanation.wanted_bytes
    if least_bytes:
        ends = " to ".join(f"{ns:.0f}" for ns in LATENCY_NS)
        yield (
            "  Little's law",
            f"{least_bytes / 1024:.0f} to {most_bytes / 1024:.0f} KiB per SM: "
            f"bandwidth x {ends} ns / {explanation.gpu.sm_count} SMs",
        )
        yield (
            "  rule of thumb",
            f"{explanation.customary_bytes >> 10} KiB per SM, as CUB has it for this architecture",
        )


def _limits(launch: LaunchExplanation) -> Iterator[tuple[object, ...]]:
    fit = launch.occupancy
    for limit in fit.limits:
        binds = limit.blocks == fit.active_blocks
        more = (
            one_more((limit,)) if binds and fit.fraction < 1 else ""
        )  # with all warps resident none is gained
        yield _limit_name(limit), limit.blocks, "yes" if binds else "", more


def resident_text(launch: LaunchExplanation) -> str:
    """Return how many blocks and warps an SM has, and what limits them."""
    fit = launch.occupancy
    blocks, limits = tables.counted(fit.active_blocks, "block"), " and ".join(map(_limit_name, fit.limiters))
    return f"{blocks} and {fit.warps} of {fit.max_warps} warps per SM, limited by {limits}"


def _limit_name(limit: Limit) -> str:
    return "block slots" if limit.name == "blocks" else limit.name


# -- its code


def _show_code(facts: CodeFacts) -> None:
    click.echo()
    tables.show_line("by the SASS, as written: each instruction counts once, and so does each loop")
    parts = [("main path", facts.walk)]
    loops = [(f"{'  ' * depth}loop {number}", part) for number, (depth, part) in enumerate(facts.loops, 1)]
    parts += loops[:MANY_LOOPS]
    if len(loops) > MANY_LOOPS:
        parts.append((f"  and {len(loops) - MANY_LOOPS} more loops", Part(0, (), (), 0)))
    parts.append(("all of it", facts.whole))
    tables.show(
        ("", "instructions", "global memory", "shared memory", "float", "tensor cores"),
        [_part(name, part) for name, part in parts],
        right=("instructions", "float"),
    )
    ratio = facts.instructions_per_byte
    if ratio is not None:
        moved = facts.walk.global_bytes
        tables.show_line(
            f"{ratio:.2g} instructions for each byte of global memory on the main path "
            f"({facts.walk.instructions} for {moved})"
        )


def _part(name: str, part: Part) -> tuple[object, ...]:
    apart = (*GLOBAL, Kind.BULK_COPY, Kind.BULK_STORE, Kind.LOCAL_LOAD, Kind.LOCAL_STORE)
    return (
        name,
        part.instructions or "",
        _accesses([access for access in part.accesses if access[0] in apart]),
        _accesses([access for access in part.accesses if access[0] not in apart]),
        part.float or "",
        ", ".join(f"{count} {opcode}" for opcode, count in part.matrix),
    )


_WORDS: Mapping[Kind, tuple[str, ...]] = {
    Kind.GLOBAL_LOAD: ("load",),
    Kind.GLOBAL_STORE: ("store",),
    Kind.ATOMIC: ("atomic",),
    Kind.ASYNC_COPY: ("async copy", "async copies"),
    Kind.BULK_COPY: ("bulk copy", "bulk copies"),
    Kind.BULK_STORE: ("bulk store",),
    Kind.SHARED_LOAD: ("load",),
    Kind.SHARED_STORE: ("store",),
    Kind.SHARED_ATOMIC: ("atomic",),
    Kind.LOCAL_LOAD: ("local load",),
    Kind.LOCAL_STORE: ("local store",),
}


def _accesses(accesses: Iterable[Access]) -> str:
    return ", ".join(
        tables.counted(count, *_WORDS[kind]) + (f" of {width} B" if width else "")
        for kind, width, count in accesses
    )


# -- advice


def advice_rows(lines: Sequence[Advice], several: bool) -> Iterator[tuple[object, ...]]:
    """Yield rows of a table of advice, the most urgent first."""
    for line in sorted(lines, key=lambda line: URGENCY.index(line.verdict)):
        reason = f"rule of thumb: {line.text}" if line.rule_of_thumb else line.text
        launch = ((line.launch or ""),) if several else ()
        yield (line.verdict, line.name, *launch, reason)


def _extent(sizes: tuple[int, int, int]) -> str:
    kept = sizes if sizes[2] > 1 else sizes[:2] if sizes[1] > 1 else sizes[:1]
    return " x ".join(map(str, kept))


# -- for programs


def explanation_as_json(explanation: Explanation) -> dict[str, Any]:
    """Return everything as plain data; times in nanoseconds, sizes in bytes, shares between 0 and 1."""
    roof, (least_bytes, most_bytes) = explanation.roof, explanation.wanted_bytes
    return {
        **explanation.problem.to_json(),
        "gpu": explanation.gpu.name,
        "cc": explanation.gpu.cc,
        **tables.configuration_record(explanation.configuration),
        "source": explanation.source,
        "notes": [*explanation.notes, *([explanation.launch_note] if explanation.launch_note else [])],
        "roofline": {
            **tables.picked(roof, "flops bytes intensity ridge"),
            "binding": explanation.binding,
            **tables.picked(roof, "peak_flops peak_bytes_per_s speed_of_light_ns"),
            "measured_ceiling": asdict(explanation.ceiling) if explanation.ceiling else None,
        },
        "time_ns": explanation.time_ns,
        "mode": explanation.conditions.mode if explanation.conditions else None,
        "regime": explanation.conditions.regime if explanation.conditions else None,
        **structs.asdict(explanation.metrics),
        "wanted_bytes_in_flight": {
            "latency_ns": LATENCY_NS,
            "bytes": [least_bytes, most_bytes],
            "cub_rule_of_thumb": explanation.customary_bytes,
        },
        "launches": [_launch_as_json(launch) for launch in explanation.launches],
        "access_patterns": [[structs.asdict(one) for one in some] for some in explanation.patterns],
        "addresses": explanation.addresses,
        "advice": [
            {
                "about": line.name,
                "verdict": line.verdict,
                "launch": line.launch or None,
                "rule_of_thumb": line.rule_of_thumb,
                "because": line.text,
            }
            for line in advise(explanation)
        ],
    }


def _launch_as_json(launch: LaunchExplanation) -> dict[str, Any]:
    fit, plan = launch.occupancy, launch.launch
    return {
        "entry": launch.code.entry,
        "name": launch.code.name,
        **tables.picked(plan, "grid block cluster carveout"),
        **({"times": launch.times} if launch.times > 1 else {}),
        **vars(launch.resources),
        "barriers": launch.code.barriers,
        "occupancy": {
            **tables.picked(fit, "active_blocks warps max_warps fraction limiter"),
            "limits": [asdict(limit) for limit in fit.limits],
        },
        "waves": {
            **tables.picked(launch.waves, "blocks slots count last_idle idle sms_used at_once"),
            "persistent": launch.persistent,
        },
        "bytes_in_flight": asdict(launch.under_way) if launch.under_way else None,
        "code": {"sass": _facts_as_json(launch.facts)} if launch.facts else {},
        "notes": [launch.code.note] if launch.code.note else [],
    }


def _facts_as_json(facts: CodeFacts) -> dict[str, Any]:
    return {
        "whole": _part_as_json(facts.whole),
        "main_path": _part_as_json(facts.walk),
        "loops": [{"depth": depth, **_part_as_json(part)} for depth, part in facts.loops],
        "in_flight": asdict(facts.in_flight),
        "instructions_per_byte": facts.instructions_per_byte,
    }


def _part_as_json(part: Part) -> dict[str, Any]:
    return {
        "instructions": part.instructions,
        "accesses": [{"kind": kind, "bytes": width, "count": count} for kind, width, count in part.accesses],
        "float": part.float,
        "matrix": dict(part.matrix),
        "global_bytes": part.global_bytes,
    }


NOT_EXAMINED = "cache hits and stalls"
"""What the numbers of a configuration do not show; ``tune profile`` measures it."""


def show_in_short(explanation: Explanation) -> None:
    """Print six lines, and the advice that is not ok."""
    advice = advise(explanation)
    undecided = sorted({line.name for line in advice if line.verdict is AdviceVerdict.UNKNOWN})
    left_open = f"; not decided by numbers alone: {', '.join(undecided)}" if undecided else ""
    unread = "" if all(launch.facts for launch in explanation.launches) else "the machine code, "
    texts = Texts.of_kernel(explanation.kernel)
    tables.show_pairs(
        [
            *head(explanation, texts(explanation.configuration)),
            ("resident", _resident(explanation)),
            ("addresses", explanation.addresses),
            ("not examined", f"{unread}{NOT_EXAMINED}{left_open}"),
            *notes_of(explanation),
        ]
    )
    click.echo()
    wanted = [line for line in advice if line.verdict in (AdviceVerdict.PROBLEM, AdviceVerdict.TRY)]
    if not wanted:
        tables.show_line("advice: nothing stands out in what was examined; --full shows it")
        return
    several = len(explanation.launches) > 1
    columns = ("advice", "about", *(("launch",) if several else ()), "because")
    tables.show(columns, advice_rows(wanted, several))


def _resident(explanation: Explanation) -> str:
    """Return how full an SM is; of several launches, in that which fills it least."""
    launches = explanation.launches
    number, launch = min(enumerate(launches, 1), key=lambda pair: pair[1].occupancy.fraction)
    resources = launch.resources
    spills = f", {resources.spill_bytes} B of spills" if resources.spill_bytes else ""
    which = f"launch {number} of {len(launches)}: " if len(launches) > 1 else ""
    return f"{which}{resident_text(launch)}; {resources.registers} registers per thread{spills}"
