"""How a run searched: its trials in order, and how they ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tuner.core.model import Status, Trial
from tuner.report.html.subjects import Figure, TunedProblem
from tuner.report.tables import duration, percent

LONGEST_ERROR = 160
"""Characters."""


def improvements(trials: Sequence[Trial]) -> list[tuple[Trial, float]]:
    """Return the trials that were faster than all before, each with its time in nanoseconds."""
    steps: list[tuple[Trial, float]] = []
    for trial in trials:
        time_ns = trial.time_ns if trial.status.ranked and not trial.suspect else None
        if time_ns and (not steps or time_ns < steps[-1][1]):
            steps.append((trial, time_ns))
    return steps


def convergence(problem: TunedProblem) -> Figure | None:
    """Return the trials in their order, with the best so far and the failures; None without trials."""
    trials, steps = problem.trials, improvements(problem.trials)
    if not trials:
        return None
    kinds = list(dict.fromkeys(str(trial.status) for trial in trials))
    failed = sum(not trial.status.ranked for trial in trials)
    ended = (
        f"{failed} of {len(trials)} trials failed: below, by kind."
        if failed
        else f"None of {len(trials)} failed."
    )
    more = f" {problem.left_out} further trials are left out." if problem.left_out else ""
    return Figure(
        "convergence",
        "Convergence",
        "Each trial at the time it took, in the order in which they were tried; the line is the best so far. "
        f"{ended}{more}",
        _fall(steps, len(trials)),
        (">number", ">trial", ">time", ">faster by", "configuration: what differs from the winner's"),
        _steps(problem, steps),
        {
            "number": [trial.number + 1 for trial in trials],
            "trial": [trial.id for trial in trials],
            "time_ns": [trial.time_ns for trial in trials],
            "status": [kinds.index(str(trial.status)) for trial in trials],
            "statuses": kinds,
            "ranked": [Status(kind).ranked for kind in kinds],
            "suspect": [i for i, trial in enumerate(trials) if trial.suspect],
            "default_ns": problem.default.time_ns if problem.default else None,
            "speed_of_light_ns": problem.speed_of_light_ns,
        },
    )


def _fall(steps: Sequence[tuple[Trial, float]], trials: int) -> str:
    if not steps:
        return f"None of {trials} trials was timed."
    ends = [f"{duration(time_ns)} at trial {trial.number + 1}" for trial, time_ns in (steps[0], steps[-1])]
    return f"The best time falls from {ends[0]} to {ends[1]} of {trials}."


def _steps(problem: TunedProblem, steps: Sequence[tuple[Trial, float]]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    before: float | None = None
    for trial, time_ns in steps:
        gain = percent(1 - time_ns / before) if before else ""
        name = problem.configuration_name(trial) or "the winner's"
        rows.append((trial.number + 1, trial.id, duration(time_ns), gain, name))
        before = time_ns
    return rows


def outcomes(problem: TunedProblem) -> Figure | None:
    """Return how the trials ended; None where none failed."""
    if all(trial.status.ranked for trial in problem.trials):
        return None
    counts = Counter(str(trial.status) for trial in problem.trials)
    first: dict[str, Trial] = {}
    for trial in problem.trials:
        first.setdefault(str(trial.status), trial)
    total = len(problem.trials)
    kinds = [kind for kind, _ in counts.most_common()]
    return Figure(
        "outcomes",
        "Outcomes",
        "How the trials ended. Only ok can win; ok and slow are verified and timed.",
        f"Of {total} trials " + ", ".join(f"{counts[kind]} ended {kind}" for kind in kinds) + ".",
        ("outcome", ">trials", ">share", ">for example trial", "its message"),
        [
            (
                kind,
                counts[kind],
                percent(counts[kind] / total),
                first[kind].id,
                _first_line(first[kind].error),
            )
            for kind in kinds
        ],
        {
            "outcome": kinds,
            "trials": [counts[kind] for kind in kinds],
            "ranked": [Status(kind).ranked for kind in kinds],
        },
        wide=False,
    )


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= LONGEST_ERROR else f"{line[:LONGEST_ERROR]}..."
