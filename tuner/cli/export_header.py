"""``tune export``: the best configurations as a C++ header."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click

from tuner.cli.filters import kernel_filters, named_kernel
from tuner.database.database import Database
from tuner.database.records import Filters, StoredWinner
from tuner.errors import DatabaseError, TunerError, UsageError
from tuner.export.cpp import identifier
from tuner.export.header import render_header
from tuner.export.needs import KernelFiles
from tuner.formats.files import new_file
from tuner.kernel.load import builtin_kernels
from tuner.kernel.variant_spec import VariantSpec
from tuner.model import Configuration, Run
from tuner.report.terminal import printable
from tuner.winners.chosen import Chosen, choose_winners
from tuner.winners.current import Kernels


def export(
    db: Path,
    kernel: str,
    gpu: str,
    dtype: str,
    mode: str | None,
    regime: str,
    run_id: str,
    variant: str,
    kind: str,  # noqa: ARG001 - it chose this function
    output: Path,
    namespace: str,
    force: bool,
    replayed: bool,
) -> None:
    """Write the best configurations that fit as a header.

    Raises:
        UsageError: an option that a header has no use for.
        DatabaseError: nothing fits.
    """
    if run_id or variant:
        raise UsageError("a header takes the best of all runs", "leave out --run and --variant")
    try:
        identifier(namespace, "the namespace")
    except DatabaseError as error:
        raise UsageError(error.problem, "for example --namespace tuned_gemm") from None
    filters = Filters(
        **kernel_filters(kernel), gpu=gpu, dtype=dtype, exportable=True, replayed=None if replayed else False,
        mode=mode or "", regime=regime,
    )  # fmt: skip
    with Database.open(db, write=False) as database:
        tuned = Kernels(named_kernel(kernel))
        choice = choose_winners(database, filters, tuned)
        chosen = choice.winners
        first = {stored.run.problem.kernel: stored for stored in reversed(chosen)}
        fallbacks = {name: default_of(database, stored, tuned) for name, stored in first.items()}
        defaults = {stored.id: default for stored in chosen if (default := _tuned_against(database, stored))}
        otherwise = [] if chosen else database.winners(replace(filters, mode="", regime="")).rows
    say_left_out(choice)
    if not chosen:
        raise DatabaseError(f"no confirmed winner in {db} fits", find_one(kernel, replayed, otherwise))
    say_several(choice)
    text = render_header(chosen, fallbacks, namespace, KernelFiles(tuned.kernel), defaults)
    if str(output) == "-":
        click.echo(text, nl=False)
        return
    with new_file(output, force=force) as partial:
        partial.write_text(text, encoding="ascii")
    many = f"{len(chosen)} configuration{'s' * (len(chosen) > 1)}"
    kernels = f"{len(fallbacks)} kernel{'s' * (len(fallbacks) > 1)}"
    click.echo(f"wrote {many} of {kernels} to {output}")


def say_left_out(choice: Chosen) -> None:
    """Say which winners are left out: damaged ones, and those whose kernel has changed or is gone."""
    for line in choice.damaged:
        click.echo(f"left out: {printable(line)}", err=True)
    for where, state in choice.left_out.items():
        click.echo(f"left out: {printable(where)}: {state}", err=True)


def say_several(choice: Chosen) -> None:
    """Say that there were winners of other modes."""
    if choice.several:
        click.echo(
            f"{choice.several} of {len(choice.winners)} problems were tuned in several modes: took the last;"
            " --mode names one",
            err=True,
        )


def find_one(kernel: str, replayed: bool, otherwise: Sequence[StoredWinner]) -> str:
    """Return how to come by a winner: what there is in other modes, or a command that finds one."""
    more = "" if replayed else ", or add --replayed"
    if otherwise:
        timed = otherwise[0].run.conditions
        more = f", or take what there is with --mode {timed.mode} --regime {timed.regime}"
    return f"find one with: tune --kernel {kernel or 'gemm'}{more}"


def _tuned_against(database: Database, stored: StoredWinner) -> Configuration | None:
    """Return the default configuration of a winner's problem, which its run has tried."""
    trial_id = stored.winner.default_trial_id
    return None if trial_id is None else database.trial(trial_id).trial.configuration


def default_of(database: Database, stored: StoredWinner, kernels: Kernels) -> Configuration:
    """Return the configuration for what nothing fits: a built-in kernel's, or the run's own.

    Raises:
        DatabaseError: the kernel is not built in, and the run had no default.
    """
    kernel = stored.run.problem.kernel
    if kernel in builtin_kernels():
        variants = _variants(kernels, stored.run)
        ours = variants.get(stored.winner.configuration.variant)
        if ours is not None and set(ours.parameters) == set(stored.winner.configuration.values):
            variant = next(
                (v for v in variants.values() if v.requires is None), next(iter(variants.values()))
            )
            return Configuration.of(variant.name, variant.defaults)
    if stored.winner.default_trial_id is not None:
        return database.trial(stored.winner.default_trial_id).trial.configuration
    raise DatabaseError(
        f"run {stored.run.id} of {kernel} has no default configuration to fall back on",
        "tune it again, without --fix",
    )


def _variants(kernels: Kernels, run: Run) -> Mapping[str, VariantSpec]:
    """Return the variants of a run's own kernel, which may have the name of a built-in one."""
    try:
        return kernels.kernel(run).variants
    except TunerError:
        return {}
