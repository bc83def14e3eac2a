"""What was submitted for a prepared problem: each submission is answered once, and equal sources are measured once."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field, fields, replace
from statistics import median

from msgspec import msgpack

from tuner.children.compilation import Compilation
from tuner.children.cubin import machine_code
from tuner.core.model import Configuration, Measurement, Problem, Resources, Status, Trial, digest
from tuner.core.stats import median_interval
from tuner.devices.base import Incumbent
from tuner.kernel.spec import KernelSpec

SHARED = [one.name for one in fields(Measurement) if one.name in {own.name for own in fields(Trial)}]
"""What a trial has of its measurement as it is."""
SourceKey = tuple[str, bytes]
"""What is compiled, as a digest, and how it is launched."""


@dataclass
class _EqualSources:
    """Configurations that compile to one machine code with the same launches."""

    waiting: list[Trial] = field(default_factory=list)
    measurement: Measurement | None = None
    configurations: set[Configuration] = field(default_factory=set)


def trial_of(number: int, configuration: Configuration, compilation: Compilation) -> Trial:
    """Return the trial of what was compiled and has not been measured, or will not be."""
    return Trial(
        number,
        configuration,
        compilation.status,
        resources=Resources.of(compilation.resources) if compilation.resources else None,
        error=compilation.error,
        sources=compilation.sources,
        implementation=compilation.implementation,
        compile_log=compilation.log,
        compile_s=compilation.compile_s,
    )


def measured(trial: Trial, measurement: Measurement) -> Trial:
    """Return a compiled trial with what was measured of it."""
    samples = measurement.samples_ns
    low, high = median_interval(samples) if len(samples) > 1 else (None, None)
    wrong = measurement.status in (Status.WRONG_RESULT, Status.WRONG_AFTER_TIMING)
    time_ns = median(samples) if samples and not wrong else None
    shared = {name: getattr(measurement, name) for name in SHARED}
    return replace(trial, time_ns=time_ns, ci_low_ns=low, ci_high_ns=high, **shared)


def source_key(compilation: Compilation) -> SourceKey:
    """Return what is equal exactly when two candidates are: machine code, whatever its source, and launches."""
    codes = map(machine_code, compilation.cubins, compilation.entries)
    code = [*compilation.entries, *codes]
    if (call := compilation.call) is not None:
        code += [compilation.implementation, repr(sorted(call.numbers.items())), repr(call.parameters)]
    return digest(code), msgpack.encode(compilation.plan)


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
        self._uncompiled: dict[int, tuple[Configuration, Incumbent]] = {}
        """By number, as long as they are not compiled."""
        self._answers: queue.SimpleQueue[Trial | None] = queue.SimpleQueue()
        """None only wakes the caller that waits for one, because something was compiled ahead."""
        self._equal: dict[SourceKey, _EqualSources] = {}
        self._lock = threading.Lock()

    def begin(self, number: int, configuration: Configuration, incumbent: Incumbent) -> None:
        """Note a submission, with what to compare it with when its turn comes."""
        self.pending += 1
        with self._lock:
            self._uncompiled[number] = configuration, incumbent

    def compiled(self, number: int) -> tuple[Configuration, Incumbent] | None:
        """Return what was noted of a submission that is compiled now; None if it is not wanted any more."""
        with self._lock:
            return self._uncompiled.pop(number, None)

    def drop(self) -> list[int]:
        """Drop what is not compiled, and return the numbers; these are not answered."""
        with self._lock:
            dropped, self._uncompiled = sorted(self._uncompiled), {}
        self.pending -= len(dropped)
        return dropped

    def answer(self, trial: Trial) -> None:
        """Answer a submission, once."""
        self._answers.put(trial)

    def wake(self) -> None:
        """Let :meth:`collect` return."""
        self._answers.put(None)

    def collect(self, timeout_s: float) -> list[Trial]:
        """Return what has been answered, waiting for the first answer at most so long."""
        trials: list[Trial] = []
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                wait = 0.0 if trials else max(0.0, deadline - time.monotonic())
                trial = self._answers.get(timeout=wait) if wait else self._answers.get_nowait()
            except queue.Empty:
                self.pending -= len(trials)
                return trials
            if trial is not None:
                trials.append(trial)
            else:
                deadline = 0.0

    def join(self, key: SourceKey, trial: Trial) -> bool:
        """Join the submissions with an equal source; return whether this one is to be measured now.

        A configuration that is submitted again is measured again; any other gets the answer that is there, or the one
        that is under way.
        """
        with self._lock:
            equal = self._equal.setdefault(key, _EqualSources())
            if trial.configuration in equal.configurations:
                equal.measurement = None
            equal.configurations.add(trial.configuration)
            measurement = equal.measurement
            if measurement is None:
                equal.waiting.append(trial)
            first = measurement is None and len(equal.waiting) == 1
        if measurement is not None:
            self.answer(measured(trial, measurement))
        return first

    def measured(self, key: SourceKey, measurement: Measurement) -> None:
        """Answer the submissions of a source; those that come later get the same without what it cost."""
        with self._lock:
            equal = self._equal[key]
            waiting, equal.waiting = equal.waiting, []
            equal.measurement = replace(measurement, measure_s=0.0, drifted=False)
        for trial in waiting:
            self.answer(measured(trial, measurement))

    def fail(self, trial: Trial, error: str) -> None:
        """Answer a submission that could not be handed on, with all that wait for its source, and forget the source."""
        waiting = [trial]
        with self._lock:
            for key, equal in list(self._equal.items()):
                if trial in equal.waiting:
                    waiting = self._equal.pop(key).waiting
        for one in waiting:
            self.answer(measured(one, Measurement(Status.INVALID_CONFIG, error=error)))
