"""The measuring process: owns the GPU, verifies and times one candidate after another, and may die at any moment.

It speaks the messages of ``tuner.children.measuring``. Before each step that a bad kernel could block for ever, it says
how long the step may take; the guard (``tuner.devices.guard``) kills it after that. After an error that ruins the
context it reports and ends, and the guard starts a new one.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__" and not any(one.startswith("/") for one in sys.argv[4:]):  # else a jail comes first
    with contextlib.suppress(OSError):  # it is said later; the driver takes 0.3 s, while the rest is imported
        threading.Thread(target=ctypes.CDLL("libcuda.so.1").cuInit, args=(0,), daemon=True).start()

from msgspec import structs

from tuner.children.cubin_cache import CubinCache
from tuner.children.measuring import (
    LIBRARY_S,
    LOCKED_OUT,
    NOT_ISOLATED,
    SETUP_S,
    Answer,
    Calibrate,
    Calibrated,
    Candidate,
    CandidateContestant,
    Compare,
    Compared,
    Draw,
    Drawn,
    Failed,
    ForReferee,
    Hello,
    Measure,
    Measured,
    MeasuringRequest,
    Race,
    RaceContestant,
    Raced,
    RaceFailed,
    Release,
    Released,
    Setup,
    SetupDone,
    Started,
)
from tuner.core import jail
from tuner.core.conditions import Regime
from tuner.core.errors import CompileError, TunerError
from tuner.core.model import Measurement, Status
from tuner.gpu.arrays import library_version
from tuner.gpu.baselines import open_baseline, open_call
from tuner.gpu.buffers import Helpers
from tuner.gpu.calibration import Calibrator
from tuner.gpu.candidate import Timed, load
from tuner.gpu.clocks import Clocks
from tuner.gpu.contents import FurtherContents, Referee
from tuner.gpu.conversation import Conversation
from tuner.gpu.drift import DriftWatch, ReferenceKernel
from tuner.gpu.driver import Context, status_of
from tuner.gpu.listing import hello_of
from tuner.gpu.measure import CandidateMeasurement, ContestantFailed, InterleavedTiming, TimedContestant
from tuner.gpu.outside import Outside
from tuner.gpu.problem import ProblemSession, open_session
from tuner.gpu.seal import Seal
from tuner.gpu.timing import ClockMismatchError, Timer
from tuner.gpu.turns import Turns, lock_files
from tuner.kernel.answers import Answers
from tuner.kernel.functions import BaselineKind
from tuner.runtime.driver import DriverFailure
from tuner.runtime.launches import OUTPUTS

LOAD_S = 60.0
KERNEL_SETUP_S = 120.0
"""Allowed for a setup where the default configuration is the reference: it may hang."""
CALIBRATION_S = 120.0


class Worker:
    """Answers the guard's requests.

    Args:
        head: is spoken to.
        index: number of the GPU.
        hello: what was said of it.
        clocks: its own.
        cache: of cubins.
        turns: of this GPU's tuners.
        answers: of references on the host.
        jailed: whether this process is locked in, because it runs calls that others wrote.

    Raises:
        DriverFailure: there can be no context.
    """

    def __init__(
        self,
        head: Conversation,
        index: int,
        hello: Hello,
        clocks: Clocks,
        cache: CubinCache | None,
        turns: Turns,
        answers: Answers,
        *,
        jailed: bool = False,
    ) -> None:
        self._head, self._set_deadline, self._jailed = head, head.set_deadline, jailed
        self._turns, self._answers = turns, answers
        with self._turn():  # a new context disturbs what others time
            self._context = Context(index)
            self._helpers = Helpers(self._context, hello.gpu, cache)
        self._clocks, self._timer = clocks, Timer(self._context, clocks)
        self._session: ProblemSession | None = None
        self._measurement: CandidateMeasurement | None = None
        self._drift: DriftWatch | None = None
        self._referee: Referee | None = None
        self._seed = 0
        self._broken: Callable[[], str] = str  # Of a seal from before the first call of others.

    def answer(self, request: MeasuringRequest) -> Answer:
        """Do what a request asks for."""
        if isinstance(request, Compare | Draw):  # for a process whose turn it is
            return self._answer_another(request)
        with self._turn():
            self._set_deadline(LOAD_S)
            match request:
                case Setup():
                    return self._setup(request)
                case Measure():
                    return self._measure(request)
                case Race():
                    return self._race(request)
                case Calibrate():
                    return self._calibrate(request)
                case Release():
                    self._release()
                    return Released()

    def _turn(self) -> AbstractContextManager[None]:
        return self._turns.turn(self._head.say_taken)

    def _answer_another(self, question: ForReferee) -> Compared | Drawn | Failed:
        assert self._referee is not None
        try:
            return self._referee.answer(question)
        except (DriverFailure, TunerError, OSError) as error:
            return Failed(str(error), dying=_ruins_context(error))

    # -- setup ------------------------------------------------------------------------------------------------

    def _setup(self, setup: Setup) -> SetupDone | Failed:
        self._release()
        own = setup.problem.reference.rounded
        what = f"{own}, which says what is right," if own else "the reference kernel"
        self._set_deadline(KERNEL_SETUP_S if own else SETUP_S)
        try:
            return self._set_up(setup)
        except TunerError as error:
            return Failed(str(error), undecided=True)
        except ClockMismatchError as mismatch:
            return Failed(f"this GPU cannot be timed: {mismatch}")
        except DriverFailure as failure:
            if failure.sticky:
                return Failed(f"{what} failed: {failure}", dying=True)
            if status_of(failure) is not Status.OUT_OF_MEMORY:
                return Failed(f"{what} cannot be launched: {failure}")
            return Failed(f"this problem does not fit on the GPU: {failure}; {_needs(setup)}")

    def _set_up(self, setup: Setup) -> SetupDone:
        session, least_error = open_session(
            setup, self._helpers, self._timer, self._set_deadline, self._answers,
            self._head.ask if self._jailed else None,
        )  # fmt: skip
        if setup.exchange is not None and not self._jailed:
            self._referee = Referee(session, setup.seed, setup.exchange)
        self._session, self._seed = session, setup.seed
        self._drift = DriftWatch(ReferenceKernel(session), setup.reference_ns) if setup.timed else None
        self._measurement = CandidateMeasurement(session, self._head.idle)
        reference_ns = self._drift.reference_ns if self._drift is not None else 0.0
        return SetupDone(least_error, reference_ns, session.verifier.host_s)

    def _release(self) -> None:
        """Free the problem's memory, so that another process has room for the same problem."""
        if self._session is not None:
            self._session.close()
        self._session = self._measurement = self._drift = self._referee = None

    def _calibrate(self, request: Calibrate) -> Calibrated | Failed:
        self._release()
        self._set_deadline(CALIBRATION_S)

        def set_deadline(seconds: float) -> None:
            self._set_deadline(max(seconds, CALIBRATION_S))

        try:
            calibrator = Calibrator(self._helpers, self._timer, set_deadline)
            calibration = calibrator.measure(short=request.short)
            return Calibrated(calibration, alone=self._clocks.processes() <= 1)  # its own
        except (DriverFailure, ClockMismatchError, TunerError) as error:
            return Failed(f"this GPU cannot be calibrated: {error}", dying=_ruins_context(error))

    # -- one candidate ------------------------------------------------------------------------------------------

    def _measure(self, request: Measure) -> Measured:
        assert self._session is not None and self._measurement is not None
        candidate = None
        further = FurtherContents(self._session, self._seed)
        began, drifted, dying = 0.0, False, False
        try:
            candidate = self._load(request.candidate, self._session)
            self._draw_inputs(self._session)
            began = time.monotonic()
            measurement = self._measurement.measure(
                candidate,
                request.incumbent_ns or 0.0,
                thorough=request.thorough,
                verify_only=request.verify_only,
            )
            drifted = self._has_drifted()
            verifier = self._session.verifier
            if isinstance(verifier, Outside) and measurement.status.ranked and not request.verify_only:
                self._set_deadline(LIBRARY_S)
                verifier.pace(candidate, statistics.median(measurement.samples_ns))
            if (request.contents or request.sparse) and measurement.status is Status.OK:
                measurement = further.verify(candidate, measurement, sparse=not request.contents)
        except DriverFailure as failure:
            measurement = Measurement(status_of(failure), error=further.named(str(failure)))
            dying = failure.sticky
        except ClockMismatchError as mismatch:
            measurement = Measurement(Status.CLOCK_MISMATCH, error=str(mismatch))
        except TunerError as error:  # of a call
            status = Status.COMPILE_ERROR if isinstance(error, CompileError) else Status.LAUNCH_ERROR
            measurement = Measurement(status, error=str(error))
        if tampers := self._broken():
            measurement = Measurement(Status.TAMPERS, error=tampers)
        end = time.monotonic()
        if candidate is not None and not dying:
            candidate.close()
        return Measured(
            replace(measurement, drifted=drifted),
            (began, end) if began else None,
            self._measurement.refined_s if began else 0.0,
            # For the next process, should this one not live.
            self._drift.reference_ns if self._drift is not None else None,
            dying or self._session.damaged,
        )

    def _load(self, candidate: Candidate, session: ProblemSession) -> Timed:
        """Load a compiled candidate, or capture a call."""
        if candidate.call is None:
            return load(session.data, candidate)
        self._head.send(candidate.call.deadline)
        if self._jailed and self._broken is str:
            self._broken = Seal().broken
        broken = self._broken  # the call may replace what this process is made of
        captured = open_call(session.data, candidate.call)
        if tampers := broken():  # before anything of it is used
            raise TunerError(tampers)
        return captured

    def _draw_inputs(self, session: ProblemSession) -> None:
        """Take the problem's inputs, where foreign code must not know them before it is imported."""
        if isinstance(session.verifier, Outside):
            session.verifier.draw()

    def _has_drifted(self) -> bool:
        assert self._session is not None
        rested = self._session.conditions.regime is Regime.RESTED
        if self._drift is None or self._session.damaged or not rested:
            return False
        try:
            return self._drift.probe()
        except ClockMismatchError:  # says nothing about the candidate; the next one brings another probe
            return False

    # -- several in turn ------------------------------------------------------------------------------------------

    def _race(self, race: Race) -> Raced | RaceFailed:
        """Time candidates and baselines in turn, in shuffled rounds; each round gives one group of each."""
        session = self._session
        assert session is not None
        if race.mode is not None and race.batch is not None:
            session = session.in_mode(race.mode, race.batch)
        timing = InterleavedTiming(session)
        with ExitStack() as loaded:
            contestants: list[TimedContestant] = []
            try:
                for contestant in race.contestants:
                    timing.current = len(contestants)
                    contestants.append(self._load_contestant(contestant, session, loaded))
                self._draw_inputs(session)
                raced = timing.run(contestants, race.rounds, race.samples, race.seed)
                tampers = self._broken()
                return RaceFailed(tampers, 0, status=Status.TAMPERS) if tampers else raced
            except (DriverFailure, ClockMismatchError, ContestantFailed, TunerError) as failure:
                dying = session.damaged or _ruins_context(failure)
                if dying:
                    loaded.pop_all()  # every call would only repeat the error
                status = failure.status if isinstance(failure, ContestantFailed) else Status.UNSTABLE
                if tampers := self._broken():  # whatever it has led to
                    return RaceFailed(tampers, 0, dying, Status.TAMPERS)
                return RaceFailed(str(failure), timing.current, dying, status)

    def _load_contestant(
        self, contestant: RaceContestant, session: ProblemSession, loaded: ExitStack
    ) -> TimedContestant:
        if isinstance(contestant, CandidateContestant):
            candidate = self._load(contestant.candidate, session)
            loaded.callback(candidate.close)
            required = contestant.required
            return TimedContestant(candidate, contestant.estimate_ns, required=required, own=not required)
        self._set_deadline(LIBRARY_S)
        baseline = loaded.enter_context(closing(open_baseline(session.data, contestant)))
        own = contestant.kind == BaselineKind.PYTHON
        return TimedContestant(baseline, contestant.estimate_ns, required=False, own=own)


