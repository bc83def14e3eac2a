"""A process that does not know what is right, and the one that it asks, with host memory in place of a GPU's."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.gpu_process import test_verify
from tests.gpu_process.test_contents import FLOATS, Problem, X, Y
from tuner.children.measuring import Pace, Paced, Question
from tuner.core.model import Measurement, Status
from tuner.gpu import contents, outside, verify
from tuner.gpu.contents import FurtherContents, Referee
from tuner.gpu.outside import Outside
from tuner.runtime.launches import Buffer

host = test_verify.host


def right(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.abs(x)


class Known(Problem):
    """The session of the process that has the reference."""

    def __init__(self) -> None:
        super().__init__(np.abs, X, Y, numpy={"y": "abs(x)"})
        self.verifier.expect_of({"x": np.linspace(-1, 1, X.count)})
        self.check = self.verifier.check
        self.data.first = self._first

    def _first(self, tensor: Buffer) -> int:
        self.data.memory.allocate("first", 4 * X.count)
        self.data.memory.arrays["first"].view("float32")[:] = self.inputs[tensor.name]
        return int(self.data.memory.addresses["first"])


class LockedIn(Problem):
    """The session of the other one."""

    def __init__(self, kernel: Callable[..., Any], file: Path) -> None:
        super().__init__(kernel, X, Y)
        file.touch()
        os.truncate(file, X.size_bytes + Y.size_bytes)
        self.data.put = self._put
        self.verifier: Any = Outside(self.data, file, Referee(Known(), 3, file).answer)  # type: ignore[arg-type]

    def _put(self, tensor: Buffer, array: npt.NDArray[np.uint8]) -> None:
        self.inputs[tensor.name] = array.view("float32").astype(float)


@pytest.fixture(autouse=True)
def memory(host: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (outside, contents):
        monkeypatch.setattr(module, "cu", verify.cu)
        monkeypatch.setattr(module, "check", lambda result: result)


def test_outputs_are_compared_where_the_reference_is(tmp_path: Path) -> None:
    problem = LockedIn(right, tmp_path / "exchange")
    assert problem.verifier.draw().content == "the usual numbers"
    assert problem.inputs["x"] == pytest.approx(np.linspace(-1, 1, X.count), abs=1e-6)
    assert problem.first_run(problem, 0.0)[1].passed
    measurement, _ = problem.verify()
    assert measurement == Measurement(Status.OK, (1e3,), contents=dict.fromkeys(FLOATS, ""))
    problem.kernel = lambda x: np.where(x == x[0], np.abs(x), x)
    measurement, further = problem.verify()
    assert measurement.status is Status.WRONG_RESULT and measurement.error.startswith("with a large range of")
    assert isinstance(further, FurtherContents) and "expected" in measurement.error


def test_it_launches_as_often_as_it_is_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    graph = SimpleNamespace(launch=lambda: done.append("launch"), close=lambda: done.append("close"))
    monkeypatch.setattr(outside, "Graph", lambda _: graph)
    problem = LockedIn(right, tmp_path / "exchange")
    problem.data.helpers.context = SimpleNamespace(synchronize=lambda: done.append("wait"))
    batches = iter([Paced(3, 1), Paced(3, 2), Paced(3, 0)])

    def ask(question: Question) -> Paced:
        assert question == Pace(5e3)
        return next(batches)

    problem.verifier._ask = ask
    timed = SimpleNamespace(add_to=lambda _, copy: done.append(f"copy {copy}"))
    problem.verifier.pace(timed, 5e3)
    assert done == [*["copy 0"] * 3, "launch", "wait", "launch", "launch", "wait", "close"]


def test_a_file_that_was_cut_off_has_no_right_outputs(tmp_path: Path) -> None:
    file = tmp_path / "exchange"
    problem = LockedIn(right, file)
    problem.verifier.draw()
    assert problem.first_run(problem, 0.0)[1].passed
    answer = Referee(Known(), 3, file)  # type: ignore[arg-type]
    os.truncate(file, X.size_bytes + 4)
    assert not answer.answer(outside.Compare()).verification.passed  # type: ignore[union-attr]
