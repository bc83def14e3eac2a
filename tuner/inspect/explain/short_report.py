"""Why a configuration is as fast as it is, in short: what bounds it, what to change, and what was not examined."""

from __future__ import annotations

import click

from tuner.inspect.explain.advice import AdviceVerdict, advise
from tuner.inspect.explain.explanation import Explanation
from tuner.inspect.explain.report import FLOP_NOT_KNOWN, advice_rows, resident_text, roof_text
from tuner.report import tables
from tuner.report.configurations import Texts, timed_text

NOT_EXAMINED = "cache hits and stalls"
"""What the numbers of a configuration do not show; ``tune profile`` measures it."""


def show_in_short(explanation: Explanation) -> None:
    """Print six lines, and the advice that is not ok."""
    gpu, advice = explanation.gpu, advise(explanation)
    undecided = sorted({line.name for line in advice if line.verdict is AdviceVerdict.UNKNOWN})
    left_open = f"; not decided by numbers alone: {', '.join(undecided)}" if undecided else ""
    unread = "" if all(launch.facts for launch in explanation.launches) else "the machine code, "
    texts = Texts.of_kernel(explanation.kernel)
    tables.show_pairs(
        [
            ("problem", f"{explanation.problem} on {gpu.name}"),
            ("configuration", f"{texts(explanation.configuration)} ({explanation.source})"),
            ("time", _time(explanation)),
            ("bound", _bound(explanation)),
            ("resident", _resident(explanation)),
            ("addresses", explanation.addresses),
            ("not examined", f"{unread}{NOT_EXAMINED}{left_open}"),
            *(("note", note) for note in (*explanation.notes, explanation.launch_note)),
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


def _time(explanation: Explanation) -> str:
    if not explanation.time_ns:
        return "not measured"
    how = f" ({explanation.conditions})" if explanation.conditions else ""
    return f"{timed_text(explanation.time_ns, explanation.metrics)}{how}"


def _bound(explanation: Explanation) -> str:
    least_ns = explanation.roof.speed_of_light_ns
    if not explanation.roof.flops:
        least = f"; its bytes take at least {tables.duration(least_ns)}" if least_ns else ""
        return f"{FLOP_NOT_KNOWN}{least}"
    least = f", so at least {tables.duration(least_ns)}" if least_ns else ""
    return f"{explanation.binding}: {roof_text(explanation)} by the data sheet{least}"


def _resident(explanation: Explanation) -> str:
    """Return how full an SM is; of several launches, in that which fills it least."""
    launches = explanation.launches
    number, launch = min(enumerate(launches, 1), key=lambda pair: pair[1].occupancy.fraction)
    resources = launch.resources
    spills = f", {resources.spill_bytes} B of spills" if resources.spill_bytes else ""
    which = f"launch {number} of {len(launches)}: " if len(launches) > 1 else ""
    return f"{which}{resident_text(launch)}; {resources.registers} registers per thread{spills}"
