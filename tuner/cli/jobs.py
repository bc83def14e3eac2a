"""The jobs of one ``tune run``, each a problem, perhaps in several dtypes to choose from; and what becomes of them."""

from __future__ import annotations

import heapq
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import click

from tuner.cli.commands.run import RunArguments
from tuner.cli.loader import given_options
from tuner.cli.options import ProblemTexts
from tuner.cli.problems import make_choices, make_problems, problem_worths
from tuner.cli.worth import Budget, ProblemWorth
from tuner.core.conditions import Conditions, Mode
from tuner.core.errors import TunerError, UsageError
from tuner.core.model import Problem, Run, RunOptions, Status, Trial
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.fleet.messages import TaskDone
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.roofline import tuning_seconds
from tuner.kernel.spec import KernelSpec
from tuner.report.configurations import Texts
from tuner.report.pareto import front_as_json, plot_front, show_front, title
from tuner.report.tables import say
from tuner.tuning.accuracy import Best, Comparison, truth_of
from tuner.tuning.opening import adopt
from tuner.tuning.request import Request

MOST_SHARDS = 100_000


KEPT = ("trials", "sampler", "seed", "variants", "fixes", "from_scratch", "stop", "mode", "regime")
"""Options that a resumed run keeps from its beginning, by parameter."""


def say_what_is_kept() -> None:
    """Name the options that have no effect, because a resumed run goes on as it began."""
    if ignored := given_options(*KEPT):
        click.echo(f"tune: a resumed run keeps its own {', '.join(ignored)}", err=True)


def say_what_counts(conditions: Conditions) -> None:
    """Name the conditions of the command line that have no effect: dtypes that are done were timed under others."""
    values = click.get_current_context().params
    others = [name for name, kept in vars(conditions).items() if values[name] not in (None, kept)]
    ignored = [f"{option} {values[name]}" for name in others for option in given_options(name)]
    if ignored:
        how = f"timed {conditions}, as the dtypes that are done"
        click.echo(f"tune: {how}, in spite of {' and '.join(ignored)}", err=True)


@dataclass
class TuningJob:
    """One problem; or, under a bound on the error, one problem in the dtypes that there are to choose from."""

    choices: list[Problem]
    comparison: Comparison | None = None
    worth: ProblemWorth | None = None
    """To the program that it was recorded in, if it comes from a file that says so."""
    to_do: list[tuple[Problem, Run | None]] = field(init=False)
    """The choices that are left, each with the interrupted run that it goes on with."""
    records: list[dict[str, Any]] = field(default_factory=list)
    """JSON of the results, and of what failed."""
    without_winner: list[str] = field(default_factory=list)
    """A line for each run that has none."""
    ended: int = 0
    complete: bool = False

    def __post_init__(self) -> None:
        self.replace(self.choices)

    def replace(self, choices: list[Problem]) -> None:
        """Put others in the place of its choices."""
        self.choices, self.to_do = choices, [(problem, None) for problem in choices]

    def to_json(self) -> list[dict[str, Any]]:
        """Return the results so far; under a bound on the error, those of all dtypes in one record."""
        if self.comparison is None:
            return self.records
        if not self.records and not self.comparison.skipped:
            return []
        return [{**front_as_json(self.comparison, complete=self.complete), "runs": self.records}]

    def skip(self, problem: Problem, reason: str, *, aloud: bool = True) -> None:
        """Keep why a problem has no result; print it unless a comparison of dtypes will be printed."""
        reason = reason.removeprefix(f"{problem}: ")
        if aloud or self.comparison is None:
            say(f"{problem}: {reason}")
        if self.comparison is not None:
            self.comparison.skipped.append((problem, reason))
        else:
            self.records.append({"problem": problem.to_json(), "error": reason})

    @property
    def without_result(self) -> bool:
        """Whether it failed, or has no winner."""
        return bool(self.failures()) or any("error" in record for record in self.records)

    def failures(self) -> list[str]:
        """Return a line for each run without a winner, and one if no dtype is accurate enough.

        A dtype that is too inaccurate is no failure as long as another one is accurate enough.
        """
        lines = list(self.without_winner)
        if self.comparison is not None and self.complete and self.to_do and self.comparison.choice is None:
            nothing = f"no dtype has a confirmed winner within an error of {self.comparison.max_error:g}"
            lines.append(f"{title(self.comparison)}: {nothing}")
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
        return [TuningJob([problem]) for problem in make_problems(kernel, given)]
    if kernel.reference.checked_against != "reference":
        raise UsageError(
            f"{kernel.name} has no reference that an error could be counted from",
            f"add [reference] to {kernel.file.name}, or leave out --max-error",
        )
    return [
        TuningJob(choices, Comparison(truth_of(kernel, choices[0]), max_error))
        for choices in make_choices(kernel, given)
    ]


