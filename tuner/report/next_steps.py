"""What to do with the result of a run: commands, for people at a terminal."""

from __future__ import annotations

import shlex
from pathlib import Path

from tuner import paths
from tuner.report.layout import wrapped
from tuner.report.terminal import printable
from tuner.tuning.state import Result


def next_steps(result: Result, database: Path) -> list[str]:
    """Return lines with the commands that make use of a winner, below those of the summary; none without a winner."""
    run, finish = result.state.run, result.finish
    if finish is None:
        return []
    db = "" if database == paths.DATABASE else f" --db {shlex.quote(str(database))}"
    steps = {} if run.foreign else {f"tune explain --trial {finish.winner.id}{db}": "what limits it"}
    steps[f"tune report{db} -o report.html"] = "figures of this run"
    if finish.exportable and not run.replayed:
        builtin = Path(run.kernel_file).parent == paths.search_spaces()
        kernel = run.problem.kernel if builtin else shlex.quote(run.kernel_file)
        folder = shlex.quote(f"{run.problem.kernel}_bundle")
        steps[f"tune bundle --kernel {kernel}{db} -o {folder}"] = "call it from C++ and Python"
    lines = []
    for number, (command, use) in enumerate(steps.items()):
        first = "  " + ("" if number else "next").ljust(9) + "  "
        lines += wrapped(f"{printable(command)}  # {use}", first)  # a shell takes the whole line
    return lines
