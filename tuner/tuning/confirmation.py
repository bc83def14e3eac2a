"""Confirmation of a winner: is its time the same in a fresh process, and is it right at other sizes?"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from statistics import median

from tuner.core.conditions import Mode
from tuner.core.model import Configuration, Measurement, Problem, Status
from tuner.devices.base import Device, said_late
from tuner.kernel.edge_sizes import (
    MAX_VARIED_ELEMENTS,
    VERIFIED_PROBLEMS,
    Fits,
    edge_case_problems,
    halved,
    no_larger,
    varied_problem,
    with_other_scalars,
)
from tuner.kernel.spec import KernelSpec

CONFIRMING_PROCESSES = 3
"""Fresh processes at most, until one agrees with the race: where a process gets its memory moves a short kernel by some
percent (an addition of 2^20 floats on an H200 took 4.45 us in one process, and 4.74 in all others)."""
NO_PROCESS = (Status.UNSTABLE, Status.UNVERIFIED)
"""What a device says when the fresh process could not be had or made ready: it says nothing about the winner."""
AGAIN = (*NO_PROCESS, Status.WORKER_DIED)
"""Once may be an accident: somebody else may have killed it."""
CONFIRMED_WITHIN = 0.02
"""How far the time in a fresh process may be from the race's: clocks and memory layout differ there."""
MOVED = 0.06
"""How far a process may move it: short kernels were 2 to 5 % off, in three processes by the same."""
MOVED_TOGETHER = 0.1
"""How far it may be if another finalist, in a process of its own, is off to the same side, by at least half as much:
then the process has moved both. Six launches of 2 us were 6 to 7 % off."""
ALONE_FASTER = 0.15
"""How much shorter it may be where calls rotate: on an H200 sums of 2^16 to 2^22 floats took 2 to 13 % less time alone
in a fresh process than in turn with eight others. A winner that is faster alone claims too little, not too much."""
EVENT_RESOLUTION_NS = 500.0
"""Events do not resolve less (documentation of cuEventElapsedTime); kernels of microseconds may be so far off."""
BATCH_RESOLUTION_NS = 100.0
"""The same where many calls share two events: the position of its code moves a kernel by so much on an H200."""


EDGE_CASES_S = 60.0
"""For all edge-case sizes: a dozen take a few seconds, unless a reference in Python is slow."""
SLOW_CASE_S = 0.5
"""Where references on the host take longer for the problem, sizes are halved until they take no more than that."""
MOST_UNDECIDED = 50
"""Sizes without a right answer, after which there is hardly one that has it."""


@dataclass(frozen=True)
class Confirmation:
    """What a fresh process and other sizes say of a winner."""

    confirmed: Measurement | None = None
    """In the fresh process; None where nothing can be confirmed."""
    edge_cases: list[tuple[Problem, Measurement]] = field(default_factory=list)
    """The winner at other sizes."""
    varied: Measurement | None = None
    """With further contents of the inputs, at one of these sizes or its own; None where it was not verified so."""
    edge_note: str = ""
    """Why it was verified at fewer sizes than usual; empty if it was not."""
    wrong_at: Problem | None = None
    """The first size at which it is wrong."""
    reason: str = ""
    """Why it is no winner; empty if nothing speaks against it."""
    no_process: bool = False
    """Whether the reason says nothing about the winner: no process could be had to confirm or verify it."""

    @property
    def confirmed_ns(self) -> float | None:
        """The time in the fresh process; None where it has none."""
        return median(self.confirmed.samples_ns) if self.confirmed and self.confirmed.samples_ns else None


