"""Keeps a measuring process alive: kills it when a step takes too long, starts a new one when it died.

Everything runs in one long-lived thread, because Linux ties a child's life to the thread that created it.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from tuner.children import measuring
from tuner.core.errors import DeviceError
from tuner.core.messages import Reply, UnsendableError
from tuner.core.model import Status
from tuner.core.processes import Child, ChildDied

START_S = 120.0
"""Allowed for a new process up to its first message: a context takes half a second, but a cold disk may not."""
GRACE_S = 1.0
"""Beyond a step's deadline: what the process and this thread need to say and to read that it is done."""
TICK_S = 0.02
"""How often the thread looks for new requests while it waits for the process."""
TELL_EVERY_S = 60.0
"""How often to say that another tuner has the GPU."""
IN_FLIGHT = 2
"""Requests that the process holds: one it works on, one so that it never waits for the next."""
MAX_START_FAILURES = 3
AWAITED = "waiting for the GPU: "
"""Begins what is said when another process has the GPU."""

MeasuringChild = Child[measuring.Heard, measuring.MeasuringReply]


@dataclass(frozen=True)
class Unanswered:
    """What a request gets whose process ended or hung: the guard's word in place of an answer."""

    status: Status
    error: str
    fatal: bool = False
    """Whether no process can be started any more: every further request gets the same."""
    undecided: bool = False
    """Whether the caller did not wait any longer: that says nothing."""


@dataclass
class Pending:
    """A request that waits for its answer."""

    request: measuring.MeasuringRequest
    done: Callable[[Any], None]
    deaths: int = 0
    """How often a process ended that had not begun with it, though it was the next."""


