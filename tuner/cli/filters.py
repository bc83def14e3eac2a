"""The filters that ``tune trials`` and ``tune best`` share, as the command line gives them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.cli.options import Listing, StoredArguments
from tuner.cli.problems import assignments, named_dtypes, size_of
from tuner.core.errors import ExpressionError, UsageError
from tuner.core.model import Problem, Run, Value
from tuner.database.records import Filters
from tuner.expressions.elementwise import parse_element
from tuner.kernel.variant_spec import index_of_text
from tuner.report import tables
from tuner.report.next_steps import database_option
from tuner.winners.current import kernel_filters
from tuner.winners.wanted import parse_since


def parse_sizes(items: Sequence[str]) -> dict[str, int]:
    """Return ``m=4096`` or ``m=2**12`` as a dictionary; several may be joined by commas.

    Raises:
        UsageError: not a name and a whole number.
    """
    sizes = {name: size_of(name, text) for name, text in assignments(items, "--size", "m=4096")}
    for name, size in sizes.items():
        if not re.fullmatch(r"[A-Za-z_]\w{0,63}", name, re.ASCII) or size < 1:
            raise UsageError(f"--size {name}={size} is not a size", "it is a whole number from 1 up")
    return sizes


def filters_of(asked: StoredArguments, **more: Any) -> Filters:
    """Return the filters of the command line, with further fields of them."""
    return Filters(**kernel_filters(asked.kernel), gpu=asked.gpu, dtype=asked.dtype, **more)


def listing_filters(asked: Listing, **more: Any) -> Filters:
    """Return the filters of a list, with further fields of them.

    Raises:
        UsageError: a text without a meaning, or two formats at once.
    """
    if asked.as_json and asked.as_csv:
        raise UsageError("--json and --csv exclude each other", "give one of them")
    return filters_of(
        asked, variant=asked.variant, sizes=parse_sizes(asked.sizes), since=parse_since(asked.since),
        run=asked.run_id, mode=asked.mode or "", regime=asked.regime or "", **more,
    )  # fmt: skip


def show_records(listing: Listing, records: Iterable[dict[str, Any]], columns: Sequence[str]) -> None:
    """Print records as JSON, or as flat CSV with these columns."""
    if listing.as_json:
        tables.show_records(records)
        return
    records = list(records)
    names = flat_names(columns, nested_names(records))
    tables.show_csv(names, ([record.get(name) for name in names] for record in map(flat, records)))


def report_damage(damaged: Sequence[str], db: Path) -> None:
    """Say on the standard error that damaged rows of a database are left out."""
    if damaged:
        more = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        tables.show_line(f"left out: {damaged[0]}{more}; run: tune db check{database_option(db)}", err=True)


def origin(run: Run) -> str:
    """Return where a time comes from, with the format of another tool's file."""
    if not run.replayed:
        return tables.MEASURED
    return f"replayed ({run.foreign})" if run.foreign else "replayed"


NESTED = ("sizes", "dtypes", "options", "parameters")


def flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record in which each value of a nested one stands by itself, named ``outer.inner``."""
    result: dict[str, Any] = {}
    for name, value in record.items():
        if name in NESTED:
            result |= {f"{name}.{inner}": one for inner, one in (value or {}).items()}
        else:
            result[name] = value
    return result


def flat_names(columns: Sequence[str], nested: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the columns of such records, where ``nested`` has the names that occur in each nested one."""
    return [
        name
        for column in columns
        for name in ([f"{column}.{one}" for one in nested.get(column, ())] if column in NESTED else [column])
    ]


def nested_names(records: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the names that occur in the nested ones of some records, in the order of their first occurrence."""
    names: dict[str, dict[str, None]] = {name: {} for name in NESTED}
    for record in records:
        for name in NESTED:
            names[name].update(dict.fromkeys(record.get(name) or {}))
    return {name: list(each) for name, each in names.items()}


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
    if value is not None and index_of_text(text, [value]) is not None:
        return True
    try:
        return parse_element(text).text == value
    except ExpressionError:
        return False
