"""``tune table``: the winner of each problem, and how far its runs agree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from tuner.cli.commands.results import TableArguments
from tuner.cli.filters import named_kernel, origin, show_records
from tuner.cli.stored_winners import listed_winners
from tuner.core.errors import UsageError
from tuner.core.files import refuse_missing_parent, write_csv
from tuner.core.model import Problem, value_text
from tuner.database.records import StoredWinner
from tuner.report import tables
from tuner.report.configurations import StoredTexts, head_of
from tuner.report.terminal import printable
from tuner.winners.agreement import AgreedWinner, WinningConfiguration, agreed_winners, cards_of
from tuner.winners.current import Kernels

HEADS = (
    *("kernel", "problem", "gpu", "timed", "configuration", "time", "versus default"),
    *("runs", "cards", "seeds", "spread", "behind others", "source"),
)
OF_AGREEMENT = (
    *("runs", "runs_agreeing", "cards", "cards_agreeing", "seeds", "seeds_agreeing"),
    *("spread", "raced_behind", "behind", "runs_of_other_texts", "others"),
)


def table(asked: TableArguments) -> None:
    """Print the table: of replays where nothing that fits was measured.

    Raises:
        DatabaseError: no winner fits.
        UsageError: problems of several kernels cannot be written to one file.
        OSError: the file cannot be written.
    """
    if asked.as_markdown and (asked.as_json or asked.as_csv):
        raise UsageError("--markdown excludes --json and --csv", "give one of them")
    if asked.again:
        refuse_missing_parent(asked.again)
    kernels = Kernels(named_kernel(asked.kernel))
    agreed, missing = listed_winners(
        asked, lambda database, fit: agreed_winners(database, fit, kernels=kernels)
    )
    if asked.again and agreed.rows:
        _write_again(asked.again, agreed.rows)
    if asked.as_json or asked.as_csv:
        show_records(asked, map(_record, agreed.rows), (*tables.WINNER_COLUMNS, *OF_AGREEMENT))
    elif agreed.rows:
        texts = StoredTexts(full=asked.full)
        rows = [_cells(row, texts) for row in agreed.rows]
        head = head_of("configuration", full=asked.full)
        heads = [head if name == "configuration" else name for name in HEADS]
        if asked.as_markdown:
            _show_markdown(heads, rows)
        else:
            tables.show(
                heads,
                rows,
                right=("time", "runs", "cards", "seeds", "spread", "behind others"),
                stacked=(head,),
            )
        if asked.as_markdown:
            click.echo()
        tables.show_line(_in_words(agreed.rows), err=not asked.as_markdown)
    if missing:
        raise missing


def _write_again(file: Path, rows: Sequence[AgreedWinner]) -> None:
    """Write the problems without a majority as ``tune run --problems`` reads them; only a heading if there is none."""
    kernels = sorted({row.stored.run.problem.kernel for row in rows})
    if len(kernels) > 1:
        raise UsageError(
            f"a file has the problems of one kernel, and here are those of {', '.join(kernels)}",
            "name one with --kernel",
        )
    without = [row.stored.run for row in rows if not row.has_majority]
    problems = {run.problem.key: run.problem for run in without}
    for key, problem in problems.items():
        if len({(run.gpu.name, run.conditions) for run in without if run.problem.key == key}) > 1:
            raise UsageError(
                f"{problem} was tuned in several modes or on several models of GPU",
                "name one with --mode, --regime or --gpu",
            )
    write_csv(file, list(_row(rows[0].stored.run.problem)), map(_row, problems.values()))
    count = tables.counted(len(problems), "problem")
    tables.say(f"wrote {count} to {file}: at most half of the runs agree")


def _row(problem: Problem) -> dict[str, object]:
    options = {name: value_text(value) for name, value in problem.options.items()}
    return {**problem.sizes, **options, **problem.dtypes}


def _cells(row: AgreedWinner, texts: StoredTexts) -> tuple[object, ...]:
    stored, chosen = row.stored, row.chosen
    winner = stored.winner
    return (
        stored.run.problem.kernel,
        tables.problem_text(stored.run.problem),
        stored.run.gpu.name,
        stored.run.conditions,
        texts.of(stored.run).cell(chosen.configuration),
        tables.duration(winner.time_ns),
        tables.speedup(winner.ratio, None, None, winner.verdict),
        *(_of(*pair) for pair in _counts(row)),
        _share(chosen.spread),
        _share(None if chosen.raced_behind is None else chosen.raced_behind - 1),
        origin(stored.run),
    )


def _counts(row: AgreedWinner) -> tuple[tuple[int, int], ...]:
    """Return the numbers of runs, cards and random seeds: first of those that chose the winner, then of all."""
    chosen, every = _numbers(row.chosen.winners), _numbers(row.every)
    return tuple(zip(chosen, every, strict=True))


def _numbers(winners: Sequence[StoredWinner]) -> tuple[int, int, int]:
    return len(winners), len(cards_of(winners)), len({stored.run.options.seed for stored in winners})


def _of(agreeing: int, count: int) -> str:
    return f"{agreeing} of {count}"


def _share(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f} %"


def _record(row: AgreedWinner) -> dict[str, Any]:
    counts = dict(zip(("runs", "cards", "seeds"), _counts(row), strict=True))
    return {
        **tables.winner_record(row.stored),
        **{name: count for name, (_, count) in counts.items()},
        **{f"{name}_agreeing": agreeing for name, (agreeing, _) in counts.items()},
        "spread": row.chosen.spread,
        "raced_behind": row.chosen.raced_behind,
        "behind": row.chosen.behind,
        "runs_of_other_texts": row.other_texts,
        "others": [_other(one) for one in row.others],
    }


def _other(one: WinningConfiguration) -> dict[str, Any]:
    return {
        **tables.configuration_record(one.configuration),
        "runs": len(one.winners),
        "cards": len(one.cards),
        "seeds": _numbers(one.winners)[2],
        "raced_behind": one.raced_behind,
        "behind": one.behind,
    }


def _in_words(rows: Sequence[AgreedWinner]) -> str:
    """Return how many problems several runs tuned, and how many of those have one winner."""
    several = [row for row in rows if len(row.every) > 1]
    count = tables.counted(len(rows), "problem")
    if not several:
        return f"{count}, each tuned once: tune again with another --seed to see how reproducible they are"
    same = sum(not row.others for row in several)
    share = f"{100 * same / len(several):.0f} %"
    text = f"{count}; all runs agree on {same} of {len(several)} tuned more than once ({share})"
    if texts := sum(row.other_texts for row in rows):
        text += f"; {tables.counted(texts, 'run')} of another text of the kernel left out"
    return text


def _show_markdown(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    lines = [heads, ["---"] * len(heads), *rows]
    for line in lines:
        cells = (
            printable(cell).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;") for cell in line
        )
        click.echo(f"| {' | '.join(cells)} |")
