"""Evaluate references and run plain kernels on the CPU, each in a child that can be killed; and say what to do."""

from __future__ import annotations

import ast
import contextlib
import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from tuner.core.errors import TunerError
from tuner.core.model import Configuration, Gpu, Problem
from tuner.expressions.arithmetic import parse
from tuner.inspect.check.findings import Report
from tuner.inspect.check.host_children import HostChildren, Outcome, Run, elements_of
from tuner.inspect.check.host_worker import LENGTHS, HostRequest
from tuner.inspect.check.subjects import Subject, alternatives
from tuner.inspect.check.toml_lines import Key, TomlLines
from tuner.inspect.check.uses import code_files
from tuner.kernel.contents import RANDOM, Content, is_random
from tuner.kernel.draft import GAP
from tuner.kernel.edge_sizes import admitted_problems, halved, tile_edge_problems, whole_problems
from tuner.kernel.plan import invalid_reason, make_plan, tensors_of
from tuner.kernel.render import number_defines
from tuner.kernel.spec import KernelSpec
from tuner.report.tables import counted
from tuner.runtime.dtypes import DTYPES

PROBLEMS = 4
"""For each configuration; half a second or so each, most of it the C++ compiler's."""
WHOLE, OF_OTHERS = 8, 3
"""Besides, of whole tiles, powers of two, presets and the like: for a variant's first configuration, and for others."""
ALTERNATIVES = 4
"""Other dtypes and options, each for a variant's first configuration at two sizes."""
SPARE = 8
"""Further ones, in place of those for which the reference has no answer."""
SHARES = (1 / 8, 1 / 64)
"""Of the largest one, for further ones in place of those that take too long."""
MAX_ELEMENTS, MORE_ELEMENTS = 1 << 17, 1 << 21
"""Of all tensors; the latter where no problem has so few."""
MAX_FLOPS = 1 << 24
MAX_THREADS = 1 << 17
"""Of all launches together: that many take a second."""
OWN = 4
"""How many times as much the problem's own sizes may take, where there are no smaller ones."""
FEW_SMS = 3
"""So that persistent blocks have several tiles."""
INDICES = '; if they are indices, give their values by init = "inputs.py:FUNCTION"'


def check_references(kernel: KernelSpec, gpu: Gpu, children: HostChildren, report: Report) -> None:
    """Report a NumPy or Python reference that has no value, for each dtype and option."""
    if not kernel.reference.numpy and kernel.reference.python is None:
        return
    request = HostRequest(
        kernel.file,
        gpu,
        (kernel.problem(), *alternatives(kernel, kernel.problem())),
        Path(),
        reference_only=True,
    )
    table = "numpy" if kernel.reference.numpy else "python"
    run = Run(("reference", table), "the reference", request)
    report.observer.phase("the reference at small sizes", 1)
    report.observer.step("")
    _report(kernel, run, children.ask(run), report, set())