def confirm(
    device: Device,
    kernel: KernelSpec,
    problem: Problem,
    winner: Configuration,
    raced_ns: float,
    say: Callable[[str], None],
    *,
    max_error: float | None = None,
    other: tuple[Configuration, float] | None = None,
    any_size: bool = True,
    moved: float = 0.0,
) -> Confirmation:
    """Measure a winner in a fresh process, and verify it at other sizes.

    Args:
        device: where it raced.
        kernel: which says what sizes there may be.
        problem: what is tuned.
        winner: of the race.
        raced_ns: its time there.
        say: told what begins.
        max_error: how far from the true result it may be in the fresh process.
        other: another finalist and its time in the race, if there is one.
        any_size: whether it must be right at others than its own; inputs have further contents either way.
        moved: by which share its time may be off in each process, where no other finalist can tell.
    """
    with ExitStack() as ended:
        ended.callback(device.end_confirmation)  # a large problem does not fit twice
        say("confirming the winner in a fresh process")
        with device.phases.phase("fresh process"):
            measurement, reason = _fresh_process(device, winner, raced_ns, other, moved, say)
        if reason:
            return Confirmation(measurement, reason=reason, no_process=measurement.status in NO_PROCESS)
        error = measurement.verification.true_error if measurement.verification else None
        if max_error is not None and error is not None and error > max_error:
            reason = f"on other inputs its error is {error:.2g}, above {max_error:.2g}"
            return Confirmation(measurement, reason=reason)
        say(f"verifying the winner {'at edge-case sizes' if any_size else 'with other inputs'}")
        checked = _EdgeCases(device, kernel, winner, say)
        with device.phases.phase("edge-case sizes"):
            edge_cases = checked.verify(problem) if any_size else []
        verified = edge_cases
        small = math.prod(problem.sizes.values()) <= MAX_VARIED_ELEMENTS
        if not edge_cases and (small or not any_size):
            verified = checked.verify_at(problem, contents=True, others=True)  # no other size suits it
        failed = [(at, answer) for at, answer in verified if answer.status is not Status.OK]
        varied = next((one for _, one in verified if one.contents), None)
        found = Confirmation(measurement, edge_cases, varied, checked.note)
        if not failed:
            return found
        # A wrong result at one size counts, also if another size could not be verified.
        at, worst = min(failed, key=lambda case: not is_wrong(case[1]))
        wrong_at, reason = at if is_wrong(worst) else None, wrong_text(at, worst)
        return replace(found, wrong_at=wrong_at, reason=reason, no_process=wrong_at is None)


def is_wrong(answer: Measurement) -> bool:
    """Return whether a configuration fails at a size, and not for want of a reference or a process."""
    return answer.status not in (Status.OK, Status.UNVERIFIED)


def wrong_text(at: Problem, answer: Measurement) -> str:
    """Return how a configuration fails at a size."""
    remedy = "check its bounds, or exclude such sizes by a constraint"
    return f"at {at}: {answer.status}: {answer.error}; {remedy}"


SizesChecked = list[tuple[Problem, Measurement]]
"""What a configuration's output was worth at some sizes."""


class _EdgeCases:
    """Verifies a winner at other sizes, for a limited time.

    Args:
        device: where it raced.
        kernel: the winner's.
        winner: the configuration.
        say: told of a size that takes long.
    """

    def __init__(
        self, device: Device, kernel: KernelSpec, winner: Configuration, say: Callable[[str], None]
    ) -> None:
        self._device, self._kernel, self._winner, self._say = device, kernel, winner, say
        self._ends = time.monotonic() + EDGE_CASES_S
        self._count = 0
        self._varies = True
        """Whether the reference has an answer to other scalars, as far as that is known."""
        self._undecided: list[str] = []

    def verify(self, problem: Problem) -> SizesChecked:
        """Return what the output was worth at sizes around its tile and beside those of a problem.

        Every second one has other scalars. A size at which nothing says what is right makes room for the next. At one
        of them inputs have further contents. The first at which it is wrong is the last.
        """
        near, kernel = problem, self._kernel
        fits: Fits = self._device.fits
        if self._device.host_s > SLOW_CASE_S:
            near = halved(problem, SLOW_CASE_S / self._device.host_s)
            fits = no_larger(near, kernel, self._device.gpu, fits)
        cases = edge_case_problems(near, self._winner, fits, kernel)
        usual = list(islice(cases, VERIFIED_PROBLEMS))
        for case in usual:
            self._device.compile_ahead(kernel, case, [self._winner])
        varied = varied_problem(kernel, usual, self._device.gpu)
        checked: SizesChecked = []
        for turn, case in enumerate(chain(usual, cases)):
            if self._count >= VERIFIED_PROBLEMS or len(self._undecided) >= MOST_UNDECIDED:
                break
            checked += (found := self.verify_at(case, contents=case == varied, others=turn % 2 == 0))
            if any(is_wrong(answer) for _, answer in found):
                break
            if case == varied and not found:
                varied = varied_problem(kernel, usual[usual.index(case) + 1 :], self._device.gpu)
        return checked

    def verify_at(self, case: Problem, *, contents: bool, others: bool) -> SizesChecked:
        """Return what the output is worth at one size; nothing where no answer can be had.

        Args:
            case: the problem.
            contents: whether inputs have further contents.
            others: whether scalars are others, as long as the reference has an answer to them.
        """
        if others and self._varies:
            passed, undecided = with_other_scalars(self._kernel, case, self._device.gpu), len(self._undecided)
            if passed != case:
                found = self._verified(passed, contents=contents)
                if any(answer.status is Status.OK or is_wrong(answer) for _, answer in found):
                    return found
                self._varies, self._count = False, self._count - len(found)
                del self._undecided[undecided:]
        return self._verified(case, contents=contents)

    def _verified(self, case: Problem, *, contents: bool) -> SizesChecked:
        left_s = self._ends - time.monotonic()
        if left_s <= 0:
            return []
        done = f"{self._count} of {VERIFIED_PROBLEMS} edge-case sizes are verified"
        with said_late(self._say, f"{done}; still at {case.sizes_text}"):
            answer = self._device.verify_at(case, self._winner, left_s, contents=contents)
        if answer is None:
            return []
        if answer.verification is not None and not answer.verification.checked:
            self._undecided.append(f"{case.sizes_text}: {answer.error}")
            return []
        self._count += 1
        return [(case, answer)]

    @property
    def note(self) -> str:
        """Why fewer sizes than usual were verified; empty if they are as many, or all that the constraints admit."""
        if self._count >= VERIFIED_PROBLEMS:
            return ""
        if time.monotonic() >= self._ends:
            return f"the limit of {EDGE_CASES_S:g} s ended that"
        if self._undecided:
            return f"elsewhere nothing says what is right: {self._undecided[0]}"
        return self._kernel.of_one_size


