"""A guard of a locked-in process: what that says of its outputs and times is held against what is known outside of it.

Another process has the reference, compares the outputs, and draws the inputs, by a seed that the locked-in one does not
know. Batches of launches, as many as are drawn here, are timed by the clock of this process.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from tuner.children import measuring
from tuner.core.model import Gpu, Status
from tuner.core.processes import ChildDied
from tuner.devices.guard import Guard, MeasuringChild, Pending, Unanswered
from tuner.devices.pacing import Pacing
from tuner.kernel.batching import Batch

MOST_S, MOST_QUESTIONS = 1800.0, 2000
"""For one request: such a process says itself how long a step may take, and time stands still while it asks."""
MOST_BYTES = 4 << 20
"""Of a message: as objects its numbers take some ten times as much."""
SAME = 1.01
"""By a longer time than is reported batches would be too short to show anything."""
NONSENSE = "the measuring process was killed after nonsense: numbers that cannot be"


@dataclass
class _Seen:
    """What was seen of one request."""

    of: Pending
    began: float
    asked: int = 0
    right: int = 0
    """Outputs that were right, or of which nothing says what is right."""
    wrong: str = ""
    """The first that was not."""
    contents: int = 0
    """Inputs that were drawn with an answer."""
    drawn: bool = False
    """Whether there is no further content."""


class ExaminedGuard(Guard):
    """Owns a locked-in process.

    Args:
        module: of the process.
        arguments: its arguments.
        say: told what the process waits for.
        referee: has a process that is not locked in, and nothing else to do meanwhile.
        exchange: file that both processes can write.
        lock: into what the process is locked; until that is known, it imports libraries.
    """

    def __init__(
        self,
        module: str,
        arguments: list[str],
        say: Callable[[str], None],
        referee: Guard,
        exchange: Path,
        lock: Future[measuring.LockIn],
    ) -> None:
        self._referee, self._exchange, self._lock = referee, exchange, lock
        self._full: measuring.Setup | None = None
        """The last setup, as the referee has it."""
        self._waiting = False
        """Whether the referee sets up."""
        self._gpu: Gpu | None = None
        self._seen: _Seen | None = None
        self._pacing: Pacing | None = None
        """Of the candidate that was measured last, in the request that paces."""
        self._paces: Pending | None = None
        super().__init__(module, arguments, say)

    def close(self) -> None:
        """Kill the process; what the referee still computes for it is of no use any more."""
        if self._waiting:
            self._referee.interrupt()
        self._lock.cancel()  # nothing will be known any more
        super().close()

    # -- on the way to the process ---------------------------------------------------------------------------------

    def _put(self, pending: Pending) -> None:
        request = pending.request
        if isinstance(request, measuring.Setup):
            self._begin(pending, request)
            return
        if isinstance(request, measuring.Release):
            self._referee.call(measuring.Release())
        elif isinstance(request, measuring.Race):  # by its seed the inputs are drawn
            pending.request = structs.replace(request, seed=secrets.randbelow(2**31))
        super()._put(pending)

    def _begin(self, pending: Pending, setup: measuring.Setup) -> None:
        """Set up the referee, then the process, which gets neither reference nor seed."""
        self._full = structs.replace(setup, exchange=self._exchange, batch=Batch(1, 1), timed=False)
        self._waiting, answered = True, pending.done
        known = setup.problem.reference
        reference = measuring.ReferenceData(known.accumulate, numbers=known.numbers)
        pending.request = structs.replace(
            setup,
            problem=structs.replace(setup.problem, reference=reference),
            truth=None,
            seed=secrets.randbelow(2**31),
            exchange=self._exchange,
        )

        def then(ready: measuring.Answer | Unanswered) -> None:
            self._waiting = False
            if not isinstance(ready, measuring.SetupDone):
                answered(ready)
                return

            def done(answer: measuring.Answer | Unanswered) -> None:
                if isinstance(answer, measuring.SetupDone):
                    answer = structs.replace(answer, least_error=ready.least_error, host_s=ready.host_s)
                answered(answer)

            pending.done = done
            super(ExaminedGuard, self)._put(pending)

        try:
            size_bytes = sum(tensor.size_bytes for tensor in setup.problem.tensors)
            with self._exchange.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, max(1, size_bytes))
        except OSError as error:
            then(
                measuring.Failed(
                    f"no room for {size_bytes / 2**30:.1f} GiB of tensors: {error.strerror}; set TMPDIR"
                )
            )
            return
        self._referee.submit(self._full, then)

    # -- from the process ------------------------------------------------------------------------------------------

    def _greet(self, child: MeasuringChild) -> None:
        child.most_bytes = MOST_BYTES
        try:
            child.send(self._lock.result())
        except CancelledError:
            raise ChildDied("it was not needed") from None

    def _start(self) -> measuring.Hello | str:
        hello = super()._start()
        self._gpu = hello.gpu if isinstance(hello, measuring.Hello) else self._gpu
        return hello

    def _repeat_setup(self) -> str:
        if self._full is not None and self._setup is not None:  # whose inputs may be others now
            answer = self._referee.call(self._full)
            if not isinstance(answer, measuring.SetupDone):
                return answer.error
        return super()._repeat_setup()

    def _listen(self) -> None:
        pending, now = self._in_flight[0], time.monotonic()
        if self._seen is None or self._seen.of is not pending:
            self._seen = _Seen(pending, now)
        if now > self._seen.began + MOST_S or self._seen.asked > MOST_QUESTIONS:
            self._bury(Status.HANG, "it keeps the referee waiting; the process was killed")
            return
        super()._listen()

    def _asked(self, question: measuring.Question) -> None:
        """Answer, while the process's time stands still."""
        if not self._started or self._seen is None:
            super()._asked(question)
            return
        left_s = self._deadline - time.monotonic()
        self._seen.asked += 1
        told = self._told(question, self._seen)
        if isinstance(told, Unanswered):
            self._bury(told.status, told.error)
            return
        self._deadline = time.monotonic() + left_s
        if self._child is not None:
            with contextlib.suppress(ChildDied):
                self._child.send(told)

    def _told(self, question: measuring.Question, seen: _Seen) -> measuring.Told | Unanswered:
        if isinstance(question, measuring.Pace):
            if not _are_times([question.time_ns]):
                return Unanswered(Status.WORKER_DIED, NONSENSE)
            if self._pacing is None or self._paces is not seen.of:
                self._pacing, self._paces = Pacing(question.time_ns), seen.of
            return self._pacing.next()
        match answer := self._referee.call(question):
            case measuring.Compared(verification=verification):
                if verification.passed or not verification.checked:
                    seen.right += 1
                else:
                    seen.wrong = seen.wrong or verification.message
                return answer
            case measuring.Drawn(content=content, why=why):
                seen.drawn = not content
                seen.contents += bool(
                    isinstance(question, measuring.Draw) and question.turn and content and not why
                )
                return answer
        return Unanswered(Status.UNVERIFIED, f"nothing says what is right: {answer.error}")

    def _pass_on(self, answer: measuring.Answer) -> None:
        if self._started and not _can_be(answer, self._in_flight[0].request):
            self._bury(Status.WORKER_DIED, NONSENSE)
            return
        super()._pass_on(self._held(answer, self._seen) if self._started and self._seen else answer)

    def _held(self, answer: measuring.Answer, seen: _Seen) -> measuring.Answer:
        """Return an answer, or what speaks against it."""
        match answer, seen.of.request:
            case measuring.Measured(measurement=measurement), measuring.Measure() as request if (
                measurement.status.ranked
            ):
                times = () if request.verify_only else measurement.samples_ns
                status, error = self._objection(seen, 1 if request.verify_only else 2, times)
                paced_ns = self._pacing.time_ns if self._pacing else 0.0
                if not error and times and paced_ns > SAME * statistics.median(times):
                    status, error = Status.TAMPERS, "it is paced by a longer time than it reports"
                if not error and request.contents and not seen.drawn:
                    status, error = Status.TAMPERS, "it does not ask for all contents of the inputs"
                if error:
                    measurement = replace(measurement, status=status, error=error)
                    return structs.replace(answer, measurement=measurement)
            case measuring.Raced() as raced, measuring.Race(
                contestants=(measuring.CandidateContestant() as first, *_)
            ) if first.candidate.call:
                # Which contestant's outputs are wrong, the process alone says.
                seen = seen if all(raced.verified) else replace(seen, wrong="")
                taken_ns = [time_ns for groups in raced.rounds for time_ns in groups[0]]
                status, error = self._objection(seen, 2, taken_ns)
                if error:
                    return measuring.RaceFailed(error, 0, status=status)
        return answer

    def _objection(self, seen: _Seen, least: int, times_ns: Sequence[float]) -> tuple[Status, str]:
        """Return what speaks against an answer by which all is well.

        Args:
            seen: what was seen.
            least: outputs that must have been compared, beside those for further contents.
            times_ns: that it says.
        """
        if seen.wrong:
            return Status.TAMPERS, f"it says that its outputs are right, and they are not: {seen.wrong}"
        if seen.right < least + seen.contents:
            return Status.TAMPERS, "it does not show its outputs"
        if not times_ns:
            return Status.OK, ""
        if self._pacing is None:
            return Status.TAMPERS, "it does not launch what it is asked to"
        assert self._gpu is not None and self._full is not None
        error = self._pacing.objection(statistics.median(times_ns), self._full.problem.tensors, self._gpu)
        return (Status.CLOCK_MISMATCH, error) if error else (Status.OK, "")