class OnHost:
    """Kernels that run on the CPU: wrong results, accesses beside arrays, endless waits.

    Each variant's first configuration is run before anything is compiled for a GPU, in seconds; the others behind that.

    Args:
        kernel: whose variants they are.
        chosen: the variants.
        folder: for what is built.
        children: which run them.
        report: gets what is found.
    """

    def __init__(
        self,
        kernel: KernelSpec,
        chosen: Sequence[Subject],
        folder: Path,
        children: HostChildren,
        report: Report,
    ) -> None:
        self._kernel, self._chosen, self._folder = kernel, chosen, folder
        self._children, self._report = children, report
        self._runs = {one.variant.name: _runs(kernel, one, folder / one.variant.name) for one in chosen}
        self._first: dict[str, Run] = {}
        self._wrong: set[str] = set()
        self._found: list[tuple[Run, Outcome]] = []

    def begin(self) -> set[str]:
        """Run each variant's first configuration, and return the names of variants that are wrong."""
        self._first = {name: run for name, runs in self._runs.items() for run in islice(runs, 1)}
        self._ask(list(self._first.values()))
        faulty = {run.key for run, outcome in self._found if outcome.faults}
        self._wrong = {name for name, run in self._first.items() if run.key in faulty}
        return self._wrong

    def finish(self, gpu: Gpu, broken: Collection[str]) -> None:
        """Run the CUDA reference and, of variants that are not broken and not wrong yet, all else."""
        kernel, report = self._kernel, self._report
        runs = [*_reference_runs(kernel, gpu, self._folder)]
        for subject in self._chosen:
            name = subject.variant.name
            if name in broken:
                continue
            if subject.configurations and name not in self._first:
                report.note(f"{name} was not run on the CPU: {_no_run(kernel, subject)}")
            elif name in self._first and kernel.reference.golden and not kernel.reference.any_size:
                why = _no_golden(kernel, subject.problem, gpu, subject.configurations[0])
                at = (
                    f"not compared with golden files: {why}" if why else f"compared at {subject.problem} only"
                )
                report.note(f"on the CPU, results of {name} are {at}")
            if name not in self._wrong:
                runs += self._runs[name]
        self._ask(runs)

    def tell(self, broken: Collection[str]) -> None:
        """Report what was found, but for variants of which other findings say more."""
        kernel, report = self._kernel, self._report
        reported: set[Key] = set()
        left_out: dict[str, str] = {}
        left = {("variants", name) for name in broken}
        found = [(run, outcome) for run, outcome in self._found if run.key not in left]
        for run, outcome in found:
            _report(kernel, run, outcome, report, reported)
            left_out |= outcome.left_out
            report.on_host |= run.request.configuration is not None and bool(outcome.right)
        for content, why in left_out.items():
            remedy = INDICES if content == Content.WHOLE else ""
            report.note(f"nothing was run with {content}: {why}{remedy}")
        sizes = [len(outcome.right) for _, outcome in found if outcome.right]
        report.done.append(f"{counted(len(sizes), 'run')} on the CPU at {counted(sum(sizes), 'size')} in all")

    def _ask(self, runs: Sequence[Run]) -> None:
        """Keep what comes of runs; whatever ends this, what came until then is kept."""
        for run, outcome in zip(runs, self._children.ask_all(runs, self._report.observer), strict=True):
            self._found.append((run, outcome))


def _reference_runs(kernel: KernelSpec, gpu: Gpu, folder: Path) -> Iterator[Run]:
    """Return the run of a CUDA reference: at primes, and at lengths that are multiples of 64."""
    if kernel.reference.cuda is None:
        return
    problems = [
        problem
        for lengths in ((1,) * len(kernel.sizes), *LENGTHS[:2])
        for problem in [kernel.problem(dict(zip(kernel.sizes, lengths, strict=False)))]
        if _is_small(kernel, problem, gpu)
    ]
    request = HostRequest(kernel.file, gpu, tuple(problems), folder / "reference")
    yield Run(("reference", "cuda"), "the CUDA reference", request)


