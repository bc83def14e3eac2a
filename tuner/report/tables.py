"""Trials and winners as tables, CSV and JSON; what is in a cell can neither end it nor act in a spreadsheet."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
from msgspec import structs

from tuner.core.conditions import Conditions
from tuner.core.model import Configuration, Gpu, Problem, Trial, value_text
from tuner.core.stats import Verdict
from tuner.database.records import Metrics, StoredTrial, StoredWinner, WarmTime
from tuner.kernel.variant_spec import RESOURCE_NAMES
from tuner.report.layout import message_lines, pair_lines, table_lines, wrapped
from tuner.report.terminal import printable

TRIAL_COLUMNS = (
    "id", "run", "number", "kernel", "sizes", "dtypes", "options", "gpu", "cc", "driver", "device",
    "replayed", "foreign", "mode", "regime", "variant", "parameters", "status", "time_ns", "ci_low_ns",
    "ci_high_ns", "outliers", "sm_clock_hz", "capped_samples", "tflops", "gbytes_per_s",
    "speed_of_light", "registers", "static_shared_bytes", "dynamic_shared_bytes", "stack_bytes",
    "spill_bytes", "active_blocks", "verified", "true_error", "error", "tags", "created_at",
)  # fmt: skip
"""What CSV has of a trial."""
WINNER_COLUMNS = (
    "kernel", "sizes", "dtypes", "options", "gpu", "cc", "driver", "device", "replayed", "foreign", "mode",
    "regime", "variant", "parameters", "time_ns", "ci_low_ns", "ci_high_ns", "outliers", "sm_clock_hz",
    "capped_samples", "tflops", "gbytes_per_s", "speed_of_light", "max_error", "true_error", "trial_id", "run",
    "default_trial_id", "default_time_ns", "ratio", "ratio_low", "ratio_high", "verdict",
    "confirmed_ns", "edges_verified", "checked_against", "exportable", "reason", "warm_time_ns", "warm_ratio",
    "warm_ratio_low",
    "warm_ratio_high", "warm_verdict", "warm_behind", "warm_behind_in_mode", "created_at",
)  # fmt: skip
"""What CSV has of a winner."""
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Beginnings of a formula, also in full width, after OWASP's page on CSV injection; tabs and the like are escaped."""
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
PRINTED_AT_ONCE = 1 << 16
"""Characters."""
_ENCODER = json.JSONEncoder(allow_nan=False)
COMPUTE_BOUND_FROM = 10.0
"""Operations a byte from which TFLOP/s says more than GB/s; every GPU's ridge is higher for some dtype."""


def say(text: object) -> None:
    """Print a line on the standard error, beside whatever is the result."""
    show_line(f"tune: {text}", err=True)


def show_line(text: object, *, err: bool = False) -> None:
    """Print a line that is broken on a terminal alone."""
    for line in message_lines(printable(text), sys.stderr if err else sys.stdout):
        click.echo(line, err=err)


def counted(count: int, noun: str, several: str = "") -> str:
    """Return a number of things: ``1 trial``, ``2 trials``; ``several`` is their name where an s is not enough."""
    return f"{count} {noun if count == 1 else several or f'{noun}s'}"


def time_unit(ns: float) -> tuple[str, float]:
    """Return the unit that fits a time, and its length in nanoseconds."""
    for limit, unit, size in ((1e3, "ns", 1.0), (1e6, "us", 1e3), (1e9, "ms", 1e6)):
        if ns < limit:
            return unit, size
    return "s", 1e9


def duration(ns: float | None) -> str:
    """Return a time with a unit that fits it: ``812 ns``, ``190.1 us``, ``3.42 ms``."""
    if ns is None:
        return ""
    unit, size = time_unit(ns)
    return f"{ns / size:.4g} {unit}"


def interval(low: float | None, high: float | None) -> str:
    """Return the ends of a confidence interval of a time: ``189.7 .. 190.4 us``."""
    if low is None or high is None:
        return ""
    first, last = duration(low), duration(high)
    number, unit = first.split(" ")
    return f"{number if last.endswith(f' {unit}') else first} .. {last}"


def throughput(metrics: Metrics) -> str:
    """Return TFLOP/s where arithmetic is the work, else GB/s."""
    flops, bandwidth = metrics.tflops, metrics.gbytes_per_s
    if flops and (not bandwidth or flops * 1e3 / bandwidth >= COMPUTE_BOUND_FROM):
        return f"{flops:.4g} TFLOP/s"
    return f"{bandwidth:.4g} GB/s" if bandwidth else ""


def percent(fraction: float | None, digits: int = 1) -> str:
    """Return a fraction as a percentage."""
    return "" if fraction is None else f"{100 * fraction:.{digits}f} %"


