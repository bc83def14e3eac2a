"""``tune bundle``: winners as a folder with which programs call them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tuner.children.compile_pool import CompilePool
from tuner.children.nvrtc import nvrtc_version
from tuner.cli.filters import named_kernel, refuse_unknown
from tuner.cli.stored_winners import find_one, say_left_out, say_several, winner_filters
from tuner.core import paths
from tuner.core.errors import CompileError, DatabaseError
from tuner.core.model import ascii_json
from tuner.database.database import Database
from tuner.report.tables import counted, show_line
from tuner.report.terminal import redraw
from tuner.winners.bundle import bundle_files, refuse_target, write_bundle
from tuner.winners.chosen import choose_winners
from tuner.winners.compiling import compile_contents
from tuner.winners.contents import contents_of, without_the_rest
from tuner.winners.current import Kernels
from tuner.winners.manifest import manifest
from tuner.winners.portfolios import portfolios_of


def bundle(
    db: Path,
    kernel: str,
    gpu: str,
    dtype: str,
    mode: str | None,
    regime: str,
    output: Path,
    force: bool,
    replayed: bool,
    few: bool,
    jobs: int | None,
    no_cache: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Compile the best configurations that fit, and write the folder.

    Raises:
        DatabaseError: nothing fits.
        CompileError: no winner compiles.
        BundleError: the folder cannot be written.
    """
    refuse_target(output, force=force)
    filters = winner_filters(kernel, gpu, dtype, mode, regime, replayed=replayed)
    with Database.open(db, write=False) as database:
        named = named_kernel(kernel)
        tuned = Kernels(named)
        choice = choose_winners(database, filters, tuned, with_files=True)
        portfolios = portfolios_of(database, filters, tuned, choice.winners, named)
        nothing = not choice.winners and not portfolios
        any_kind = replace(filters, mode="", regime="", replayed=None)
        otherwise = choose_winners(database, any_kind, tuned, with_files=True).winners if nothing else []
        if nothing:
            refuse_unknown(database, filters)
    say_left_out(choice)
    if nothing:
        raise DatabaseError(f"no confirmed winner in {db} fits", find_one(kernel, replayed, otherwise))
    say_several(choice)
    winners = without_the_rest(choice.winners, portfolios) if few else choice.winners
    contents = contents_of(winners, tuned, portfolios)
    version = nvrtc_version()
    with closing(CompilePool(jobs, None if no_cache else paths.cubins())) as pool:
        compiled = compile_contents(contents, pool, _progress(quiet))
    for line in compiled.failures:
        show_line(f"left out: {line}", err=True)
    written = manifest(contents, compiled.configurations, compiled.probes, int(version.partition(".")[0]))
    if not written["winners"] and "portfolios" not in written:
        raise CompileError("no winner compiles any more", f"tune again with this NVRTC, {version}")
    files = bundle_files(written, compiled.cubins, compiled.sources)
    write_bundle(output, files, force=force)
    summary = _summary(output, written, compiled.failures, files, version)
    if as_json:
        click.echo(ascii_json(summary, indent=2))
    else:
        _say(summary)


def _progress(quiet: bool) -> Callable[[int, int], None]:
    """Return what shows how many configurations are compiled: on a terminal one line that changes."""

    live = not quiet and sys.stderr.isatty()

    def show(done: int, of: int) -> None:
        if live:
            redraw("" if done == of else f"compiling: {done} of {of} configurations")

    return show


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
    also = f" and {counted(portfolios, 'portfolio')}" if portfolios else ""
    for line in (
        f"wrote {counted(summary['winners'], 'winner')}{also} of {summary['kernel']} to {summary['bundle']}:"
        f" {counted(summary['cubins'], 'cubin')}, {summary['bytes'] / 1e6:.2f} MB",
        f"  tuned on {', '.join(summary['gpus'])}; other GPUs of the same compute capability run it, too",
        f"  Python   import {Path(summary['bundle']).name}; op = {Path(summary['bundle']).name}.load()",
        f"  C++      find_package(kernel_tune_{summary['kernel']}), kernel_tune::Bundle::open",
        "  more     README.md in it",
    ):
        show_line(line)