def _ruins_context(error: Exception) -> bool:
    return isinstance(error, DriverFailure) and error.sticky


def _needs(setup: Setup) -> str:
    """Say how much memory a setup asks for."""
    tensors, copies = setup.problem.tensors, setup.batch.copies
    size_bytes = sum(tensor.size_bytes for tensor in tensors) * copies
    size_bytes += sum(12 * tensor.count for tensor in tensors if tensor.role in OUTPUTS)
    text = f"its tensors and what is expected of them take {size_bytes / 2**30:.1f} GiB"
    return f"{text} in {copies} copies; --mode cold needs one" if copies > 1 else text


def main() -> None:
    """Serve. Arguments: GPU number; folders of cache and answers, or ``-``; a jail's own folder and the exchange, or
    libraries that will be needed."""
    head = Conversation()
    index, (cache, kept) = int(sys.argv[1]), (None if one == "-" else Path(one) for one in sys.argv[2:4])
    jailed = [Path(one) for one in sys.argv[4:] if one.startswith("/")]
    missing = tuple[str, ...]()
    if jailed:
        own, exchange = jailed
        jail.keep_caches_in(own)
        with jail.installed_only():
            for library in ("torch", "cupy"):  # takes seconds, and needs nothing of the candidate
                library_version(library)
        gc.freeze()  # what has been imported stays; older releases of torch collect garbage at each capture
        lock = head.lock()
        if lock is None:
            return
        known = [*([cache] if cache else []), *lock_files()]
        missing = jail.enter(own, lock.readable, known, lock.open_files, exchange)
    try:
        hello, clocks = hello_of(index)
        if jailed:
            Context(index)  # it may be what a jail does not let begin
    except (TunerError, DriverFailure) as error:
        head.send(Failed(f"{LOCKED_OUT if jailed else ''}{error}"))
        return
    notes = tuple(f"{NOT_ISOLATED}{what}" for what in missing)
    head.send(structs.replace(hello, notes=(*hello.notes, *notes)))
    head.begin()
    try:
        cubins = CubinCache(cache) if cache else None
        turns = Turns(hello.gpu.uuid)
        answers = Answers(kept, functools.partial(turns.released, head.say_taken))
        worker = Worker(head, index, hello, clocks, cubins, turns, answers, jailed=bool(jailed))
    except (TunerError, DriverFailure) as error:
        if head.next() is not None:
            head.send(Started())
            head.send(Failed(str(error), dying=True))
        os._exit(3)
    for library in () if jailed else sys.argv[4:]:
        library_version(library)
    while (request := head.next()) is not None:
        head.send(Started())
        head.send(answer := worker.answer(request))
        if isinstance(answer, Measured | RaceFailed | Failed) and answer.dying:
            # The context is ruined: every later call would only repeat the error.
            with contextlib.suppress(OSError):
                sys.stderr.flush()
            os._exit(3)
    os._exit(0)  # the context's own tear-down can block behind a kernel


if __name__ == "__main__":
    main()
