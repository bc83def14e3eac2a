"""``tune report``: one HTML page about a run, a kernel, or the whole database."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import click

from tuner.cli.commands.results import ReportArguments
from tuner.cli.configuration import choose
from tuner.cli.explain import explained
from tuner.cli.filters import filters_of, report_damage
from tuner.cli.options import ConfigurationArguments
from tuner.core.errors import DatabaseError, TunerError, UsageError
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.formats.files import write_text
from tuner.inspect.explain.advice import AdviceVerdict, advise
from tuner.inspect.explain.report import advice_rows
from tuner.report.html.page import Advice, page
from tuner.report.html.subjects import Subjects, read_all, read_run
from tuner.report.tables import counted, show_pieces
from tuner.winners.wanted import refuse_unknown


def report(asked: ReportArguments) -> None:
    """Write the page, and print what is in it.

    Raises:
        UsageError: options that exclude each other, or that name what there is not.
        DatabaseError: nothing fits, or the file cannot be read or written.
    """
    filters = filters_of(asked)
    if sum((bool(asked.run_id), asked.everything, filters != Filters())) > 1:
        raise UsageError("--run, --all and filters exclude each other", "give one of them")
    more = ""
    with Database.open(asked.db, write=False) as database:
        if asked.everything or filters != Filters():
            refuse_unknown(database, filters)
            named = ", ".join(filter(None, (filters.kernel, filters.dtype, filters.gpu)))
            subjects, what = read_all(database, filters), named or "All that was tuned"
        else:
            ids = [asked.run_id] if asked.run_id else database.run_ids()
            if not ids:
                raise DatabaseError(f"there are no runs in {asked.db}", "tune a kernel first: tune gemm")
            subjects, what = read_run(database, database.run_id(ids[0])), ""
            more = "; --all also shows earlier runs" if not asked.run_id and len(ids) > 1 else ""
    report_damage(subjects.damaged, asked.db)
    if not subjects.problems and not subjects.best:
        raise DatabaseError(f"no run in {asked.db} fits", "leave out a filter")
    moment = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    text = page(subjects, what, asked.db, moment, _advice(asked, subjects))
    if str(asked.output) == "-":
        show_pieces([text])
        return
    write_text(asked.output, [text], force=asked.force)
    trials = sum(len(one.stored) for one in subjects.problems)
    counts = f"{counted(len(subjects.problems), 'problem')} with {counted(trials, 'trial')}"
    click.echo(f"wrote {counts} to {asked.output} ({len(text.encode()) / 1e6:.2f} MB){more}")


def _advice(asked: ReportArguments, subjects: Subjects) -> dict[str, Advice]:
    """Return what ``tune explain`` finds in the winner's code and is not ok, by the run's id; nothing if that fails.

    Only where one problem is shown: each takes a compilation.
    """
    won = subjects.problems[0].winner if len(subjects.problems) == 1 else None
    if won is None or won.run.foreign:
        return {}
    with suppress(TunerError):
        chosen = choose(ConfigurationArguments(trial=won.trial.id, db=asked.db), None)
        found = explained(asked.db, chosen, won.run.calibration)
        shown = [one for one in advise(found) if one.verdict in (AdviceVerdict.PROBLEM, AdviceVerdict.TRY)]
        rows = advice_rows(shown, several=len(found.launches) > 1)
        return {
            won.run.id: [(str(verdict), " ".join(map(str, about)), str(why)) for verdict, *about, why in rows]
        }
    return {}
