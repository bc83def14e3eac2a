"""``tune judge``: whether kernels that somebody else wrote are right, and faster than a task's baselines."""

from __future__ import annotations

import json
import random
import secrets
import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from tuner.cli.commands.studies import JudgeArguments
from tuner.cli.configuration import open_gpu, typical_gpu
from tuner.cli.problems import make_problems
from tuner.core import paths
from tuner.core.errors import KernelError, NoGpuError, UsageError
from tuner.core.files import temporary_folder
from tuner.core.model import Problem
from tuner.core.phases import process_began
from tuner.core.signals import stopping
from tuner.devices.base import say_nothing
from tuner.kernel.candidates import candidate_kernel
from tuner.kernel.load import load_kernel
from tuner.kernel.spec import KernelSpec
from tuner.report.tables import say, show_line
from tuner.studies.judging.judge import Judgement, candidate_record
from tuner.studies.judging.modules import write_task
from tuner.studies.judging.report import show_verdict
from tuner.studies.judging.rounds import BEST, Rounds
from tuner.studies.judging.task import Task, task_of
from tuner.studies.judging.verdict import EXIT_REFUSED, Verdict, schema
from tuner.studies.judging.without_gpu import seen_without_gpu


def judge(asked: JudgeArguments) -> None:
    """Judge one candidate, or those that arrive in a folder; the exit status says what became of it.

    Raises:
        UsageError: the task or the file of the candidate is not there, or options do not go together.
    """
    if asked.explain_format:
        click.echo(paths.agents_page().read_text(encoding="utf-8"))
        click.echo(json.dumps(schema(), indent=2))
        return
    _refuse_wrong(asked)
    with temporary_folder() as folder:
        _judge(asked, _task_kernel(asked.task, folder))


def _task_kernel(text: str, folder: Path) -> KernelSpec:
    """Return the kernel that candidates compute; a torch module is described in the folder."""
    path = Path(text)
    if path.suffix == ".py" and path.is_file():
        return load_kernel(str(write_task(path, folder)))
    return load_kernel(text)


def _judge(asked: JudgeArguments, kernel: KernelSpec) -> None:
    task = task_of(kernel, _problems(asked, kernel), asked.against, asked.mode, asked.task)
    unreadable, candidate = "", None
    if asked.candidate:
        try:
            candidate = candidate_kernel(kernel, asked.candidate)
        except (UsageError, KernelError) as error:
            if error.problem.startswith("no "):  # there is no such file
                raise
            unreadable = str(error)
    with ExitStack() as devices:
        opened = partial(_opened, asked, task, devices)
        try:
            judgement = opened()
        except NoGpuError as error:
            raise _not_judged(error, asked, task, candidate, unreadable) from None
        judgement.device.phases.note("start", process_began())
        if asked.rounds_folder is not None:
            verdict = _rounds(asked, judgement, opened)
        elif candidate is None:
            record = candidate_record(asked.candidate, asked.candidate)
            verdict = judgement.verdict(record, "unreadable", unreadable)
        else:
            verdict = judgement.judge(candidate, asked.candidate)
    if verdict is None:
        show_line("no candidate was right", err=asked.as_json)
        sys.exit(EXIT_REFUSED)
    if asked.as_json:
        click.echo(verdict.to_json().decode(), nl=False)
    else:
        show_verdict(verdict, full=asked.full)
    if verdict.exit_code:
        sys.exit(verdict.exit_code)


def _not_judged(
    error: NoGpuError, asked: JudgeArguments, task: Task, candidate: KernelSpec | None, fault: str
) -> NoGpuError:
    """Return the error of a machine without a GPU, with what can be said of the candidate there."""
    seen = ""
    if candidate is not None:
        fault, seen = seen_without_gpu(task, candidate, typical_gpu(90), asked.jobs)
    if fault:
        return NoGpuError(f"{asked.candidate} is wrong: {fault}", f"and {error.problem} to judge it")
    judged = f"{error.problem} to judge {asked.candidate}: {seen}" if seen else error.problem
    return NoGpuError(judged, error.remedy)


def _refuse_wrong(asked: JudgeArguments) -> None:
    if not asked.task:
        raise UsageError("no task is named", "tune judge TASK CANDIDATE; see tune judge --explain-format")
    if bool(asked.candidate) == (asked.rounds_folder is not None):
        raise UsageError("one candidate or --rounds FOLDER is judged", "give one of them")
    if (asked.rounds_folder is None) != (asked.deadline_s is None):
        raise UsageError(
            "--rounds and --deadline go together", "for example --rounds candidates --deadline 30m"
        )
    if asked.rounds_folder is not None and not asked.rounds_folder.is_dir():
        folder = shlex.quote(str(asked.rounds_folder))
        raise UsageError(f"no folder {asked.rounds_folder}", f"make it: mkdir {folder}")


def _problems(asked: JudgeArguments, kernel: KernelSpec) -> list[Problem]:
    """Return the problems of the command line, or those that the file names."""
    if not (asked.presets or asked.sizes or asked.problem_texts):
        asked = replace(asked, presets=kernel.judge.presets)
    return make_problems(kernel, asked)


def _opened(asked: JudgeArguments, task: Task, devices: ExitStack) -> Judgement:
    """Return what judges, on a new device; the one that was opened before is closed."""
    devices.close()
    tell = say_nothing if asked.quiet else say
    device = open_gpu(asked.device_name, task.kernel.name, asked.jobs, tell)
    devices.callback(device.close)
    seed = secrets.randbelow(2**31) if asked.seed is None else asked.seed
    return Judgement(device, task, seed, tell)


def _rounds(asked: JudgeArguments, judgement: Judgement, opened: Callable[[], Judgement]) -> Verdict | None:
    assert asked.rounds_folder is not None and asked.deadline_s is not None
    with stopping() as stop:
        seeds = random.SystemRandom() if asked.seed is None else random.Random(asked.seed)
        rounds = Rounds(asked.rounds_folder, judgement, opened, seeds)
        verdict = rounds.run(asked.deadline_s, stop)
    if (asked.rounds_folder / BEST).is_file() and not asked.quiet:
        say(f"the best is in {asked.rounds_folder / BEST}")
    return verdict
