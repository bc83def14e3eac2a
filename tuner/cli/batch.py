"""The jobs of one ``tune run``: one problem or several, each perhaps in several dtypes to choose from."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from tuner.cli.problems import ProblemTexts, make_choices, make_problems, problem_worths
from tuner.cli.resume import completed_run, left_to_do, say_what_counts, say_what_is_kept
from tuner.cli.worth import Budget, ProblemWorth
from tuner.core.conditions import Mode
from tuner.core.errors import Interrupted, TooInaccurateError, TunerError, UsageError
from tuner.core.model import Problem, RunOptions, Status
from tuner.core.observer import Observer
from tuner.database.database import Database
from tuner.devices.base import Device
from tuner.devices.replay import ReplayDevice
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.spec import KernelSpec
from tuner.report.configurations import Texts
from tuner.report.next_steps import next_steps
from tuner.report.pareto import front_as_json, plot_front, show_front, title
from tuner.report.plots import check_plot
from tuner.report.progress import RunProgress
from tuner.report.run_plot import plot_run
from tuner.report.summary import (
    best_so_far,
    commonest_failure,
    how_it_ended,
    missing,
    result_as_json,
    summary,
    why_nothing,
)
from tuner.report.tables import say
from tuner.tuning import session
from tuner.tuning.accuracy import Best, Comparison, truth_of
from tuner.tuning.request import Request
from tuner.tuning.state import Result, State


@dataclass
class TuningJob:
    """One problem; or, under a bound on the error, one problem in the dtypes that there are to choose from."""

    choices: list[Problem]
    comparison: Comparison | None = None
    to_do: list[tuple[Problem, bool]] = field(default_factory=list)
    """The choices that are left, each with whether it goes on with an interrupted run."""
    results: list[Result] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    """JSON of the results of other processes, and of what failed."""
    without_winner: list[str] = field(default_factory=list)
    """A line for each of these that has none."""
    complete: bool = False
    worth: ProblemWorth | None = None
    """To the program that it was recorded in, if it comes from a file that says so."""

    def to_json(self) -> list[dict[str, Any]]:
        """Return the results so far; under a bound on the error, those of all dtypes in one record."""
        runs = [*self.records, *(result_as_json(result) for result in self.results)]
        if self.comparison is None:
            return runs
        if not runs and not self.comparison.skipped:
            return []
        return [{**front_as_json(self.comparison, complete=self.complete), "runs": runs}]

    def skip(self, problem: Problem, reason: str, *, aloud: bool = True) -> None:
        """Keep why a problem has no result; print it unless a comparison of dtypes will be printed."""
        reason = reason.removeprefix(f"{problem}: ")
        if aloud or self.comparison is None:
            say(f"{problem}: {reason}")
        if self.comparison is not None:
            self.comparison.skipped.append((problem, reason))
        else:
            self.records.append({"problem": problem.to_json(), "error": reason})

    def without_result(self, database: Path) -> bool:
        """Return whether it failed, or has no winner."""
        return bool(self.failures(database)) or any("error" in record for record in self.records)

    def failures(self, database: Path) -> list[str]:
        """Return a line for each run without a winner, and one if no dtype is accurate enough.

        A dtype that is too inaccurate is no failure as long as another one is accurate enough.
        """
        lines = self.without_winner + [
            why_nothing(result, database)
            for result in self.results
            if result.finish is None and not (self.comparison is not None and _inaccurate(result))
        ]
        if self.comparison is not None and self.complete and self.to_do and self.comparison.choice is None:
            bound = f"{self.comparison.max_error:g}"
            lines.append(
                f"{title(self.comparison)}: no dtype has a confirmed winner within an error of {bound}"
            )
        return lines


def make_jobs(kernel: KernelSpec, given: ProblemTexts, max_error: float | None = None) -> list[TuningJob]:
    """Turn the command line into jobs; if a file says what its problems are worth, the heaviest come first.

    Raises:
        UsageError: a name or a value that does not fit.
    """
    worths = problem_worths(kernel, given)
    jobs = _make_jobs(kernel, given, max_error)
    for job in jobs:
        job.worth = next((worths[problem.key] for problem in job.choices if problem.key in worths), None)
    return sorted(jobs, key=lambda job: -job.worth.share if job.worth else 0.0)


def _make_jobs(kernel: KernelSpec, given: ProblemTexts, max_error: float | None) -> list[TuningJob]:
    if max_error is None:
        return [TuningJob([problem], to_do=[(problem, False)]) for problem in make_problems(kernel, given)]
    if not kernel.reference.exists:
        raise UsageError(
            f"{kernel.name} has no reference that an error could be counted from",
            f"add [reference] to {kernel.file.name}, or leave out --max-error",
        )
    return [
        TuningJob(
            choices,
            Comparison(truth_of(kernel, choices[0]), max_error),
            [(problem, False) for problem in choices],
        )
        for choices in make_choices(kernel, given)
    ]


def check_figure(path: Path | None, jobs: Sequence[TuningJob]) -> None:
    """Refuse, before anything is measured, a ``--plot`` that cannot be drawn.

    Raises:
        UsageError, TunerError: there is nothing to draw, or no way to.
    """
    if path is None:
        return
    if len(jobs) > 1:
        raise UsageError(f"--plot draws one problem, and these are {len(jobs)}", "give one problem")
    check_plot(path)


def refuse_recording(device: Device, max_error: float | None) -> None:
    """Refuse ``--max-error`` for a recording, which has no errors to choose by.

    Raises:
        UsageError: that.
    """
    if max_error is not None and device.recorded:
        raise UsageError(
            f"{device.name} is a recording, and a recording has no errors to choose by",
            "leave out --max-error, or measure with --device cuda",
        )


def recorded_instead(jobs: Sequence[TuningJob], kernel: KernelSpec, device: ReplayDevice) -> None:
    """Put recorded problems in the place of the kernel's default one, which no option has chosen."""
    for job in jobs:
        job.choices = [device.recorded_instead(kernel, problem) for problem in job.choices]
        job.to_do = [(problem, False) for problem in job.choices]