def _fresh_process(
    device: Device,
    winner: Configuration,
    raced_ns: float,
    other: tuple[Configuration, float] | None,
    alone: float,
    say: Callable[[str], None],
) -> tuple[Measurement, str]:
    """Return the last measurement in a fresh process, and what it says against the winner's time."""
    times_ns: list[float] = []
    for _ in range(CONFIRMING_PROCESSES):
        measurement = _confirmed(device, winner, raced_ns)
        if measurement.status is not Status.OK:
            return measurement, f"in a fresh process: {measurement.status}: {measurement.error}"
        times_ns.append(median(measurement.samples_ns))
        if _agrees(device, times_ns[-1], raced_ns):
            return measurement, ""
    moved = [time_ns / raced_ns - 1 for time_ns in times_ns]
    most = max(map(abs, moved))
    if most <= alone:
        return measurement, ""
    if other and most <= MOVED_TOGETHER:
        say("timing another finalist in a fresh process")
        if _moved_as_much(device, median(moved), *other):
            return measurement, ""
    times = ", ".join(f"{time_ns / 1e3:.2f}" for time_ns in times_ns)
    return measurement, f"{raced_ns / 1e3:.2f} us in the race, {times} us in fresh processes"


def _confirmed(device: Device, configuration: Configuration, raced_ns: float) -> Measurement:
    """Return the measurement in a fresh process; in another if something befell the first."""
    measurement = device.confirm(configuration, raced_ns)
    return device.confirm(configuration, raced_ns) if measurement.status in AGAIN else measurement


def _moved_as_much(device: Device, moved: float, other: Configuration, raced_ns: float) -> bool:
    """Return whether another finalist is as far from its time in the race; not if it cannot be measured."""
    beside = _confirmed(device, other, raced_ns)
    if beside.status is not Status.OK:
        return False
    apart = moved - (median(beside.samples_ns) / raced_ns - 1)
    return abs(apart) <= min(CONFIRMED_WITHIN, abs(moved) / 2)


def _agrees(device: Device, fresh_ns: float, raced_ns: float) -> bool:
    """Return whether the time in a fresh process is that of the race."""
    slower = max(CONFIRMED_WITHIN * raced_ns, resolution_ns(device))
    faster = ALONE_FASTER * raced_ns if device.conditions.mode is Mode.ROTATING else slower
    return -max(faster, slower) <= fresh_ns - raced_ns <= slower


def resolution_ns(device: Device) -> float:
    """Return by how much two times of one kernel may differ for reasons of measuring alone."""
    return EVENT_RESOLUTION_NS if device.conditions.mode is Mode.COLD else BATCH_RESOLUTION_NS
