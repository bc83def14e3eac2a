"""``tune trial``: everything about one trial."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.bench.rerun import rerun
from tuner.database.database import Database
from tuner.database.records import StoredTrial
from tuner.errors import UsageError
from tuner.report import tables
from tuner.report import trial_details as details
from tuner.report.terminal import print_exactly


def trial(
    number: int, db: Path, as_json: bool, only_source: bool, only_log: bool, again: bool, device: str
) -> None:
    """Print a trial, a part of it, or its time then and now."""
    if as_json + only_source + only_log > 1:
        raise UsageError("--json, --source and --log exclude each other", "give one of them")
    with Database.open(db, write=False) as database:
        stored = database.trial(number)
        if again:
            device = device or (stored.run.device if stored.run.replayed else "cuda:0")
            new = rerun(database, number, device)
            details.show_again(stored.trial, new, as_json=as_json)
            return
    if as_json:
        tables.show_json(_as_json(stored))
    elif only_source:
        for source in stored.trial.sources:
            print_exactly(source)
    elif only_log and not stored.trial.compile_log.strip():
        click.echo(f"tune: the compiler said nothing about trial {number}", err=True)
    elif only_log:
        print_exactly(stored.trial.compile_log)
    else:
        details.show_trial(stored)


def _as_json(stored: StoredTrial) -> dict[str, object]:
    """Return everything about a trial for programs, with sources and samples."""
    trial = stored.trial
    verification = dict(vars(trial.verification)) if trial.verification else None
    if verification and stored.run.replayed:  # a recording says whether it was right, not by how much
        verification.update(worst_ratio=None, norm_error=None)
    return {
        **tables.trial_record(stored),
        "compile_s": trial.compile_s,
        "measure_s": trial.measure_s,
        "verification": verification,
        "calibration": stored.run.calibration.to_json() if stored.run.calibration else None,
        "compile_log": trial.compile_log,
        "samples_ns": trial.samples_ns,
        "sources": trial.sources,
    }
