"""Evaluate references and run plain kernels on the CPU, each in a child that can be killed."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner.core.errors import TunerError
from tuner.core.files import temporary_folder
from tuner.core.messages import UnsendableError
from tuner.core.model import Configuration, Gpu, Problem
from tuner.core.observer import Observer
from tuner.core.processes import Child, ChildDied
from tuner.inspect.check.findings import Report
from tuner.inspect.check.host_worker import HOST_RUNS, LENGTHS, HostRequest, HostResult
from tuner.inspect.check.subjects import Subject, alternatives
from tuner.inspect.check.toml_lines import Key
from tuner.inspect.emulator.host import COMPILER, machine
from tuner.kernel.contents import Content
from tuner.kernel.edge_sizes import admitted_problems, tile_edge_problems, whole_problems
from tuner.kernel.plan import invalid_reason, make_plan, tensors_of
from tuner.kernel.spec import KernelSpec
from tuner.report.tables import counted

CONFIGURATIONS = 3
"""Of each variant that are run on the CPU: the default and others of the sample."""
PROBLEMS = 4
"""For each of them; half a second or so each, most of it the C++ compiler's."""
WHOLE, OF_OTHERS = 8, 3
"""Besides, of whole tiles, powers of two, presets and the like: for a variant's first configuration, and for others."""
SPARE = 8
"""Further ones, in place of those for which the reference has no answer."""
MAX_ELEMENTS = 1 << 17
MAX_FLOPS = 1 << 24
MAX_THREADS = 1 << 17
"""Of all launches together: that many take a second."""
OWN = 4
"""How many times as much the problem's own sizes may take, where there are no smaller ones."""
FEW_SMS = 3
"""So that persistent blocks have several tiles."""
INDICES = '; if they are indices, give their values by init = "inputs.py:FUNCTION"'
DEADLINE_S = 180.0
"""For one result: its CPU time has a limit of its own, and other programs may want the processors."""

HostChild = Child[HostRequest, HostResult]


@dataclass(frozen=True)
class _Run:
    """What a child is asked, and the key of the file that its faults belong to."""

    key: Key
    what: str
    request: HostRequest


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
    run = _Run(("reference", table), "the reference", request)
    report.observer.phase("the reference at small sizes", 1)
    report.observer.step("")
    _report(run, children.ask(run), report, set())


def check_on_host(
    kernel: KernelSpec, chosen: Sequence[Subject], gpu: Gpu, children: HostChildren, report: Report
) -> None:
    """Report what goes wrong where kernels run on the CPU: wrong results, accesses beside arrays, endless waits."""
    if COMPILER is None:
        report.note("nothing was run on the CPU: there is no g++")
        return
    with temporary_folder() as folder:
        machine()  # or each child would build it
        runs = [*_reference_runs(kernel, gpu, folder)]
        for subject in chosen:
            own = list(_runs(kernel, subject, folder / subject.variant.name))
            if subject.configurations and not own:
                report.note(f"{subject.variant.name} was not run on the CPU: {_no_run(kernel, subject)}")
            runs += own
        reported: set[Key] = set()
        left_out: dict[str, str] = {}
        sizes: list[int] = []
        try:
            for run, outcome in zip(runs, children.ask_all(runs, report.observer), strict=True):
                _report(run, outcome, report, reported)
                left_out |= outcome.left_out
                report.on_host |= run.request.configuration is not None and outcome.count > 0
                sizes += filter(None, [outcome.count])
        finally:  # what was found is said, whatever ends this
            for content, why in left_out.items():
                remedy = INDICES if content == Content.WHOLE else ""
                report.note(f"nothing was run with {content}: {why}{remedy}")
            report.done.append(
                f"{counted(len(sizes), 'run')} on the CPU at {counted(sum(sizes), 'size')} in all"
            )


def _reference_runs(kernel: KernelSpec, gpu: Gpu, folder: Path) -> Iterator[_Run]:
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
    yield _Run(("reference", "cuda"), "the CUDA reference", request)


