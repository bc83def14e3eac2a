"""A searcher: tunes one problem after the other on one device, and sends every row to the head.

It is a process of its own (``python -m tuner.fleet.searcher``), with the head at the other end of its pipe.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import re
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from tuner.children.compile_pool import CompilePool
from tuner.children.limits import Slots, memory_limit
from tuner.children.nvrtc import nvrtc_version
from tuner.core.errors import (
    DatabaseError,
    DeviceError,
    Interrupted,
    RecordingError,
    TooInaccurateError,
    TunerError,
)
from tuner.core.model import Configuration
from tuner.core.observer import Observer
from tuner.core.processes import ParentPipe
from tuner.devices.base import Device
from tuner.devices.choose import gpu_number
from tuner.devices.guard import AWAITED
from tuner.devices.local import LocalDevice
from tuner.devices.started import Processes
from tuner.fleet import messages
from tuner.fleet.cards import BEAT_S
from tuner.fleet.remote import RemoteStore
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import load_kernel
from tuner.report.progress import heading, progress_line
from tuner.report.result_record import result_as_json
from tuner.report.summary import summary, why_nothing
from tuner.tuning.request import Request
from tuner.tuning.session import tune
from tuner.tuning.state import Result, State

PROGRESS_S = 0.2
"""From one progress message to the next."""


def open_for_searcher(message: messages.OpenDevice, say: Callable[[str], None]) -> Device:
    """Open what a head asks for.

    Args:
        message: the head's.
        say: told what the device says.

    Raises:
        TunerError: it cannot be opened.
    """
    if message.opener:
        module, _, name = message.opener.partition(":")
        opened: Device = getattr(importlib.import_module(module), name)(message, say)
        return opened
    version = nvrtc_version()  # said before anything is started
    index, pool = gpu_number(message.device), shared_pool(message)
    device = LocalDevice(Processes(index, None, message.cache, pool=pool), say, version)
    if message.facts is not None:
        device.notes, device.calibration = message.facts.notes, message.facts.calibration
    return device


def shared_pool(message: messages.OpenDevice) -> CompilePool:
    """Return a searcher's compilers, which take turns with those of the others."""
    compilers = message.compilers
    assert compilers is not None
    limit = memory_limit(compilers.jobs)
    slots = Slots(compilers.slots, compilers.jobs)
    return CompilePool(compilers.share, message.cache, memory_limit_bytes=limit, slots=slots)


Wire = ParentPipe[messages.ToSearcher, messages.FromSearcher]
"""The way to the head."""


class Conversation:
    """Sends messages from any thread, and passes on what the head says.

    Args:
        wire: the way to the head.
        on_end: called in the reading thread when the head is gone.
    """

    def __init__(self, wire: Wire, on_end: Callable[[], None] = lambda: os._exit(0)) -> None:
        self._wire, self._on_end = wire, on_end
        self._sending = threading.Lock()
        self._answers: queue.SimpleQueue[messages.Answered] = queue.SimpleQueue()
        self.work: queue.SimpleQueue[messages.OpenDevice | messages.Task | None] = queue.SimpleQueue()
        """The device to open, then tasks; None when nothing more will come."""
        self.stopped = threading.Event()
        self.search = threading.Event()
        self._ended = threading.Event()
        self.working: Callable[[], bool] = lambda: False
        """Whether the device works on a request, which the heartbeat says."""
        threading.Thread(target=self._listen, daemon=True, name="listen").start()
        threading.Thread(target=self._beat, daemon=True, name="beat").start()

    def say(self, message: messages.FromSearcher) -> None:
        """Send a message."""
        with self._sending:
            self._wire.send(message)

    def ask(self, message: messages.Calls) -> messages.Answered:
        """Send what is answered, and wait for the answer; an answer that comes twice counts once.

        Raises:
            DatabaseError: the head is gone.
        """
        self.say(message)
        while (answer := self._answers.get()) is not _GONE:
            if (answer.task, answer.key) == (message.task, message.key):
                return answer
        raise DatabaseError("the process that has the database is gone")

    def _beat(self) -> None:
        with suppress(OSError, ValueError):  # the head is gone: the listening thread ends this process
            while not self._ended.wait(BEAT_S):
                self.say(messages.Alive(self.working()))

    def _listen(self) -> None:
        with suppress(msgspec.DecodeError):
            while (message := self._wire.receive()) is not None:
                match message:
                    case messages.Answered():
                        self._answers.put(message)
                    case messages.BeginSearch():
                        self.search.set()
                    case messages.StopSearch():
                        self.stopped.set()
                        self.search.set()
                    case _:
                        self.work.put(message)
        self.stopped.set()
        self.search.set()
        self._ended.set()
        self._answers.put(_GONE)
        self.work.put(None)
        self._on_end()


