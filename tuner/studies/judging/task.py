"""A task: what candidates compute, what they are compared with, and what they may read."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tuner.core.conditions import Mode
from tuner.core.errors import UsageError
from tuner.core.model import Gpu, Problem, digest
from tuner.core.trees import parsed
from tuner.devices.base import Contestant
from tuner.kernel.baselines import Baseline
from tuner.kernel.default import default_configuration
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.modules import FILE
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

    @cached_property
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
        others = [Contestant.of(one) for one in self.against.baselines]
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


def no_configuration(candidate: KernelSpec, problem: Problem, gpu: Gpu) -> str:
    """Return why no configuration of a candidate is valid."""
    _, reasons = candidate.usable_variants(problem, gpu)
    why = "; ".join(reasons.values()) or "its constraints exclude all configurations"
    return f"no configuration is valid: {why}"


COPIES = "judged"
"""Folder, in one of candidates, of copies of them, each in one of its own."""


def readable_for(task: KernelSpec, candidate: KernelSpec, baselines: Iterable[Baseline]) -> list[Path]:
    """Return the files that a process needs: the candidate's, and those of its task but for what says what is right."""
    own = candidate.file
    files = [one.file for one in baselines if one.file]
    files += [tensor.file for tensor in task.tensors.values() if tensor.file]
    model = task.folder / FILE
    files += [model] if model.is_file() else []
    files += [one for file in files for one in imported(file)]
    calls = [variant.call.file for variant in candidate.variants.values() if variant.call]
    owned = [own.parent] if own.parent.parent.name == COPIES else [own, *calls]
    return [*owned, *files]


def imported(file: Path) -> list[Path]:
    """Return what a Python file, and what it imports, imports from beside it: there may be others' candidates, too."""
    found: dict[Path, None] = {}
    waiting = [file] if file.suffix == ".py" else []
    while waiting:
        with suppress(OSError, SyntaxError, ValueError):  # running it says so
            for node in ast.walk(parsed(waiting.pop().read_bytes())):
                names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                for first in filter(None, (name.partition(".")[0] for name in names)):
                    for one in (file.with_name(first), file.with_name(f"{first}.py")):
                        if one.exists() and one not in found:
                            found[one] = None
                            waiting += [one] if one.is_file() else one.rglob("*.py")
    return list(found)
