"""Options that are on the command line, and those of ``tune run`` that a resumed run does not heed."""

from __future__ import annotations

from collections.abc import Mapping

import click
from click.core import ParameterSource

from tuner.core.conditions import Conditions

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