_GONE = messages.Answered("", -1)
"""In place of an answer: none will come any more."""


class _Observer(Observer[State]):
    """Tells the head how far a run is, and has it wait for its turn before the first measurement."""

    def __init__(self, task: messages.Task, conversation: Conversation, device: Device) -> None:
        self._task, self._conversation, self._device = task, conversation, device
        self._said = 0.0

    def step(self, now: State, done: float | None = None) -> None:
        """Say how far the run is, now and then; before its first trial have it wait."""
        first = self.now is None
        super().step(now, done)
        if first:
            self._wait(now)
        elif time.monotonic() - self._said >= PROGRESS_S:
            self.phase("searching")

    def phase(self, what: str, steps: float = 0) -> None:  # noqa: ARG002 - the observer's signature
        """Say what begins."""
        if (state := self.now) is None:
            return
        self._said = time.monotonic()
        line = progress_line(state)
        self._conversation.say(messages.Progress(len(state.trials), state.budget, what, line))

    def _wait(self, state: State) -> None:
        """Begin to compile what is tried first, and wait until the device is this run's."""
        first: list[Configuration] = []
        if self._device.compilers and self._task.going_on is None:
            first = list(dict.fromkeys([state.space.default, *state.initial]))
        for configuration in first:
            self._device.compile(configuration)
        lines = tuple(heading(state, state.run.calibration.notes if state.run.calibration else ()))
        self._conversation.say(messages.Prepared(self._device.calibration, lines))
        self._conversation.search.wait()


def serve(conversation: Conversation) -> None:
    """Open the device that the head names, and tune what it gives out, until it says no more or the device fails."""

    def say(text: str) -> None:
        if not text.startswith(AWAITED) or not _is_sibling(text):
            conversation.say(messages.Said(text))

    opening = conversation.work.get()
    if not isinstance(opening, messages.OpenDevice):
        return
    try:
        device = open_for_searcher(opening, say)
    except TunerError as error:
        conversation.say(messages.DeviceFailed(error.problem, error.remedy))
        return
    with closing(device):
        conversation.working = lambda: device.working
        facts = messages.GpuFacts(tuple(device.notes), device.calibration)
        conversation.say(messages.DeviceReady(device.gpu, facts))
        while isinstance(task := conversation.work.get(), messages.Task):
            answer = _tuned(task, device, conversation)
            conversation.say(answer)
            if isinstance(answer, messages.TaskFailed) and answer.of_device:
                return


def _is_sibling(text: str) -> bool:
    """Return whether the process that a text names belongs to another searcher of this head."""
    match = re.search(r"process (\d+) ", text)
    return match is not None and _parent(_parent(int(match[1]))) == os.getppid()


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _tuned(task: messages.Task, device: Device, conversation: Conversation) -> messages.Ending:
    """Tune a problem, and say how that ended."""
    if not conversation.stopped.is_set():
        conversation.search.clear()
    try:
        store, observer = RemoteStore(task, conversation.ask), _Observer(task, conversation, device)
        result = tune(_request_of(task), device, store, observer, conversation.stopped.is_set)
    except Interrupted:
        return messages.TaskStopped()
    except TunerError as error:
        of_device = isinstance(error, DeviceError) and not isinstance(error, RecordingError)
        inaccurate = isinstance(error, TooInaccurateError)
        return messages.TaskFailed(error.problem, error.remedy, of_device, inaccurate)
    return done_of(result, Path(task.database), full=task.full)


def done_of(result: Result, database: Path, *, full: bool) -> messages.TaskDone:
    """Return what is said of a run that has ended.

    Args:
        result: of the run.
        database: where it is kept.
        full: whether the text names all parameters.
    """
    text, record = summary(result, database, full=full), json.dumps(result_as_json(result)).encode()
    nothing = why_nothing(result, database) if result.finish is None else ""
    return messages.TaskDone(result.state.run.id, text, record, nothing)


def _request_of(task: messages.Task) -> Request:
    """Return what a task asks for.

    Raises:
        TunerError: the kernel has changed since the head read it, or cannot be read.
    """
    kernel = load_kernel(str(task.kernel))
    if KernelIdentity(kernel).text != task.text:
        raise TunerError(f"{task.kernel} has changed since the tuner began", "start another run")
    return Request(kernel, task.problem, task.options, resume=task.going_on is not None)


def main() -> None:
    """Serve the process that has started this one."""
    pipe: Wire = ParentPipe(messages.SEARCHING)
    serve(Conversation(pipe))
    os._exit(0)  # threads of a device that failed may hang


if __name__ == "__main__":
    main()
