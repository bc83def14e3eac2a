"""What a page says of a problem in words: its headline, the configuration, a command, the trials, how it was timed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.core.model import Problem, Run, Trial, Value, value_text
from tuner.database.records import RESERVATIONS
from tuner.report.configurations import StoredTexts, edges_text
from tuner.report.html.drawing import is_number
from tuner.report.html.subjects import TunedProblem
from tuner.report.html.timing_figures import first_line
from tuner.report.next_steps import kernel_argument
from tuner.report.tables import (
    counted,
    duration,
    percent,
    problem_text,
    speedup,
    throughput,
    time_unit,
)
from tuner.report.terminal import printable


def title(problem: TunedProblem) -> str:
    """Return the kernel, the problem and what was found, in one line."""
    run, winner = problem.run, problem.winner
    found = ""
    if winner:
        ratio = winner.winner.ratio
        found = f": {duration(winner.winner.time_ns)}{f', {ratio:.2f}x the default' if ratio else ''}"
    return f"{run.problem.kernel} {_sizes(run.problem)}{found}"


def _sizes(problem: Problem) -> str:
    """Return a problem's sizes alone, its dtype and options: ``4096 x 4096 x 4096 float16 layout=nn``."""
    options = problem_text(problem).removeprefix(problem.sizes_text).strip()
    return f"{' x '.join(map(str, problem.sizes.values()))} {options}".strip()


def source(run: Run) -> str:
    """Return on what and how the times were taken, and in which run."""
    origin = ""
    if run.foreign:
        origin = f", imported from {Path(run.device.partition(':')[2] or run.device).name}"
    elif run.replayed:
        origin = ", replayed"
    return f"{run.gpu.name}, {run.conditions}{origin}, run {run.id[:8]}"


def headline(problem: TunedProblem) -> list[tuple[str, str, str]]:
    """Return the few numbers that matter: a name, a value and a sentence each."""
    if problem.winner is None:
        times = [one.time_ns for one in problem.timed if one.time_ns]
        fastest = f"no race was held; the fastest trial took {duration(min(times))}" if times else ""
        return [("winner", "none", fastest or "no configuration was verified and timed")]
    winner, metrics, better = problem.winner.winner, problem.winner.metrics, problem.stored_best
    about = [
        f"trial #{winner.trial_id}, of {len(problem.trials) + problem.left_out}",
        throughput(metrics),
        f"{duration(better.winner.time_ns)} in run {better.run.id[:8]}" if better else "",
        problem.why_not_the_fastest,
        RESERVATIONS.get(winner.checked_against, ""),
    ]
    listed = [("winner", duration(winner.time_ns), "; ".join(filter(None, about)))]
    if winner.ratio:
        over = winner.ratio, winner.ratio_low, winner.ratio_high, winner.verdict
        value, _, about_it = speedup(*over, over="the default").partition(" over the default")
        listed.append(("speedup over the default", value, about_it.strip(" ;")))
    if metrics.of_peak:
        least = duration(metrics.of_peak * winner.time_ns)
        said = f"100 % is {least}, the least time that the hardware allows"
        listed.append(("of the speed of light", percent(metrics.of_peak), said))
    if not problem.run.replayed:
        said = f"in a fresh process; {edges_text(winner)}" if winner.exportable else winner.reason
        again = duration(winner.confirmed_ns) if winner.confirmed_ns else "yes"
        listed.append(("confirmed", again if winner.exportable else "no", said))
    return listed


def configuration(problem: TunedProblem) -> list[tuple[str, str, bool]]:
    """Return the winner's parameters, and whether each differs from the default; without those that are absent."""
    if problem.winner is None:
        return []
    chosen = problem.winner.winner.configuration
    ran = problem.default.configuration if problem.default else None
    usual: Mapping[str, Value] = StoredTexts().of(problem.run).defaults(chosen.variant)
    if ran and ran.variant == chosen.variant:
        usual = ran.values
    return [
        (name, value_text(value), name in usual and usual[name] != value)
        for name, value in chosen.parameters
        if value_text(value) not in ("none", "None", "")
    ]


