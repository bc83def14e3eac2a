"""``tune import``: what another tool has recorded, into the database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.data import parse_sizes
from tuner.cli.options import database_option

if TYPE_CHECKING:
    from tuner.formats.as_kernel import Others
    from tuner.formats.importing import Imported


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@database_option
@click.option("--kernel", default="", metavar="NAME", help="The kernel's name, if the file's is not right.")
@click.option("--gpu", default="", metavar="NAME", help="The GPU's name, if the file's is not right.")
@click.option(
    "--size", "sizes", multiple=True, metavar="NAME=N", help="The problem's size, if the file's is not right."
)
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def import_results(
    files: tuple[Path, ...],
    db: Path,
    kernel: str,
    gpu: str,
    sizes: tuple[str, ...],
    quiet: bool,
    as_json: bool,
) -> None:
    """Add the results in T4 files and Kernel Tuner cache files to the database.

    They are marked as replayed and foreign: tune query shows them, tune best only with --replayed, and nothing ranks
    them with times of our own.

    \b
    Examples:
      tune import gemm-RTX_3090.json.gz
      tune import results_T4.json --kernel conv --gpu "NVIDIA RTX A6000" --size x=4096,y=4096
    """
    from tuner.database.database import Database
    from tuner.formats.as_kernel import read_others
    from tuner.formats.importing import import_others
    from tuner.report import tables

    named = parse_sizes(sizes)
    read: list[tuple[Path, Others]] = []
    for file in files:  # all of them before DB is made: a mistyped FILE must leave no empty database
        others = read_others(file, kernel=kernel, gpu=gpu, sizes=named)
        if not quiet:
            tables.say(f"{file.name}: {len(others.rows)} results of {others.problem}")
        if others.objective != "time" and not quiet:
            tables.say(f"{file.name}: its objective {others.objective} is not kept, but the times are")
        read.append((file, others))
    with Database.open(db) as database:
        found = [(file, import_others(database, others)) for file, others in read]
    if as_json:
        tables.show_json([_record(file, imported) for file, imported in found])
        return
    for file, imported in found:
        done = "added" if imported.added else "there already:"
        best = f", the best {tables.duration(imported.best_ns)}" if imported.best_ns else ""
        click.echo(
            f"{file.name}: {done} {imported.trials} results of {tables.printable(imported.run.problem)} on "
            f"{tables.printable(imported.run.gpu.name)}, {imported.failures} of them failures{best}; "
            f"run {imported.run.id[:8]}"
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
        "mode": str(run.conditions.mode),
        "regime": str(run.conditions.regime),
        "trials": imported.trials,
        "failures": imported.failures,
        "best_ns": imported.best_ns,
        "best": imported.best.values if imported.best else None,
    }
