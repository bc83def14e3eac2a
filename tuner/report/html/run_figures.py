"""How a run searched, its trials in order and how they ended; and how its times were taken: noise, clocks."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from tuner.core.model import Status, Trial
from tuner.report.html.subjects import Figure, TunedProblem
from tuner.report.tables import counted, duration, percent

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


MODES = {
    "cold": "cold: none of the kernel's data in the caches, one call between two events",
    "rotating": "rotating: none of its data in the caches, many calls between two events",
    "warm": "warm: what the call before has left in the caches, many calls between two events",
}
REGIMES = {
    "rested": "rested: heavy kernels get pauses, so that the power limit does not slow them",
    "sustained": "sustained: no pauses, at the clock that the power limit leaves",
}
VERDICTS = {
    "faster": "the winner is faster than every other finalist",
    "slower": "the winner is slower than the fastest finalist",
    "same": "the winner is as fast as another finalist within the noise",
    "ambiguous": "the winner is statistically tied with another finalist",
}
"""Of a race."""


def samples(problem: TunedProblem) -> Figure | None:
    """Return the samples of the winner and the default, one after the other; None where there are none."""
    if problem.winner is None:
        return None
    named = {"the winner": problem.winner.trial}
    if problem.default and problem.default.id != problem.winner.trial.id:
        named["the default"] = problem.default
    shown = {name: trial.samples_ns for name, trial in named.items() if len(trial.samples_ns) > 1}
    if not shown:
        return None
    floor = problem.race.noise_floor
    rows = [
        (name, len(own), duration(statistics.median(own)), _off(min(own), own), _off(max(own), own))
        for name, own in shown.items()
    ]
    return Figure(
        "samples",
        "Noise",
        "The samples of the search, each as a deviation from its configuration's median"
        + (f"; the dashed lines are the noise floor of {100 * floor:.2g} %." if floor else "."),
        " ".join(
            f"The samples of {row[0]} are within {row[3]} and {row[4]} of their median." for row in rows
        ),
        ("configuration", ">samples", ">median", ">lowest", ">highest"),
        rows,
        {
            "series": [
                {"name": name, "median_ns": statistics.median(own), "samples_ns": own}
                for name, own in shown.items()
            ],
            "noise_floor": floor,
        },
        wide=False,
    )


def _off(sample: float, own: Sequence[float]) -> str:
    return f"{100 * (sample / statistics.median(own) - 1):+.2f} %"


def clocks(problem: TunedProblem) -> Figure | None:
    """Return the SM clock of each trial; None where it was not counted."""
    counted = [trial for trial in problem.trials if trial.sm_clock_hz > 0]
    if not counted:
        return None
    ghz = [trial.sm_clock_hz / 1e9 for trial in counted]
    capped = sum(trial.capped_samples > 0 for trial in counted)
    return Figure(
        "clocks",
        "Clocks",
        "The SM clock during each trial, counted on the GPU; the dashed line is the highest that the GPU has. "
        f"Trials with samples at the power limit: {capped or 'none'}.",
        f"The SM clock was between {min(ghz):.3f} and {max(ghz):.3f} GHz.",
        ("SM clock", ">value"),
        [
            ("lowest", f"{min(ghz):.3f} GHz"),
            ("median", f"{statistics.median(ghz):.3f} GHz"),
            ("highest", f"{max(ghz):.3f} GHz"),
            ("trials with samples at the power limit", capped),
        ],
        {
            "number": [trial.number + 1 for trial in counted],
            "clock_hz": [round(trial.sm_clock_hz) for trial in counted],
            "capped": [i for i, trial in enumerate(counted) if trial.capped_samples],
            "highest_hz": problem.run.gpu.clock_hz or None,
        },
        wide=False,
    )


def facts(problem: TunedProblem) -> list[tuple[str, str]]:
    """Return how a run was timed and with what, as names and values; what is not known is left out."""
    run, race, calibration = problem.run, problem.race, problem.run.calibration
    listed = [
        ("timed", MODES[run.conditions.mode]),
        ("regime", REGIMES[run.conditions.regime]),
        ("device", f"{run.device}{' (a recording)' if run.replayed else ''}"),
        ("noise floor", f"{100 * race.noise_floor:.2g} %" if race.noise_floor else ""),
        (
            "race",
            f"{counted(race.rounds, 'round')}: {VERDICTS.get(race.verdict, race.verdict)}"
            if race.rounds
            else "",
        ),
        ("search", _search(problem)),
        ("run", f"{run.id}, {problem.began[:19]} UTC, {problem.state}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in run.versions.items())),
    ]
    if calibration:
        rates = {
            "measured read": (calibration.read_bytes_per_s, 1e9, "GB/s"),
            "measured copy": (calibration.copy_bytes_per_s, 1e9, "GB/s"),
            "measured tensor cores": (calibration.matrix_flops, 1e12, "TFLOP/s"),
            "measured vector units": (calibration.vector_flops, 1e12, "TFLOP/s"),
        }
        listed += [
            (name, f"{rate / size:.4g} {unit}" if rate else "") for name, (rate, size, unit) in rates.items()
        ]
        listed.append(("events alone", duration(calibration.event_ns) if calibration.event_ns else ""))
        listed.append(("notes", "; ".join(calibration.notes)))
    return [(name, value) for name, value in listed if value]


def _search(problem: TunedProblem) -> str:
    run = problem.run
    took = f" in {problem.search_s:.1f} s" if problem.search_s else ""
    measured = sum(trial.measure_s for trial in problem.trials)
    gpu = f", {measured:.1f} s of it on the GPU" if measured >= 0.05 else ""
    return f"{len(problem.trials) + problem.left_out} trials{took}{gpu}; {run.options.sampler}, seed {run.options.seed}"
