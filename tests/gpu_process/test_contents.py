"""A candidate on further contents of its inputs, with host memory in place of a GPU's and NumPy in place of kernels."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.gpu_process import test_verify
from tests.gpu_process.test_verify import Data
from tuner.children.measuring import ReferenceData
from tuner.core.model import Measurement, Status
from tuner.gpu import contents
from tuner.gpu.contents import FurtherContents
from tuner.gpu.verify import Verifier
from tuner.kernel.answers import Answers
from tuner.kernel.contents import CONTENTS_S, DRAWN
from tuner.kernel.given import Given
from tuner.runtime.driver import DriverFailure
from tuner.runtime.launches import Buffer

host = test_verify.host
Kernel = Callable[..., Any]
X, Y = Buffer("x", (500,), "float32", "input"), Buffer("y", (500,), "float32", "output")
WHOLE, J = Buffer("i", (500,), "int32", "input"), Buffer("j", (500,), "int32", "output")


class Problem:
    """A session whose candidate is a function of the inputs; the last content is drawn when it is there."""

    def __init__(self, kernel: Kernel, *tensors: Buffer, **reference: Any) -> None:
        self.kernel, self.inputs = kernel, dict[str, npt.NDArray[Any]]()
        self.deadlines: list[float] = []
        self.data: Any = Data(tensors)
        self.data.given = Given(tensors, {}, 3)  # of any problem; few have something that is given
        self.data.held = lambda names: {name: self.inputs[name] for name in names}
        self.data.refill = self.inputs.update
        self.data.seal = lambda: None
        self.data.address = lambda name, _copy=0: self.data.memory.allocate(name, 4000)
        self.data.element = lambda tensor, index, _copy: self._output(tensor)[index]
        self.data.download = lambda tensor, _name=None: self.inputs.get(tensor.name, np.ones(tensor.shape))
        self.verifier = Verifier(self.data, ReferenceData("float32", **reference))

    def set_deadline(self, seconds: float) -> None:
        self.deadlines.append(seconds)

    def _output(self, tensor: Buffer) -> npt.NDArray[Any]:
        return self.data.memory.arrays[tensor.name].view(tensor.dtype)[: tensor.count]

    def first_run(self, timed: Any, known_ns: float) -> Any:
        assert timed is self and known_ns == 0.0
        (tensor,) = self.data.outputs
        self.data.address(tensor.name)
        with np.errstate(all="ignore"):
            self._output(tensor)[:] = self.kernel(**self.inputs)
        return 1e3, self.verifier.check()

    def verify(self) -> tuple[Measurement, FurtherContents]:
        further = FurtherContents(self, 3)  # type: ignore[arg-type]
        return further.verify(self, Measurement(Status.OK, (1e3,))), further  # type: ignore[arg-type]


FLOATS = [
    "a large range of numbers", "equal numbers", "zeros", "negative numbers", "a few numbers among zeros",
    "numbers far below zero", "numbers near zero", "numbers far above zero", "numbers drawn after compiling",
]  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "content"),
    [
        (lambda x: np.where(np.abs(x) < 8, np.abs(x), 0), "a large range of numbers"),
        (lambda x: np.abs(x) if np.ptp(x) > 0 or not x[0] else 0 * x, "equal numbers"),
        (lambda x: x, "a large range of numbers"),
        (lambda x: np.abs(x) if x.any() else x + 1, "zeros"),
        (lambda x: np.abs(x) if (x > 0).any() or not x.any() else x, "equal numbers|negative numbers"),
    ],
)
def test_what_is_right_for_some_contents_alone_is_wrong_and_the_content_named(
    kernel: Kernel, content: str
) -> None:
    measurement, further = Problem(kernel, X, Y, numpy={"y": "abs(x)"}).verify()
    assert measurement.status is Status.WRONG_RESULT
    assert any(measurement.error.startswith(f"with {one}: y[") for one in content.split("|"))
    assert further.current in content.split("|")


def test_a_slow_reference_is_not_asked_for_contents_that_would_end_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = Problem(np.abs, X, Y, numpy={"y": "abs(x)"})
    problem.kernel = lambda x: np.abs(x)
    problem.verifier.host_s = 0.9 * CONTENTS_S  # what the first begins with: it may take less
    monkeypatch.setattr(contents, "FURTHER_S", 0.0)
    measurement, _ = problem.verify()
    assert measurement.status is Status.OK
    assert [name for name, why in measurement.contents.items() if not why] == FLOATS[:1]
    problem.verifier.host_s = 1.1 * CONTENTS_S
    measurement, _ = problem.verify()
    assert all("too slow" in measurement.contents[name] for name in FLOATS)


@pytest.mark.parametrize(
    ("numpy", "wanted", "count"), [({"y": "abs(x)"}, "y", 1), ({"y": "abs(x)"}, "", 0), ({}, "y", 0)]
)
def test_the_gpu_is_left_to_others_only_while_something_is_computed(
    numpy: dict[str, str], wanted: str, count: int
) -> None:
    """They may keep it for seconds."""
    times = list[int]()

    @contextmanager
    def released() -> Iterator[None]:
        times.append(1)
        yield

    of = ReferenceData("float32", numpy=numpy)
    Answers(None, released).of(of, (X, Y), {"x": np.zeros(X.shape)}, {}, list(wanted))
    assert len(times) == count


def test_integers_cover_their_dtype_and_a_reference_without_an_answer_is_no_error() -> None:
    measurement, _ = Problem(lambda i: i & 0xFFFF, WHOLE, J, numpy={"j": "i"}).verify()
    assert measurement.error.startswith("with integers of the whole range: j[")
    problem = Problem(lambda x: np.log(x), X, Y, numpy={"y": "log(x)"})
    measurement, _ = problem.verify()
    assert measurement.status is Status.OK
    assert "is not a number" in measurement.contents["negative numbers"]


def test_the_last_content_is_not_known_before() -> None:
    seen: list[Mapping[str, Any]] = []

    def kernel(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        seen.append({"x": x.copy()})
        return np.abs(x)

    for _ in range(2):
        Problem(kernel, X, Y, numpy={"y": "abs(x)"}).verify()
    count = len(FLOATS)
    same = [np.array_equal(a["x"], b["x"]) for a, b in zip(seen[:count], seen[count:], strict=True)]
    assert same == [True] * (count - 1) + [False]


def test_what_follows_from_an_input_has_the_numbers_of_each_content(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("def top(x): return x.max(keepdims=True)\ndef one(): return [1]\n")
    given = [
        Buffer(name, (1,), "float32", "input", "file", file=tmp_path / "f.py", function=name)
        for name in ("top", "one")
    ]
    problem = Problem(lambda x, top, one: x.max() - x + one, X, *given, Y, numpy={"y": "top - x + 1"})
    problem.data.given = Given(problem.data.tensors, {}, 3)
    problem.inputs["one"] = np.ones(1)
    measurement, _ = problem.verify()
    assert measurement == Measurement(Status.OK, (1e3,), contents=dict.fromkeys(FLOATS, ""))
    problem.kernel = lambda x, top, one: 0 * x + 1
    assert problem.verify()[0].error.startswith("with a large range of numbers: y[")


def test_a_failure_names_the_content_and_nothing_is_varied_that_means_something(tmp_path: Path) -> None:
    def fails(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if not x.any():
            raise DriverFailure(700, "CUDA_ERROR_ILLEGAL_ADDRESS")
        return np.abs(x)

    further = FurtherContents(Problem(fails, X, Y, numpy={"y": "abs(x)"}), 0)  # type: ignore[arg-type]
    with pytest.raises(DriverFailure) as caught:
        further.verify(further._session, Measurement(Status.OK))  # type: ignore[arg-type]
    assert further.named(str(caught.value)).startswith(
        "with zeros: CUDA_ERROR_ILLEGAL_ADDRESS (700); correct"
    )
    index = Buffer("x", (500,), "float32", "input", "index")
    measurement, _ = Problem(np.abs, index, Y, numpy={"y": "abs(x)"}).verify()
    assert measurement.contents == {"other inputs": "no input is random"}
    np.save(tmp_path / "y.npy", np.ones(500))
    golden = Problem(np.abs, X, Y, golden={"y": tmp_path / "y.npy"})
    assert golden.verify()[0].contents == {"other inputs": "golden files are of one content"}


def test_ends_that_a_sum_leaves_out_are_missed_among_zeros_however_many_numbers_there_are() -> None:
    """As many terms as there are numbers are allowed more than any of the usual ones is worth."""
    count = 2 * DRAWN + 100
    x, w = (Buffer(name, (count,), "float32", "input") for name in "xw")
    total = Buffer("y", (1,), "float32", "output")

    def dropped(first: int, last: int) -> Status:
        def kernel(x: npt.NDArray[Any], w: npt.NDArray[Any]) -> Any:
            kept = slice(first, count - last)
            return np.sum(np.resize(x, count)[kept] * np.resize(w, count)[kept])

        problem = Problem(
            kernel, x, w, total, numpy={"y": "sum(x * w, axis=0, keepdims=True)"}, reduction=count
        )
        further = FurtherContents(problem, 3)  # type: ignore[arg-type]
        return further.verify(problem, Measurement(Status.OK, (1e3,)), sparse=True).status  # type: ignore[arg-type]

    assert [dropped(0, 0), dropped(0, 236), dropped(40, 0)] == [
        Status.OK, Status.WRONG_RESULT, Status.WRONG_RESULT,
    ]  # fmt: skip


def test_a_problem_of_any_size_is_verified_on_few_numbers_that_are_repeated() -> None:
    """A fast path of large tensors, and a sum that skips some of the numbers, are right on all others."""
    count = DRAWN + 500
    x, y = Buffer("x", (count,), "float32", "input"), Buffer("y", (count,), "float32", "output")

    def small(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.abs(x) if x.size < DRAWN else np.minimum(np.abs(x), 6.5)

    for kernel, status in ((lambda x: np.abs(x), Status.OK), (small, Status.WRONG_RESULT)):
        problem = Problem(kernel, x, y, numpy={"y": "abs(x)"})
        problem.data.address = lambda name, _copy=0, data=problem.data: data.memory.allocate(name, 4 * count)
        drawn = list[int]()

        def refill(
            numbers: Mapping[str, npt.NDArray[Any]], of: Problem = problem, drawn: list[int] = drawn
        ) -> None:
            drawn.append(np.count_nonzero(numbers["x"]))
            of.inputs["x"] = np.resize(numbers["x"], count)

        problem.data.refill = refill
        problem.verifier.host_s = 0.0  # however busy the machine is
        further = FurtherContents(problem, 3)  # type: ignore[arg-type]
        said = further.verify(problem, Measurement(Status.OK, (1e3,)), sparse=True)  # type: ignore[arg-type]
        assert said.status is status
        if status is Status.OK:
            assert list(said.contents) == [FLOATS[i] for i in (0, 1, 3, 4)] and 0 < drawn[-1] < 150
        for slow in ("host_s", "kernel_s"):
            problem.verifier.host_s, problem.verifier.kernel_s = 0.0, 0.0
            setattr(problem.verifier, slow, 2.0)
            assert further.verify(problem, Measurement(Status.OK), sparse=True).contents == {}  # type: ignore[arg-type]


def test_waiting_for_the_gpu_does_not_make_a_reference_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    began, waited = time.monotonic, list[float]()
    monkeypatch.setattr(time, "monotonic", lambda: began() + sum(waited))

    @contextmanager
    def released() -> Iterator[None]:
        yield
        waited.append(2 * CONTENTS_S)

    problem = Problem(np.abs, X, Y, numpy={"y": "abs(x)"})
    problem.kernel = lambda x: np.abs(x)
    problem.verifier.answers = Answers(None, released)
    measurement, _ = problem.verify()
    assert measurement.contents == dict.fromkeys(FLOATS, "")


def test_equal_errors_of_equal_inputs_do_not_average_out() -> None:
    """Half a unit in the last place of a 16-bit output in all elements is more than the norm's bound."""
    problem = Problem(np.abs, X, Y, numpy={"y": "abs(x)"})
    problem.verifier._launch = lambda *_: (0, 2**64 - 1, 0.9, 1.0, 1.0)  # type: ignore[method-assign]
    assert "of the whole" in problem.verifier.check().message
    problem.verifier.expect_of({"x": np.ones(500)})
    assert problem.verifier.check().passed
