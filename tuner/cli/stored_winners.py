"""Which stored winners a command takes, and what it says of the others, or where there is none."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from tuner.cli.filters import kernel_filters, named_kernel, refuse_unknown
from tuner.core import paths
from tuner.core.errors import DatabaseError, TunerError, suggestion
from tuner.database.database import Database
from tuner.database.records import Filters, Record, Selection, StoredWinner
from tuner.devices.replay import as_options
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import builtin_kernels, kernel_of_run
from tuner.report.next_steps import database_option
from tuner.report.tables import show_line
from tuner.winners.chosen import Chosen
from tuner.winners.current import best_winners

ONLY_REPLAYED = "nothing that fits was measured: this is from replays of recordings"


def measured_else_replayed(
    read: Callable[[Filters], Selection[Record]], filters: Filters
) -> tuple[Selection[Record], str]:
    """Return the measured winners that fit, or if there is none the replayed ones and a note that says so.

    Args:
        read: returns what fits.
        filters: replayed winners fit at once unless ``replayed`` is False.
    """
    selection = read(filters)
    if selection.rows or filters.replayed is not False:
        return selection, ""
    selection = read(replace(filters, replayed=None))
    return selection, ONLY_REPLAYED if selection.rows else ""


def no_winner(database: Database, filters: Filters, kernel: str | None) -> DatabaseError:
    """Return the error that no winner fits, with what to do: there may be some that a filter leaves out.

    Args:
        database: has none.
        filters: that none fits.
        kernel: as the command line names it.

    Raises:
        UsageError: the filters name what there is nowhere.
    """
    refuse_unknown(database, filters)
    db = database_option(database.path)
    is_file = named_kernel(kernel) is not None
    stored = {winner.stored.run.problem.kernel for winner in best_winners(database, Filters()).rows}
    if replace(filters, replayed=None) != Filters() and stored and (not kernel or kernel in stored):
        remedy = "leave out a filter"
    elif resuming := _resuming(database, kernel or ""):
        remedy = f"finish the interrupted run: {resuming}{db}"
    elif not kernel or is_file or kernel in builtin_kernels():
        remedy = f"find one with: tune --kernel {shlex.quote(kernel or 'gemm')}{db}"
    else:
        remedy = suggestion(kernel, sorted({*builtin_kernels(), *stored}))
    return DatabaseError(f"no winner in {database.path} fits", remedy)


def _resuming(database: Database, kernel: str) -> str:
    """Return the command that goes on with the newest unfinished run, of a kernel if it is named, or an empty text."""
    for run_id in database.runs_that_fit(Filters(**kernel_filters(kernel))):
        with suppress(TunerError):  # a damaged run, or one whose kernel is gone
            run = database.run(run_id)
            spec = kernel_of_run(run)
            same_text = KernelIdentity(spec).same_text
            last = database.latest_unfinished(run.problem, run.device, same_text)
            if last is not None and same_text(last):
                builtin = spec.file.parent == paths.search_spaces()
                words = ["tune --kernel", spec.name if builtin else shlex.quote(str(spec.file))]
                default = spec.problem()
                words += [] if run.problem == default else [as_options(spec, default, run.problem)]
                words += ["--rules", ",".join(last.options.rules)] if last.options.rules else []
                words += [] if run.device == "cuda:0" else ["--device", shlex.quote(run.device)]
                return " ".join([*words, "--resume"])
    return ""


def winner_filters(
    kernel: str, gpu: str, dtype: str, mode: str | None, regime: str, *, replayed: bool
) -> Filters:
    """Return the filters that the command line gives of confirmed winners."""
    return Filters(
        **kernel_filters(kernel), gpu=gpu, dtype=dtype, exportable=True, replayed=None if replayed else False,
        mode=mode or "", regime=regime,
    )  # fmt: skip


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
