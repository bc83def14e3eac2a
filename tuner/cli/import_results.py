"""``tune import``: what another tool has recorded, into the database."""

from __future__ import annotations

from pathlib import Path

from tuner.cli.filters import parse_sizes
from tuner.database.database import Database
from tuner.formats.as_kernel import ForeignResults, read_foreign
from tuner.formats.importing import Imported, import_foreign
from tuner.report import tables
from tuner.report.terminal import printable


def import_results(
    files: tuple[Path, ...],
    db: Path,
    kernel: str,
    gpu: str,
    sizes: tuple[str, ...],
    quiet: bool,
    as_json: bool,
) -> None:
    """Add the results of other tools' files to the database, and print what was added."""
    named = parse_sizes(sizes)
    read: list[tuple[Path, ForeignResults]] = []
    for file in files:  # all of them before DB is made: a mistyped FILE must leave no empty database
        results = read_foreign(file, kernel=kernel, gpu=gpu, sizes=named)
        if not quiet:
            tables.say(f"{file.name}: {len(results.rows)} results of {results.problem}")
        if results.objective != "time" and not quiet:
            tables.say(f"{file.name}: its objective {results.objective} is not kept, but the times are")
        read.append((file, results))
    with Database.open(db) as database:
        imported = [(file, import_foreign(database, results)) for file, results in read]
    if as_json:
        tables.show_json([_record(file, one) for file, one in imported])
        return
    for file, one in imported:
        done = "added" if one.added else "there already:"
        best = f", the best {tables.duration(one.best_ns)}" if one.best_ns else ""
        tables.show_line(
            f"{file.name}: {done} {tables.counted(one.trials, 'result')} of {printable(one.run.problem)} on "
            f"{printable(one.run.gpu.name)}, {one.failures} of them failures{best}; "
            f"run {one.run.id[:8]}"
        )


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
