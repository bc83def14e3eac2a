"""``tune export``: the best configurations as a C++ header."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from tuner.cli.filters import named_kernel
from tuner.cli.stored_winners import find_one, say_left_out, say_several, winner_filters
from tuner.core.errors import DatabaseError, UsageError
from tuner.database.database import Database
from tuner.formats.files import new_file
from tuner.report.tables import counted, show_line
from tuner.winners.chosen import choose_winners
from tuner.winners.current import Kernels
from tuner.winners.header import identifier, render_header


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
    filters = winner_filters(kernel, gpu, dtype, mode, regime, replayed=replayed)
    with Database.open(db, write=False) as database:
        tuned = Kernels(named_kernel(kernel))
        choice = choose_winners(database, filters, tuned)
        chosen = choice.winners
        any_kind = replace(filters, mode="", regime="", replayed=None)
        otherwise = [] if chosen else choose_winners(database, any_kind, tuned).winners
    say_left_out(choice)
    if not chosen:
        raise DatabaseError(f"no confirmed winner in {db} fits", find_one(kernel, replayed, otherwise))
    say_several(choice)
    text = render_header(chosen, namespace, tuned.kernel)
    if str(output) == "-":
        click.echo(text, nl=False)
        return
    with new_file(output, force=force) as partial:
        partial.write_text(text, encoding="ascii")
    kernels = len({stored.run.problem.kernel for stored in chosen})
    show_line(f"wrote {counted(len(chosen), 'configuration')} of {counted(kernels, 'kernel')} to {output}")