def si(value: float, unit: str) -> str:
    """Return an amount with a prefix of its unit."""
    for limit, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def problem_text(problem: Problem) -> str:
    """Return sizes, dtype and options, without the kernel's name."""
    return str(problem).removeprefix(problem.kernel).strip()


WORDS: dict[str, str] = {Verdict.FASTER: "", Verdict.SLOWER: "; slower", Verdict.SAME: "; tied"}


def speedup(ratio: float | None, low: float | None, high: float | None, verdict: str, over: str = "") -> str:
    """Return a speedup with its interval and what that means: ``1.77x over the default (95 %: 1.76 to 1.78)``.

    Args:
        ratio: the other's time over this one's; None where there is none.
        low, high: ends of its interval, if there is one.
        verdict: one of :class:`tuner.core.stats.Verdict`, or empty.
        over: what it is compared with, if that is not said elsewhere.
    """
    if ratio is None:  # the default has no time
        return verdict and "not compared"
    interval = ""
    if low is not None and high is not None and high < math.inf:
        interval = f" (95 %: {low:.3f} to {high:.3f})" if over else f" ({low:.3f} .. {high:.3f})"
    with_what = f" over {over}" if over else ""
    word = WORDS.get(verdict, "; not told apart") if verdict else ""
    return f"{ratio:.3f}x{with_what}{interval}{word}"


def warm_text(warm: WarmTime | None) -> str:
    """Return how a winner stands in the mode warm; empty where it was chosen by one mode alone."""
    if warm is None:
        return ""
    return f"{duration(warm.time_ns)}, {100 * (warm.behind - 1):.1f} % behind the fastest"


def why_not_the_fastest(behind: float, noise_floor: float, margin: float | None, *, known: bool) -> str:
    """Return why a run's winner is not the fastest finalist; empty if it is.

    Args:
        behind: its time over that of the fastest.
        noise_floor: of the race.
        margin: of the run. Runs of before it was an option had one without saying so.
        known: whether it was the winner of an earlier run.
    """
    if behind == 1.0:
        return ""
    if behind <= 1.0 + noise_floor and not margin:
        return f"tied with the fastest finalist, {100 * abs(behind - 1):.2f} % apart: the simplest is kept"
    why = "the known winner was kept" if known else "one nearer to an initial configuration was chosen"
    far = f"{100 * (behind - 1):.2f} % behind" if behind > 1 else "as fast as"
    return f"{why}: {far} the fastest finalist; --margin 0 takes the fastest"


def show(
    columns: Sequence[str],
    rows: Iterable[Iterable[object]],
    *,
    right: Iterable[str] = (),
    stacked: Sequence[str] = (),
) -> None:
    """Print a table that fits the terminal; a row a line, of any length, where the output is none.

    Args:
        columns: heads.
        rows: values, one for each head.
        right: columns that are aligned to the right.
        stacked: columns that move below their row first where the terminal is narrow, the least important one first.
    """
    cells = [[_text(cell) for cell in row] for row in rows]
    show_pieces(f"{line}\n" for line in table_lines(columns, cells, set(right), stacked))


MEASURED = "measured"
"""The usual source of a time, which a table need not name."""


def telling(
    rows: Sequence[Mapping[str, object]], always: Sequence[str], where_they_differ: Sequence[str]
) -> list[dict[str, object]]:
    """Return rows with some columns: those that are read, and what else tells the rows apart or is not usual."""
    usual = {"source": MEASURED}

    def tells(head: str) -> bool:
        return len({str(row[head]) for row in rows} | ({usual[head]} if head in usual else set())) > 1

    kept = [*always, *filter(tells, where_they_differ)] if rows else always
    return [{head: row[head] for head in row if head in kept} for row in rows]


def row_number(number: int | None) -> str:
    """Return the number of a trial's row in the database, which ``tune trials N`` takes."""
    return "" if number is None else f"#{number}"


def show_rows(rows: Sequence[Mapping[str, object]], **how: Any) -> None:
    """Print a table of at least one row, each of which has its values by the columns' heads, as :func:`show` does."""
    show(list(rows[0]), (row.values() for row in rows), **how)


def _text(cell: object) -> str:
    return value_text(cell) if isinstance(cell, bool) else printable(cell)


def show_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Print names and values in two columns, leaving out what is empty."""
    shown = ((name, value_text(value) if isinstance(value, bool) else value) for name, value in pairs)
    for line in pair_lines(shown):
        click.echo(line)


def show_text(text: object, first: str = "", rest: str | None = None) -> None:
    """Print a paragraph in lines that fit, as :func:`tuner.report.layout.wrapped` breaks it."""
    for line in wrapped(printable(text), first, rest):
        click.echo(line)


def show_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print CSV with a heading; text that a spreadsheet would take for a formula begins with an apostrophe."""
    show_pieces(_csv_lines(columns, rows))


