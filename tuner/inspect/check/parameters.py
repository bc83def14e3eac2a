"""Parameters that do nothing: configurations that differ in such a one alone have equal machine code and launches."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import numpy as np

from tuner.children.compilation import Compilation, RenderRequest
from tuner.children.compile_pool import CompilePool, patiently
from tuner.children.cubin import machine_code
from tuner.core.errors import KernelError, TunerError
from tuner.core.model import Configuration, Gpu, Problem
from tuner.inspect.check.findings import Report
from tuner.inspect.check.subjects import Subject, alternatives, covering, problems
from tuner.inspect.check.uses import by_option, code_files, defined_again
from tuner.kernel.options import written_options
from tuner.kernel.plan import invalid_reason, make_plan
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.source.preprocessor import preprocessed
from tuner.kernel.spec import KernelSpec
from tuner.kernel.templates import undeclared_names
from tuner.kernel.variant_space import VariantSpace
from tuner.kernel.variant_spec import VariantSpec
from tuner.report.tables import counted
from tuner.runtime.launches import Plan

MOST_ROWS = 64
"""Configurations of a space all of which are compared."""
BASES = 24
"""Configurations of a larger one, with each value of each parameter: another may matter beside one of them alone."""
WAVES = (1, 4, 1 << 20)
"""Pairs compiled at a time: most parameters show themselves in the first."""
ELSEWHERE = 2
"""Pairs for each other dtype, option, preset and GPU."""

Pair = tuple[Configuration, Configuration]
Pairs = Mapping[str, Sequence[Pair]]
"""By the parameter in which they differ."""
Place = tuple[Problem, Gpu]
Files = Mapping[Path, str]
"""The code of a variant's templates and all that they include; empty where that cannot be told."""
Found = tuple[Path, int, str, str]
"""File, line, what is wrong, and what to do."""
_BY_GPU = re.compile(r"\b(?:__CUDA_ARCH\w*|NV_(?:IF|PROVIDES)\w*|cc)\b")


def check_parameters(kernel: KernelSpec, subject: Subject, pool: CompilePool, report: Report) -> None:
    """Report parameters of a variant that change neither machine code nor launches, and what overrides them.

    Args:
        kernel: that is checked.
        subject: a variant where it can run.
        pool: compiles what is compared.
        report: gets what is found.
    """
    if not subject.variant.parameters:
        return
    templates = dict.fromkeys(launch.template for launch in subject.variant.launches)
    files, compared = code_files(kernel, *templates) or {}, _Compared(kernel, pool)
    pairs = _pairs(subject.space)
    launched, here = set[str](), (subject.problem, subject.gpus[0])
    pending = dict(pairs)
    for place in (here, *_elsewhere(kernel, subject, files)):
        if place is not here:
            pending = {name: _valid(kernel, pairs[name], place)[:ELSEWHERE] for name in pending}
        launched |= {
            name for name in pending if any(_other_launches(kernel, pair, place) for pair in pending[name])
        }
        # Where a macro is defined again, the code may have another value than the launch.
        coded = {name: some for name, some in pending.items() if name not in launched or _again(files, name)}
        differ = compared.differ(coded, place, report)
        pending = {name: some for name, some in coded.items() if name not in differ}
        if not pending:
            break
    for name in filter(compared.equal.__contains__, pending):
        reached = _reaches(kernel, subject.variant, files, name)
        given = by_option(kernel, subject.variant, name)
        if not given and (at := _override(files, name)):
            report.at(*at)
        elif name in launched or given:
            continue
        elif reached:
            report.note(
                f"parameter {name} of {subject.variant.name}: the compiler makes the same code of its values, in"
                f" {counted(len(pairs[name]), 'pair')} of configurations"
            )
        else:
            problem = f"parameter {name} changes neither the code nor a launch of {subject.variant.name}"
            key = ("variants", subject.variant.name, "parameters", name)
            report.add(key, problem, "use it, or leave it out: it only wastes trials")
    plain = any(launch.template.suffix != ".j2" for launch in subject.variant.launches)
    for name in filter(partial(by_option, kernel, subject.variant), pairs if plain else pending):
        report.add(("compile", "options"), f"options define {name}, which is tuned", "leave that out")


# -- which configurations are compared, and where


def _pairs(space: VariantSpace) -> dict[str, list[Pair]]:
    """Return pairs that differ in one parameter, by that: all pairs of a small space."""
    pairs: dict[str, list[Pair]] = {parameter.name: [] for parameter in space.parameters}
    done: list[int] = []
    count = len(space) if len(space) <= MOST_ROWS else BASES
    default = space.nearest(space.default)
    for base in covering(space, count, count, default, np.random.default_rng(0)):
        vector = space.matrix[base].astype(np.int64)
        near = np.flatnonzero(space.distances(vector) == 1)
        columns = np.argmax(space.matrix[near] != vector, axis=1)
        for column, some in enumerate(pairs.values()):
            beside = [int(row) for row in near[columns == column] if row not in done]
            if done and beside and len(space) > MOST_ROWS:
                beside = [beside[len(done) % len(beside)]]
            some += [(space.configuration(base), space.configuration(row)) for row in beside]
        done.append(base)
    return pairs


