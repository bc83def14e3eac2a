"""What is launched to time something, and in which unit the answer is, with a driver and tensors that take notes."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from tuner.core.conditions import Mode
from tuner.gpu import calibration, timing
from tuner.gpu.drift import VECTOR_ROUNDS
from tuner.gpu.timing import SampleGraph, run_once
from tuner.kernel.contents import OTHER_POISONS
from tuner.kernel.roofline import ARCHITECTURES


class Notes:
    """A graph and a candidate that say in which order things were added, launched and waited for."""

    def __init__(self, copies: int = 3) -> None:
        self.said: list[Any] = []
        self.graph, self.timed, self.data, self.stamps = MagicMock(), MagicMock(), MagicMock(), MagicMock()
        self.data.copies = copies
        self.graph.event = self._noting("event", result="an event")
        self.graph.kernel = lambda kernel: self.said.append(
            "flush" if kernel is self.data.flush else "kernel"
        )
        self.graph.launch = self._noting("launch")
        self.data.add_restore = self._noting("restore")
        self.data.poison = self._noting("poison")
        self.data.helpers.context.synchronize = self._noting("wait")
        self.timed.add_to = lambda graph, copy: self.said.append(copy)

    def _noting(self, what: str, result: Any = None) -> Any:
        def note(*_: Any) -> Any:
            self.said.append(what)
            return result

        return note


@pytest.fixture
def elapsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let half a millisecond pass between any two events."""
    monkeypatch.setattr(timing.cu, "cuEventElapsedTime", lambda start, end: (timing.cu.CUresult(0), 0.5))


@pytest.mark.usefixtures("elapsed")
def test_a_first_run_is_of_poisoned_outputs_and_told_in_nanoseconds() -> None:
    notes = Notes()
    assert run_once(notes.data, notes.timed, notes.graph) == pytest.approx(5e5)
    assert notes.said == ["poison", "restore", "event", 0, "event", "launch", "wait"]


@pytest.mark.usefixtures("elapsed")
@pytest.mark.parametrize("poison", OTHER_POISONS)
def test_shared_memory_holds_the_other_poisons_too_before_a_run(poison: int) -> None:
    """A kernel that takes it for zero is right behind its own runs alone."""
    notes = Notes()
    run_once(notes.data, notes.timed, notes.graph, poison)
    assert notes.said == ["poison", "restore", "kernel", "event", 0, "event", "launch", "wait"]
    notes.data.helpers.fill_shared.assert_called_once_with(words=True, byte=poison)


@pytest.mark.usefixtures("elapsed")
@pytest.mark.parametrize(
    ("mode", "calls", "sample"),
    [
        (Mode.COLD, 1, ["restore", "flush", "event", 0, "event"]),
        (Mode.ROTATING, 5, ["restore", "flush", "event", 0, 1, 2, 0, 1, "event"]),
        (Mode.WARM, 4, ["restore", 0, "event", 0, 0, 0, 0, "event"]),
    ],
)
def test_what_lies_before_and_between_the_events(mode: Mode, calls: int, sample: list[Any]) -> None:
    notes = Notes()
    group = SampleGraph(notes.data, notes.stamps, notes.timed, 2, mode, calls, notes.graph)
    assert notes.said == sample * 2
    assert group.read() == pytest.approx([5e5 / calls] * 2)


def test_rates_are_of_what_was_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel takes 0.1 ms; a thread of ``multiply_add`` does 128 operations a round."""
    gpu, helpers, ceilings = ARCHITECTURES[90], MagicMock(), MagicMock()
    monkeypatch.setattr(calibration, "ReferenceKernel", MagicMock())
    monkeypatch.setattr(calibration, "replace", lambda session, **_: session)
    session = MagicMock()
    session.data.copies = 1
    helpers.others.return_value = ceilings
    helpers.gpu, session.data.helpers = gpu, helpers
    calibrator = calibration.Calibrator(helpers, MagicMock(), MagicMock())
    floats = min(calibration.MEMORY_FLOATS, gpu.memory_bytes // 64)
    session.data.tensors[0].size_bytes = 4 * floats
    for name, answer in {"_session": session, "_time": 1e5, "_noise": [0.001], "_clock": 1.7e9}.items():
        monkeypatch.setattr(calibrator, name, lambda *_, answer=answer, **__: answer)
    found = calibrator.measure()
    (grid, block), (_, threads) = (
        next(call.args[1:3] for call in kernels.kernel.call_args_list if call.args[0] == name)
        for kernels, name in ((helpers, "multiply_add"), (ceilings, "matrix_rate"))
    )
    assert (grid, block, threads) == (8 * gpu.sm_count, 256, 256)
    assert found.vector_flops == pytest.approx(grid * block * 128 * VECTOR_ROUNDS / 1e-4)
    assert found.read_bytes_per_s == pytest.approx(4 * floats / 1e-4)
    assert found.copy_bytes_per_s == pytest.approx(8 * floats / 1e-4)
    assert found.event_ns == 1e5
    assert found.noise["cold, rested"] == max(calibration.LEAST_NOISE, 0.001)
    assert found.short_noise_ns["rotating"] == pytest.approx(1e5 * 0.001)
