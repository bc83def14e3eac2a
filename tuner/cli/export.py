"""``tune export``: the best configurations for use in other programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from tuner.cli.data import mode_option, regime_option
from tuner.cli.options import database_option
from tuner.conditions import Regime
from tuner.database.database import Database, Filters
from tuner.database.records import StoredWinner
from tuner.errors import DatabaseError, UsageError
from tuner.export.cpp import NAMESPACE, identifier
from tuner.kernel.load import builtin_kernels, load_kernel
from tuner.model import Configuration
from tuner.report.tables import printable


@click.command()
@database_option
@click.option("--kernel", default="", metavar="NAME", help="Only this kernel.")
@click.option("--gpu", default="", metavar="TEXT", help="Only GPUs whose name contains this.")
@click.option("--dtype", default="", metavar="DTYPE", help="Only problems of this dtype.")
@mode_option
@partial(regime_option, default=Regime.RESTED)
@click.option("--run", "run_id", default="", metavar="ID", help="Only this run; not for a header.")
@click.option("--variant", default="", metavar="NAME", help="Only this variant; not for a header.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["header", "t4", "kernel-tuner-cache", "t1", "optuna"]),
    default="header",
    show_default=True,
    help="The best as a header; or all trials of a problem, its space, or a study.",
)
@click.option(
    "-o",
    "--output",
    "--out",
    type=click.Path(path_type=Path, allow_dash=True),
    required=True,
    metavar="FILE",
    help="- for standard output.",
)
@click.option(
    "--namespace",
    default=NAMESPACE,
    show_default=True,
    metavar="NAME",
    help="C++ namespace; give headers that are included together their own.",
)
@click.option("--replayed", is_flag=True, help="Also winners that come from a recording; they are marked.")
def export(
    db: Path,
    kernel: str,
    gpu: str,
    dtype: str,
    mode: str | None,
    regime: str,
    run_id: str,
    variant: str,
    kind: str,
    output: Path,
    namespace: str,
    replayed: bool,
) -> None:
    """Write the best configurations as a C++17 header, or one problem's trials for other tools.

    Where a problem was tuned in several modes, the one tuned last counts, unless --mode names one.

    \b
    Examples:
      tune export --kernel gemm -o tuned.hpp
      tune export --gpu h200 --dtype float16 -o -
      tune export --mode warm -o warm.hpp
      tune export --kernel gemm --format t4 -o gemm_T4.json.gz
      tune export --run 3f2a --format optuna -o study.db
    """
    if kind != "header":
        from tuner.cli.export_results import export_results

        wanted = Filters(
            kernel=kernel, gpu=gpu, dtype=dtype, mode=mode or "", run=run_id, variant=variant,
            replayed=None if replayed or run_id else False,
        )  # fmt: skip
        export_results(db, wanted, kind, output)
        return
    if run_id or variant:
        raise UsageError("a header takes the best of all runs", "leave out --run and --variant")
    from tuner.bench.targets import kernel_of
    from tuner.export.header import render_header, write_header
    from tuner.export.needs import KernelFiles

    try:
        identifier(namespace, "the namespace")
    except DatabaseError as error:
        raise UsageError(error.problem, "for example --namespace tuned_gemm") from None
    filters = Filters(
        kernel=kernel, gpu=gpu, dtype=dtype, exportable=True, replayed=None if replayed else False,
        mode=mode or "", regime=regime,
    )  # fmt: skip
    with Database.open(db, write=False) as database:
        found = database.winners(filters)
        # What another tool has recorded is no kernel of ours that a program could launch.
        chosen, several = latest_mode([stored for stored in found.rows if not stored.run.foreign])
        fallbacks = {stored.run.problem.kernel: default_of(database, stored) for stored in reversed(chosen)}
        otherwise = [] if chosen else database.winners(replace(filters, mode="", regime="")).rows
    for line in found.damaged:
        click.echo(f"left out: {printable(line)}", err=True)
    if not chosen:
        raise DatabaseError(f"no confirmed winner in {db} fits", _remedy(kernel, replayed, otherwise))
    if several:
        click.echo(
            f"{several} of {len(chosen)} problems were tuned in several modes: took the last; --mode names one",
            err=True,
        )
    text = render_header(chosen, fallbacks, namespace, KernelFiles(kernel_of))
    if str(output) == "-":
        click.echo(text, nl=False)
        return
    write_header(output, text)
    many = f"{len(chosen)} configuration{'s' * (len(chosen) > 1)}"
    kernels = f"{len(fallbacks)} kernel{'s' * (len(fallbacks) > 1)}"
    click.echo(f"wrote {many} of {kernels} to {output}")


def latest_mode(winners: Sequence[StoredWinner]) -> tuple[list[StoredWinner], int]:
    """Choose one winner for each problem and GPU: the best of the mode that was tuned last, measured before replayed.

    Times of different modes are not comparable, so the fastest of all would always be one with warm caches.

    Args:
        winners: in the order in which the database gives them, with the best of each mode first.

    Returns:
        The chosen, and for how many of them there was another mode.
    """
    groups: dict[tuple[str, str], list[StoredWinner]] = {}
    for stored in winners:
        groups.setdefault((stored.run.problem.key, stored.run.gpu.name), []).append(stored)
    chosen, several = [], 0
    for group in groups.values():
        last = max(group, key=lambda stored: (not stored.run.replayed, stored.created_at)).run
        chosen.append(next(s for s in group if s.run.conditions == last.conditions))
        several += len({s.run.conditions for s in group}) > 1
    return chosen, several


def _remedy(kernel: str, replayed: bool, otherwise: Sequence[StoredWinner]) -> str:
    more = "" if replayed else ", or add --replayed"
    if otherwise:
        known = otherwise[0].run.conditions
        more = f", or take what there is with --mode {known.mode} --regime {known.regime}"
    return f"find one with: tune --kernel {kernel or 'gemm'}{more}"


def default_of(database: Database, stored: StoredWinner) -> Configuration:
    """Return the configuration for what nothing fits: a built-in kernel's, or the run's own.

    Raises:
        DatabaseError: the kernel is not built in, and the run had no default.
    """
    kernel = stored.run.problem.kernel
    if kernel in builtin_kernels():
        variants = load_kernel(kernel).variants
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