def _elsewhere(kernel: KernelSpec, subject: Subject, files: Files) -> Iterator[Place]:
    """Yield other places where a parameter may matter: other dtypes, options and presets, and GPUs if the code asks."""
    problem, gpu = subject.problem, subject.gpus[0]
    others: tuple[Gpu, ...] = subject.gpus[1:]
    if not files or any(_BY_GPU.search(text) for text in files.values()):
        others += tuple(ARCHITECTURES.values())
    places = [(problem, other) for other in others]
    places += [(other, gpu) for other in (*alternatives(kernel, problem), *problems(kernel).values())]
    distinct = {(str(one), other.cc): (one, other) for one, other in places}
    distinct.pop((str(problem), gpu.cc), None)
    yield from distinct.values()


def _valid(kernel: KernelSpec, pairs: Sequence[Pair], place: Place) -> list[Pair]:
    return [pair for pair in pairs if not any(invalid_reason(kernel, *place, one) for one in pair)]


def _other_launches(kernel: KernelSpec, pair: Pair, place: Place) -> bool:
    plans: list[Plan | None] = []
    for configuration in pair:
        try:
            plans.append(make_plan(kernel, *place, configuration))
        except TunerError:
            plans.append(None)
    return plans[0] != plans[1]


class _Compared:
    """The machine code of configurations, each compiled once.

    Args:
        kernel: whose configurations they are.
        pool: compiles them.
    """

    def __init__(self, kernel: KernelSpec, pool: CompilePool) -> None:
        self._kernel, self._pool = kernel, pool
        self._waits: dict[tuple[str, int, Configuration], Future[Compilation]] = {}
        self._codes: dict[tuple[str, int, Configuration], tuple[str, ...]] = {}
        self.equal: set[str] = set()
        """Parameters of which a pair has equal code."""

    def differ(self, pairs: Pairs, place: Place, report: Report) -> set[str]:
        """Return the parameters of which a pair has different code; each as soon as that is known."""
        found: set[str] = set()
        begun = 0
        for wave in WAVES:
            chosen = [
                (name, pair) for name in pairs.keys() - found for pair in pairs[name][begun : begun + wave]
            ]
            if not chosen:
                break
            report.observer.phase("machine code compared", len(chosen))
            for configuration in itertools.chain(*(pair for _, pair in chosen)):
                self._begin(configuration, place)
            for number, (name, pair) in enumerate(chosen):
                tell = partial(report.observer.step, f"with another {name}", number)
                tell()
                one, other = (self._code(configuration, place, tell) for configuration in pair)
                if one != other:
                    found.add(name)
                elif one:
                    self.equal.add(name)
            begun += wave
        return found

    def _begin(self, configuration: Configuration, place: Place) -> None:
        problem, gpu = place
        key = str(problem), gpu.cc, configuration
        if key not in self._codes and key not in self._waits:
            self._waits[key] = self._pool.submit(
                RenderRequest(self._kernel.file, problem, gpu, configuration)
            )

    def _code(self, configuration: Configuration, place: Place, tell: Callable[[], None]) -> tuple[str, ...]:
        """Return what is equal if the code is; nothing where it does not compile."""
        key = str(place[0]), place[1].cc, configuration
        if key in self._waits:
            compilation = patiently(self._waits.pop(key), tell)
            pairs = zip(compilation.cubins, compilation.entries, strict=True)
            self._codes[key] = tuple(itertools.starmap(machine_code, pairs)) if compilation.resources else ()
        return self._codes[key]


# -- what keeps a value from the code


def _reaches(kernel: KernelSpec, variant: VariantSpec, files: Files, name: str) -> bool:
    """Return whether the code of a variant has a parameter's value: as a macro, or filled in by a template."""
    written = (*(launch.entry for launch in variant.launches), *written_options(kernel, variant.name))
    if not files or any("{" in text and re.search(rf"\b{name}\b", text) for text in written):
        return True
    templated = any(launch.template.suffix == ".j2" for launch in variant.launches)
    uses = rf"^(?!\s*#\s*(?:un|ifn?)?def(?:ine)?\s+{name}\b).*\b{name}\b"
    for text in files.values():
        if not templated and re.search(uses, text, re.MULTILINE):
            return True
        with contextlib.suppress(KernelError):  # a header with braces
            if templated and name in undeclared_names(text, kernel.folder):
                return True
    return False


def _again(files: Files, name: str) -> bool:
    defined = re.compile(rf"^[ \t]*#[ \t]*define[ \t]+{name}\b", re.MULTILINE)
    return any(map(defined.search, files.values()))


def _override(files: Files, name: str) -> Found | None:
    """Return what hides a parameter's value: an #undef, or another #define."""
    undefined = re.compile(rf"\s*#\s*undef\s+{name}\b")
    for file, text in files.items():
        again = preprocessed(text, {name}).macros.get(name)
        for number, line in enumerate(text.split("\n"), 1):
            if undefined.match(line):
                return (
                    file,
                    number,
                    f"{name} is undefined here: its value does not reach the code",
                    "leave it out",
                )
            if again is not None and number == again.line and "{{" not in line:
                return file, number, *defined_again(name)
    return None
