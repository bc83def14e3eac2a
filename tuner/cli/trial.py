"""``tune trials N``: everything about one trial."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path

import click

from tuner.cli.commands.results import TrialArguments
from tuner.cli.configuration import choose
from tuner.cli.options import ConfigurationArguments
from tuner.core import paths
from tuner.core.errors import TunerError, UsageError
from tuner.core.model import Trial, Verification
from tuner.database.database import Database
from tuner.database.records import StoredTrial
from tuner.devices.choose import open_device
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import kernel_of_run
from tuner.kernel.plan import make_plan
from tuner.kernel.render import context, render_entry
from tuner.kernel.templates import apart
from tuner.report import tables
from tuner.report.configurations import launch_record, shape_text
from tuner.report.terminal import print_exactly, printable
from tuner.runtime.launches import Launch
from tuner.tuning.state import bounded

Launches = tuple[Sequence[tuple[str, Launch]], str]
"""Entry and launch of each of a trial's, as its kernel's file has them; and why there are none, or may be others."""
POLL_S = 0.1


def trial(asked: TrialArguments) -> None:
    """Print a trial, a part of it, or its time then and now."""
    if (asked.as_json or asked.again) + asked.only_source + asked.only_log > 1:
        raise UsageError("--json or --again, --source and --log exclude each other", "give one of them")
    if asked.launch is not None and not asked.only_source:
        raise UsageError("--launch chooses a source", "add --source")
    if asked.device and not asked.again:
        raise UsageError("--device is where a trial runs again", "add --again")
    with Database.open(asked.db, write=False) as database:
        stored = database.trial(asked.number)
        if asked.again:
            device = asked.device or (stored.run.device if stored.run.replayed else "cuda:0")
            _show_again(stored.trial, _timed_again(stored, device), as_json=asked.as_json)
            return
    if asked.as_json:
        tables.show_json(_as_json(stored, _recomputed(stored, asked.db)))
    elif asked.only_source:
        _print_source(asked.number, stored.trial.sources, asked.launch)
    elif asked.only_log and not stored.trial.compile_log.strip():
        click.echo(f"tune: the compiler said nothing about trial {asked.number}", err=True)
    elif asked.only_log:
        print_exactly(stored.trial.compile_log)
    else:
        _show(stored, _recomputed(stored, asked.db))


def _print_source(number: int, sources: Sequence[str], launch: int | None) -> None:
    """Print the source of one launch exactly; sources of several are no source that compiles."""
    if not sources:
        click.echo(f"tune: no source is kept of trial {number}", err=True)
    if launch is None and len(sources) > 1:
        raise UsageError(
            f"trial {number} has {len(sources)} launches with a source each",
            "add --launch 1; --json has all",
        )
    if launch is not None and launch > len(sources):
        raise UsageError(f"trial {number} has no source of a launch {launch}", f"it has {len(sources)}")
    if sources:
        print_exactly(sources[(launch or 1) - 1])


def _timed_again(stored: StoredTrial, device: str) -> Trial:
    """Measure a recorded trial again, alone, on a device by name; nothing is written.

    Raises:
        TunerError: the kernel is not there any more, or has changed.
    """
    run, trial = stored.run, stored.trial
    kernel = kernel_of_run(run)
    with closing(open_device(device, kernel.name, 1, paths.cubins())) as opened:
        if not KernelIdentity(kernel).current(run, trial):
            raise TunerError(f"{kernel.name} has changed since trial {trial.id}", "tune it again")
        opened.prepare(kernel, run.problem, run.options.seed, run.conditions, run.options.truth)
        opened.submit(trial.number, trial.configuration)
        while not (trials := opened.collect(POLL_S)):
            pass
        return bounded(trials[0], run.options.max_error)


def _recomputed(stored: StoredTrial, db: Path) -> Launches:
    """Return a trial's launches by its kernel's file, which the database does not keep; or why there are none."""
    try:
        chosen = choose(ConfigurationArguments("", trial=stored.trial.id, db=db), None)
        kernel, problem, gpu, configuration = chosen.kernel, chosen.problem, chosen.gpu, chosen.configuration
        plan = make_plan(kernel, problem, gpu, configuration)
        names = context(problem, gpu, configuration.values)
        specs = kernel.launches(problem, gpu, configuration)
        entries = apart(lambda: [render_entry(kernel, spec, names) for spec in specs], kernel.file.name)
    except TunerError as error:
        return (), f"not known: {error.problem}"
    return [(entries[launch.code], launch) for launch in plan.launches], "; ".join(chosen.notes)


def _as_json(stored: StoredTrial, launches: Launches) -> dict[str, object]:
    """Return everything about a trial for programs, with sources and samples."""
    trial = stored.trial
    verification = dict(vars(trial.verification)) if trial.verification else None
    if verification and stored.run.replayed:  # a recording says whether it was right, not by how much
        verification.update(worst_ratio=None, norm_error=None)
    return {
        **tables.trial_record(stored),
        **tables.picked(trial, "compile_s measure_s"),
        "verification": verification,
        "calibration": stored.run.calibration.to_json() if stored.run.calibration else None,
        **tables.picked(trial, "compile_log samples_ns sources"),
        "launches": [launch_record(entry, launch) for entry, launch in launches[0]],
        "launches_note": launches[1],
    }


def _show(stored: StoredTrial, launches: Launches) -> None:
    """Print everything that is known about a trial."""
    trial, run = stored.trial, stored.run
    resources = vars(trial.resources) if trial.resources else {}
    tables.show_pairs(
        [
            ("trial", f"{tables.row_number(trial.id)}, number {trial.number + 1} of run {run.id}"),
            ("problem", run.problem),
            ("GPU", f"{run.gpu.name} (cc {run.gpu.cc}, driver {run.gpu.driver or 'unknown'}), {run.device}"),
            ("timed", f"{run.conditions}{'; replayed from a recording' if run.replayed else ''}"),
            *(("note", note) for note in (run.calibration.notes if run.calibration else ())),
            ("status", trial.status),
            ("error", "; ".join(filter(None, map(str.strip, trial.error.splitlines())))),
            ("time", tables.duration(trial.time_ns)),
            ("95 % interval", tables.interval(trial.ci_low_ns, trial.ci_high_ns)),
            ("rate", tables.throughput(stored.metrics)),
            ("of peak", tables.percent(stored.metrics.of_peak)),
            ("verified", _verification_text(trial.verification, run.replayed)),
            ("true error", _true_error_text(trial.verification)),
            ("variant", trial.configuration.variant),
            *((f"  {name}", value) for name, value in trial.configuration.parameters),
            *_launch_rows(launches[0]),
            ("launches", launches[1]),
            ("samples", _samples_text(trial)),
            ("outliers", f"{stored.outliers} of {len(trial.samples_ns)}" if trial.samples_ns else ""),
            ("SM clock", f"{trial.sm_clock_hz / 1e9:.3f} GHz" if trial.sm_clock_hz else ""),
            ("capped samples", _capped_text(trial)),
            *((name.replace("_", " "), value) for name, value in resources.items()),
            ("source", _sources_text(trial)),
            ("tags", ", ".join(trial.tags)),
            ("compiled in", f"{trial.compile_s:.3g} s" if trial.compile_s else ""),
            ("GPU occupied", f"{trial.measure_s:.3g} s" if trial.measure_s else ""),
            ("when", f"{stored.created_at[:19].replace('T', ' ')} UTC"),
        ]
    )
    if trial.compile_log:
        click.echo("\n--- compiler log")
        lines = trial.compile_log.splitlines()
        click.echo("\n".join(printable(line.replace("\t", "    ")) for line in lines))


def _launch_rows(launches: Iterable[tuple[str, Launch]]) -> Iterator[tuple[str, str]]:
    """Yield a row for each launch, and one for neighbours that differ in their arguments alone."""
    first = 1
    for text, group in groupby(f"{of}: {shape_text(launch)}" for of, launch in launches):
        last = first + len(list(group)) - 1
        yield f"launch {first}" if first == last else f"launches {first}-{last}", text
        first = last + 1


def _sources_text(trial: Trial) -> str:
    if not trial.sources:
        return ""
    lines = [len(source.splitlines()) for source in trial.sources]
    return f"{' + '.join(map(str, lines))} lines; --source prints {'it' if len(lines) == 1 else 'one'}"


def _samples_text(trial: Trial) -> str:
    if not trial.samples_ns:
        return ""
    ends = tables.interval(min(trial.samples_ns), max(trial.samples_ns))
    return f"{len(trial.samples_ns)}, from {ends}; --json lists them"


def _capped_text(trial: Trial) -> str:
    """Return how many samples were capped; empty if the clock was not read."""
    if not trial.capped_samples:
        return "none" if trial.sm_clock_hz else ""
    return f"{trial.capped_samples} of {len(trial.samples_ns)}: the power limit held the clock down"


def _true_error_text(verification: Verification | None) -> str:
    if verification is None or verification.true_error is None:
        return ""
    return f"{verification.true_error:.3g} of the norm of the exact result"


def _verification_text(verification: Verification | None, replayed: bool) -> str:
    if verification is None or not verification.checked:
        return "no"
    if verification.passed and replayed:
        return "when it was recorded"
    if verification.passed:
        worst, norm = verification.worst_ratio, verification.norm_error
        return f"yes: largest error {worst:.3g} of the allowed, norm {norm:.3g}"
    return f"WRONG: {verification.mismatches} elements, {verification.message}"


def _show_again(old: Trial, new: Trial, *, as_json: bool) -> None:
    """Print a trial's time then and now."""
    change = new.time_ns / old.time_ns if new.time_ns and old.time_ns else None
    if as_json:
        then, now = (tables.picked(one, "status time_ns ci_low_ns ci_high_ns") for one in (old, new))
        tables.show_json({"old": then, "new": now, "new_over_old": change, "error": new.error})
        return
    rows = [
        (name, t.status, tables.duration(t.time_ns), tables.interval(t.ci_low_ns, t.ci_high_ns), t.error)
        for name, t in (("then", old), ("now", new))
    ]
    tables.show(("", "status", "time", "95 % interval", "error"), rows)
    if change is not None:
        click.echo(f"now takes {change:.3f} times as long as then")
