"""Times beside others: the race, several problems together, the winners of all runs; and how trials ended."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from tuner.core import errors
from tuner.core.model import Status
from tuner.database.records import StoredWinner
from tuner.report.html.drawing import (
    ACCENT,
    DIM,
    SECOND,
    Figure,
    figure,
    inert,
    intervals,
    line_at,
    logarithmic,
)
from tuner.report.html.subjects import TunedProblem
from tuner.report.tables import duration, percent, problem_text, speedup, throughput

MOST_FINALISTS = 6
LONGEST_ERROR = 160
"""Characters."""


class ComparedTime(NamedTuple):
    """One bar: a time beside the winner's, or beside the best of a bench."""

    name: str
    time_ns: float
    ratio: float
    """Over the winner's time."""
    low: float | None = None
    high: float | None = None
    verdict: str = ""
    configuration: str = ""

    @property
    def row(self) -> dict[str, str]:
        """The same as a row of the table."""
        return {
            "what": self.name,
            ">time": duration(self.time_ns),
            ">over the winner's": f"{self.ratio:.3f}x",
            ">95 % interval": ""
            if self.low is None or self.high is None
            else f"{self.low:.3f} .. {self.high:.3f}",
            "verdict": self.verdict,
            "configuration: what differs": self.configuration,
        }


def comparison(problem: TunedProblem) -> Figure | None:
    """Return the winner beside what it was timed with; None without a winner."""
    if problem.winner is None:
        return None
    bars = [*_raced(problem, problem.winner), *_benched(problem)]
    names, ratios = [inert(one.name) for one in bars], [one.ratio for one in bars]
    colours = [ACCENT, *(SECOND if one.low is not None or one.verdict else DIM for one in bars[1:])]
    labels = [f" {duration(one.time_ns)}{f'<br> {one.ratio:.3f}x' if one.ratio != 1 else ''}" for one in bars]
    beside = [max(one.ratio, one.high or 0.0) for one in bars]
    error_x = intervals([one.low for one in bars], ratios, [one.high for one in bars])
    drawn = figure(
        go.Bar(x=ratios, y=names, orientation="h", marker={"color": colours}, error_x=error_x, width=0.55),
        go.Scatter(x=beside, y=names, text=labels, mode="text", textposition="middle right"),
        x="time over the winner's",
    )
    drawn.update_traces(hoverinfo="skip", cliponaxis=False)
    drawn.update_xaxes(range=[0, 1.5 * max(beside)]).update_yaxes(autorange="reversed", type="category")
    said = "Timed in turn within one process; lines are 95 % intervals of the ratio to the winner"
    said += ", or of a bench to the stored best." if problem.benchmarks else "."
    if light_ns := problem.speed_of_light_ns:
        ends = [names[-1], names[0]]
        drawn.add_trace(line_at(light_ns / bars[0].time_ns, ends, "speed of light", label="", across=False))
        said += f" The dashed line is the speed of light, {duration(light_ns)}."
    title, rows = "The winner beside the default and other baselines", [one.row for one in bars]
    return Figure("comparison", title, said, drawn, 100 + 34 * len(bars), rows)


def _raced(problem: TunedProblem, stored: StoredWinner) -> Iterator[ComparedTime]:
    """Yield the winner, the default, the best known before, and the finalists, which have no interval."""
    winner, race = stored.winner, problem.race
    trials = {trial.id: trial for trial in problem.trials}
    names = {str(trial.configuration): problem.configuration_name(trial) for trial in problem.timed}
    shown = {str(winner.configuration)}
    same = winner.default_trial_id == winner.trial_id
    first = "the winner: the default" if same else "the winner"
    yield ComparedTime(first, winner.time_ns, 1.0, configuration=stored.trial.configuration.variant)
    compared = []
    if winner.default_time_ns and winner.ratio and not same:
        ends = winner.ratio, winner.ratio_low, winner.ratio_high, f"winner {winner.verdict}"
        compared.append(("default", winner.default_trial_id, winner.default_time_ns, ends))
    if (before := race.incumbent) and before.trial_id != winner.trial_id:
        ends = before.ratio, before.ratio_low, before.ratio_high, f"winner {before.verdict}"
        compared.append(("best known before", before.trial_id, before.time_ns, ends))
    for name, number, time_ns, ends in compared:
        text = str(trials[number].configuration) if number in trials else ""
        if not text or text not in shown:
            yield ComparedTime(name, time_ns, *ends, names.get(text, ""))
        shown.add(text)
    finalists = [one for one in race.medians_ns if one[0] not in shown]
    for number, (text, time_ns) in enumerate(finalists[:MOST_FINALISTS], 2):
        ratio = time_ns / winner.time_ns
        yield ComparedTime(f"finalist {number}", time_ns, ratio, configuration=names.get(text, ""))


def _benched(problem: TunedProblem) -> Iterator[ComparedTime]:
    """Yield the contestants of the newest bench, compared with its stored best."""
    newest = [one for one in problem.benchmarks if one.bench == problem.benchmarks[0].bench]
    best = next((one for one in newest if one.contestant == "best"), None)
    for one in newest if best else ():
        name = f"bench {one.created_at[:10]}: {one.contestant}"
        if one is best:
            yield ComparedTime(name, one.time_ns, 1.0)
        elif one.ratio:
            ends = one.ratio, one.ratio_low, one.ratio_high
            yield ComparedTime(name, one.time_ns, *ends, f"best {one.verdict}")


