"""The jobs of a command in this process, on one device, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import click

from tuner.cli.jobs import Ended, Jobs, TuningJob
from tuner.cli.worth import Budget
from tuner.core.conditions import Mode
from tuner.core.errors import Interrupted, TooInaccurateError, TunerError
from tuner.core.model import Problem
from tuner.core.observer import Observer
from tuner.devices.base import Device
from tuner.fleet.head import OUT_OF_TIME
from tuner.report.next_steps import next_steps
from tuner.report.progress import RunProgress
from tuner.report.run_plot import plot_run
from tuner.report.summary import best_so_far, result_as_json, summary, why_nothing
from tuner.report.tables import say
from tuner.tuning import session
from tuner.tuning.accuracy import Best
from tuner.tuning.request import Request
from tuner.tuning.state import Result, State


def run_here(jobs: Jobs, device: Device, stop: Callable[[], bool]) -> None:
    """Run the jobs one after the other; if one fails, print why and begin the next.

    Args:
        jobs: they collect the results.
        device: where to measure.
        stop: called often; once it returns true, nothing new is tried.

    Raises:
        Interrupted: ``stop`` said so.
        TunerError: there was only one problem, and it failed.
    """
    asked, database = jobs.asked, jobs.database
    budget, begun = Budget(asked.total_time_s, jobs.shares), 0
    shown = set(device.notes)
    results: list[Result] = []
    for number, job in enumerate(jobs.listed, 1):
        for problem, run in job.to_do:
            time_s = budget.of(begun, range(begun))
            begun += 1
            if time_s is not None and time_s <= 0.0:
                say(f"{problem}: {OUT_OF_TIME}")
                continue
            if problem is job.to_do[0][0] and job.worth is not None and not asked.quiet:
                say(f"{number} of {len(jobs.listed)}: {problem}: {job.worth}")
            options = jobs.options_of(
                job, lambda one: _mode_of(jobs.request, device, one), [run for _, run in job.to_do]
            )
            times_s = [limit for limit in (time_s, options.time_s) if limit is not None]
            options = replace(options, time_s=min(times_s, default=None))
            request = replace(jobs.request, problem=problem, options=options, resume=run is not None)
            if (result := _run(jobs, job, request, device, stop, shown)) is None:
                continue
            results.append(result)
            if result.state.run.calibration:
                shown.update(result.state.run.calibration.notes)
            if jobs.seen:
                click.echo(err=True)
            jobs.done(job, problem, _ended(result, jobs))
            if asked.plot is not None and job.comparison is None:
                plot_run(result, asked.plot)
    if jobs.seen:
        for line in next_steps(results, database.path):
            click.echo(line, err=True)


def _run(
    jobs: Jobs,
    job: TuningJob,
    request: Request,
    device: Device,
    stop: Callable[[], bool],
    shown: set[str],
) -> Result | None:
    """Run one problem of a job; None where it failed, and others go on."""
    asked, alone = jobs.asked, len(jobs.left) == 1
    observer = Observer[State]() if asked.quiet else RunProgress(shown)
    try:
        return session.tune(request, device, jobs.database, observer, stop)
    except Interrupted:
        if observer.now is not None and not asked.as_json:
            click.echo(best_so_far(observer.now, full=asked.full))
        raise
    except TunerError as error:
        inaccurate = isinstance(error, TooInaccurateError)
        if not alone:
            jobs.fail(job, request.problem, str(error), inaccurate=inaccurate, fault=True)
            return None
        if inaccurate:
            job.skip(request.problem, str(error), aloud=False)
            job.complete = True
            jobs.draw(job)
        raise


def _mode_of(request: Request, device: Device, problem: Problem) -> Mode:
    regime = request.options.regime
    return device.choose_conditions(request.kernel, problem, None, regime)[0].mode


def _ended(result: Result, jobs: Jobs) -> Ended:
    path = jobs.database.path
    return Ended(
        summary(result, path, full=jobs.asked.full),
        result_as_json(result),
        why_nothing(result, path) if result.finish is None else "",
        result.state.run,
        result.state.trials,
        Best.of(result.finish) if result.finish else None,
    )
