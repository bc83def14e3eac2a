"""``tune run``: the main job; its problems on one device of this process, one after the other."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from tuner.cli.commands.run import RunArguments
from tuner.cli.fleet import run_fleet, searched_on, workers_of
from tuner.cli.jobs import Jobs, TuningJob, make_jobs, shard_of
from tuner.cli.loader import part
from tuner.core.conditions import Mode
from tuner.core.errors import Interrupted, TooInaccurateError, TunerError, UsageError
from tuner.core.model import Problem, RunOptions
from tuner.core.observer import Observer
from tuner.core.phases import process_began
from tuner.core.signals import stopping
from tuner.database.database import Database
from tuner.devices.base import Device, say_nothing
from tuner.devices.choose import introduce, kernel_for, open_device
from tuner.devices.foreign_replay import open_foreign
from tuner.devices.replay import ReplayDevice
from tuner.devices.started import discard
from tuner.fleet.cluster import Cluster
from tuner.fleet.head import OUT_OF_TIME
from tuner.fleet.searcher import done_of
from tuner.kernel.load import load_kernel
from tuner.kernel.space import narrow
from tuner.report.next_steps import next_steps, show_next
from tuner.report.plots import check_plot
from tuner.report.progress import RunProgress
from tuner.report.result_record import stopped_as_json
from tuner.report.run_plot import plot_run
from tuner.report.summary import best_so_far
from tuner.report.tables import say, show_json
from tuner.tuning import session
from tuner.tuning.accuracy import Best
from tuner.tuning.history import sources_of
from tuner.tuning.request import Request, effort_options, within
from tuner.tuning.state import Result, State


def run(asked: RunArguments, cluster: Cluster | None = None, gpu: str = "") -> None:
    """Tune every problem of the command line, and print what each run found; exit status 1 if one failed.

    With a cluster its workers are the devices, those whose GPU's name contains ``gpu``.
    """
    options = _options_of(asked)
    tell = say_nothing if asked.quiet else say
    foreign = open_foreign(asked.kernel_name, asked.device_name, asked.space_file, tell)
    if foreign:
        _refuse_recording(foreign, options)
        options = replace(options, from_scratch=True)  # to study a search, a seed must give the same run
    wanted = asked.kernel_name if foreign else kernel_for(asked.device_name, asked.kernel_name)
    kernel = foreign.results.kernel if foreign else load_kernel(wanted)
    listed = make_jobs(kernel, asked, options.max_error)
    if asked.shard is not None:
        listed = shard_of(listed, kernel, asked.shard, options.trials)
        if not listed:
            say(f"shard {asked.shard}: there are fewer problems than shards, and none is left for this one")
            return
    _refuse_figure(asked.plot, listed)
    # These refuse what is not there, before a device says anything.
    narrow(kernel, options.variants, options.fixed)
    sources = sources_of(asked.learn_from, kernel, options.sampler)
    model, devices = "", list[str]()
    request = Request(kernel, listed[0].choices[0], options)
    failed = False
    alone: Device | None = None
    try:
        with stopping() as stopped, ExitStack() as opened:
            if cluster is not None:
                model, devices = workers_of(cluster, gpu)
            elif foreign is None:
                devices = searched_on(asked, listed)
            if devices or cluster is not None:
                discard()
                if asked.plot is not None:
                    raise UsageError(
                        "--plot draws a run that this process tunes", "name one GPU, or use tune report"
                    )
            else:
                began = process_began(), time.monotonic()
                alone = foreign or open_device(asked.device_name, kernel.name, asked.jobs, asked.cache, tell)
                opened.enter_context(closing(alone))
                alone.phases.note("start", *began)
                _refuse_recording(alone, options)
                introduce(alone, kernel, tell, changed=wanted != asked.kernel_name)
                named = asked.sizes or asked.presets or asked.problem_texts or asked.problem_file
                if isinstance(alone, ReplayDevice) and not named:
                    for job in listed:
                        job.replace([alone.recorded_instead(kernel, one) for one in job.choices])
            database = opened.enter_context(Database.open(asked.db))
            database.sources = sources
            jobs = Jobs(listed, request, database, asked)
            if asked.resume:
                jobs.resume([alone.name] if alone else devices, in_order=alone is not None)
            if alone is not None:
                run_here(jobs, alone, stopped)
            else:
                run_fleet(jobs, devices, stopped, cluster, model)
            failed = jobs.failed
    finally:
        records = [record for job in listed for record in job.to_json()]
        if asked.as_json and (records or failed):
            show_json(records)
    failures = [line for job in listed for line in job.failures()]
    for line in failures:
        say(line)
    if len(listed) > 1 and (without := sum(job.without_result for job in listed)):
        say(f"{without} of {len(listed)} problems have no winner")
    if failed or failures:
        sys.exit(1)


def _options_of(given: RunArguments) -> RunOptions:
    """Return how each problem is tuned.

    Raises:
        UsageError: a text means nothing.
    """
    stop = None if given.stop is None else given.stop == "auto"
    effort = effort_options(given.effort, given.sampler, given.trials, stop)
    fixed, one_mode = fixed_values(given.fixes), given.mode is not None
    return part(given, RunOptions, fixed=fixed, one_mode=one_mode, **effort)


def _refuse_recording(device: Device, options: RunOptions) -> None:
    """Refuse ``--max-error`` for a recording, which has no errors to choose by.

    Raises:
        UsageError: that.
    """
    if options.max_error is not None and device.recorded:
        raise UsageError(
            f"{device.name} is a recording, and a recording has no errors to choose by",
            "leave out --max-error, or measure with --device cuda",
        )


def _refuse_figure(path: Path | None, jobs: Sequence[TuningJob]) -> None:
    """Refuse, before anything is measured, a ``--plot`` that cannot be drawn.

    Raises:
        UsageError, TunerError: there is nothing to draw, or no way to.
    """
    if path is None:
        return
    if len(jobs) > 1:
        raise UsageError(f"--plot draws one problem, and these are {len(jobs)}", "give one problem")
    check_plot(path)


def fixed_values(texts: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the values of each parameter that ``--fix`` texts allow."""
    fixed: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise UsageError(f"--fix {text!r}", "write --fix name=value or --fix name=value,value")
        if "=" in values:
            raise UsageError(
                f"--fix {text!r} names several parameters", "repeat --fix, once for each of them"
            )
        fixed[name.strip()] = (*fixed.get(name.strip(), ()), *map(str.strip, values.split(",")))
    return fixed


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
    budget, begun, shown = jobs.budget(), 0, set(device.notes)
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
            going_on = [run for _, run in job.to_do]
            options = within(jobs.options_of(job, partial(_mode_of, jobs.request, device), going_on), time_s)
            began = process_began() if begun == 1 else time.monotonic()
            request = replace(
                jobs.request, problem=problem, options=options, resume=run is not None, began=began
            )
            if (result := _run(jobs, job, request, device, stop, shown)) is None:
                continue
            results.append(result)
            if result.state.run.calibration:
                shown.update(result.state.run.calibration.notes)
            if jobs.seen:
                click.echo(err=True)
            best = Best.of(result.finish) if result.finish else None
            outcome = result.state.run, result.state.trials, best
            jobs.done(job, problem, outcome, done_of(result, database.path, full=asked.full))
            if asked.plot is not None and job.comparison is None:
                plot_run(result, asked.plot)
    if jobs.seen:
        show_next(next_steps(results, database.path))


def _run(
    jobs: Jobs, job: TuningJob, request: Request, device: Device, stop: Callable[[], bool], shown: set[str]
) -> Result | None:
    """Run one problem of a job; None where it failed, and others go on."""
    asked, alone = jobs.asked, len(jobs.left) == 1
    observer = Observer[State]() if asked.quiet else RunProgress(shown, full=asked.full)
    try:
        return session.tune(request, device, jobs.database, observer, stop)
    except Interrupted as stopped:
        if observer.now is not None:
            job.records.append(stopped_as_json(observer.now, str(stopped)))
            if not asked.as_json:
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
