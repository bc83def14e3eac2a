"""Winners that leave the database: ``tune export`` as a header, and ``tune bundle``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from tuner.children.compile_pool import CompilePool
from tuner.children.nvrtc import nvrtc_version
from tuner.cli.commands.winners import BundleArguments, ExportArguments
from tuner.cli.filters import filters_of
from tuner.core import paths
from tuner.core.errors import DatabaseError, UsageError
from tuner.core.model import ascii_json
from tuner.database.database import Database
from tuner.database.records import StoredWinner
from tuner.formats.files import new_file
from tuner.kernel.load import builtin_kernels
from tuner.report.progress import counting
from tuner.report.tables import counted, say, show_line
from tuner.winners.bundle import refuse_target, write_bundle
from tuner.winners.compiling import bundled
from tuner.winners.contents import contents_of, without_the_rest
from tuner.winners.current import Kernels, choose_winners, named_kernel
from tuner.winners.header import identifier, render_header
from tuner.winners.portfolios import Portfolio, portfolios_of
from tuner.winners.wanted import refuse_unknown

Which = ExportArguments | BundleArguments


def _take(which: Which, *, bundled: bool) -> tuple[list[StoredWinner], Kernels, list[Portfolio]]:
    """Return what fits, one winner for each problem and GPU, with kernels and portfolios; say what is left out.

    Args:
        which: fit.
        bundled: whether their kernels' files must still be there, and portfolios count.

    Raises:
        UsageError: the options name what there is nowhere.
        DatabaseError: nothing fits.
    """
    filters = filters_of(
        which, mode=which.mode or "", regime=which.regime, exportable=True,
        replayed=None if which.replayed else False,
    )  # fmt: skip
    kernels = Kernels(named_kernel(which.kernel))
    with Database.open(which.db, write=False) as database:
        choice = choose_winners(database, filters, kernels, with_files=bundled)
        portfolios = portfolios_of(database, filters, kernels, choice.winners) if bundled else []
        nothing = not choice.winners and not portfolios
        any_kind = replace(filters, mode="", regime="", replayed=None)
        otherwise = choose_winners(database, any_kind, kernels, with_files=bundled).winners if nothing else []
        if nothing:
            refuse_unknown(database, filters)
    left_out = [*choice.damaged, *(f"{where}: {state}" for where, state in choice.left_out.items())]
    for line in left_out:
        show_line(f"left out: {line}", err=True)
    if nothing:
        raise DatabaseError(f"no confirmed winner in {which.db} fits", _find_one(which, otherwise))
    if choice.several:
        several = f"{choice.several} of {len(choice.winners)} problems were tuned in several modes"
        show_line(f"{several}: took the last; --mode names one", err=True)
    return choice.winners, kernels, portfolios


def _find_one(which: Which, otherwise: Sequence[StoredWinner]) -> str:
    """Return how to come by a winner: what there is in other modes or of replays, or a command that finds one."""
    kernel, more = which.kernel, ", or add --replayed" if otherwise else ""
    if timed := [stored.run.conditions for stored in otherwise if which.replayed or not stored.run.replayed]:
        more = f", or take what there is with --mode {timed[0].mode} --regime {timed[0].regime}"
    if kernel and named_kernel(kernel) is None and kernel not in builtin_kernels():
        return f"name the kernel by its .toml file{more}"
    return f"find one with: tune {kernel or 'gemm'}{more}"


def export_header(asked: ExportArguments) -> None:
    """Write the best configurations that fit as a header.

    Raises:
        UsageError: an option that a header has no use for.
        DatabaseError: nothing fits.
    """
    if asked.run_id or asked.variant:
        raise UsageError("a header takes the best of all runs", "leave out --run and --variant")
    try:
        identifier(asked.namespace, "the namespace")
    except DatabaseError as error:
        raise UsageError(error.problem, "for example --namespace tuned_gemm") from None
    winners, kernels, _ = _take(asked, bundled=False)
    text = render_header(winners, asked.namespace, kernels.kernel)
    if str(asked.output) == "-":
        click.echo(text, nl=False)
        return
    with new_file(asked.output, force=asked.force) as partial:
        partial.write_text(text, encoding="ascii")
    names = {stored.run.problem.kernel for stored in winners}
    what = f"{counted(len(winners), 'configuration')} of {counted(len(names), 'kernel')}"
    show_line(f"wrote {what} to {asked.output}")


def bundle(asked: BundleArguments) -> None:
    """Compile the best configurations that fit, and write the folder.

    Raises:
        DatabaseError: nothing fits.
        CompileError: no winner compiles.
        BundleError: the folder cannot be written.
    """
    refuse_target(asked.output, force=asked.force)
    winners, kernels, portfolios = _take(asked, bundled=True)
    winners = without_the_rest(winners, portfolios) if asked.few else winners
    if asked.few and not portfolios:
        say(f"--few has no effect: there is no portfolio here; find one with: tune portfolio {asked.kernel}")
    contents = contents_of(winners, kernels, portfolios)
    if asked.slices and not any(one.of_slices for one in contents.configurations):
        say("--slices has no effect: only products of this package write into slices")
    with (
        closing(CompilePool(asked.jobs, None if asked.no_cache else paths.cubins())) as pool,
        closing(counting(quiet=asked.quiet, every_s=math.inf)) as observer,
    ):
        written, files, compiled = bundled(
            contents, pool, observer, partial(show_line, err=True), slices=asked.slices
        )
    write_bundle(asked.output, files, force=asked.force)
    summary = _summary(asked.output, written, compiled.failures, files, nvrtc_version())
    if asked.as_json:
        click.echo(ascii_json(summary, indent=2))
    else:
        _say(summary)


def _summary(
    output: Path, written: dict[str, Any], failures: list[str], files: dict[str, bytes], version: str
) -> dict[str, Any]:
    return {
        "bundle": str(output),
        "kernel": written["kernel"],
        "computations": len(written["computations"]),
        "configurations": len(written["configurations"]),
        "winners": len(written["winners"]),
        "defaults": len(written["defaults"]),
        "portfolios": len(written.get("portfolios", ())),
        "left_out": failures,
        "gpus": sorted({item["gpu"] for item in (*written["winners"], *written.get("portfolios", ()))}),
        "compute_capabilities": sorted({item["cc"] for item in written["configurations"]}),
        "cubins": sum(name.startswith("cubin/") for name in files),
        "bytes": sum(map(len, files.values())),
        "nvrtc": version,
        "minimum_driver": written["minimum_driver"],
    }


def _say(summary: dict[str, Any]) -> None:
    portfolios = summary["portfolios"]
    name = Path(summary["bundle"]).resolve().name
    also = f" and {counted(portfolios, 'portfolio')}" if portfolios else ""
    for line in (
        f"wrote {counted(summary['winners'], 'winner')}{also} of {summary['kernel']} to {summary['bundle']}:"
        f" {counted(summary['cubins'], 'cubin')}, {summary['bytes'] / 1e6:.2f} MB",
        f"  tuned on {', '.join(summary['gpus'])}; other GPUs of the same compute capability run it, too",
        f"  Python   import {name}; op = {name}.load()"
        if name.isidentifier()
        else f"  Python   import importlib; op = importlib.import_module({name!r}).load()",
        f"  C++      find_package(kernel_tune_{summary['kernel']}), kernel_tune::Bundle::open",
        "  more     README.md in it",
    ):
        show_line(line)