def _can_be(answer: measuring.Answer, request: measuring.MeasuringRequest) -> bool:
    """Return whether an answer's numbers can be those of what was asked for; all that follows takes them for that."""
    match answer, request:
        case measuring.Measured(measurement=measured, span=span), measuring.Measure():
            timed = measured.status.ranked and not request.verify_only
            numbers = *(span or ()), answer.refined_s, answer.reference_ns or 0.0, measured.measure_s
            known = all(map(math.isfinite, (*numbers, measured.sm_clock_hz)))
            return known and _are_times(measured.samples_ns, least=int(timed))
        case measuring.Raced(rounds=rounds), measuring.Race(contestants=contestants):
            counts = {len(one) for one in (*rounds, answer.verified, answer.sm_clock_hz) if one}
            known = len(rounds) == request.rounds and counts == {len(contestants)} and all(rounds)
            known = known and len(answer.verified) > 0
            return known and all(_are_times(group) for groups in rounds for group in groups)
        case measuring.RaceFailed(contestant=index), measuring.Race(contestants=contestants):
            return 0 <= index < len(contestants)
        case measuring.SetupDone(reference_ns=reference_ns), _:
            return math.isfinite(reference_ns)
    return True


def _are_times(times_ns: Sequence[float], least: int = 1) -> bool:
    return len(times_ns) >= least and all(0.0 < time_ns < math.inf for time_ns in times_ns)
