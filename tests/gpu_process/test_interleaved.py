"""Several in turn: what fails when a baseline damages memory, and what in-place kernels leave after a timed call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partialmethod
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.core.conditions import Conditions, Mode, Regime
from tuner.core.model import Verification
from tuner.gpu import problem as problem_module
from tuner.gpu.beside import Load
from tuner.gpu.candidate import Timed
from tuner.gpu.measure import ContestantFailed, InterleavedTiming, TimedContestant
from tuner.gpu.problem import ProblemSession
from tuner.gpu.timing import Samples
from tuner.kernel.batching import Batch, Limits


class Kernel(Timed):
    """Something to time; it may change an input, or have a wrong result.

    That may be only where memory holds a byte before, or beside other work.
    """

    def __init__(
        self, *, damages: bool = False, wrong: bool = False, leaves: int = -1, loses: Load | None = None
    ) -> None:
        self.damages, self.wrong, self.leaves, self.loses = damages, wrong, leaves, loses
        self.strays = False
        self.delivered: list[int] = []

    def deliver(self, copy: int) -> None:
        self.delivered.append(copy)

    def add_to(self, graph: object, copy: int) -> None: ...

    def close(self) -> None: ...


class Memory:
    """The problem's memory: whether it is damaged, how often an output was updated, and by which kernel last.

    What it held before a run is ``poison``.
    """

    def __init__(self, role: str) -> None:
        self.tensors = [SimpleNamespace(role=role, name="y", size_bytes=4)]
        self.copies = 1
        other_work = SimpleNamespace(during=lambda load, estimate_ns: load)
        self.helpers = SimpleNamespace(fill_shared=lambda words: None, other_work=other_work)
        self.damaged, self.beside = False, None
        self.updates, self.poison = 0, 0xFF
        self.last = Kernel()

    def strays(self, byte: int) -> bool:
        return self.last.strays

    def damage(self) -> str:
        return "changed an input" if self.damaged else ""

    def run(self, kernel: Kernel) -> None:
        self.updates += 1
        self.damaged |= kernel.damages
        self.last = kernel

    def check(self, copy: int) -> Verification:
        left = self.last.leaves == self.poison
        lost = self.beside is not None and self.last.loses is self.beside
        right = self.updates == 1 and not self.last.wrong and not left and not lost
        return Verification(right, message=f"{self.updates} updates")


class Timer:
    def __init__(self) -> None:
        self.gaps_ns: list[tuple[bool, float]] = []
        """Of each group: whether it is of cold samples whatever the mode, and what a sample takes besides its calls."""

    def group(self, graph: Any, regime: Regime, gap_ns: float, *, heavy: bool) -> Samples:
        graph.data.updates = 0
        graph.data.run(graph.timed)
        self.gaps_ns.append((graph.cold, gap_ns))
        return Samples([1000.0] * graph.samples)

    def measure_gap(self, memory: Memory, stamps: Any, mode: Mode) -> float:
        return 6e4 if mode is Mode.COLD else 500.0


def session_with(memory: Memory, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> ProblemSession:
    def run_once(data: Memory, timed: Kernel, graph: None, poison: int, beside: Any) -> float:
        data.updates, data.poison, data.beside = 0, poison, beside
        data.run(timed)
        return 1000.0

    def graph(_: ProblemSession, timed: Kernel, samples: int, *before: object, cold: bool = False) -> Any:
        made = SimpleNamespace(data=memory, timed=timed, samples=samples, calls=1, cold=cold)
        made.close = lambda: None
        return made

    monkeypatch.setattr(problem_module, "run_once", run_once)
    verifier: Any = SimpleNamespace(possible=True, rough=(), host_s=0.0, check=memory.check)
    data: Any = memory
    timer: Any = Timer()
    stamps: Any = None
    conditions = Conditions(mode, Regime.RESTED)
    monkeypatch.setattr(ProblemSession, "graph", graph)
    monkeypatch.setattr(ProblemSession, "cold_graph", partialmethod(graph, cold=True))
    return ProblemSession(
        data, verifier, stamps, timer, Limits(0, 0, 0), conditions, Batch(1, 1), 0.0, lambda seconds: None
    )


def contestants(kernels: Sequence[Any], required: Sequence[bool]) -> list[TimedContestant]:
    return [
        TimedContestant(kernel, 1000.0, required=one) for kernel, one in zip(kernels, required, strict=True)
    ]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_only_what_damages_memory_is_named(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory("output")
    interleaved = InterleavedTiming(session_with(memory, Mode.COLD, monkeypatch))
    kernels = [Kernel(damages=i == place) for i in range(3)]
    with pytest.raises(ContestantFailed, match="the kernel changed an input"):
        interleaved.run(contestants(kernels, [i != place for i in range(3)]), 3, 4, 0)
    assert interleaved.current == place


def test_a_baseline_may_be_wrong_and_a_configuration_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    interleaved = InterleavedTiming(session_with(Memory("output"), Mode.COLD, monkeypatch))
    outcome = interleaved.run(contestants([Kernel(), Kernel(wrong=True)], [True, False]), 3, 4, 0)
    assert outcome.verified == (True, False)
    with pytest.raises(ContestantFailed):
        interleaved.run(contestants([Kernel(), Kernel(wrong=True)], [True, True]), 3, 4, 0)
    assert interleaved.current == 1


@pytest.mark.parametrize("byte", [0xFF, 0x7B, 0xFB, 0x00])
def test_what_is_wrong_with_one_content_of_memory_before_is_wrong(
    byte: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever that is: what is left unwritten may be right by chance with any of them."""
    session = session_with(Memory("output"), Mode.COLD, monkeypatch)
    assert session.with_other_poisons(Kernel(), 0.0).passed
    interleaved = InterleavedTiming(session)
    outcome = interleaved.run(contestants([Kernel(), Kernel(leaves=byte)], [True, False]), 3, 4, 0)
    assert outcome.verified == (True, False)
    said = "" if byte == 0xFF else f"where memory holds 0x{byte:02X} before: "
    with pytest.raises(ContestantFailed, match=f"^{said}1 updates"):
        interleaved.run(contestants([Kernel(leaves=byte)], [True]), 3, 4, 0)


