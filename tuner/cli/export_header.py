"""``tune export``: the best configurations as a C++ header."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from tuner.cli.filters import kernel_filters, named_kernel
from tuner.database.database import Database
from tuner.database.records import Filters, StoredWinner
from tuner.errors import DatabaseError, UsageError
from tuner.export.cpp import identifier
from tuner.export.header import render_header
from tuner.export.needs import KernelFiles
from tuner.formats.files import new_file
from tuner.kernel.load import builtin_kernels
from tuner.report.tables import counted, show_line
from tuner.winners.chosen import Chosen, choose_winners
from tuner.winners.current import Kernels
from tuner.winners.portfolios import portfolios_of


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
        portfolios = [
            portfolio
            for of in {stored.run.problem.kernel: stored for stored in chosen}.values()
            for portfolio in portfolios_of(
                database, replace(filters, kernel=of.run.problem.kernel), tuned, [of], None
            )
        ]
        any_kind = replace(filters, mode="", regime="", replayed=None)
        otherwise = [] if chosen else choose_winners(database, any_kind, tuned).winners
    say_left_out(choice)
    if not chosen:
        raise DatabaseError(f"no confirmed winner in {db} fits", find_one(kernel, replayed, otherwise))
    say_several(choice)
    text = render_header(chosen, namespace, KernelFiles(tuned.kernel), portfolios)
    if str(output) == "-":
        click.echo(text, nl=False)
        return
    with new_file(output, force=force) as partial:
        partial.write_text(text, encoding="ascii")
    kernels = len({stored.run.problem.kernel for stored in chosen})
    show_line(f"wrote {counted(len(chosen), 'configuration')} of {counted(kernels, 'kernel')} to {output}")


def say_left_out(choice: Chosen) -> None:
    """Say which winners are left out: damaged ones, and those whose kernel has changed or is gone."""
    for line in choice.damaged:
        show_line(f"left out: {line}", err=True)
    for where, state in choice.left_out.items():
        show_line(f"left out: {where}: {state}", err=True)


def say_several(choice: Chosen) -> None:
    """Say that there were winners of other modes."""
    if choice.several:
        show_line(
            f"{choice.several} of {len(choice.winners)} problems were tuned in several modes: took the last;"
            " --mode names one",
            err=True,
        )


def find_one(kernel: str, replayed: bool, otherwise: Sequence[StoredWinner]) -> str:
    """Return how to come by a winner: what there is in other modes or of replays, or a command that finds one."""
    more = ", or add --replayed" if otherwise else ""
    if timed := [stored.run.conditions for stored in otherwise if replayed or not stored.run.replayed]:
        more = f", or take what there is with --mode {timed[0].mode} --regime {timed[0].regime}"
    if kernel and named_kernel(kernel) is None and kernel not in builtin_kernels():
        return f"name the kernel's .toml file with --kernel{more}"
    return f"find one with: tune --kernel {kernel or 'gemm'}{more}"