def history(problem: TunedProblem) -> Figure | None:
    """Return the winners of all runs of this problem over time; None if there is one or none."""
    winners = [one.winner for one in problem.winners]
    if len(winners) < 2:
        return None
    when = [one.created_at[:19] for one in problem.winners]
    counted = itertools.accumulate((one.time_ns if one.exportable else math.inf for one in winners), min)
    steps = [one / 1e3 if one < math.inf else None for one in counted]
    symbols = ["circle" if one.exportable else "circle-open" for one in winners]
    names = [inert(f"run {one.run.id[:8]}: {duration(one.winner.time_ns)}") for one in problem.winners]
    drawn = figure(
        go.Scatter(x=when, y=steps, line={"shape": "hv", "color": SECOND}, hoverinfo="skip"),
        go.Scatter(x=when, y=[one.time_ns / 1e3 for one in winners], mode="markers", text=names,
                   marker={"color": ACCENT, "size": 9, "symbol": symbols}, hovertemplate="%{text}<extra></extra>"),
        x="UTC", y="time (us)",
    )  # fmt: skip
    said = "The winner of each run of this problem, and the best so far; hollow ones are not confirmed."
    return Figure("history", "History of the stored best", said, drawn, 300, wide=False)


MOST_DRAWN = 30
"""Problems of the figure; the table has all."""


def overview(winners: Sequence[StoredWinner]) -> Figure | None:
    """Return the best of several problems beside their defaults; None where none was compared."""
    shown = [one for one in winners if one.winner.ratio][:MOST_DRAWN]
    if not shown:
        return None
    kernels, gpus = {one.run.problem.kernel for one in shown}, {one.run.gpu.name for one in shown}
    names = []
    for one in shown:
        name = f"{one.run.problem.kernel} " if len(kernels) > 1 else ""
        gpu = f" ({one.run.gpu.name})" if len(gpus) > 1 else ""
        lines = textwrap.wrap(f"{name}{problem_text(one.run.problem)}{gpu}", 26, max_lines=3)
        names.append("<br>".join(map(inert, lines)))
    ratios = [one.winner.ratio or 1.0 for one in shown]
    low, high = [one.winner.ratio_low for one in shown], [one.winner.ratio_high for one in shown]
    symbols = ["circle" if one.winner.verdict == "faster" else "circle-open" for one in shown]
    places, ends = list(range(len(shown))), [-0.5, len(shown) - 0.5]
    drawn = figure(
        line_at(1.0, ends, "the default", DIM, label="", across=False),
        go.Scatter(x=ratios, y=places, mode="markers", marker={"color": ACCENT, "size": 10, "symbol": symbols},
                   error_x=intervals(low, ratios, high), text=names, hovertemplate="%{text}: %{x:.3f}x<extra></extra>"),
        x="speedup",
    )  # fmt: skip
    bounded = [one for one in high if one and one < math.inf]
    drawn.update_xaxes(**logarithmic([1.0, *ratios, *filter(None, low), *bounded]))
    drawn.update_yaxes(tickvals=places, ticktext=names, range=ends[::-1], showgrid=False)
    said = "Speedup over the default configuration with 95 % intervals. Hollow: no significant difference."
    if len(shown) < len(winners):
        said += f" The figure has {len(shown)} of {len(winners)}; the table has all."
    height = 90 + 14 * max(2, *(name.count("<br>") + 2 for name in names)) * len(shown)
    return Figure(
        "overview", "The best of each problem", said, drawn, height, list(map(_overview_row, winners))
    )


def _overview_row(stored: StoredWinner) -> dict[str, object]:
    run, won = stored.run, stored.winner
    return {
        "kernel": run.problem.kernel,
        "problem": problem_text(run.problem),
        "GPU": run.gpu.name,
        "timed": run.conditions,
        ">time": duration(won.time_ns),
        ">rate": throughput(stored.metrics),
        ">of the speed of light": percent(stored.metrics.of_peak),
        "speedup": speedup(won.ratio, won.ratio_low, won.ratio_high, won.verdict),
        "source": "recording" if run.replayed else "measured",
    }


def outcomes(problem: TunedProblem) -> Figure | None:
    """Return how the trials ended; None where none failed."""
    trials = problem.trials
    counts = Counter(str(trial.status) for trial in trials).most_common()
    if all(Status(kind).ranked for kind, _ in counts):
        return None
    kinds, numbers = [kind for kind, _ in counts], [count for _, count in counts]
    shares = [f"{count} ({percent(count / len(trials))})" for count in numbers]
    colours = [ACCENT if Status(kind).ranked else SECOND for kind in kinds]
    bars = go.Bar(x=numbers, y=kinds, orientation="h", marker={"color": colours}, text=shares)
    drawn = figure(bars, x="trials").update_traces(textposition="outside", hoverinfo="skip")
    drawn.update_xaxes(range=[0, 1.4 * numbers[0]]).update_yaxes(autorange="reversed")
    rows = []
    for kind, count in counts:
        first = next(one for one in trials if one.status == kind)
        message = first_line(first.error)
        rows.append({"outcome": kind, ">trials": count, ">for example #": first.id, "its message": message})
    said = "How the trials ended. Only ok can win; ok and slow are verified and timed."
    return Figure("outcomes", "Outcomes", said, drawn, 100 + 30 * len(counts), rows, wide=False)


def first_line(text: str) -> str:
    """Return the first line of a message that is not empty, and not all of a long one."""
    line = errors.first_line(text)
    return line if len(line) <= LONGEST_ERROR else f"{line[:LONGEST_ERROR]}..."
