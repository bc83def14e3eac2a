"""A task: what candidates compute, what they are compared with, and what they may read.

A torch module is one, too: its file becomes a kernel's file in a folder, with ``Model`` as reference and baseline.
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tuner.children.module_worker import LOOKING, ModuleFile, Port, Ports
from tuner.core.conditions import Mode
from tuner.core.errors import DeviceError, UsageError
from tuner.core.model import Gpu, Problem, digest
from tuner.core.processes import ChildDied, ask_once
from tuner.devices.base import Contestant
from tuner.kernel.baselines import Baseline
from tuner.kernel.default import default_configuration
from tuner.kernel.draft import key, toml_value
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.modules import FILE, REDUCTION, TOLERANCE
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
            for node in ast.walk(ast.parse(waiting.pop().read_bytes())):
                names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                for first in filter(None, (name.partition(".")[0] for name in names)):
                    for one in (file.with_name(first), file.with_name(f"{first}.py")):
                        if one.exists() and one not in found:
                            found[one] = None
                            waiting += [one] if one.is_file() else one.rglob("*.py")
    return list(found)


LOOKING_S = 120.0
"""For running a module's file once: torch's import takes seconds, large inputs some more."""
FUNCTIONS = """\
from pathlib import Path

import reference_module
from tuner.kernel import modules

FILE = Path(reference_module.__file__)


def reference({inputs}):
    return modules.expected(FILE, {inputs})
"""
GIVEN = """

def {name}():
    return modules.inputs_of(FILE)[{number}].numpy()
"""


def write_task(file: Path, folder: Path) -> Path:
    """Return the kernel's file that stands for a module's; written to a folder with all that it needs.

    Raises:
        UsageError: the module cannot be run, or has other inputs than tensors.
    """
    remedy = "write Model, get_inputs and get_init_inputs, as KernelBench has them"
    shutil.copyfile(file, folder / FILE)
    try:
        found = ask_once("tuner.children.module_worker", LOOKING, ModuleFile(folder / FILE), LOOKING_S)
    except ChildDied as died:
        found = Ports(error=str(died))
    if found is None:
        raise UsageError(f"{file.name}: it has not returned in {LOOKING_S:g} s", "use smaller inputs")
    if found.error.startswith(ModuleNotFoundError.__name__):
        raise DeviceError(f"{file.name}: {found.error}", "install it beside the tuner")
    if found.error:
        raise UsageError(f"{file.name}: {found.error}", remedy)
    inputs = {f"x{number}": port for number, port in enumerate(found.inputs)}
    outputs = {f"y{number}": port for number, port in enumerate(found.outputs)}
    functions = FUNCTIONS.format(inputs=", ".join(inputs))
    functions += "".join(
        GIVEN.format(name=name, number=number)
        for number, (name, port) in enumerate(inputs.items())
        if not port.init
    )
    (folder / "functions.py").write_text(functions, encoding="utf-8")
    task = folder / f"{re.sub(r'[^A-Za-z0-9_]', '_', file.stem)}.toml"
    task.write_text("\n".join(_lines(file, inputs, outputs)), encoding="utf-8")
    return task


def _lines(file: Path, inputs: dict[str, Port], outputs: dict[str, Port]) -> Iterator[str]:
    name = re.sub(r"\W", "_", file.stem, flags=re.ASCII)
    kernel = {
        "name": name if name[:1].isalpha() else f"module_{name}",
        "summary": f"the torch module of {file.name}",
    }
    first = next(iter(inputs.values()))
    yield f"kernel = {toml_value(kernel)}"
    yield f"problem = {toml_value({'sizes': {}, 'dtypes': {'input': [first.dtype]}})}"
    yield f"judge = {toml_value({'any_size': False})}"
    yield "[tensors]"
    for one, port in (*inputs.items(), *outputs.items()):
        tensor: dict[str, object] = {"shape": [str(side) for side in port.shape], "dtype": port.dtype}
        if one in outputs:
            tensor["role"] = "output"
        elif isinstance(port.init, tuple):
            tensor["init"] = {"uniform": list(port.init)}
        else:
            tensor["init"] = port.init or f"functions.py:{one}"
        yield f"{key(one)} = {toml_value(tensor)}"
    yield "[reference]"
    yield 'python = "functions.py:reference"'
    yield f'reduction = "{REDUCTION}"'
    yield f'tolerance = "{TOLERANCE}"'
    yield "[variants.torch]"
    yield f'call = "{FILE}:Model"'
    yield ""
