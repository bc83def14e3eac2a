"""Formats of other tools: what ``tune export --format`` writes and ``tune db import`` reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tuner.cli.commands.winners import ExportArguments, ImportArguments
from tuner.cli.filters import filters_of, parse_sizes, report_damage
from tuner.cli.loader import given_options
from tuner.core.errors import UsageError
from tuner.database.database import Database
from tuner.formats.autotuners import cache_of, t4_of
from tuner.formats.files import write_text
from tuner.formats.foreign import ForeignResults, Imported, import_foreign, read_foreign
from tuner.formats.optuna_storage import write_study
from tuner.formats.results import Results, results_of
from tuner.report import tables
from tuner.report.tables import counted, say, show_line, show_pieces
from tuner.report.terminal import printable
from tuner.winners.wanted import refuse_unknown


def export(asked: ExportArguments) -> None:
    """Write what fits in a format of other tools, and print what was written.

    Raises:
        UsageError: the format cannot be written so.
        TunerError: nothing fits, or the file cannot be written.
    """
    if given_options("namespace"):
        raise UsageError("--namespace is for headers", f"leave it out with --format {asked.kind}")
    filters = filters_of(
        asked, mode=asked.mode or "", regime=asked.regime if given_options("regime") else "", run=asked.run_id,
        variant=asked.variant, replayed=None if asked.replayed or asked.run_id else False,
    )  # fmt: skip
    with Database.open(asked.db, write=False) as database:
        refuse_unknown(database, filters)
        if filters.run:
            filters = replace(filters, run=database.run_id(filters.run))
        results = results_of(database, filters)
        report_damage(results.damaged, asked.db)
        _write(asked.kind, results, asked.output, force=asked.force)


def _write(kind: str, results: Results, output: Path, *, force: bool) -> None:
    what = f"{printable(results.run.problem)} on {printable(results.run.gpu.name)}"
    if kind == "optuna":
        if str(output) == "-":
            raise UsageError("a study is no text", "name a file with -o")
        write_study(output, results, say, force=force)
        show_line(f"wrote a study of {counted(len(results.numbers), 'trial')} of {what} to {output}")
        return
    pieces = t4_of(results) if kind == "t4" else cache_of(results)
    if str(output) == "-":
        show_pieces(pieces)
        return
    write_text(output, pieces, force=force)
    show_line(f"wrote {counted(len(results.numbers), 'trial')} of {what} to {output}")


def import_results(asked: ImportArguments) -> None:
    """Add the results of other tools' files to the database, and print what was added."""
    named = parse_sizes(asked.sizes)
    read: list[tuple[Path, ForeignResults]] = []
    for file in asked.files:  # all of them before DB is made: a mistyped FILE must leave no empty database
        results = read_foreign(file, kernel=asked.kernel, gpu=asked.gpu, sizes=named)
        for note in results.notes:
            say(note)
        if not asked.quiet:
            say(f"{file.name}: {counted(len(results.rows), 'result')} of {results.problem}")
        if results.objective != "time" and not asked.quiet:
            say(f"{file.name}: its objective {results.objective} is not kept, but the times are")
        read.append((file, results))
    with Database.open(asked.db) as database:
        imported = [(file, import_foreign(database, results)) for file, results in read]
    if asked.as_json:
        tables.show_json([_record(file, one) for file, one in imported])
        return
    for file, one in imported:
        done = "added" if one.added else "there already:"
        best = f", the best {tables.duration(one.best_ns)}" if one.best_ns else ""
        what = f"{counted(one.trials, 'result')} of {printable(one.run.problem)}"
        where = f"{printable(one.run.gpu.name)}, {one.failures} of them failures{best}"
        show_line(f"{file.name}: {done} {what} on {where}; run {one.run.id[:8]}")


def _record(file: Path, imported: Imported) -> dict[str, object]:
    run = imported.run
    return {
        "file": str(file),
        "format": run.foreign,
        "run": run.id,
        "added": imported.added,
        "problem": run.problem.to_json(),
        "gpu": run.gpu.name,
        **tables.picked(run.conditions, "mode regime"),
        **tables.picked(imported, "trials failures best_ns"),
        "best": imported.best.values if imported.best else None,
    }
