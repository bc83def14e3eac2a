"""Which stored results a user wants: what their filters mean, and whether what they name is anywhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NoReturn

from tuner.core.errors import UsageError, suggestion
from tuner.database.database import Database
from tuner.database.records import Filters, Record, Selection
from tuner.kernel.load import builtin_kernels, load_kernel
from tuner.kernel.roofline import ARCHITECTURES
from tuner.runtime.dtypes import ITEMSIZE

_SINCE = re.compile(r"(\d{1,6})([mhdw])")
NEWEST_RUNS = 5
"""Runs that a message names where none is the one asked for: there may be thousands."""
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
ONLY_REPLAYED = "replayed times: none was measured here"


def parse_since(text: str, now: datetime | None = None) -> str:
    """Return ``2d`` or a date as UTC text that compares with ``created_at``.

    Raises:
        UsageError: neither a length of time nor a date.
    """
    if not text:
        return ""
    if match := _SINCE.fullmatch(text):
        try:
            moment = (now or datetime.now(UTC)) - timedelta(**{_UNITS[match[2]]: int(match[1])})
        except OverflowError:
            return ""
        return moment.strftime("%Y-%m-%dT%H:%M:%S")
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"--since {text!r} is not a time", "for example 2d, 3h or 2026-11-01") from None
    return moment.strftime("%Y-%m-%dT%H:%M:%S")


def refuse_unknown(database: Database, filters: Filters) -> None:
    """Refuse filters that name what there is nowhere; what exists may still have no row that fits.

    Raises:
        UsageError: a kernel or variant that is neither in the database nor built in, a GPU that is neither there nor
            a known one, a size that no kernel has, a dtype that no tensor has, or a run that is not in the database.
    """

    def refuse(what: str, name: str, choices: Iterable[str]) -> NoReturn:
        raise UsageError(f"there is no {what} {name!r} in {database.path}", suggestion(name, choices))

    kernel = "" if filters.computations else filters.kernel  # a file is there, whatever is stored of it
    if kernel and kernel not in {*(stored := database.names("kernel")), *builtin_kernels()}:
        refuse("kernel", kernel, stored or builtin_kernels())
    if (variant := filters.variant) and variant not in (stored := database.names("variant")):
        builtin = [variant for kernel in builtin_kernels() for variant in load_kernel(kernel).variants]
        if variant not in builtin:
            refuse("variant", variant, stored or builtin)
    known = [gpu.name for gpu in ARCHITECTURES.values()]
    gpus = database.names("gpu_name") if filters.gpu else []
    if not any(filters.gpu.lower() in name.lower() for name in (*gpus, *known)):
        refuse("GPU", filters.gpu, gpus or known)
    sizes = set(database.nested_names(Filters())["sizes"]) if filters.sizes else set()
    if filters.sizes.keys() - sizes:
        sizes |= {size for kernel in builtin_kernels() for size in load_kernel(kernel).sizes}
    for name in filters.sizes.keys() - sizes:
        refuse("size", name, sorted(sizes))
    if filters.dtype and filters.dtype not in ITEMSIZE:
        raise UsageError(f"there is no dtype {filters.dtype!r}", suggestion(filters.dtype, ITEMSIZE))
    ids = database.run_ids() if filters.run else []
    if filters.run and not any(run.startswith(filters.run) for run in ids):
        newest = ", ".join(run[:8] for run in ids[:NEWEST_RUNS]) or "none"
        raise UsageError(
            f"there is no run {filters.run!r} in {database.path}", f"the newest of {len(ids)}: {newest}"
        )


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
