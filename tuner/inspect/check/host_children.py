"""The children that run kernels and references on the CPU, one run after another, and what comes of it."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from msgspec import structs

from tuner.core.errors import TunerError
from tuner.core.messages import UnsendableError
from tuner.core.model import Problem
from tuner.core.observer import Observer
from tuner.core.processes import Child, ChildDied
from tuner.inspect.check.host_worker import CPU_S, HOST_RUNS, HostRequest, HostResult
from tuner.inspect.check.toml_lines import Key
from tuner.inspect.emulator import building
from tuner.inspect.emulator.accesses import Pattern
from tuner.report.tables import counted

DEADLINE_S = 180.0
"""For one result: its CPU time has a limit of its own, and other programs may want the processors."""
GIVEN_UP = f"was given up after {CPU_S} s on the CPU"
HostChild = Child[HostRequest, HostResult]


@dataclass(frozen=True)
class Run:
    """What a child is asked, and the key of the file that its faults belong to."""

    key: Key
    what: str
    request: HostRequest


def elements_of(problem: Problem) -> int:
    """Return the product of a problem's sizes: what is larger takes longer."""
    return math.prod(problem.sizes.values())


@dataclass
class Outcome:
    """What a child has said."""

    right: list[Problem] = field(default_factory=list)
    """Problems that were."""
    at: Problem | None = None
    """The last one that was begun."""
    faults: list[TunerError] = field(default_factory=list)
    note: str = ""
    left_out: dict[str, str] = field(default_factory=dict)
    """Contents of the inputs that were not tried, and why."""
    killed: bool = False
    """Whether something else than the kernel has ended the child."""
    late: Problem | None = None
    """One that was given up."""
    patterns: tuple[tuple[Pattern, ...], ...] = ()
    """Of the last problem, where accesses are recorded."""


class HostChildren:
    """Children that are given one run after another, for starting one takes longer than most runs.

    Args:
        jobs: how many there are at a time; None for one a core.
    """

    def __init__(self, jobs: int | None) -> None:
        self._jobs = jobs or len(os.sched_getaffinity(0))
        self._stopped = False
        self._too_long: dict[Key, int] = {}
        """The elements from which on no problem of a variant is begun."""
        self._idle: list[HostChild] = []
        self._all: set[HostChild] = set()

    def ask_all(self, runs: Sequence[Run], observer: Observer[str]) -> Iterator[Outcome]:
        """Ask about each run, some at a time, and yield what comes of it, in order.

        Of a variant's, those behind the first that fails may be left out. Whatever ends this, such as Ctrl-C, ends the
        children.
        """
        wrong: dict[Key, int] = {}

        def ask(number: int, run: Run) -> Outcome:
            if wrong.get(run.key, number) < number:
                return Outcome()
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

    def ask(self, run: Run) -> Outcome:
        """Return what children say of a run; behind a problem that takes too long of smaller ones, in order of size."""
        most, left = self._too_long.get(run.key, math.inf), run.request.problems
        outcome, late = Outcome(), None
        while problems := [case for case in left if elements_of(case) < most]:
            wanted = run.request.wanted and run.request.wanted - len(outcome.right)
            request = structs.replace(run.request, problems=tuple(problems), wanted=wanted)
            before, outcome = outcome, self._ask(replace(run, request=request))
            outcome.right = before.right + outcome.right
            outcome.left_out |= before.left_out
            if outcome.late is None or self._stopped:
                break
            late = late or outcome.late
            most = self._too_long[run.key] = elements_of(outcome.late) // 2 + 1
            left = tuple(sorted(problems[problems.index(outcome.late) :], key=elements_of))
        if late is not None and not outcome.faults:
            smaller = sum(elements_of(case) < elements_of(late) for case in outcome.right)
            others = f"{counted(smaller, 'smaller size')} right" if smaller else "no smaller size was run"
            at, others = (
                (f", at {late.sizes_text}", f" ({others})") if not run.request.reference_only else ("", "")
            )
            outcome.note = f"{run.what} {GIVEN_UP}{at}: it is slow, or does not end{others}"
        return outcome

    def _ask(self, run: Run) -> Outcome:
        """Return what a child says until it stops or is stopped.

        If it is killed, for want of memory perhaps, that is no fault of the kernel, and another one is asked. A child
        is kept for the next run, but not behind a fault: it may have anything in its memory.
        """
        for _ in range(2):
            child = self.take()
            outcome = _heard(child, run)
            if outcome.faults or outcome.note or outcome.late:
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


def _heard(child: HostChild, run: Run) -> Outcome:
    """Return what a child says of a run until it stops or is stopped."""
    outcome, undecided = Outcome(), ""
    try:
        child.send(run.request)
        for outcome.at in run.request.problems:
            result = child.receive(DEADLINE_S)
            variant = run.key[-1] if run.key[0] == "variants" else run.what
            if result is None:
                outcome.late = outcome.at
            elif result.unsuitable:
                outcome.note = f"{variant} was not run on the CPU: {reason_of(result.unsuitable)}"
            elif result.fault:
                as_ = f", as {run.what} runs on the CPU" if run.request.configuration is not None else ""
                outcome.faults.append(TunerError(f"{result.fault}{as_}", result.remedy))
            elif result.undecided:
                undecided = f"{result.undecided}, at {outcome.at.sizes_text}"
            else:
                outcome.right.append(outcome.at)
                outcome.left_out |= result.left_out
                outcome.patterns = result.patterns
            if outcome.note or outcome.late or (outcome.faults and not run.request.reference_only):
                break
            if len(outcome.right) == run.request.wanted:
                break
        else:
            if undecided and not outcome.right and not outcome.faults:
                outcome.note = f"{variant} was compared at NO size: {undecided}"
    except ChildDied as death:
        outcome.killed = "SIGKILL" in death.reason
        where = f", at {outcome.at.sizes_text}" if outcome.at else ""
        if "SIGXCPU" in death.reason:
            outcome.late = outcome.at
        elif "bad_alloc" in death.reason or "MemoryError" in death.reason:  # as after ulimit -v
            outcome.note = f"{run.what} was not run on the CPU: there is too little memory{where}"
        else:
            outcome.faults.append(TunerError(f"{run.what} died ({death.reason}) on the CPU{where}"))
    except UnsendableError as error:
        outcome.note = str(error)
    return outcome


def unavailable() -> str:
    """Return why kernels cannot run on the CPU here; empty where they can."""
    if building.COMPILER is None:
        return "there is no g++"
    try:
        building.machine()  # or each child would build it
    except (building.NotForHost, OSError) as error:  # the disk is full, perhaps
        return " ".join(str(error).split())[:300]
    return ""


def reason_of(text: str) -> str:
    """Return the first error of a C++ compiler, or another reason."""
    error = re.search(r"(?:fatal )?[Ee]rror: (.*)", text)
    if error and (ptx := re.match(r"‘(\w+)’ is not a member of ‘ptx’", error[1])):
        return f"{ptx[1]} is written in PTX"
    return f"the emulator lacks what it needs ({error[1]})" if error else text.splitlines()[0]