def command(problem: TunedProblem) -> str:
    """Return a command that names the winner's configuration, to copy; empty for another tool's."""
    if problem.winner is None or problem.run.foreign:
        return ""
    run, chosen = problem.run, problem.winner.winner.configuration
    asked = run.problem
    words = ["tune", "explain", kernel_argument(asked.kernel, Path(run.kernel_file))]
    if asked.sizes:
        words += ["--size", asked.sizes_text.replace(" ", ",")]
    words += ["--dtype", asked.dtype] if asked.dtype else []
    for name, value in asked.options.items():
        words += ["--option", f"{name}={value_text(value)}"]
    words += ["--config", StoredTexts().of(run).cell(chosen)]
    return shlex.join(words)


LONGEST_CELL = 200
"""Characters."""


def trials(problem: TunedProblem) -> list[dict[str, Any]]:
    """Return the table of trials by its columns, each with a name and a value for each trial, the fastest trial first.

    Parameters that have one value in all trials are left out.
    """
    every = sorted(problem.trials, key=lambda one: (not one.status.ranked, one.time_ns or float("inf")))
    times = [one.time_ns for one in every if one.time_ns]
    unit, size = time_unit(min(times)) if times else ("us", 1e3)
    values = [one.configuration.values for one in every]
    names = dict.fromkeys(name for one in values for name in one)
    columns: dict[str, list[Any]] = {
        "trial": [one.id for one in every],
        f"time ({unit})": [one.time_ns / size if one.time_ns else None for one in every],
        "status": [f"{one.status}{', suspect' if one.suspect else ''}" for one in every],
        "variant": [_cell(one.configuration.variant) for one in every],
        **{printable(name): [_cell(one.get(name)) for one in values] for name in names},
        "+- %": [_spread(one) for one in every],
        "GHz": [one.sm_clock_hz / 1e9 or None for one in every],
        "registers": [one.resources.registers if one.resources else None for one in every],
        "spilled bytes": [one.resources.spill_bytes if one.resources else None for one in every],
        "message": [printable(first_line(one.error)) for one in every],
    }
    always = list(columns)[:3]
    return [
        {"name": name, "values": column}
        for name, column in columns.items()
        if name in always or len(set(map(repr, column))) > 1
    ]


def _spread(trial: Trial) -> float | None:
    """Return half of the 95 % interval of a trial's time, in percent of it."""
    low, high = trial.ci_low_ns, trial.ci_high_ns
    if not trial.time_ns or low is None or high is None:
        return None
    return 50 * (high - low) / trial.time_ns


def _cell(value: Value | None) -> Value | None:
    return value if value is None or is_number(value) else printable(value_text(value))[:LONGEST_CELL]


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


def facts(problem: TunedProblem) -> list[tuple[str, str]]:
    """Return how a run was timed and with what, as names and values; what is not known is left out."""
    run, race, measured = problem.run, problem.race, problem.run.calibration
    rounds = f"{counted(race.rounds, 'round')}: {VERDICTS.get(race.verdict, race.verdict)}"
    listed = [
        ("timed", MODES[run.conditions.mode]),
        ("regime", REGIMES[run.conditions.regime]),
        ("device", f"{run.device}{' (a recording)' if run.replayed else ''}"),
        ("noise floor", f"{100 * race.noise_floor:.2g} %" if race.noise_floor else ""),
        ("race", rounds if race.rounds else ""),
        ("search", _search(problem)),
        ("run", f"{run.id}, {problem.began[:19]} UTC, {problem.state}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in run.versions.items())),
    ]
    if measured:
        listed.append(("measured read", f"{measured.read_bytes_per_s / 1e9:.4g} GB/s"))
        listed.append(("events alone", duration(measured.event_ns) if measured.event_ns else ""))
        listed.append(("notes", "; ".join(measured.notes)))
    return [(name, value) for name, value in listed if value]


def _search(problem: TunedProblem) -> str:
    run = problem.run
    took = f" in {problem.search_s:.1f} s" if problem.search_s else ""
    on_gpu = sum(trial.measure_s for trial in problem.trials)
    gpu = f", {on_gpu:.1f} s of it on the GPU" if on_gpu >= 0.05 else ""
    return f"{len(problem.trials) + problem.left_out} trials{took}{gpu}; {run.options.sampler}, seed {run.options.seed}"
