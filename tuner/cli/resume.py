"""What ``tune run --resume`` still has to do, and what earlier runs have already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click
from click.core import ParameterSource

from tuner.core.conditions import Conditions
from tuner.core.errors import TunerError
from tuner.core.model import Problem, Run, Trial
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.tuning.accuracy import Best

KEPT = {
    "trials": "--trials",
    "sampler": "--sampler",
    "seed": "--seed",
    "variants": "--variant",
    "fixes": "--fix",
    "from_scratch": "--from-scratch",
    "stop": "--stop",
    "mode_name": "--mode",
    "regime_name": "--regime",
}
"""Options that a resumed run keeps from its beginning, by parameter."""


def given_options(options: Mapping[str, str]) -> list[str]:
    """Return those of some options, by parameter of the running command, that are on its command line."""
    context = click.get_current_context()
    return [
        option
        for name, option in options.items()
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]


def say_what_is_kept() -> None:
    """Name the options that have no effect, because a resumed run goes on as it began."""
    if ignored := given_options(KEPT):
        click.echo(f"tune: a resumed run keeps its own {', '.join(ignored)}", err=True)


def say_what_counts(conditions: Conditions) -> None:
    """Name the conditions of the command line that have no effect: dtypes that are done were timed under others."""
    values = click.get_current_context().params
    kept = {"mode_name": conditions.mode, "regime_name": conditions.regime}
    others = [name for name, value in kept.items() if values[name] not in ("auto", str(value))]
    ignored = [f"{option} {values[name]}" for name in others for option in given_options({name: KEPT[name]})]
    if ignored:
        click.echo(
            f"tune: timed {conditions}, as the dtypes that are done, in spite of {' and '.join(ignored)}",
            err=True,
        )


def left_to_do(
    problems: Sequence[Problem],
    database: Database,
    device: str,
    max_error: float | None,
    computations: tuple[str, ...],
) -> list[tuple[Problem, bool]]:
    """Return the problems that are left, each with whether it goes on with an interrupted run.

    Of several problems those that ended before the first interrupted one are done; one that never began is begun. With
    a bound on the error, only a run under the same bound counts as ended. Runs of another computation do not count.

    Raises:
        TunerError: nothing is left.
    """
    if len(problems) == 1:
        return [(problems[0], True)]
    left: list[tuple[Problem, bool]] = []
    any_interrupted = False
    for problem in problems:
        interrupted = database.latest_unfinished(problem, device) is not None
        any_interrupted |= interrupted
        if any_interrupted or not _done(problem, database, device, max_error, computations):
            left.append((problem, interrupted))
    if not left:
        raise TunerError(
            f"there is no interrupted run of any of the {len(problems)} problems on {device}",
            "leave out --resume",
        )
    return left


def _done(
    problem: Problem,
    database: Database,
    device: str,
    max_error: float | None,
    computations: tuple[str, ...],
) -> bool:
    if max_error is not None:
        return completed_run(problem, database, device, max_error, computations) is not None
    return database.has_finished(problem, device, computations)


def completed_run(
    problem: Problem, database: Database, device: str, max_error: float, computations: tuple[str, ...]
) -> tuple[Run, list[Trial], Best] | None:
    """Return the newest run of a problem on a device that ended with a winner under the same bound on the error."""
    winners = database.winners(Filters(problem_key=problem.key, computations=computations)).rows
    for stored in sorted(winners, key=lambda winner: -winner.id):
        run = stored.run
        if run.device == device and run.options.max_error == max_error:
            return run, database.trials(run.id), Best.stored(stored)
    return None