class Guard:
    """Owns one measuring process at a time.

    Args:
        module: Python module of the process.
        arguments: its arguments.
        say: told what the process waits for, from the guard's thread.
    """

    def __init__(
        self, module: str, arguments: list[str], say: Callable[[str], None] = lambda _: None
    ) -> None:
        self._say, self._told_waiting = say, -math.inf
        self._module = module
        self._arguments = arguments
        self._requests: queue.SimpleQueue[Pending | None] = queue.SimpleQueue()
        self._in_flight: deque[Pending] = deque()
        self._started = False
        """Whether the process has begun with the first one in flight."""
        self._deadline, self._late = float("inf"), Status.HANG
        self._setup: measuring.Setup | None = None
        """The last, unless it failed; repeated in a new process."""
        self._reference_ns = 0.0
        """What the reference kernel took when a process last spoke of it."""
        self._child: MeasuringChild | None = None
        self._hello: queue.SimpleQueue[measuring.Hello | str] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._over: Unanswered | None = None
        """What every further request gets once there will be no process any more."""
        self.restarts = 0
        """How often the process had to be replaced."""
        self._thread = threading.Thread(target=self._serve, daemon=True, name="guard")
        self._thread.start()

    @property
    def working(self) -> bool:
        """Whether the process works on a request, and still has time for it; from any thread."""
        return bool(self._in_flight) and time.monotonic() < self._deadline

    def hello(self) -> measuring.Hello:
        """Return the process's first message.

        Raises:
            DeviceError: it has no GPU to offer.
        """
        hello = self._hello.get()
        if isinstance(hello, str):
            raise DeviceError(hello)
        return hello

    def submit(self, request: measuring.MeasuringRequest, done: Callable[[Any], None]) -> None:
        """Queue a request; ``done`` is called from the guard's thread with the answer."""
        self._put(Pending(request, done))

    def call(self, request: measuring.Request[Reply], limit_s: float = math.inf) -> Reply | Unanswered:
        """Send a request, and return its answer, or that there is none after so many seconds."""
        answer: queue.SimpleQueue[Reply | Unanswered] = queue.SimpleQueue()
        assert isinstance(request, measuring.MeasuringRequest)
        self._put(Pending(request, answer.put))
        try:
            return answer.get(timeout=limit_s if math.isfinite(limit_s) else None)
        except queue.Empty:
            return Unanswered(Status.HANG, f"no answer within {limit_s:.0f} s", undecided=True)

    def interrupt(self) -> None:
        """Kill the process at its work; the next request finds a new one."""
        if (child := self._child) is not None:
            child.stop()

    def close(self) -> None:
        """Kill the process and end the thread; what still waits for an answer gets a last one."""
        self._closing.set()
        self._requests.put(None)
        self._thread.join(timeout=15)
        if self._over is None:
            self._give_up("the measuring process was closed")

    def _put(self, pending: Pending) -> None:
        self._requests.put(pending)
        if self._over is not None:  # another thread may ask, or ask once more, while this one is closed
            self._answer_waiting(self._over)

    def _give_up(self, error: str) -> None:
        """Answer everything, now and later, with the same bad news."""
        self._over = over = Unanswered(Status.WORKER_DIED, error, fatal=True)
        self._closing.set()
        while self._in_flight:
            self._in_flight.popleft().done(over)
        self._answer_waiting(over)

    def _answer_waiting(self, over: Unanswered) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                if (pending := self._requests.get_nowait()) is not None:
                    pending.done(over)

    # -- in the thread --------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            self._hello.put(self._start())
            while not self._closing.is_set():
                self._fill()
                if self._in_flight:
                    self._listen()
        except Exception as error:  # noqa: BLE001 - a caller that waits for an answer would wait for ever
            problem = f"the guard of the measuring process failed: {error!r}"
            self._hello.put(problem)
            self._give_up(problem)
        finally:
            if self._child is not None:
                self._child.kill()

    def _fill(self) -> None:
        """Hand over waiting requests; block only when there is nothing else to do."""
        while len(self._in_flight) < IN_FLIGHT and not self._closing.is_set():
            try:
                pending = self._requests.get(block=not self._in_flight)
            except queue.Empty:
                return
            if pending is None:
                return
            # A setup is remembered and repeated after a restart, so it must not overtake what is still running.
            self._in_flight.append(pending)
            if len(self._in_flight) == 1:
                self._deadline = time.monotonic() + START_S
            if isinstance(pending.request, measuring.Setup):
                self._setup = pending.request
            if self._child is None:
                self._restart()
            else:
                self._hand_over(self._child, pending)

    def _hand_over(self, child: MeasuringChild, pending: Pending) -> None:
        try:
            with contextlib.suppress(ChildDied):  # listening will notice, after reading what it still said
                child.send(pending.request)
        except UnsendableError as error:
            self._in_flight.remove(pending)
            if pending.request is self._setup:
                self._setup = None
            pending.done(Unanswered(Status.WORKER_DIED, str(error)))

    def _listen(self) -> None:
        assert self._child is not None
        try:
            message = self._child.receive(TICK_S)
        except ChildDied as death:
            self._bury(Status.WORKER_DIED, f"the measuring process ended: {death.reason}")
            return
        match message:
            case None:
                if time.monotonic() > self._deadline:
                    self._bury(self._late, "no answer within the time allowed; the process was killed")
            case measuring.Started():
                self._started, self._deadline = True, time.monotonic() + START_S
            case measuring.GpuTaken(what=what):
                self._deadline = max(self._deadline, time.monotonic() + START_S)
                self._tell_waiting(what)
            case measuring.Deadline(seconds=seconds, late=late):
                self._deadline, self._late = time.monotonic() + seconds + GRACE_S, late
            case measuring.Hello():
                self._refuse(message)
            case measuring.Compare() | measuring.Draw() | measuring.Pace():
                self._asked(message)
            case _:
                self._pass_on(message)

    def _tell_waiting(self, what: str) -> None:
        """Say that the GPU is not ours: once, and again when that has been so for a while."""
        if time.monotonic() >= self._told_waiting + TELL_EVERY_S:
            self._told_waiting = time.monotonic()
            self._say(f"{AWAITED}{what}")

    def _pass_on(self, answer: measuring.Answer) -> None:
        """Pass an answer on to the request that it belongs to, the first in flight."""
        if not self._started or not isinstance(answer, measuring.ANSWERS[type(self._in_flight[0].request)]):
            self._refuse(answer)
            return
        pending = self._in_flight.popleft()
        self._started, self._deadline = False, time.monotonic() + START_S
        match answer:
            case measuring.SetupDone() | measuring.Failed() if isinstance(pending.request, measuring.Setup):
                self._note_setup(pending.request, answer)
            case measuring.Measured(reference_ns=float(reference_ns)):
                self._reference_ns = reference_ns
        pending.done(answer)
        if isinstance(answer, measuring.Measured | measuring.RaceFailed | measuring.Failed) and answer.dying:
            self._replace()

    def _asked(self, question: measuring.Question) -> None:
        """Answer a question of the process, which has none unless it is locked in."""
        self._refuse(question)

    def _refuse(self, message: measuring.MeasuringReply) -> None:
        """Replace a process that says what nothing asked for, such as a second answer."""
        name = type(message).__name__
        self._bury(Status.WORKER_DIED, f"the measuring process was killed after nonsense: {name} out of turn")

    def _note_setup(self, request: measuring.Setup, answer: measuring.SetupDone | measuring.Failed) -> None:
        """Forget a setup that failed: repeating it would fail again, and end this guard for all problems to come."""
        if isinstance(answer, measuring.Failed) and request is self._setup:
            self._setup = None
        self._reference_ns = answer.reference_ns if isinstance(answer, measuring.SetupDone) else 0.0

    def _bury(self, status: Status, error: str) -> None:
        """Answer for the request on which the process died or hangs, and go on with the rest."""
        pending = self._in_flight[0]
        pending.deaths += not self._started
        if self._started or pending.deaths >= 2:
            self._in_flight.popleft()
            if pending.request is self._setup:
                self._setup = None
            pending.done(Unanswered(status, error))
        self._replace()

    def _replace(self) -> None:
        if self._child is not None and not self._child.kill():
            self._give_up("the driver does not let go of a hung process; this GPU needs a reset or a reboot")
            return
        self._child = None
        self._started = False
        self.restarts += 1
        if not self._closing.is_set() and (self._in_flight or self._setup):
            self._restart()

    def _restart(self) -> None:
        """Start a process, repeat the setup, and hand over again what was in flight."""
        error = ""
        for _ in range(MAX_START_FAILURES):
            hello = self._start()
            error = hello if isinstance(hello, str) else self._repeat_setup()
            if self._closing.is_set():
                return
            if not error:
                assert self._child is not None
                for pending in list(self._in_flight):
                    self._hand_over(self._child, pending)
                self._deadline = time.monotonic() + START_S
                return
            if self._child is not None:
                self._child.kill()
        self._give_up(f"the measuring process cannot be started: {error}")

    def _repeat_setup(self) -> str:
        """Set the new process up like the last one; return what went wrong."""
        assert self._child is not None
        if self._setup is None or any(pending.request is self._setup for pending in self._in_flight):
            return ""
        try:
            self._child.send(structs.replace(self._setup, reference_ns=self._reference_ns))
            self._deadline = time.monotonic() + measuring.SETUP_S
            while time.monotonic() < self._deadline and not self._closing.is_set():
                match self._child.receive(TICK_S):
                    case measuring.GpuTaken(what=what):
                        self._deadline = time.monotonic() + measuring.SETUP_S
                        self._tell_waiting(what)
                    case measuring.SetupDone():
                        return ""
                    case measuring.Failed(error=error):
                        return error
        except ChildDied as death:
            return f"it ended during its setup: {death.reason}"
        return "its setup takes too long"

    def _start(self) -> measuring.Hello | str:
        """Start a process; return its first message, or what went wrong."""
        try:
            self._child = Child(self._module, measuring.MEASURING, self._arguments)
            self._greet(self._child)
            self._deadline = time.monotonic() + START_S
            while time.monotonic() < self._deadline and not self._closing.is_set():
                match self._child.receive(TICK_S):
                    case measuring.Hello() as hello:
                        return hello
                    case measuring.Failed(error=refusal):
                        return refusal
        except OSError as error:
            return f"the measuring process cannot be started: {error}"
        except ChildDied as death:
            return f"the measuring process ended while starting: {death.reason}"
        return "the measuring process does not start"

    def _greet(self, child: MeasuringChild) -> None:
        """Say what a process waits for before its first message: nothing, unless it will be locked in."""
