"""What was submitted for a prepared problem: each submission is answered once, equal sources are measured once."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field, replace

from msgspec import msgpack

from tuner.devices.base import Outcome
from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration, Measurement, Problem, digest
from tuner.protocol.compilation import Compilation

SourceKey = tuple[str, bytes]
"""What is compiled, as a digest, and how it is launched."""


@dataclass(frozen=True)
class Submission:
    """A configuration, compiled."""

    number: int
    configuration: Configuration
    compilation: Compilation


@dataclass
class _EqualSources:
    """Configurations that render to one source with the same launches."""

    waiting: list[Submission] = field(default_factory=list)
    measurement: Measurement | None = None
    configurations: set[Configuration] = field(default_factory=set)


def source_key(compilation: Compilation) -> SourceKey:
    """Return what is equal exactly when two candidates are the same."""
    return digest(list(compilation.sources)), msgpack.encode(compilation.plan)


class Submissions:
    """The submissions for a problem, from their compilations to their answers.

    A run that ends before its time leaves compilations and measurements under way. They go on with the submissions
    that they belong to: once another problem is prepared, nothing reads those answers.

    Args:
        kernel: what computes.
        problem: what is computed.
    """

    def __init__(self, kernel: KernelSpec, problem: Problem) -> None:
        self.kernel, self.problem = kernel, problem
        self.pending = 0
        """Submissions whose answer was not collected yet."""
        self._answers: queue.SimpleQueue[Outcome | None] = queue.SimpleQueue()
        """None only wakes the caller that waits for one, because something was prefetched."""
        self._equal: dict[SourceKey, _EqualSources] = {}
        self._lock = threading.Lock()

    def answer(self, submission: Submission, measurement: Measurement) -> None:
        """Give the one answer to a submission."""
        self._answers.put(
            Outcome(submission.number, submission.configuration, submission.compilation, measurement)
        )

    def wake(self) -> None:
        """Let :meth:`collect` return."""
        self._answers.put(None)

    def collect(self, timeout_s: float) -> list[Outcome]:
        """Return what has been answered, waiting for the first answer at most so long."""
        outcomes: list[Outcome] = []
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                wait = 0.0 if outcomes else max(0.0, deadline - time.monotonic())
                outcome = self._answers.get(timeout=wait) if wait else self._answers.get_nowait()
            except queue.Empty:
                self.pending -= len(outcomes)
                return outcomes
            if outcome is not None:
                outcomes.append(outcome)
            else:
                deadline = 0.0

    def join(self, key: SourceKey, submission: Submission) -> bool:
        """Join the submissions with an equal source; returns whether this one is to be measured now.

        A configuration that is submitted again is measured again; any other gets the answer that is there, or the one
        that is under way.
        """
        with self._lock:
            equal = self._equal.setdefault(key, _EqualSources())
            if submission.configuration in equal.configurations:
                equal.measurement = None
            equal.configurations.add(submission.configuration)
            known = equal.measurement
            if known is None:
                equal.waiting.append(submission)
            first = known is None and len(equal.waiting) == 1
        if known is not None:
            self.answer(submission, known)
        return first

    def measured(self, key: SourceKey, measurement: Measurement) -> None:
        """Answer the submissions of a source; those that come later get the same without what it cost."""
        with self._lock:
            equal = self._equal[key]
            waiting, equal.waiting = equal.waiting, []
            equal.measurement = replace(measurement, measure_s=0.0, drifted=False)
        for submission in waiting:
            self.answer(submission, measurement)

    def fail(self, submission: Submission, measurement: Measurement) -> None:
        """Answer a submission that could not be handed on, and forget the source that it waited for."""
        with self._lock:
            self._equal = {
                key: equal
                for key, equal in self._equal.items()
                if all(waiting.number != submission.number for waiting in equal.waiting)
            }
        self.answer(submission, measurement)