def shard_of(jobs: Sequence[TuningJob], kernel: KernelSpec, text: str, trials: int) -> list[TuningJob]:
    """Return the jobs of ``--shard I/N`` in the order of the list; perhaps none.

    The shards together are the list, and no job is in two. The longest job goes to the shard with the least to do, and
    so on: it depends on the list and the number of trials alone, so that it is the same on every host.

    Raises:
        UsageError: the text names no shard.
    """
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip(), re.ASCII)
    number, count = (int(part) for part in match.groups()) if match else (0, 0)
    if not 1 <= number <= count <= MOST_SHARDS:
        raise UsageError(f"--shard {text!r}", "write I/N with I from 1 to N, such as 1/4, 2/4, 3/4 and 4/4")
    costs = [sum(tuning_seconds(kernel, problem, trials) for problem in job.choices) for job in jobs]
    # By the problem where costs are equal: the same rows in another order give the same shards.
    longest_first = sorted(range(len(jobs)), key=lambda i: (-costs[i], jobs[i].choices[0].key))
    loads, own = [(0.0, shard) for shard in range(1, count + 1)], set()
    for i in longest_first:
        load, emptiest = loads[0]
        heapq.heapreplace(loads, (load + costs[i], emptiest))
        if emptiest == number:
            own.add(i)
    return [job for i, job in enumerate(jobs) if i in own]


Outcome = tuple[Run, Sequence[Trial], Best | None]
"""A run, its trials, and what is best of it, as a comparison of dtypes takes them."""