@pytest.mark.parametrize("load", Load)
def test_what_is_wrong_beside_other_work_alone_is_a_race(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    interleaved = InterleavedTiming(session_with(Memory("output"), Mode.COLD, monkeypatch))
    outcome = interleaved.run(contestants([Kernel(), Kernel(loses=load)], [True, False]), 3, 4, 0)
    assert outcome.verified == (True, False)
    with pytest.raises(ContestantFailed, match=f"^while {load.value} .*a race.*: 1 updates"):
        interleaved.run(contestants([Kernel(loses=load)], [True]), 3, 4, 0)


def test_a_run_that_writes_to_another_copy_of_the_tensors_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would do the work of a later call, which has equal inputs."""
    session, kernel = session_with(Memory("output"), Mode.ROTATING, monkeypatch), Kernel()
    assert session.first_run(kernel, 0.0)[1].passed
    kernel.strays = True
    _, said = session.first_run(kernel, 0.0)
    assert said.checked and not said.passed and "another copy" in said.message


def test_a_race_in_another_mode_verifies_what_its_own_calls_have_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Warm calls use the first copy of the tensors, however many there are for the mode of the search."""
    memory = Memory("output")
    memory.copies, memory.updates = 4, 1
    checked: list[int] = []

    def check(copy: int) -> Verification:
        checked.append(copy)
        return Verification(True)

    memory.check = check  # type: ignore[method-assign]
    rotating = session_with(memory, Mode.ROTATING, monkeypatch)
    warm = rotating.in_mode(Mode.WARM, Batch(8, 1))
    kernel: Any = Kernel()
    for _ in range(40):
        assert rotating.check_after(kernel, 8).passed
    assert checked == kernel.delivered
    assert {*checked} == {0, 1, 2, 3} and min(checked.count(0), checked.count(3)) == 40, (
        "one between may be any"
    )
    checked.clear()
    assert warm.check_after(kernel, 8).passed and checked == [0]
    assert (warm.conditions.mode, warm.gap_ns, warm.batch.calls) == (Mode.WARM, 500.0, 8)
    assert rotating.conditions.mode is Mode.ROTATING


def test_a_warm_race_knows_how_long_the_flush_of_its_cold_samples_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the flush is taken for another program's work, and no group passes."""
    session = session_with(Memory("output"), Mode.ROTATING, monkeypatch).in_mode(Mode.WARM, Batch(8, 1))
    InterleavedTiming(session).run(contestants([Kernel()], [True]), 3, 4, 0)
    timer: Any = session.timer
    assert set(timer.gaps_ns) == {(True, 6e4), (False, 500.0)}


@pytest.mark.parametrize("role", ["inout", "destroyed"])
def test_a_call_that_warms_the_caches_updates_in_place_too(
    role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warm sample is a call and, behind the first event, those that are timed: of a long kernel one."""
    for mode in (Mode.WARM, Mode.COLD):
        memory = Memory(role)
        session = session_with(memory, mode, monkeypatch)
        kernel: Any = Kernel()
        memory.updates = 2 if mode is Mode.WARM else 1
        assert session.check_after(kernel, 1).passed