def _runs(kernel: KernelSpec, subject: Subject, folder: Path) -> Iterator[Run]:
    """Yield the runs of a variant: its first configurations, and the first with other dtypes and options."""
    tasks = [(subject.problem, one) for one in subject.on_host]
    others = islice(alternatives(kernel, subject.problem), ALTERNATIVES)
    tasks += [(problem, one) for problem in others for one in subject.configurations[:1]]
    for number, (own, configuration) in enumerate(tasks):
        gpu, small, whole = problems_on_host(kernel, own, subject.gpus[0], configuration)
        if not small:
            continue
        # Spread over the list: it begins with sizes of 1, and multiples of 8 are at its end.
        problems = small[:: max(1, len(small) // PROBLEMS)][:PROBLEMS]
        problems += _beside(problems, whole)[: OF_OTHERS if number else WHOLE]
        if own != subject.problem:
            problems = problems[PROBLEMS - 1 : PROBLEMS + 1] or problems[-1:]
        elif not _no_golden(kernel, own, gpu, configuration):
            problems = [own, *_beside([own], problems)]
        wanted = len(problems)
        problems += _beside(problems, small)[:SPARE]
        less = _beside(problems, [halved(max(problems, key=elements_of), share) for share in SHARES])
        problems += [case for case in less if not invalid_reason(kernel, case, gpu, configuration)]
        request = HostRequest(
            kernel.file,
            gpu,
            tuple(problems),
            folder / str(number),
            configuration=configuration,
            wanted=wanted,
        )
        what = ", ".join([str(configuration), *_changed(own, subject.problem)])
        yield Run(("variants", subject.variant.name), what, request)


def _beside(problems: Sequence[Problem], others: Sequence[Problem]) -> list[Problem]:
    """Return others that are not among some problems."""
    return [case for case in others if case not in problems]


def _changed(problem: Problem, of: Problem) -> Iterator[str]:
    """Return the dtypes and options in which a problem is another one."""
    yield from (dtype for role, dtype in problem.dtypes.items() if dtype != of.dtypes[role])
    yield from (f"{name}={value}" for name, value in problem.options.items() if value != of.options[name])


def problems_on_host(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration
) -> tuple[Gpu, list[Problem], list[Problem]]:
    """Return what a configuration is run at: around its tile, or where nothing is valid what else is; whole tiles.

    That is for a GPU of few SMs, the first of the three, so that persistent blocks have several tiles; or for the own.
    """

    def fits(case: Problem, _: Configuration = configuration) -> bool:
        return not invalid_reason(kernel, case, one, configuration)

    def usable(case: Problem) -> bool:
        return fits(case) and _is_small(kernel, case, one, configuration)

    for one in (replace(gpu, sm_count=FEW_SMS), gpu):
        beside = [case for case in tile_edge_problems(problem, configuration) if fits(case)]
        for cases, most in (
            (beside, MAX_ELEMENTS),
            (admitted_problems(problem, configuration, fits, kernel), MAX_ELEMENTS),
            (beside, MORE_ELEMENTS),
        ):
            if small := [case for case in cases if _is_small(kernel, case, one, configuration, most=most)]:
                break
        else:
            own = _is_small(kernel, problem, one, configuration, OWN) and fits(problem)
            small = [problem] if own else []
        if small:
            break
    return one, small, whole_problems(problem, configuration, usable, kernel)


def _no_golden(kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration) -> str:
    """Return why results for a problem are not compared with golden files; empty if they are."""
    if not kernel.reference.golden:
        return "there are none"
    if any(map(is_random, tensors_of(kernel, problem, gpu))):
        return 'inputs are random; give those of the files by init = "x.npy"'
    return "" if _is_small(kernel, problem, gpu, configuration, OWN) else "too much work for a CPU"


def _no_run(kernel: KernelSpec, subject: Subject) -> str:
    """Return why no small problem is valid for a variant's first configuration."""
    gpu, configuration = subject.gpus[0], subject.configurations[0]
    problem = tile_edge_problems(subject.problem, configuration)[-1]
    why = invalid_reason(kernel, problem, gpu, configuration) or "too much work for a CPU"
    fixed = _fixed(kernel, configuration)
    return f"no small problem is valid for it; {problem.sizes_text}, for one: {why}{fixed}"


def _fixed(kernel: KernelSpec, configuration: Configuration | None) -> str:
    """Return what to do where a configuration's source has a problem's size as a number, by another name."""
    sizes = {str(size) for size in kernel.sizes.values() if size > 1}
    names = (
        name
        for launch in (kernel.variants[configuration.variant].launches if configuration else ())
        for text in (code_files(kernel, launch.template) or {}).values()
        for name, value in number_defines([r"\w+"]).findall(text)
        if value.strip("()uUlL \t") in sizes and name not in kernel.sizes
    )
    return next((f"; a size of the name {name} takes the place of the source's number" for name in names), "")


def _is_small(
    kernel: KernelSpec,
    problem: Problem,
    gpu: Gpu,
    configuration: Configuration | None = None,
    factor: int = 1,
    most: int = MAX_ELEMENTS,
) -> bool:
    """Return whether a problem is soon computed on a CPU; False also where the configuration is not for it."""
    try:
        if configuration is not None:
            launches = make_plan(kernel, problem, gpu, configuration).launches
            if sum(launch.threads * math.prod(launch.grid) for launch in launches) > factor * MAX_THREADS:
                return False
        elements = sum(tensor.count for tensor in tensors_of(kernel, problem, gpu))
        flops = kernel.work.flops.number(kernel.environment(problem, gpu))
    except TunerError:
        return False
    return elements <= factor * most and flops <= factor * MAX_FLOPS


def _report(kernel: KernelSpec, run: Run, outcome: Outcome, report: Report, reported: set[Key]) -> None:
    """Report what a child has said; of a variant's configurations the first that is wrong or unsuitable."""
    report.no_answer |= run.key[0] == "reference" and outcome.late is not None and not outcome.right
    if outcome.note and (*run.key, "note") not in reported:
        report.note(outcome.note)
        reported.add((*run.key, "note"))
    if run.key in reported:
        return
    for fault in outcome.faults:
        fixed = _fixed(kernel, run.request.configuration)
        remedy = fault.remedy or remedy_of_access(kernel, run, outcome.at, fault.problem, fixed, report.lines)
        if not _OUTSIDE.search(fault.problem) and (one := run.request.configuration) is not None:
            parameters = kernel.variants[one.variant].parameters.items()
            changed = [name for name, spec in parameters if one.values[name] != spec.default]
            remedy = _guesses_first(_guesses(kernel, one, "", report.lines, changed), remedy)
        report.error(TunerError(fault.problem, remedy), run.key)
        reported.add(run.key)


_OUTSIDE = re.compile(r"outside an array: (?P<name>\w+)(?P<before>\[-)?")


def remedy_of_access(
    kernel: KernelSpec, run: Run, at: Problem | None, fault: str, fixed: str, lines: TomlLines
) -> str:
    """Return what to do about a fault; empty if it is no access outside of an array.

    Args:
        kernel: that is checked.
        run: of a configuration, or of the CUDA reference.
        at: the problem at which it is.
        fault: what the run said.
        fixed: what to do about a size that the source has as a number; empty if it has none.
        lines: of the kernel's file.
    """
    found, configuration = _OUTSIDE.search(fault), run.request.configuration
    if not found:
        return ""
    name, constraint, guesses = found["name"], "", list[int]()
    if configuration is not None:
        guesses = [*_guesses(kernel, configuration, name, lines)]
        if at is not None and not found["before"]:
            constraint = _constraint(kernel, run, at, configuration, name)
    by = f"a constraint: {constraint}" if constraint else "a constraint of the variant"
    remedy = _guesses_first(guesses, f"guard it, or exclude such sizes by {by}{fixed}")
    if index := next((one for one in _random_integers(kernel) if one != name), ""):
        remedy += f'; if {index} has indices, say of what: init = {{ uniform = [0, "SIZE - 1"] }}'
    return remedy


def _guesses_first(guesses: Iterable[int], remedy: str) -> str:
    """Return what to do about a fault that may come from lines that are marked as guesses."""
    if not (lines := [*map(str, guesses)]):
        return remedy
    several = "s" if len(lines) > 1 else ""
    return "; else ".join(
        filter(None, (f"correct line{several} {' and '.join(lines)}, marked {GAP}", remedy))
    )


def _constraint(kernel: KernelSpec, run: Run, at: Problem, configuration: Configuration, name: str) -> str:
    """Return the constraint, as a file has it, by which blocks have no rest in an array's size; empty if none helps.

    It must exclude the problem at which the fault is, and not the file's own.
    """
    if name not in kernel.tensors:
        return ""
    variant, gpu = kernel.variants[configuration.variant], run.request.gpu
    sizes = {size for extent in kernel.tensors[name].shape for size in extent.names} & kernel.sizes.keys()
    for side in (side for launch in variant.launches for side in launch.grid):
        match parse(side.text).syntax:
            case ast.Call(func=ast.Name(id="ceil_div"), args=[ast.Name(id=size), by]) if size in sizes:
                of_block = ast.unparse(by)
                text = f"{size} % {of_block if isinstance(by, ast.Name) else f'({of_block})'} == 0"
                condition = parse(text)
                if not condition.names & variant.parameters.keys():
                    continue
                with contextlib.suppress(TunerError):
                    own, there = (
                        condition.holds({**kernel.environment(problem, gpu), **configuration.values})
                        for problem in (kernel.problem(), at)
                    )
                    if own and not there:
                        return f'"{size} is a whole number of blocks" = "{text}"'
    return ""


def _guesses(
    kernel: KernelSpec, configuration: Configuration, name: str, lines: TomlLines, changed: Iterable[str] = ()
) -> Iterator[int]:
    """Yield the lines that are marked as guesses, each once: of grids, an array, blocks, and changed parameters."""
    numbers = range(len(kernel.variants[configuration.variant].launches))
    launches = [("variants", configuration.variant, "launches", number) for number in numbers]
    keys: list[Key] = [(*launch, "grid") for launch in launches]
    keys += [("tensors", name, "shape"), *((*launch, "block") for launch in launches)]
    keys += [("variants", configuration.variant, "parameters", one) for one in changed]
    yield from dict.fromkeys(filter(None, map(lines.guessed, keys)))


def _random_integers(kernel: KernelSpec) -> Iterator[str]:
    """Yield the inputs of random integers without a range, which may be meant as indices."""
    dtypes = kernel.problem().dtypes
    for tensor in kernel.tensors.values():
        whole = DTYPES[dtypes.get(tensor.dtype, tensor.dtype)].whole
        if whole and tensor.role != "output" and tensor.init in RANDOM and not tensor.between:
            yield tensor.name
