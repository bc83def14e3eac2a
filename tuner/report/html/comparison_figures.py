"""What the winner was compared with, what other runs and benches have found, and several problems and GPUs together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from tuner.database.records import StoredWinner
from tuner.report.html.subjects import Figure, TunedProblem
from tuner.report.tables import duration, percent, problem_text, speedup, throughput

MOST_FINALISTS = 6


@dataclass(frozen=True)
class ComparedTime:
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
    def row(self) -> tuple[str, ...]:
        """The same as a row of the table."""
        ends = "" if self.low is None or self.high is None else f"{self.low:.3f} .. {self.high:.3f}"
        return self.name, duration(self.time_ns), f"{self.ratio:.3f}x", ends, self.verdict, self.configuration


def comparison(problem: TunedProblem) -> Figure | None:
    """Return the winner beside what it was timed with; None without a winner."""
    if problem.winner is None:
        return None
    entries = [*_raced(problem, problem.winner), *_benched(problem)]
    winner, light_ns = problem.winner.winner, problem.speed_of_light_ns
    default = f", the default {duration(winner.default_time_ns)}" if winner.default_time_ns else ""
    return Figure(
        "comparison",
        "The winner beside the default and other baselines",
        "Times taken in turn within one process; lines are 95 % intervals of the ratio to the winner"
        + (", or of a bench to the stored best." if problem.benchmarks else ".")
        + (" The dashed line is the speed of light." if light_ns else ""),
        f"The winner takes {duration(winner.time_ns)}{default}.",
        (
            "what",
            ">time",
            ">over the winner's",
            ">95 % interval",
            "verdict",
            "configuration: what differs",
        ),
        [one.row for one in entries],
        {"entries": [asdict(one) for one in entries], "speed_of_light_ns": light_ns},
    )


def _raced(problem: TunedProblem, stored: StoredWinner) -> Iterator[ComparedTime]:
    """Yield the winner, the default, the best known before, and the finalists, which have no interval."""
    winner, race = stored.winner, problem.race
    trials = {trial.id: trial for trial in problem.trials}
    names = {str(trial.configuration): problem.configuration_name(trial) for trial in problem.timed}
    shown = {str(winner.configuration)}
    same = winner.default_trial_id == winner.trial_id
    first = "the winner: the default" if same else "the winner"
    yield ComparedTime(first, winner.time_ns, 1.0, configuration=stored.trial.configuration.variant)
    default = trials.get(winner.default_trial_id)
    if winner.default_time_ns and winner.ratio and winner.default_trial_id != winner.trial_id:
        text = str(default.configuration) if default else ""
        shown.add(text)
        ends = winner.ratio_low, winner.ratio_high
        yield ComparedTime(
            "default",
            winner.default_time_ns,
            winner.ratio,
            *ends,
            f"winner {winner.verdict}",
            names.get(text, ""),
        )
    before = race.incumbent
    if before and before.trial_id != winner.trial_id:
        text = str(trials[before.trial_id].configuration) if before.trial_id in trials else ""
        if text not in shown or not text:
            ends = before.ratio_low, before.ratio_high
            name = names.get(text, "")
            yield ComparedTime(
                "best known before", before.time_ns, before.ratio, *ends, f"winner {before.verdict}", name
            )
        shown.add(text)
    finalists = [one for one in race.medians_ns if one[0] not in shown]
    for number, (text, time_ns) in enumerate(finalists[:MOST_FINALISTS], 2):
        yield ComparedTime(
            f"finalist {number}", time_ns, time_ns / winner.time_ns, configuration=names.get(text, "")
        )


def _benched(problem: TunedProblem) -> Iterator[ComparedTime]:
    """Yield the contestants of the newest bench, compared with its stored best."""
    newest = [one for one in problem.benchmarks if one.bench == problem.benchmarks[0].bench]
    best = next((one for one in newest if one.contestant == "best"), None)
    for one in newest if best else ():
        name = f"bench {one.created_at[:10]}: {one.contestant}"
        if one is best:
            yield ComparedTime(name, one.time_ns, 1.0)
        elif one.ratio:
            yield ComparedTime(
                name, one.time_ns, one.ratio, one.ratio_low, one.ratio_high, f"best {one.verdict}"
            )


def history(problem: TunedProblem) -> Figure | None:
    """Return the winners of all runs of this problem over time; None if there is one or none and no bench."""
    benches = [one for one in reversed(problem.benchmarks) if one.contestant == "best"]
    if len(problem.winners) + len(benches) < 2:
        return None
    best: float | None = None
    drawn, rows = [], []
    for stored in problem.winners:
        winner, run = stored.winner, stored.run.id[:8]
        if winner.exportable:
            best = min(best or winner.time_ns, winner.time_ns)
        note = "" if winner.exportable else "not confirmed"
        rows.append((stored.created_at[:19], f"run {run}", duration(winner.time_ns), duration(best), note))
        when = {"at": stored.created_at, "run": run, "exportable": winner.exportable}
        drawn.append({**when, "time_ns": winner.time_ns, "best_ns": best})
    rows += [(one.created_at[:19], "bench", duration(one.time_ns), "", "") for one in benches]
    return Figure(
        "history",
        "History of the stored best",
        "The winner of each run of this problem, and the best so far"
        + ("." if problem.run.replayed else "; only confirmed winners count.")
        + (" Diamonds are benches of the stored best, with 95 % intervals." if benches else ""),
        f"{len(drawn)} runs; the best stored: {duration(best) or 'none is confirmed'}.",
        ("when (UTC)", "what", ">time", ">best so far", "note"),
        sorted(rows),
        {
            "winners": drawn,
            "benches": [
                {
                    "at": one.created_at,
                    "time_ns": one.time_ns,
                    "low_ns": one.ci_low_ns,
                    "high_ns": one.ci_high_ns,
                }
                for one in benches
            ],
        },
    )


HEADS = (
    *("kernel", "problem", "GPU", "timed", ">time", ">rate", ">of the speed of light"),
    *("versus the default", "source"),
)
MOST_DRAWN = 30
"""Problems of the figure; the table has all."""


def overview(winners: Sequence[StoredWinner]) -> Figure:
    """Return the best of each problem and GPU beside its default."""
    rows = []
    for stored in winners:
        run, winner, metrics = stored.run, stored.winner, stored.metrics
        compared = speedup(winner.ratio, winner.ratio_low, winner.ratio_high, winner.verdict)
        what = run.problem.kernel, problem_text(run.problem), run.gpu.name, run.conditions
        speed = duration(winner.time_ns), throughput(metrics), percent(metrics.speed_of_light)
        rows.append((*what, *speed, compared, "recording" if run.replayed else "measured"))
    drawn = [one for one in winners if one.winner.ratio][:MOST_DRAWN]
    several = len({one.run.gpu.name for one in drawn}) > 1
    rest = (
        f" Drawn are {len(drawn)} of {len(winners)}; the table has all." if len(drawn) < len(winners) else ""
    )
    return Figure(
        "overview",
        "The best of each problem",
        f"How many times as fast as the default configuration, with 95 % intervals; 1 is as fast as the default. "
        f"Hollow points are not surely faster.{rest}",
        f"The best of {len(winners)} problems, compared with their defaults.",
        HEADS,
        rows,
        {
            "entries": [
                {
                    "kernel": one.run.problem.kernel,
                    "problem": problem_text(one.run.problem),
                    "gpu": one.run.gpu.name if several else "",
                    "time_ns": one.winner.time_ns,
                    "ratio": one.winner.ratio,
                    "low": one.winner.ratio_low,
                    "high": one.winner.ratio_high,
                    "verdict": one.winner.verdict,
                }
                for one in drawn
            ]
        },
    )
