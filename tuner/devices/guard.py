"""Keeps a measuring process alive: kills it when a step takes too long, starts a new one when it died.

Everything runs in one long-lived thread, because Linux ties a child's life to the thread that created it.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tuner.conditions import Regime
from tuner.errors import DeviceError
from tuner.model import Status
from tuner.processes import Child, ChildDied

START_S = 120.0
"""Allowed for a new process up to its first word: a context takes half a second, but a cold disk may not."""
SETUP_S = 600.0
"""Allowed for repeating the setup: the reference of a large problem takes its time."""
GRACE_S = 1.0
TICK_S = 0.02
IN_FLIGHT = 2
"""Requests that the process holds: one it works on, one so that it never waits for the next."""
MAX_START_FAILURES = 3
DRIFT = 0.02
"""By how much the reference kernel may differ in a new process: as much as the measuring process (``tuner.gpu.drift``)
allows from one of its own looks to the next."""


@dataclass
class _Job:
    request: dict[str, Any]
    done: Callable[[dict[str, Any]], None]
    lost: int = 0
    """How often a process ended that had not begun with it, though it was the next."""


@dataclass
class _State:
    in_flight: deque[_Job] = field(default_factory=deque)
    started: bool = False
    """Whether the process has begun with the first one in flight."""
    deadline: float = float("inf")


class Guard:
    """Owns one measuring process at a time.

    Args:
        module: Python module of the process.
        arguments: its arguments.
    """

    def __init__(self, module: str, arguments: list[str]) -> None:
        self._module = module
        self._arguments = arguments
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._state = _State()
        self._setup: dict[str, Any] | None = None
        """The last, unless it failed; repeated in a new process."""
        self._reference_ns: float | None = None
        """What the reference kernel took when a process last spoke of it."""
        self._drifted = False
        """Whether it takes another time since a restart, which no reply has said yet."""
        self._child: Child | None = None
        self._hello: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._next_id = 0
        self.restarts = 0
        """How often the process had to be replaced."""
        self._thread = threading.Thread(target=self._serve, daemon=True, name="guard")
        self._thread.start()

    def hello(self) -> dict[str, Any]:
        """Wait for the process's first word.

        Raises:
            DeviceError: it has no GPU to offer.
        """
        word = self._hello.get()
        if "error" in word:
            raise DeviceError(word["error"])
        return word

    def submit(self, request: dict[str, Any], done: Callable[[dict[str, Any]], None]) -> None:
        """Queue a request; ``done`` is called from the guard's thread with the reply.

        A reply that the process could not give has ``failed`` (a status) and ``error``.
        """
        self._jobs.put(_Job(request, done))

    def call(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its reply."""
        reply: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.submit(request, reply.put)
        return reply.get()

    def close(self) -> None:
        """Kill the process and end the thread."""
        self._closing.set()
        self._jobs.put(None)
        self._thread.join(timeout=15)

    # -- in the thread --------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            self._hello.put(self._start())
            while not self._closing.is_set():
                self._fill()
                if self._state.in_flight:
                    self._listen()
        except Exception as error:  # noqa: BLE001 - whoever waits for an answer would wait for ever
            problem = f"the guard of the measuring process failed: {error!r}"
            self._hello.put({"error": problem})
            self._give_up(problem)
        finally:
            if self._child is not None:
                self._child.kill()

    def _fill(self) -> None:
        """Hand over waiting jobs; block only when there is nothing else to do."""
        state = self._state
        while len(state.in_flight) < IN_FLIGHT and not self._closing.is_set():
            try:
                job = self._jobs.get(block=not state.in_flight)
            except queue.Empty:
                return
            if job is None:
                return
            # A setup is remembered and repeated after a restart, so it must not overtake what is still running.
            self._next_id += 1
            job.request["id"] = self._next_id
            state.in_flight.append(job)
            if len(state.in_flight) == 1:
                state.deadline = time.monotonic() + START_S
            self._send(job)

    def _send(self, job: _Job) -> None:
        if job.request["do"] == "setup":
            self._setup = job.request
        if self._child is None:
            self._restart()
            return
        with contextlib.suppress(ChildDied):  # listening will notice, after reading what it still said
            self._child.send(job.request)

    def _listen(self) -> None:
        state = self._state
        assert self._child is not None
        try:
            message = self._child.receive(TICK_S)
        except ChildDied as death:
            self._bury(Status.WORKER_DIED, f"the measuring process ended: {death.reason}")
            return
        if message is None:
            if time.monotonic() > state.deadline:
                self._bury(Status.HANG, "no answer within the time allowed; the process was killed")
            return
        if "started" in message:
            state.started = True
            state.deadline = time.monotonic() + START_S
        elif "allow_s" in message:
            state.deadline = time.monotonic() + message["allow_s"] + GRACE_S
        else:
            job = state.in_flight.popleft()
            state.started, state.deadline = False, time.monotonic() + START_S
            if job.request["do"] == "setup":
                self._note_setup(job.request, message)
            elif "measurement" in message:
                self._note_drift(message)
            job.done(message)
            if message.get("dying"):
                self._replace()

    def _note_setup(self, request: dict[str, Any], reply: dict[str, Any]) -> None:
        """Forget a setup that failed: repeating it would fail again, and end this guard for all problems to come."""
        if "error" in reply and request is self._setup:
            self._setup = None
        self._reference_ns, self._drifted = reply.get("reference_ns"), False

    def _note_drift(self, reply: dict[str, Any]) -> None:
        """Say in a reply what was seen at a restart before it; only in one for which something was timed."""
        measurement = reply["measurement"]
        if measurement.get("drifted"):  # the process goes on with another reference, which only it knows
            self._reference_ns, self._drifted = None, False
        elif self._drifted and reply.get("span"):
            measurement["drifted"], self._drifted = True, False
        self._reference_ns = reply.get("reference_ns", self._reference_ns)

    def _bury(self, status: Status, error: str) -> None:
        """The process is gone or hangs: answer for the request it worked on, and go on with the rest."""
        state = self._state
        job = state.in_flight[0]
        job.lost += not state.started
        if state.started or job.lost >= 2:
            state.in_flight.popleft()
            if job.request is self._setup:
                self._setup = None
            job.done({"failed": status, "error": error})
        self._replace()

    def _replace(self) -> None:
        if self._child is not None and not self._child.kill():
            self._give_up("the driver does not let go of a hung process; this GPU needs a reset or a reboot")
            return
        self._child = None
        self._state.started = False
        self.restarts += 1
        if not self._closing.is_set() and (self._state.in_flight or self._setup):
            self._restart()

    def _restart(self) -> None:
        """Start a process, repeat the setup, and hand over again what was in flight."""
        error = ""
        for _ in range(MAX_START_FAILURES):
            error = self._start().get("error", "") or self._repeat_setup()
            if self._closing.is_set():
                return
            if not error:
                assert self._child is not None
                for job in self._state.in_flight:
                    with contextlib.suppress(ChildDied):
                        self._child.send(job.request)
                self._state.deadline = time.monotonic() + START_S
                return
            if self._child is not None:
                self._child.kill()
        self._give_up(f"the measuring process cannot be started: {error}")

    def _repeat_setup(self) -> str:
        """Set the new process up like the last one; give what went wrong."""
        assert self._child is not None
        if self._setup is None or any(job.request is self._setup for job in self._state.in_flight):
            return ""
        try:
            self._child.send(self._setup)
            deadline = time.monotonic() + SETUP_S
            while time.monotonic() < deadline and not self._closing.is_set():
                message = self._child.receive(TICK_S)
                if message is not None and "id" in message:
                    self._compare(message.get("reference_ns"))
                    return str(message.get("error", ""))
        except ChildDied as death:
            return f"it ended during its setup: {death.reason}"
        return "its setup takes too long"

    def _compare(self, reference_ns: float | None) -> None:
        """Find out whether the GPU is another than before the restart: a new process cannot know that."""
        before, self._reference_ns = self._reference_ns, reference_ns or self._reference_ns
        # In the sustained regime the process does not look either: there the GPU warms up on purpose.
        rested = self._setup is not None and self._setup.get("regime") != Regime.SUSTAINED
        if rested and before and reference_ns and abs(reference_ns / before - 1.0) > DRIFT:
            self._drifted = True

    def _start(self) -> dict[str, Any]:
        try:
            self._child = Child(self._module, self._arguments)
        except OSError as error:
            return {"error": f"the measuring process cannot be started: {error}"}
        deadline = time.monotonic() + START_S
        try:
            while time.monotonic() < deadline and not self._closing.is_set():
                word = self._child.receive(TICK_S)
                if word is not None:
                    return word
        except ChildDied as death:
            return {"error": f"the measuring process ended while starting: {death.reason}"}
        return {"error": "the measuring process does not start"}

    def _give_up(self, error: str) -> None:
        """Answer everything, now and later, with the same bad news."""
        failed = {"failed": Status.WORKER_DIED, "error": error, "fatal": True}
        while self._state.in_flight:
            self._state.in_flight.popleft().done(failed)
        while not self._closing.is_set():
            job = self._jobs.get()
            if job is None:
                return
            job.done(failed)
