"""A session whose candidate takes the times that a test says, for tests of how candidates are measured."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.core.conditions import Conditions, Mode
from tuner.core.model import Measurement, Verification
from tuner.gpu import measure as measure_module
from tuner.gpu.candidate import Region, Timed
from tuner.gpu.measure import CandidateMeasurement
from tuner.gpu.timing import ClockMismatchError, Samples, group_size
from tuner.kernel.batching import Batch, Limits
from tuner.runtime.launches import Buffer

US = 1e3
RIGHT = Verification(True)
WRONG = Verification(False, message="y[0] is 2, expected 1")
UNKNOWN = Verification(False, checked=False, message="no reference")
GROUP = 16
"""Samples of a group of a short kernel."""


class Graph:
    def __init__(self, samples: int, calls: int, fresh: Sequence[bool] = ()) -> None:
        self.samples, self.calls, self.fresh = samples, calls, fresh
        self.before_ns = 0.0
        self.closed = False

    def close(self) -> None:
        assert not self.closed
        self.closed = True


class Kernel(Timed):
    """A candidate, and what it says of memory that it must leave as it is."""

    def __init__(self, keeps: str = "") -> None:
        self.regions = [Region("scratch sums", 64, 8), Region("scratch keep", 128, 8)]
        self._keeps = keeps
        self.launches = 1

    def keeps(self) -> str:
        return self._keeps

    def add_to(self, graph: object, copy: int) -> None: ...

    def close(self) -> None: ...


class Overwritten:
    """What is appended before a sample: the addresses that are overwritten, and ``shared``."""

    def __init__(self) -> None:
        self.what: set[object] = set()

    def memset(self, address: int, byte: int, size_bytes: int) -> None:
        self.what.add(address)

    def kernel(self, kernel: object) -> None:
        self.what.add(kernel)


class Bench:
    """A session whose candidate takes the times that a function gives for each sample, and what passes meanwhile.

    Where ``leans_on`` is overwritten before a sample, it takes ten times as long, and where it ``scatters`` then
    sometimes a hundred times. One that is ``patient`` takes as long everywhere in such a group.
    """

    def __init__(
        self,
        time_of: Callable[[int], float],
        first_ns: float = 0.0,
        calls: int = 1,
        floor_ns: float = 0.0,
        first: Verification = RIGHT,
        after: Verification = RIGHT,
        leans_on: object = None,
        *,
        poisoned: Verification = RIGHT,
        scatters: bool = False,
        patient: bool = False,
    ) -> None:
        self.time_of, self.first_ns = time_of, first_ns or time_of(0)
        self.conditions = Conditions(Mode.COLD if calls == 1 else Mode.ROTATING)
        self.batch = Batch(calls, calls, length_ns=1e12)
        self.limits = Limits(floor_ns, 0.0, 0.0)
        self.first, self.after, self.poisoned = first, after, poisoned
        self.leans_on, self.scatters, self.patient = leans_on, scatters, patient
        self.data = SimpleNamespace(
            copies=1,
            flush_bytes=1 << 20,
            tensors=[Buffer("y", (4,), "float32", "output")],
            address=lambda name, copy: 32,
            memory=SimpleNamespace(addresses={"flush": 16}),
            helpers=SimpleNamespace(fill_shared=lambda words: "shared" if words else "no words"),
        )
        self.now = 0.0
        self.graphs: list[Graph] = []
        self.groups: list[Samples] = []
        self.checks: list[str] = []
        self.broken = False
        self._number = itertools.count()

    def size(self, estimate_ns: float) -> int:
        return group_size(estimate_ns, self.conditions, self.batch, heavy=False)

    def graph(self, timed: Any, samples: int, estimate_ns: float) -> Graph:
        self.graphs.append(Graph(samples, self.batch.calls_for(estimate_ns)))
        return self.graphs[-1]

    def cold_graph(self, timed: Any, samples: int, before: Callable[[Any, int], int]) -> Graph:
        fresh = []
        for number in range(samples):
            overwritten = Overwritten()
            assert before(overwritten, number) == 0
            fresh.append(self.leans_on in overwritten.what)
        self.graphs.append(Graph(samples, 1, fresh))
        return self.graphs[-1]

    def take(self, graph: Graph, estimate_ns: float) -> Samples:
        assert not graph.closed
        if graph.fresh:
            scatter = itertools.cycle([100.0, 10.0] if self.scatters else [10.0])
            fresh = [one or self.patient for one in graph.fresh]
            return Samples([estimate_ns * (next(scatter) if one else 1.0) for one in fresh])
        if self.broken:
            raise ClockMismatchError("events add up to more")
        times = [self.time_of(next(self._number)) for _ in range(graph.samples)]
        self.now += 1e-9 * graph.calls * sum(times)
        capped = len(times) if len(self.groups) == 0 else 0
        tags = {"power_cap"} if capped else set()
        self.groups.append(Samples(times, tags, capped, [1.8e9 if capped else 1.9e9]))
        return self.groups[-1]

    def first_run(self, timed: Any, known_ns: float) -> tuple[float, Verification]:
        self.checks.append("before")
        return self.first_ns, self.first

    def with_other_poisons(self, timed: Any, known_ns: float) -> Verification:
        return self.poisoned

    def check(self, copy: int) -> Verification:
        return RIGHT

    def check_after(self, timed: Any, calls: int) -> Verification:
        assert all(graph.closed for graph in self.graphs)
        self.checks.append("after")
        return self.after

    def monotonic(self) -> float:
        return self.now


def steady(time_ns: float) -> Callable[[int], float]:
    """Samples whose median is known well enough at once."""
    return lambda number: time_ns * (1.0001 if number % 2 else 0.9999)


def noisy(time_ns: float, share: float = 0.02) -> Callable[[int], float]:
    return lambda number: time_ns * (1.0 + share if number % 2 else 1.0 - share)


KERNEL = Kernel()


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Measurement]:
    def run(
        bench: Any,
        incumbent_ns: float = 0.0,
        *,
        thorough: bool = False,
        verify_only: bool = False,
        idle: Sequence[bool] = (),
        kernel: Kernel = KERNEL,
    ) -> Measurement:
        monkeypatch.setattr(measure_module, "time", bench)
        answers = iter(idle)
        bench.measurement = CandidateMeasurement(bench, lambda: next(answers, False))
        found = bench.measurement.measure(kernel, incumbent_ns, thorough=thorough, verify_only=verify_only)
        assert all(graph.closed for graph in bench.graphs)
        return found  # type: ignore[no-any-return]

    return run


Measured = Callable[..., Measurement]
