"""``tune trial``: everything about one trial."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from tuner.cli.commands.results import TrialArguments
from tuner.cli.configuration import choose
from tuner.cli.options import ConfigurationArguments
from tuner.core.errors import TunerError, UsageError
from tuner.core.files import whole_folder
from tuner.database.database import Database
from tuner.database.records import StoredTrial
from tuner.kernel.plan import make_plan
from tuner.kernel.render import context, render_entry
from tuner.report import tables
from tuner.report import trial_details as details
from tuner.report.launches import launch_record
from tuner.report.terminal import print_exactly, printable
from tuner.studies.targets import rerun


def trial(asked: TrialArguments) -> None:
    """Print a trial, a part of it, or its time then and now."""
    if asked.as_json + asked.only_source + asked.only_log + (asked.source_dir is not None) > 1:
        raise UsageError("--json, --source, --source-dir and --log exclude each other", "give one of them")
    if asked.launch is not None and not asked.only_source:
        raise UsageError("--launch chooses a source", "add --source")
    with Database.open(asked.db, write=False) as database:
        stored = database.trial(asked.number)
        if asked.again:
            device = asked.device or (stored.run.device if stored.run.replayed else "cuda:0")
            new = rerun(database, asked.number, device)
            details.show_again(stored.trial, new, as_json=asked.as_json)
            return
    if asked.as_json:
        tables.show_json(_as_json(stored, _recomputed(stored, asked.db)))
    elif asked.only_source:
        _print_source(asked.number, stored.trial.sources, asked.launch)
    elif asked.source_dir is not None:
        _write_sources(asked.number, stored.trial.sources, asked.source_dir)
    elif asked.only_log and not stored.trial.compile_log.strip():
        click.echo(f"tune: the compiler said nothing about trial {asked.number}", err=True)
    elif asked.only_log:
        print_exactly(stored.trial.compile_log)
    else:
        details.show_trial(stored, _recomputed(stored, asked.db))


def _print_source(number: int, sources: Sequence[str], launch: int | None) -> None:
    """Print the source of one launch exactly; sources of several are no source that compiles."""
    if not sources:
        click.echo(f"tune: {_no_source(number)}", err=True)
    if launch is None and len(sources) > 1:
        raise UsageError(
            f"trial {number} has {len(sources)} launches with a source each",
            "add --launch 1, or write all with --source-dir DIR",
        )
    if launch is not None and launch > len(sources):
        raise UsageError(f"trial {number} has no source of a launch {launch}", f"it has {len(sources)}")
    if sources:
        print_exactly(sources[(launch or 1) - 1])


def _write_sources(number: int, sources: Sequence[str], folder: Path) -> None:
    """Write the source of each launch to a file in a new folder."""
    if os.path.lexists(folder):
        raise UsageError(f"{printable(str(folder))} exists already", "name a new folder")
    if not sources:
        raise UsageError(_no_source(number), "tune query lists others")
    files = {f"trial-{number}-launch-{i}.cu": source for i, source in enumerate(sources, 1)}
    try:
        with whole_folder(folder.absolute()) as partial:
            for name, source in files.items():
                (partial / name).write_text(source, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror or error}", "name another folder") from error
    for name in files:
        click.echo(f"wrote {printable(str(folder / name))}")


def _no_source(number: int) -> str:
    return f"no source is kept of trial {number}"


def _recomputed(stored: StoredTrial, db: Path) -> details.Launches:
    """Return a trial's launches by its kernel's file, which the database does not keep; or why there are none."""
    try:
        chosen = choose(ConfigurationArguments("", trial=stored.trial.id, db=db), None)
        kernel, problem, gpu, configuration = chosen.kernel, chosen.problem, chosen.gpu, chosen.configuration
        plan = make_plan(kernel, problem, gpu, configuration)
        names = context(problem, gpu, configuration.values)
        specs = kernel.launches(problem, gpu, configuration)
        entries = [
            render_entry(kernel, spec, names) for spec in specs
        ]  # templates may never end: not the sources
    except TunerError as error:
        return details.Launches((), f"not known: {error.problem}")
    except MemoryError:
        return details.Launches((), "not known: out of memory while rendering the names of the kernels")
    return details.Launches(tuple(zip(entries, plan.launches, strict=True)), "; ".join(chosen.notes))


def _as_json(stored: StoredTrial, launches: details.Launches) -> dict[str, object]:
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
        "launches": [launch_record(entry, launch) for entry, launch in launches.launches],
        "launches_note": launches.note,
    }
