"""A measuring process's side of the pipe: requests are read while the GPU works, and answers to its own questions."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time

import msgspec

from tuner.children.measuring import (
    MEASURING,
    Compared,
    Deadline,
    Drawn,
    GpuTaken,
    Heard,
    LockIn,
    MeasuringReply,
    MeasuringRequest,
    Paced,
    Question,
    Told,
)
from tuner.core.processes import ParentPipe


class Conversation:
    """What this process says to the head, and is told."""

    def __init__(self) -> None:
        self._pipe: ParentPipe[Heard, MeasuringReply] = ParentPipe(MEASURING)
        self._requests: queue.SimpleQueue[MeasuringRequest | None] = queue.SimpleQueue()
        self._told: queue.SimpleQueue[Told | None] = queue.SimpleQueue()
        self.send = self._pipe.send
        self.idle = self._requests.empty
        """Whether no request waits."""
        self.next = self._requests.get
        """Return the next request; None when the head is gone."""

    def lock(self) -> LockIn | None:
        """Wait until it is said into what this process is locked; None when the head is gone."""
        said = self._pipe.receive()
        return said if isinstance(said, LockIn) else None

    def begin(self) -> None:
        """Read from now on."""
        threading.Thread(target=self._read, daemon=True).start()

    def set_deadline(self, seconds: float) -> None:
        """Say how long the next step may take."""
        self.send(Deadline(seconds))

    def say_taken(self, what: str) -> None:
        """Say that another process has the GPU."""
        self.send(GpuTaken(what))

    def ask(self, question: Question) -> Told:
        """Return what the head has told."""
        self.send(question)
        told = self._told.get()
        if told is None:
            os._exit(0)
        return told

    def _read(self) -> None:
        """Empty the pipe at once, so that the guard never blocks on it, and decode while the GPU works."""
        while True:
            message: Heard | None
            try:
                message = self._pipe.receive()
            except msgspec.DecodeError as error:
                sys.stderr.write(f"malformed request: {error}\n")
                message = None
            if isinstance(message, Compared | Drawn | Paced):
                self._told.put(message)
                continue
            self._requests.put(None if isinstance(message, LockIn) else message)
            if message is None:
                self._told.put(None)
                time.sleep(2.0)  # the tuner is gone; a hung kernel must not keep this process
                os._exit(0)
