"""Everything about one trial, for people to read."""

from __future__ import annotations

from dataclasses import dataclass

import click

from tuner.core.model import Trial, Verification
from tuner.database.records import StoredTrial
from tuner.report import tables
from tuner.report.launches import shape_text
from tuner.report.terminal import printable
from tuner.runtime.launches import Launch


@dataclass(frozen=True)
class Launches:
    """A trial's launches as its kernel's file has them."""

    launches: tuple[tuple[str, Launch], ...]
    """Entry and launch of each, in order."""
    note: str
    """Why there are none, or may be others."""


def show_trial(stored: StoredTrial, launches: Launches) -> None:
    """Print everything that is known about a trial."""
    trial, run = stored.trial, stored.run
    resources = vars(trial.resources) if trial.resources else {}
    tables.show_pairs(
        [
            ("trial", f"{trial.id}: number {trial.number} of run {run.id}"),
            ("problem", run.problem),
            ("GPU", f"{run.gpu.name} (cc {run.gpu.cc}, driver {run.gpu.driver or 'unknown'}), {run.device}"),
            ("timed", f"{run.conditions}{'; replayed from a recording' if run.replayed else ''}"),
            *(("note", note) for note in (run.calibration.notes if run.calibration else ())),
            ("status", trial.status),
            ("error", "; ".join(filter(None, map(str.strip, trial.error.splitlines())))),
            ("time", tables.duration(trial.time_ns)),
            ("95 % interval", tables.interval(trial.ci_low_ns, trial.ci_high_ns)),
            ("rate", tables.throughput(stored.metrics)),
            ("speed of light", tables.percent(stored.metrics.speed_of_light)),
            ("verified", _verification_text(trial.verification, run.replayed)),
            ("true error", _true_error_text(trial.verification)),
            ("variant", trial.configuration.variant),
            *((f"  {name}", value) for name, value in trial.configuration.parameters),
            *(
                (f"launch {i}", f"{entry}: {shape_text(launch)}")
                for i, (entry, launch) in enumerate(launches.launches, 1)
            ),
            ("launches", launches.note),
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


def show_again(old: Trial, new: Trial, *, as_json: bool) -> None:
    """Print a trial's time then and now."""
    change = new.time_ns / old.time_ns if new.time_ns and old.time_ns else None
    if as_json:
        both = {
            name: {
                "status": str(t.status),
                **{n: getattr(t, n) for n in ("time_ns", "ci_low_ns", "ci_high_ns")},
            }
            for name, t in (("old", old), ("new", new))
        }
        tables.show_json({**both, "new_over_old": change, "error": new.error})
        return
    rows = [
        (name, t.status, tables.duration(t.time_ns), tables.interval(t.ci_low_ns, t.ci_high_ns), t.error)
        for name, t in (("then", old), ("now", new))
    ]
    tables.show(("", "status", "time", "95 % interval", "error"), rows)
    if change is not None:
        click.echo(f"now takes {change:.3f} times as long as then")