def _csv_lines(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in itertools.chain([columns], rows):
        writer.writerow(map(_cell, row))
        yield text.getvalue()
        text.seek(0)
        text.truncate()


def show_pieces(pieces: Iterable[str]) -> None:
    """Print text, many pieces at once, and without holding all of them."""
    waiting: list[str] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size > PRINTED_AT_ONCE:
            click.echo("".join(waiting), nl=False)
            waiting, size = [], 0
    click.echo("".join(waiting), nl=False)


def _cell(value: object) -> object:
    if isinstance(value, (dict, list, tuple)):
        value = json.dumps(value, separators=(",", ":"))
    if isinstance(value, str):
        text = printable(value)
        return f"'{text}" if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.hex() if isinstance(value, bytes) else value


def show_json(value: object) -> None:
    """Print JSON in printable ASCII; bytes become hexadecimal digits, infinities and NaN text."""
    pieces = json.JSONEncoder(indent=2, allow_nan=False).iterencode(_jsonable(value))
    show_pieces(piece.replace("\x7f", "\\u007f") for piece in itertools.chain(pieces, "\n"))


def show_records(records: Iterable[Mapping[str, Any]]) -> None:
    """Print a JSON list, a record a line, each as soon as it is known; otherwise as :func:`show_json`."""
    show_pieces(_record_lines(records))


def _record_lines(records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    before = "[\n"
    for record in records:
        try:
            text = _ENCODER.encode(record)
        except (TypeError, ValueError):  # bytes, an infinity
            text = _ENCODER.encode(_jsonable(record))
        yield before + text.replace("\x7f", "\\u007f")
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _jsonable(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def picked(record: object, *names: str) -> dict[str, Any]:
    """Return attributes of a record by name, in this order; the words of a text are names of their own."""
    return {name: getattr(record, name) for text in names for name in text.split()}


def configuration_record(configuration: Configuration | None) -> dict[str, Any]:
    """Return a configuration's variant and parameters; None for both where there is none."""
    if configuration is None:
        return {"variant": None, "parameters": None}
    return {"variant": configuration.variant, "parameters": configuration.values}


def trial_identity(trial: Trial) -> dict[str, Any]:
    """Return a trial's number, variant and parameters, as ``tune run --json`` names them."""
    configuration = trial.configuration
    return {"trial": trial.id, "variant": configuration.variant, "configuration": configuration.values}


def timing_record(gpu: Gpu, conditions: Conditions) -> dict[str, Any]:
    """Return where and how something was timed."""
    where = {"gpu": gpu.name, "gpu_uuid": gpu.uuid, "driver": gpu.driver}
    return {**where, **picked(conditions, "mode regime")}


def trial_record(stored: StoredTrial) -> dict[str, Any]:
    """Return a trial as a flat dictionary for ``--json`` and ``--csv``, without samples and sources."""
    trial = stored.trial
    return {
        **picked(trial, "id number"),
        **_where_from(stored),
        **configuration_record(trial.configuration),
        **picked(trial, "status time_ns ci_low_ns ci_high_ns"),
        **_samples_and_rates(stored, trial),
        **{name: getattr(trial.resources, name, None) for name in RESOURCE_NAMES},
        "verified": trial.verification.passed if trial.verification and trial.verification.checked else None,
        "true_error": trial.true_error,
        "error": trial.error,
        "tags": list(trial.tags),
        "created_at": stored.created_at,
    }


def winner_record(stored: StoredWinner) -> dict[str, Any]:
    """Return a winner as a flat dictionary for ``--json`` and ``--csv``."""
    winner = stored.winner
    plain = {n: v for n, v in vars(winner).items() if n not in ("configuration", "race", "time_ns", "warm")}
    warm = structs.asdict(winner.warm) if winner.warm else dict.fromkeys(WarmTime.__struct_fields__)
    return {
        **_where_from(stored),
        **configuration_record(winner.configuration),
        "time_ns": winner.time_ns,
        **picked(stored.trial, "ci_low_ns ci_high_ns"),
        **_samples_and_rates(stored, stored.trial),
        "max_error": stored.run.options.max_error,
        "true_error": stored.trial.true_error,
        **plain,
        "checked_against": winner.checked_against,
        **{f"warm_{name}": value for name, value in warm.items() if name != "counts"},
        "created_at": stored.created_at,
    }


def _where_from(stored: StoredTrial) -> dict[str, Any]:
    run = stored.run
    return {
        "run": run.id,
        **run.problem.to_json(),
        "gpu": run.gpu.name,
        **picked(run.gpu, "cc driver"),
        **picked(run, "device replayed foreign"),
        **picked(run.conditions, "mode regime"),
    }


def _samples_and_rates(stored: StoredTrial, trial: Trial) -> dict[str, Any]:
    clock = {"sm_clock_hz": trial.sm_clock_hz or None, "capped_samples": trial.capped_samples}
    return {"outliers": stored.outliers, **clock, **structs.asdict(stored.metrics)}