def resume_jobs(jobs: Sequence[TuningJob], kernel: KernelSpec, database: Database, device: Device) -> None:
    """Keep of each job what earlier runs have not done; their results enter the comparison of dtypes.

    Raises:
        TunerError: nothing is left.
    """
    problems = [problem for job in jobs for problem in job.choices]
    bound = jobs[0].comparison.max_error if jobs[0].comparison else None
    computations = KernelIdentity(kernel).computations
    left = left_to_do(problems, database, device.name, bound, computations)
    if any(going_on and database.latest_unfinished(problem, device.name) for problem, going_on in left):
        say_what_is_kept()
    keys = {problem.key for problem, _ in left}
    for job in jobs:
        own = {problem.key for problem in job.choices}
        job.to_do = [(problem, going_on) for problem, going_on in left if problem.key in own]
        if job.comparison is None or not job.to_do:
            continue
        for problem in job.choices:
            if problem.key not in keys:
                run = completed_run(problem, database, device.name, job.comparison.max_error, computations)
                if run is not None:
                    job.comparison.add(*run)


@dataclass(frozen=True)
class Printing:
    """What a command prints of its runs, and draws."""

    quiet: bool = False
    """No progress."""
    as_json: bool = False
    """No summaries: JSON at the end has the results."""
    full: bool = False
    """All parameters of a configuration."""
    plot: Path | None = None
    """Where to draw the only problem's run, or the front of a bounded job."""

    @property
    def seen(self) -> bool:
        """Whether all of it goes to a terminal."""
        return not (self.quiet or self.as_json) and sys.stdout.isatty() and sys.stderr.isatty()


def run_jobs(
    jobs: Sequence[TuningJob],
    request: Request,
    device: Device,
    database: Database,
    stop: Callable[[], bool],
    printing: Printing,
    total_s: float | None = None,
) -> bool:
    """Run the jobs one after the other; if one fails, print why and begin the next.

    Args:
        jobs: they collect the results.
        request: of each, but for problem, truth and resumption.
        device: where to measure.
        database: where every trial goes.
        stop: called often; once it returns true, nothing new is tried.
        printing: what is printed and drawn.
        total_s: time for all of them, which is shared by what they are worth.

    Returns:
        Whether one of them failed.

    Raises:
        Interrupted: ``stop`` said so.
        TunerError: there was only one problem, and it failed.
    """
    runs = _Runs(device, database, stop, printing, alone=sum(len(job.to_do) for job in jobs) == 1)
    failed = False
    shares = [job.worth.share if job.worth else 1 / len(jobs) for job in jobs]
    budget = Budget(total_s, [share if job.to_do else 0.0 for share, job in zip(shares, jobs, strict=True)])
    for number, job in enumerate(jobs, 1):
        time_s = _time_of(job, budget, request.options.time_s)
        if job.to_do and time_s == 0:
            say(f"{job.choices[0]}: left out, the time is over; go on with --resume")
            continue
        if job.to_do and job.worth is not None and not printing.quiet:
            say(f"{number} of {len(jobs)}: {job.choices[0]}: {job.worth}")
        alike = replace(_alike(job, request, device, database), time_s=time_s)
        for problem, going_on in job.to_do:
            truth = job.comparison.truth if job.comparison else None
            options = replace(alike, truth=truth)
            one = replace(request, problem=problem, options=options, resume=going_on)
            failed |= not runs.run(job, one)
        finish_job(job, request.kernel, printing)
    if printing.seen:
        for line in next_steps([result for job in jobs for result in job.results], database.path):
            click.echo(line, err=True)
    return failed