class Jobs:
    """The jobs of a command: what is left of them, and the place that prints and keeps how each run ended.

    Args:
        listed: the jobs.
        request: of each run, but for the problem and what its job adds to the options.
        database: where every trial goes.
        asked: what is printed and drawn, and where runs are.
    """

    def __init__(
        self, listed: Sequence[TuningJob], request: Request, database: Database, asked: RunArguments
    ) -> None:
        self.listed, self.request, self.database, self.asked = listed, request, database, asked
        self.failed = False
        """Whether one of them failed."""

    @property
    def left(self) -> list[tuple[TuningJob, Problem, Run | None]]:
        """The problems that are left, each with its job and the interrupted run that it goes on with."""
        return [(job, problem, run) for job in self.listed for problem, run in job.to_do]

    def budget(self) -> Budget:
        """Return the time that all problems have together, which passes from now on."""
        shares = [(job.worth.share if job.worth else 1.0) / len(job.to_do) for job, _, _ in self.left]
        return Budget(self.asked.total_time_s, shares)

    @property
    def seen(self) -> bool:
        """Whether all that is printed goes to a terminal."""
        return not (self.asked.quiet or self.asked.as_json) and sys.stdout.isatty() and sys.stderr.isatty()

    # -- what earlier runs have done

    def resume(self, devices: Sequence[str], *, in_order: bool) -> None:
        """Keep of each job what earlier runs on some devices have not done; what they have enters the comparison.

        Args:
            devices: their names.
            in_order: whether the problems are tuned in order: those after an interrupted one had not begun then.

        Raises:
            TunerError: nothing is left.
        """
        adopt(self.database, self.request.kernel)
        computations = KernelIdentity(self.request.kernel).computations
        began = False
        for job in self.listed:
            done, job.to_do = [], []
            for problem in job.choices:
                runs = (self.database.latest_unfinished(problem, device) for device in devices)
                run = next(filter(None, runs), None)
                began |= run is not None
                ended = [self._ended(job, problem, device, computations) for device in devices]
                if run is not None or (began and in_order) or not any(ended):
                    job.to_do.append((problem, run))
                else:
                    done += [one for one in ended if isinstance(one, tuple)][:1]
            if job.comparison is not None and job.to_do:
                for results in done:
                    job.comparison.add(*results)
                if done and not any(run for _, run in job.to_do):
                    say_what_counts(done[0][0].conditions)
        self._refuse_nothing(devices)
        if began:
            say_what_is_kept()

    def _ended(
        self, job: TuningJob, problem: Problem, device: str, computations: tuple[str, ...]
    ) -> Outcome | bool:
        """Return the newest run with a winner under a job's bound; without a bound, whether one has ended."""
        if job.comparison is None:
            return self.database.has_finished(problem, device, computations)
        winners = self.database.winners(Filters(problem_key=problem.key, computations=computations)).rows
        for stored in sorted(winners, key=lambda winner: -winner.id):
            run = stored.run
            if run.device == device and run.options.max_error == job.comparison.max_error:
                return run, self.database.trials(run.id), Best.stored(stored)
        return False

    def _refuse_nothing(self, devices: Sequence[str]) -> None:
        problems = [problem for job in self.listed for problem in job.choices]
        left = self.left
        if left and (len(problems) > 1 or left[0][2] is not None):
            return
        for problem in problems:
            for device in devices:
                self.database.refuse_going_on(problem, device)
        what = f"any of the {len(problems)} problems" if len(problems) > 1 else str(problems[0])
        raise TunerError(
            f"there is no interrupted run of {what} on {', '.join(devices)}", "leave out --resume"
        )

    # -- how a run is timed, and how it ended

    def options_of(
        self, job: TuningJob, mode_of: Callable[[Problem], Mode], going_on: Iterable[Run | None]
    ) -> RunOptions:
        """Return the options of a job's runs, with one mode and regime for all dtypes, so that times can be compared.

        What was timed before decides; else the dtype with the shortest kernels: if one is too short for a single call
        between two events, all are timed rotating.

        Args:
            job: whose runs they are.
            mode_of: returns the mode that a problem would choose.
            going_on: interrupted runs of the job.
        """
        if job.comparison is None:
            return self.request.options
        options = replace(self.request.options, truth=job.comparison.truth)
        for conditions in (job.comparison.conditions, *(run.conditions for run in going_on if run)):
            if conditions is not None:
                return replace(options, mode=conditions.mode, regime=conditions.regime)
        modes = {mode_of(problem) for problem, _ in job.to_do} if options.mode is None else set()
        return replace(options, mode=Mode.ROTATING) if len(modes) > 1 else options

    def done(self, job: TuningJob, problem: Problem, outcome: Outcome, result: TaskDone) -> None:
        """Print the result of a job's problem, and keep it; ``outcome`` is that of its run."""
        job.records.append(json.loads(result.record))
        if not self.asked.as_json:
            click.echo(result.summary)
        if job.comparison is not None:
            self._compare(job, job.comparison, problem, outcome, result.nothing)
        elif result.nothing:
            job.without_winner.append(result.nothing)
        self._count(job)

    def fail(self, job: TuningJob, problem: Problem, error: str, *, inaccurate: bool, fault: bool) -> None:
        """Print why a problem could not be tuned, and keep that.

        Args:
            job: the problem's.
            problem: that one.
            error: why.
            inaccurate: whether no kernel of its dtype can be within the bound on the error.
            fault: whether that is a failure of the command.
        """
        self.failed |= fault and not inaccurate
        job.skip(problem, error, aloud=self.asked.as_json or not inaccurate)
        self._count(job)

    def _compare(
        self, job: TuningJob, comparison: Comparison, problem: Problem, outcome: Outcome, nothing: str
    ) -> None:
        """Add a result to the comparison of dtypes."""
        try:
            comparison.add(*outcome)
        except UsageError as error:
            job.skip(problem, str(error))
            self.failed = True
        if nothing:
            failures = Counter(trial.status for trial in outcome[1] if not trial.status.ranked)
            if failures and failures.most_common(1)[0][0] is Status.INACCURATE:
                # Where it is printed the summary has just said the first half.
                aloud, (_, _, rest) = self.asked.as_json, nothing.partition("; ")
                job.skip(problem, nothing if aloud else rest, aloud=aloud)
            else:
                job.without_winner.append(nothing)

    def _count(self, job: TuningJob) -> None:
        """Print and draw the comparison of a job's dtypes once the last one has ended."""
        job.ended += 1
        if job.ended == len(job.to_do):
            job.complete = True
            if job.comparison is not None and not self.asked.as_json:
                show_front(job.comparison, Texts.of_kernel(self.request.kernel, full=self.asked.full))
            self.draw(job)

    def draw(self, job: TuningJob) -> None:
        """Draw the front of time and error, if that is to be drawn."""
        plot = self.asked.plot
        if plot is None or job.comparison is None:
            return
        if job.comparison.points:
            plot_front(job.comparison, plot)
        else:
            say(f"{plot} is not written: there is no time to draw")
