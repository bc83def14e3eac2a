"""What a function keeps between launches in memory of its own shows where its inputs are others."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.gpu_process.test_verify import HostMemory
from tuner.core.conditions import Conditions, Mode
from tuner.core.model import Verification
from tuner.gpu import candidate
from tuner.gpu.freshness import Freshness
from tuner.gpu.memory import GUARD_BYTES
from tuner.gpu.timing import Samples
from tuner.runtime.launches import Buffer

LARGE = Buffer("x", (3001,), "float32", "input"), Buffer("y", (3001,), "float32", "output")
SMALL = Buffer("x", (5,), "float16", "input"), Buffer("y", (5,), "float16", "output")
WIDE = Buffer("x", (1 << 18,), "float32", "input"), Buffer("y", (8,), "float32", "output")
MEANT = Buffer("x", (3001,), "int32", "input", init="index"), Buffer("y", (3001,), "int32", "output")
HIT_NS, MISS_NS = 5e3, 20e3


class Graph:
    """Does at once what is appended."""

    def kernel(self, _: object) -> None: ...

    def memset(self, address: int, byte: int, size_bytes: int) -> None:
        ctypes.memset(address, byte, size_bytes)

    def copy(self, to: int, source: int, size_bytes: int) -> None:
        ctypes.memmove(to, source, size_bytes)

    def close(self) -> None: ...


class Session:
    """A problem on the host, two copies of it."""

    def __init__(self, tensors: Sequence[Buffer]) -> None:
        self.conditions, memory = Conditions(mode=Mode.COLD), HostMemory()
        memory.allocate("flush", 1 << 16)
        self.times_ns: list[float] = []
        self.held = {}
        draw = np.random.default_rng(1)
        for tensor in tensors:
            held = draw.integers(0, 255, tensor.size_bytes, dtype=np.uint8)
            for copy in range(2):
                memory.allocate(f"{tensor.name}{copy}", tensor.size_bytes + GUARD_BYTES)
                self.held[tensor.name, copy] = memory.arrays[f"{tensor.name}{copy}"][: tensor.size_bytes]
                self.held[tensor.name, copy][:] = held
        self.data: Any = SimpleNamespace(
            tensors=tensors, memory=memory, given=None, copies=2, flush_bytes=1 << 16,
            address=lambda name, copy=0: memory.addresses[f"{name}{copy}"],
            helpers=SimpleNamespace(fill_shared=lambda words: None),
        )  # fmt: skip

    def size(self, _: float) -> int:
        return 15

    def cold_graph(self, timed: Any, samples: int, before: Callable[[Any, int], int]) -> Any:
        graph: Any = Graph()
        self.times_ns = [timed.run(before(graph, number)) for number in range(samples)]
        return graph

    def take(self, *_: object) -> Samples:
        return Samples(self.times_ns)

    def check(self, copy: int) -> Verification:
        assert all(np.array_equal(self.held["x", one], self.held["x", 0]) for one in range(2))
        return Verification(True)


class Keeps:
    """A function that keeps results of its last inputs, so many of them."""

    regions: Sequence[Any] = ()
    resets: Sequence[Any] = ()
    launches = 1

    def __init__(self, session: Session, most: int, *, foreign: bool = True) -> None:
        self.session, self.most, self.foreign = session, most, foreign
        self.kept: list[bytes] = []

    def run(self, copy: int) -> float:
        content = self.session.held["x", copy].tobytes()
        hit = content in self.kept
        self.kept = [*self.kept, content][-self.most :] if self.most else []
        return HIT_NS if hit else MISS_NS

    def keeps(self) -> str:
        return ""

    def deliver(self, copy: int) -> None: ...


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = SimpleNamespace(cuMemcpyDtoD=ctypes.memmove, cuCtxSynchronize=lambda: None)
    monkeypatch.setattr(candidate, "cu", copies)
    monkeypatch.setattr(candidate, "check", lambda result: result)


@pytest.mark.parametrize("tensors", [LARGE, WIDE])
@pytest.mark.parametrize("most", [1, 100])
def test_results_that_are_kept_for_equal_inputs(tensors: Sequence[Buffer], most: int) -> None:
    session: Any = Session(tensors)
    before = session.held["x", 0].copy()
    freshness, timed = Freshness(session), Keeps(session, most)
    objection = freshness.objection(timed, HIT_NS, freshness.compare(timed, HIT_NS))  # type: ignore[arg-type]
    assert objection.startswith("leans on what earlier launches left in")
    assert "for equal inputs" in objection and "20 us where nothing is left" in objection
    assert np.array_equal(session.held["x", 0], before)


@pytest.mark.parametrize(
    ("tensors", "most", "foreign"),
    [(LARGE, 0, True), (SMALL, 0, True), (MEANT, 100, True), (LARGE, 100, False)],
)
def test_what_keeps_nothing_what_inputs_mean_and_what_can_be_overwritten(
    tensors: Sequence[Buffer], most: int, foreign: bool
) -> None:
    session: Any = Session(tensors)
    freshness, timed = Freshness(session), Keeps(session, most, foreign=foreign)
    claimed_ns = HIT_NS if most else MISS_NS
    comparison = freshness.compare(timed, claimed_ns)  # type: ignore[arg-type]
    assert freshness.objection(timed, claimed_ns, comparison) == ""  # type: ignore[arg-type]
