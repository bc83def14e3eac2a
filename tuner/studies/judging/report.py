"""A verdict in a few lines, for people."""

from __future__ import annotations

import math
from collections.abc import Iterator

import click

from tuner.core.phases import listed
from tuner.report import tables
from tuner.report.terminal import printable
from tuner.studies.judging.verdict import ModeTimes, ProblemVerdict, Verdict, Versus


def show_verdict(verdict: Verdict, *, full: bool = False) -> None:
    """Print what became of a candidate, what was checked, its times, what was judged by, and if asked its phases."""
    click.echo(printable(headline(verdict)))
    several = len(verdict.problems) > 1
    pairs: list[tuple[str, object]] = []
    for problem in verdict.problems:
        if several:
            sizes = " ".join(f"{name}={size}" for name, size in problem.problem["sizes"].items())
            pairs.append((f"  {sizes}", problem.judged))
        pairs += _lines(problem)
    task = verdict.task
    pairs.append(("  task", f"{task.kernel} {task.digest[:12]} on {verdict.gpu}, --seed {verdict.seed}"))
    if verdict.not_isolated:
        pairs.append(("  not isolated", ", ".join(verdict.not_isolated)))
    if full:
        pairs.append(("  seconds", listed(verdict.phases)))
    tables.show_pairs(pairs)


def headline(verdict: Verdict) -> str:
    """Return the verdict in one line."""
    what = f"{verdict.candidate.name}: {verdict.judged}"
    if verdict.reason:
        return f"{what}: {verdict.reason}: {verdict.message}"
    return f"{what}, {verdict.speed}" if verdict.speed else what


def _lines(problem: ProblemVerdict) -> Iterator[tuple[str, object]]:
    right = sum(not why for why in problem.contents.values())
    checked = [
        f"in a fresh process ({tables.duration(problem.fresh_ns)})" if problem.fresh_ns else "",
        f"at {tables.counted(len(problem.sizes), 'other size')}" if problem.sizes else "",
        f"with {tables.counted(right, 'other content')} of the inputs" if right else "",
        problem.sizes_note,
    ]
    yield "  verified", ", ".join(filter(None, checked))
    for times in problem.modes:
        yield f"  {times.mode}", _times(times)


def _times(times: ModeTimes) -> str:
    own = f"{tables.duration(times.time_ns)} ({tables.interval(times.low_ns, times.high_ns)})"
    if times.speed_of_light:
        own += f", {tables.percent(times.speed_of_light)} of peak"
    return "; ".join([own, *map(_versus, times.versus)])


def _versus(versus: Versus) -> str:
    if versus.verdict is None or versus.speedup is None:
        return f"{versus.baseline} was not timed: {versus.error}"
    bounded = math.isfinite(versus.speedup_high or math.inf)
    interval = f" ({versus.speedup_low:.3f} .. {versus.speedup_high:.3f})" if bounded else ""
    wrong = "" if versus.verified else f"; the output of {versus.baseline} is WRONG"
    return f"{versus.speedup:.3f}x{interval} over {versus.baseline}: {versus.verdict}{wrong}"