def _runs(kernel: KernelSpec, subject: Subject, folder: Path) -> Iterator[_Run]:
    gpu = subject.gpus[0]
    step = max(1, (len(subject.configurations) - 1) // max(1, CONFIGURATIONS - 1))
    for number, configuration in enumerate(subject.configurations[::step][:CONFIGURATIONS]):
        smaller = replace(gpu, sm_count=FEW_SMS)
        for one in (smaller, gpu):
            small = small_problems(kernel, subject.problem, one, configuration)
            if small:
                # Spread over the list: it begins with sizes of 1, and multiples of 8 are at its end.
                problems = small[:: max(1, len(small) // PROBLEMS)][:PROBLEMS]
                whole = whole_of(kernel, subject.problem, one, configuration)
                problems += [problem for problem in whole if problem not in problems][
                    : OF_OTHERS if number else WHOLE
                ]
                wanted = len(problems)
                problems += [problem for problem in small if problem not in problems][:SPARE]
                own = folder / str(number)
                request = HostRequest(
                    kernel.file, one, tuple(problems), own, configuration=configuration, wanted=wanted
                )
                yield _Run(("variants", subject.variant.name), str(configuration), request)
                break


def small_problems(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration
) -> list[Problem]:
    """Return what a configuration is run at: around its tile, or if nothing there is valid what else is."""

    def fits(case: Problem, _: Configuration) -> bool:
        return not invalid_reason(kernel, case, gpu, configuration)

    beside = (case for case in tile_edge_problems(problem, configuration) if fits(case, configuration))
    for cases in (beside, admitted_problems(problem, configuration, fits, kernel)):
        if small := [case for case in cases if _is_small(kernel, case, gpu, configuration)]:
            return small
    own = _is_small(kernel, problem, gpu, configuration, OWN)
    return [problem] if own and fits(problem, configuration) else []


def whole_of(kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration) -> list[Problem]:
    """Return what a configuration is run at besides: where nothing is left over."""

    def usable(case: Problem) -> bool:
        return not invalid_reason(kernel, case, gpu, configuration) and _is_small(
            kernel, case, gpu, configuration
        )

    return whole_problems(problem, configuration, usable, kernel)


def _no_run(kernel: KernelSpec, subject: Subject) -> str:
    """Return why no small problem is valid for a variant's first configuration."""
    gpu, configuration = subject.gpus[0], subject.configurations[0]
    problem = tile_edge_problems(subject.problem, configuration)[-1]
    why = invalid_reason(kernel, problem, gpu, configuration) or "too much work for a CPU"
    return f"no small problem is valid for it; {problem.sizes_text}, for one: {why}"


def _is_small(
    kernel: KernelSpec,
    problem: Problem,
    gpu: Gpu,
    configuration: Configuration | None = None,
    factor: int = 1,
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
    return elements <= factor * MAX_ELEMENTS and flops <= factor * MAX_FLOPS


@dataclass
class _Outcome:
    """What a child has said."""

    count: int = 0
    """Problems that were right."""
    at: Problem | None = None
    """The last one that was begun."""
    faults: list[TunerError] = field(default_factory=list)
    note: str = ""
    left_out: dict[str, str] = field(default_factory=dict)
    """Contents of the inputs that were not tried, and why."""
    killed: bool = False
    """Whether something else than the kernel has ended the child."""


class HostChildren:
    """Children that are given one run after another, for starting one takes longer than most runs.

    Args:
        jobs: how many there are at a time; None for one a core.
    """

    def __init__(self, jobs: int | None) -> None:
        self._jobs = jobs or len(os.sched_getaffinity(0))
        self._stopped = False
        self._idle: list[HostChild] = []
        self._all: set[HostChild] = set()

    def ask_all(self, runs: Sequence[_Run], observer: Observer[str]) -> Iterator[_Outcome]:
        """Ask about each run, some at a time, and yield what comes of it, in order.

        Of a variant's, those behind the first that fails may be left out. Whatever ends this, such as Ctrl-C, ends the
        children.
        """
        wrong: dict[Key, int] = {}

        def ask(number: int, run: _Run) -> _Outcome:
            if wrong.get(run.key, number) < number:
                return _Outcome()
            outcome = self.ask(run)
            if outcome.faults:
                wrong[run.key] = min(wrong.get(run.key, number), number)
            return outcome

        with ThreadPoolExecutor(self._jobs) as threads:
            submitted = [threads.submit(ask, number, run) for number, run in enumerate(runs)]
            observer.phase("runs on the CPU", len(runs))
            try:
                for run, one in zip(runs, submitted, strict=True):
                    observer.step(run.what)
                    yield one.result()
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                self._stopped = True
                for child in list(self._all):
                    child.stop()
                raise

    def ask(self, run: _Run) -> _Outcome:
        """Return what a child says until it stops or is stopped.

        If it is killed, for want of memory perhaps, that is no fault of the kernel, and another one is asked. A child
        is kept for the next run, but not behind a fault: it may have anything in its memory.
        """
        for _ in range(2):
            child = self.take()
            outcome = _heard(child, run)
            if outcome.faults or outcome.note:
                self._all.discard(child)
                child.kill()
            else:
                self._idle.append(child)
            if not outcome.killed or self._stopped:
                break
        return outcome

    def take(self) -> HostChild:
        """Return an idle child that is still alive, or start one."""
        while self._idle:
            with contextlib.suppress(IndexError):  # another thread was faster
                child = self._idle.pop()
                if child.is_alive():
                    return child
                self._all.discard(child)
                child.kill()
        child = Child("tuner.inspect.check.host_worker", HOST_RUNS, [str(self._jobs)])
        self._all.add(child)
        return child

    def close(self) -> None:
        """Kill the idle ones."""
        for child in self._idle:
            child.kill()


def _heard(child: HostChild, run: _Run) -> _Outcome:
    """Return what a child says of a run until it stops or is stopped."""
    outcome, undecided = _Outcome(), ""
    try:
        child.send(run.request)
        for outcome.at in run.request.problems:
            result = child.receive(DEADLINE_S)
            variant = run.key[-1] if run.key[0] == "variants" else run.what
            if result is None:
                outcome.note = f"{run.what} gave no answer after {DEADLINE_S:g} s on the CPU, at {outcome.at}"
            elif result.unsuitable:
                outcome.note = f"{variant} was not run on the CPU: {reason_of(result.unsuitable)}"
            elif result.fault:
                as_ = f", as {run.what} runs on the CPU" if run.request.configuration is not None else ""
                outcome.faults.append(TunerError(f"{result.fault}{as_}", result.remedy))
            elif result.undecided:
                undecided = f"{result.undecided}, at {outcome.at.sizes_text}"
            else:
                outcome.count += 1
                outcome.left_out |= result.left_out
            if outcome.note or (outcome.faults and not run.request.reference_only):
                break
            if outcome.count == run.request.wanted:
                break
        else:
            if undecided and not outcome.count and not outcome.faults:
                outcome.note = f"{variant} was compared at NO size: {undecided}"
    except ChildDied as death:
        late, outcome.killed = "SIGXCPU" in death.reason, "SIGKILL" in death.reason
        how = "does not end" if late else f"died ({death.reason})"
        where = f"on the CPU, at {outcome.at.sizes_text}" if outcome.at else "on the CPU"
        remedy = "look for an endless loop" if late else ""
        outcome.faults.append(TunerError(f"{run.what} {how} {where}", remedy))
    except UnsendableError as error:
        outcome.note = str(error)
    return outcome


def _report(run: _Run, outcome: _Outcome, report: Report, reported: set[Key]) -> None:
    """Report what a child has said; of a variant's configurations the first that is wrong or unsuitable."""
    if outcome.note and (*run.key, "note") not in reported:
        report.note(outcome.note)
        reported.add((*run.key, "note"))
    if run.key in reported:
        return
    for fault in outcome.faults:
        report.error(fault, run.key)
        reported.add(run.key)


def reason_of(text: str) -> str:
    """Return the first error of a C++ compiler, or another reason."""
    error = re.search(r"(?:fatal )?[Ee]rror: (.*)", text)
    return f"the emulator lacks what it needs ({error[1]})" if error else text.splitlines()[0]
