"""``tune bench --history``: earlier benches; and which of the stored problems are meant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tuner.cli.problems import assignments, named_dtypes
from tuner.core.errors import DatabaseError, ExpressionError
from tuner.core.model import Problem, Value, value_text
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.expressions.elementwise import parse_element
from tuner.report.tables import show_json, show_line
from tuner.studies.bench_report import history_as_json, show_history
from tuner.winners.portfolios import MEMBER, TIMED


def problem_filter(dtypes: Sequence[str], options: Sequence[str]) -> Callable[[Problem], bool]:
    """Return whether ``--dtype`` and ``--option`` hold for a stored problem; of several dtypes any will do."""
    roles: dict[str, set[str]] = {}
    for text in dtypes:
        for role, dtype in named_dtypes(text):
            roles.setdefault(role, set()).add(dtype)
    values = assignments(options, "--option")

    def fits(problem: Problem) -> bool:
        return all(
            (problem.dtypes.get(role) if role else problem.dtype) in names for role, names in roles.items()
        ) and all(_means(text, problem.options.get(name)) for name, text in values)

    return fits


def _means(text: str, value: Value | None) -> bool:
    """Return whether a text stands for an option's value; element expressions may be written in any way."""
    if value is not None and text.lower() in (str(value).lower(), value_text(value)):
        return True
    try:
        return parse_element(text).text == value
    except ExpressionError:
        return False


def show_benches(
    path: Path,
    kernel: str,
    mode: str,
    regime: str,
    fits: Callable[[Problem], bool],
    limit: int,
    *,
    as_json: bool,
    full: bool = False,
) -> None:
    """Print earlier benches, newest first.

    Args:
        path: the database.
        kernel: name of the kernel; empty for all.
        mode: the only one wanted, if any.
        regime: the only one wanted, if any.
        fits: whether a problem is wanted.
        limit: rows at most; 0 for all.
        as_json: print JSON.
        full: name all parameters of a configuration.

    Raises:
        DatabaseError: there is none, or the database cannot be read.
    """
    with Database.open(path, write=False) as database:
        benches = database.benchmarks(Filters(kernel=kernel, mode=mode, regime=regime))
    for line in benches.damaged:
        show_line(f"left out: {line}; run: tune db check", err=True)
    fitting = [row for row in benches.rows if fits(row.problem) and row.contestant not in (TIMED, MEMBER)]
    rows = fitting[:limit] if limit else fitting
    if len(rows) < len(fitting):
        show_line(f"{len(rows)} of {len(fitting)} rows, the newest; --limit 0 gives all", err=True)
    if as_json:
        show_json([history_as_json(row) for row in rows])
    elif rows:
        show_history(rows, full=full)
    if not rows:
        raise DatabaseError(f"no bench in {path} fits", "make one with: tune bench")
