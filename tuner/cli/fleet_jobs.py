"""The problems of a command as jobs of a head: what is left of them, and what becomes of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from tuner.cli.batch import Printing, TuningJob, finish_job
from tuner.cli.resume import completed_run, say_what_counts, say_what_is_kept
from tuner.core.conditions import Mode, Regime
from tuner.core.errors import TunerError, UsageError
from tuner.core.model import Gpu, Problem, Run, Status
from tuner.database.database import Database
from tuner.database.records import Filters, Mark
from tuner.fleet.cluster import Cluster
from tuner.fleet.head import OUT_OF_TIME
from tuner.fleet.jobs import Job
from tuner.fleet.messages import Task, TaskDone
from tuner.kernel.batching import choose_conditions
from tuner.kernel.cost import tuning_seconds
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.roofline import roof_of
from tuner.tuning.accuracy import Best
from tuner.tuning.opening import interrupted_run
from tuner.tuning.request import Request


@dataclass(frozen=True)
class FleetSettings:
    """What holds for all problems."""

    devices: Sequence[str]
    jobs: int | None
    """Compiling processes of all searchers together; None for one per core."""
    cache: Path | None
    overlap: bool
    printing: Printing
    total_s: float | None
    cluster: Cluster | None = None
    """Whose workers are the devices; then ``devices`` are the names that they have on their hosts."""
    model: str = ""
    """Of the workers that count; empty for that of the first."""


Left = tuple[TuningJob, Problem, Run | None, Mark | None]
"""A problem that is left, with the interrupted run that it goes on with, if there is one."""


class FleetJobs:
    """The problems of a command, given out by a head.

    Args:
        jobs: they collect the results.
        request: of each, but for the problem.
        database: has every trial; used by the thread that calls.
        settings: what holds for all.
        resume: go on with interrupted runs on any of the devices.

    Raises:
        TunerError: nothing is left to do, or a run cannot go on.
    """

    def __init__(
        self,
        jobs: Sequence[TuningJob],
        request: Request,
        database: Database,
        settings: FleetSettings,
        *,
        resume: bool,
    ) -> None:
        self._request, self._database, self._settings = request, database, settings
        self._identity = KernelIdentity(request.kernel)
        self._left = (
            self._interrupted(jobs)
            if resume
            else [(job, problem, None, None) for job in jobs for problem in job.choices]
        )
        self.jobs = [self._job(number, *left) for number, left in enumerate(self._left)]
        self.failed: list[str] = []
        self._ended_jobs: set[int] = set()
        for own in jobs:
            if own.comparison is not None and own.to_do:
                self._compare_on_one_device(own)

    @property
    def shares(self) -> list[float]:
        """Of all problems' time, each one's, but for a factor that they have in common."""
        return [(own.worth.share if own.worth else 1.0) / len(own.to_do) for own, _, _, _ in self._left]

    def done(self, job: Job, result: TaskDone) -> None:
        """Print a result, and keep it."""
        own = self._left[job.number][0]
        own.records.append(json.loads(result.record))
        if not self._settings.printing.as_json:
            click.echo(result.summary)
        if own.comparison is not None:
            self._compare(own, job.task.problem, result)
        elif result.nothing:
            own.without_winner.append(result.nothing)
        self._ended(own, job)

    def fail(self, job: Job, error: str) -> None:
        """Print why a problem could not be tuned, and keep that."""
        own = self._left[job.number][0]
        if error != OUT_OF_TIME and not job.too_inaccurate:
            self.failed.append(error)
        own.skip(job.task.problem, error, aloud=self._settings.printing.as_json or not job.too_inaccurate)
        self._ended(own, job)

    # -- dtypes that are compared

    def _of(self, own: TuningJob) -> list[Job]:
        return [job for job, left in zip(self.jobs, self._left, strict=True) if left[0] is own]

    def _compare_on_one_device(self, own: TuningJob) -> None:
        """Have the dtypes of a problem timed alike, one after the other, on one device."""
        jobs = self._of(own)
        estimates_s = [job.estimate_s for job in jobs]
        estimate_s = max(estimates_s) if own.worth else sum(estimates_s)
        for job in jobs:
            job.compared, job.estimate_s, job.settle = jobs, estimate_s, self._settled(own, jobs)

    def _settled(self, own: TuningJob, jobs: Sequence[Job]) -> Callable[[Gpu], tuple[Mode | None, Regime]]:
        """Return what says how a problem's dtypes are timed; see ``tuner.cli.batch``, which does it on one device."""
        kernel, options = self._request.kernel, self._request.options

        def settle(gpu: Gpu) -> tuple[Mode | None, Regime]:
            assert own.comparison is not None
            before = [own.comparison.conditions, *(job.going_on.conditions for job in jobs if job.going_on)]
            for conditions in before:
                if conditions is not None:
                    return conditions.mode, conditions.regime
            if options.mode is not None:
                return options.mode, options.regime
            roofs = [roof_of(kernel, job.task.problem, gpu) for job in jobs]
            modes = {choose_conditions(roof, None, options.regime)[0].mode for roof in roofs}
            return (Mode.ROTATING if len(modes) > 1 else None), options.regime

        return settle

    def _compare(self, own: TuningJob, problem: Problem, result: TaskDone) -> None:
        """Add a result to the comparison of dtypes."""
        assert own.comparison is not None
        trials = self._database.trials(result.run)
        winners = self._database.winners(Filters(run=result.run)).rows
        best = Best.stored(winners[-1]) if winners else None
        try:
            own.comparison.add(self._database.run(result.run), trials, best)
        except UsageError as error:
            own.skip(problem, str(error))
            self.failed.append(str(error))
        if best is None:
            failures = Counter(trial.status for trial in trials if not trial.status.ranked)
            if failures and failures.most_common(1)[0][0] is Status.INACCURATE:
                own.skip(problem, result.nothing, aloud=self._settings.printing.as_json)
            else:
                own.without_winner.append(result.nothing)

    def _ended(self, own: TuningJob, job: Job) -> None:
        """Print the comparison of a job's dtypes once the last one has ended."""
        self._ended_jobs.add(job.number)
        if all(other.number in self._ended_jobs for other in self._of(own)):
            finish_job(own, self._request.kernel, self._settings.printing)

    # -- what is given out

    def _job(self, number: int, own: TuningJob, problem: Problem, run: Run | None, mark: Mark | None) -> Job:
        request, kernel = self._request, self._request.kernel
        options = request.options
        if own.comparison is not None:
            options = replace(options, truth=own.comparison.truth)
        task = Task(
            "",
            kernel.file.resolve(),
            self._identity.text,
            problem,
            options if run is None else replace(options, trials=run.options.trials),
            database=str(self._database.path),
            full=self._settings.printing.full,
        )
        # What is worth most to a program begins first, as its file has it; else what takes longest.
        estimate_s = -float(number) if own.worth else tuning_seconds(kernel, problem, options.trials)
        job = Job(number, task, estimate_s, run, mark, worth=str(own.worth or ""))
        if run is not None:
            job.trials = len(self._database.rows(run.id))
        return job

    def _interrupted(self, jobs: Sequence[TuningJob]) -> list[Left]:
        """Return the problems that are left.

        Raises:
            TunerError: nothing is left, or a run cannot go on.
        """
        devices, database = self._settings.devices, self._database
        left: list[Left] = []
        for own in jobs:
            own_left = self._interrupted_of(own)
            own.to_do = [(problem, run is not None) for _, problem, run, _ in own_left]
            left += own_left
        problems = [problem for own in jobs for problem in own.choices]
        if not left or (len(problems) == 1 and left[0][2] is None):
            for problem in problems:
                for device in devices:
                    database.refuse_going_on(problem, device)
            what = f"any of the {len(problems)} problems" if len(problems) > 1 else str(problems[0])
            raise TunerError(
                f"there is no interrupted run of {what} on {', '.join(devices)}", "leave out --resume"
            )
        if any(run is not None for _, _, run, _ in left):
            say_what_is_kept()
        return left

    def _interrupted_of(self, own: TuningJob) -> list[Left]:
        """Return what is left of a job; the results of dtypes that are done enter the comparison, if any is left."""
        devices, database = self._settings.devices, self._database
        computations = self._identity.computations
        left: list[Left] = []
        done = []
        for problem in own.choices:
            runs = [(device, database.latest_unfinished(problem, device)) for device in devices]
            if device := next((device for device, run in runs if run is not None), None):
                request = replace(self._request, problem=problem, resume=True)
                run = interrupted_run(database, request, device)
                left.append((own, problem, run, database.mark_of(run.id)))
            elif own.comparison is not None:
                bound = own.comparison.max_error
                ended = [completed_run(problem, database, device, bound, computations) for device in devices]
                done += [*filter(None, ended)][:1]
                left += [] if any(ended) else [(own, problem, None, None)]
            elif not any(database.has_finished(problem, device, computations) for device in devices):
                left.append((own, problem, None, None))
        if own.comparison is not None and left:
            for results in done:
                own.comparison.add(*results)
            if done and not any(run for _, _, run, _ in left):
                say_what_counts(done[0][0].conditions)
        return left