class _Runs:
    """Runs on one device, one after the other.

    Args:
        device: where to measure.
        database: where every trial goes.
        stop: called often; once it returns true, nothing new is tried.
        printing: what is printed and drawn.
        alone: whether there is only one of them, so that its failure is the command's.
    """

    def __init__(
        self,
        device: Device,
        database: Database,
        stop: Callable[[], bool],
        printing: Printing,
        *,
        alone: bool,
    ) -> None:
        self._device, self._database, self._stop = device, database, stop
        self._printing, self._alone = printing, alone
        self._shown = set(device.notes)
        """Notes on the device that were printed."""

    def run(self, job: TuningJob, request: Request) -> bool:
        """Run one problem of a job, and print its result; return whether it and its comparison succeeded."""
        problem, printing = request.problem, self._printing
        observer = Observer[State]() if printing.quiet else RunProgress(self._shown)
        try:
            result = session.tune(request, self._device, self._database, observer, self._stop)
        except Interrupted:
            if observer.now is not None and not printing.as_json:
                click.echo(best_so_far(observer.now, full=printing.full))
            raise
        except TooInaccurateError as error:
            job.skip(problem, str(error), aloud=printing.as_json and not self._alone)
            if self._alone:
                job.complete = True
                _draw(job, printing.plot)
                raise
            return True
        except TunerError as error:
            if self._alone:
                raise
            job.skip(problem, str(error))
            return False
        job.results.append(result)
        if result.state.run.calibration:
            self._shown.update(result.state.run.calibration.notes)
        path = self._database.path
        if not printing.as_json:
            if printing.seen:
                click.echo(err=True)
            click.echo(summary(result, path, full=printing.full))
        if printing.plot is not None and job.comparison is None:
            plot_run(result, printing.plot)
        return _compare(job, problem, result, path, aloud=printing.as_json)


def _time_of(job: TuningJob, budget: Budget, most_s: float | None) -> float | None:
    """Return how long each of a job's problems may search: None without a limit, 0 if no time is left."""
    left_s = budget.next()
    if left_s is None:
        return most_s
    share_s = max(0.0, left_s) / max(1, len(job.to_do))
    return share_s if most_s is None else min(share_s, most_s)


def finish_job(job: TuningJob, kernel: KernelSpec, printing: Printing) -> None:
    """Print and draw the comparison of a job's dtypes, if there is one."""
    job.complete = True
    if job.comparison is not None and job.to_do:
        if not printing.as_json:
            show_front(job.comparison, Texts.of_kernel(kernel, full=printing.full))
        _draw(job, printing.plot)


def _draw(job: TuningJob, plot: Path | None) -> None:
    if plot is None or job.comparison is None:
        return
    if job.comparison.points:
        plot_front(job.comparison, plot)
    else:
        say(f"{plot} is not written: there is no time to draw")


def _alike(job: TuningJob, request: Request, device: Device, database: Database) -> RunOptions:
    """Return the options with one mode and regime for all dtypes of a job, so that their times can be compared.

    What was timed before decides; else the dtype with the shortest kernels: if one is too short for a single call
    between two events, all are timed rotating.
    """
    options = request.options
    if job.comparison is None:
        return options
    runs = [database.latest_unfinished(p, device.name) for p, going_on in job.to_do if going_on]
    before = [run.conditions for run in runs if run is not None]
    if job.comparison.conditions is not None:
        before.insert(0, job.comparison.conditions)
    if before:
        if not runs:  # of interrupted runs it was printed that they keep what they had
            say_what_counts(before[0])
        return replace(options, mode=before[0].mode, regime=before[0].regime)
    if options.mode is not None:
        return options
    modes = {
        device.choose_conditions(request.kernel, problem, None, options.regime)[0].mode
        for problem, _ in job.to_do
    }
    return replace(options, mode=Mode.ROTATING) if len(modes) > 1 else options


def _compare(job: TuningJob, problem: Problem, result: Result, database: Path, *, aloud: bool) -> bool:
    """Add a result to the comparison of dtypes, if there is one; return whether that could be done."""
    if job.comparison is None:
        return True
    best = Best.of(result.finish) if result.finish else None
    try:
        job.comparison.add(result.state.run, result.state.trials, best)
    except UsageError as error:
        job.skip(problem, str(error))
        return False
    if _inaccurate(result):
        # Where it is printed the summary has just said the first half.
        what = f"no configuration {missing(result)}; " if aloud else ""
        job.skip(problem, f"{what}{how_it_ended(result, database)}", aloud=aloud)
    return True


def _inaccurate(result: Result) -> bool:
    """Return whether the bound on the error is what left a run without a winner."""
    return result.finish is None and commonest_failure(result) is Status.INACCURATE
