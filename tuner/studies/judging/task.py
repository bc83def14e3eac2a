"""A task: what candidates compute, and what they are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.core.conditions import Mode
from tuner.core.errors import UsageError
from tuner.core.model import Gpu, Problem, digest
from tuner.devices.base import Contestant
from tuner.kernel.default import default_configuration
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.spec import KernelSpec
from tuner.studies.bench import DEFAULT, Against, choose_against
from tuner.studies.judging.verdict import TaskRecord


@dataclass(frozen=True)
class Task:
    """What candidates are judged by; nothing of it may change between two of them."""

    kernel: KernelSpec
    problems: Sequence[Problem]
    against: Against
    mode: Mode | None = None
    """What the caches hold; None leaves it to the problem, and adds the mode warm where it may differ."""
    file: str = ""
    """As a user names it."""

    @property
    def record(self) -> TaskRecord:
        """The task, for a verdict."""
        kernel, identity = self.kernel, KernelIdentity(self.kernel)
        compared = [[one.name, one.kind, one.text, str(one.file or "")] for one in self.against.baselines]
        frozen = [
            identity.computation,
            identity.text if self.against.default else "",
            [problem.key for problem in self.problems],
            compared,
            kernel.judge.any_size,
            kernel.judge.limit_s,
            str(self.mode),
        ]
        return TaskRecord(kernel.name, self.file or str(kernel.file), digest(frozen))

    def contestants(self, problem: Problem, gpu: Gpu) -> list[Contestant]:
        """Return what candidates are compared with."""
        others = [Contestant(None, baseline=one, name=one.name) for one in self.against.baselines]
        if self.against.default and (usual := default_configuration(self.kernel, problem, gpu)) is not None:
            others.append(Contestant(usual, kernel=self.kernel, name=DEFAULT))
        return others


def task_of(
    kernel: KernelSpec, problems: Sequence[Problem], against: Sequence[str], mode: Mode | None, file: str = ""
) -> Task:
    """Return a task; the file's baselines count where ``against`` names none.

    Raises:
        UsageError: there is no such baseline, or nothing says what is right.
    """
    if not kernel.reference.exists:
        raise UsageError(f"{kernel.name} does not say what is right", "add [reference] to its file")
    names = tuple(against) or kernel.judge.baselines
    return Task(kernel, problems, choose_against(kernel, names), mode, file)
