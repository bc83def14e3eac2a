"""Where the expected outputs come from, with host memory in place of a GPU's."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import numpy.typing as npt
import pytest

from tuner.children.measuring import Candidate, ReferenceData
from tuner.core.errors import KernelError
from tuner.core.model import Verification
from tuner.gpu import verify
from tuner.gpu.verify import CROSS_CHECK_ELEMENTS, Verifier
from tuner.kernel.answers import Answers
from tuner.kernel.functions import PythonFunction
from tuner.kernel.reference import norm_allowance, tolerance
from tuner.runtime.launches import Buffer, Launch, Plan

X = Buffer("x", (4, 6), "float32", "input", transposed=True)
Y, Z = Buffer("y", (6, 4), "float32", "output"), Buffer("z", (4, 6), "float32", "inout", transposed=True)
LAUNCH = Launch((1, 1, 1), (1, 1, 1), 0, ())
EXACT = Candidate(Plan((LAUNCH,), ()), (b"cubin",), ("entry",))
VALUES = {"x": np.arange(24.0).reshape(6, 4), "z": np.ones((6, 4))}
FUNCTION = "def f(x, z, k): return {OUTPUTS}\n"


class HostMemory:
    """Stands for a GPU's memory."""

    def __init__(self) -> None:
        self.addresses: dict[str, int] = {}
        self.arrays: dict[str, npt.NDArray[np.uint8]] = {}

    def allocate(self, name: str, size_bytes: int) -> int:
        if name not in self.arrays:
            self.arrays[name] = np.zeros(size_bytes, np.uint8)
            self.addresses[name] = self.arrays[name].ctypes.data
        return self.addresses[name]


class Data:
    """A problem's tensors on the host."""

    def __init__(self, tensors: Sequence[Buffer]) -> None:
        self.tensors, self.memory = tensors, HostMemory()
        self.inputs = [tensor for tensor in tensors if tensor.role != "output"]
        self.outputs = [tensor for tensor in tensors if tensor.role != "input"]
        self.helpers = SimpleNamespace(context=None, run=compare)
        self.downloads: list[str] = []
        self.restored = 0

    def add_restore(self, graph: object) -> None:
        self.restored += 1

    def download(self, tensor: Buffer, name: str | None = None) -> npt.NDArray[np.float64]:
        self.downloads.append(name or tensor.name)
        return VALUES[tensor.name]

    def expected(self, tensor: Buffer, what: str = "expected") -> npt.NDArray[Any]:
        kind = np.float64 if what == "expected" else np.float32
        return self.memory.arrays[f"{tensor.name} {what}"].view(kind).reshape(tensor.shape)


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    def copy(to: Any, source: int, size: int) -> None:
        target = (ctypes.c_char * size).from_buffer(to) if isinstance(to, bytearray) else to
        ctypes.memmove(target, source, size)

    monkeypatch.setattr(verify, "cu", SimpleNamespace(cuMemcpyHtoD=copy, cuMemcpyDtoH=copy))
    monkeypatch.setattr(verify, "check", lambda result: result)


def compare(kernel: str, grid: int, threads: int, arguments: Sequence[tuple[str, Any]]) -> None:
    """Do what the helper of that name does; no number here is too large for its dtype."""
    *pointers, count, coefficient, unit, tiny, reduction, result = (value for _, value in arguments)
    dtype = kernel.removeprefix("compare_")
    kinds = dtype, "int64" if "int" in dtype else "float64", "float32"
    found, want, weight = (
        np.frombuffer((ctypes.c_char * (count * np.dtype(kind).itemsize)).from_address(pointer), kind)
        for pointer, kind in zip(pointers, kinds, strict=True)
    )
    with np.errstate(invalid="ignore"):
        error, allowed = abs(found - want), coefficient * weight + unit * abs(want) + tiny
        wrong = ~(error <= allowed) & (np.isfinite(weight) | (coefficient == 0.0) | np.isnan(want))
        worst = np.fmax.reduce(error / allowed, initial=0.0)
        squares = (error**2).sum(), (want**2 + weight**2 / reduction).sum()
    first = np.argmax(wrong) if wrong.any() else 2**64 - 1
    packed = struct.pack("<QQddd", np.count_nonzero(wrong), first, worst, *squares)
    ctypes.memmove(result, packed, len(packed))


def cuda(monkeypatch: pytest.MonkeyPatch, factor: float) -> Candidate:
    """Return a CUDA reference that gives so many times x for every output."""

    def run(verifier: Any, reference: Candidate) -> None:
        for tensor in verifier._data.outputs:
            verifier._allocate(tensor)
            value = factor * VALUES["x"]
            verifier._data.expected(tensor)[:] = value.T if tensor.transposed else value
            verifier._expected.add(tensor.name)

    monkeypatch.setattr(Verifier, "_run_exact", run)
    return EXACT


def verifier_of(data: Data, answers: Answers | None = None, **given: Any) -> Verifier:
    return Verifier(data, ReferenceData("float32", numbers={"k": 3}, **given), answers)  # type: ignore[arg-type]


def function(folder: Path, outputs: str) -> PythonFunction:
    (folder / "own.py").write_text(FUNCTION.replace("{OUTPUTS}", outputs))
    return PythonFunction(folder / "own.py", "f")


def test_functions_and_expressions_share_the_outputs(tmp_path: Path) -> None:
    data = Data((X, Y, Z))
    given = {"numpy": {"y": "2 * x[::-1]"}, "python": function(tmp_path, "{'z': z + k * x}")}
    assert verifier_of(data, **given).possible
    np.testing.assert_array_equal(data.expected(Y), 2 * VALUES["x"][::-1])
    np.testing.assert_array_equal(data.expected(Y, "magnitude"), 2 * VALUES["x"][::-1])
    np.testing.assert_array_equal(data.expected(Z), (1 + 3 * VALUES["x"]).T)
    assert (data.expected(Z, "magnitude") >= data.expected(Z)).all()
    assert sorted(data.downloads) == ["x", "z_initial"]
    lacking = verifier_of(Data((X, Y, Z)), numpy={"y": "x"})
    assert not lacking.possible
    unchecked = lacking.check()
    assert (unchecked.passed, unchecked.checked) == (False, False) and "add [reference]" in unchecked.message


def test_functions_check_cuda_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = function(tmp_path, "{'y': 2 * x, 'z': 2 * x}")
    assert verifier_of(Data((X, Y, Z)), python=python, kernel=cuda(monkeypatch, 2.0)).possible
    with pytest.raises(KernelError, match=r"references of y differ at \(0, 1\): host 2, cuda 3"):
        verifier_of(Data((X, Y, Z)), python=python, kernel=cuda(monkeypatch, 3.0))


def test_a_slow_function_is_asked_for_magnitudes_only_where_an_output_looks_wrong_and_not_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Verifier, "_require_numbers", lambda *_: None)
    calls = tmp_path / "calls"
    wait = f"__import__('time').sleep(0.11), open({str(calls)!r}, 'a').write('.')"
    python = function(tmp_path, f"({wait}) and {{'y': x - 12}}")
    (tmp_path / "kept").mkdir()

    def checked(needed: float) -> tuple[Verification, int]:
        """Return the verdict where magnitudes must be so large, and the calls until then."""
        data = Data((X, Y, Buffer("z", (4, 6), "float32", "input")))
        data.address, data.element, data.seal = lambda *_: 0, lambda *_: 1.0, lambda: None  # type: ignore[attr-defined]
        verifier = verifier_of(data, python=python, answers=Answers(tmp_path / "kept"))
        wrong = (1, 0, 2.0, 1.0, 1.0)
        verifier._launch = lambda *_: (  # type: ignore[method-assign]
            wrong if data.expected(Y, "magnitude").max() < needed else (0, 2**64 - 1, 0.5, 0.0, 1.0)
        )
        return verifier.check(), len(calls.read_text())

    for needed, passed, asked in ((12.0, True, 2), (12.0, True, 2), (13.0, True, 4), (99.0, False, 12)):
        verification, count = checked(needed)
        assert (verification.passed, verification.checked, count) == (passed, True, asked)

    def undecided(_verifier: Verifier, _tensor: Buffer) -> None:
        if len(calls.read_text()) > 14:
            raise KernelError("rounding alone decides 24 of 24 elements of y")

    monkeypatch.setattr(Verifier, "_require_numbers", undecided)
    python = function(tmp_path, f"({wait}) and {{'y': 13 - x}}")
    verification, count = checked(99.0)
    assert not verification.checked and "rounding alone" in verification.message and count == 12 + 2 + 2


def test_what_a_cuda_reference_does_not_write_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets its own memory in place of the outputs, filled to its end and not beyond; one that does nothing."""
    data, filled, launched = Data((X, Y, Z)), {}, list[Any]()

    def fill(address: int, byte: int, size: int) -> None:
        (name,) = [name for name, at in data.memory.addresses.items() if at == address]
        filled[name] = size
        ctypes.memset(address, byte, min(size, data.memory.arrays[name].nbytes))

    driver = {"cuModuleLoadData": lambda cubin: "module", "cuModuleUnload": launched.append}
    data.helpers.context = MagicMock()
    monkeypatch.setattr(verify, "cu", SimpleNamespace(**vars(verify.cu), **driver))
    monkeypatch.setattr(verify, "fill_bytes", fill)
    monkeypatch.setattr(verify, "Kernel", lambda *given: launched.append(given))
    with pytest.raises(KernelError, match=r"of y is not a number in 24 of 24 elements \(\[0, 0\]\)"):
        verifier_of(data, kernel=EXACT)
    assert filled == {
        f"{name} {what}": 24 * size for name in "yz" for what, size in (("expected", 8), ("magnitude", 4))
    }
    for tensor in (Y, Z):
        assert np.isnan(data.expected(tensor)).all() and np.isnan(data.expected(tensor, "magnitude")).all()
    (module, entry, _, addresses), unloaded = launched
    assert data.restored == 1, "a reference may destroy an input, too"
    assert (module, entry, unloaded) == ("module", "entry", "module")
    expected = {name: data.memory.addresses[f"{name} expected"] for name in "yz"}
    assert {name: addresses[name] for name in "yz"} == expected


@pytest.mark.parametrize("wrong", [0, 2])
def test_doubles_of_a_cuda_reference_become_integers_or_are_refused(
    monkeypatch: pytest.MonkeyPatch, wrong: int
) -> None:
    n = Buffer("n", (6, 4), "int32", "output")
    data, turned = Data((X, n)), list[Any]()

    def run(kernel: str, grid: int, threads: int, arguments: Sequence[tuple[str, Any]]) -> None:
        if kernel != "to_integers":
            compare(kernel, grid, threads, arguments)
            return
        turned.append([value for _, value in arguments[:-1]])
        packed = struct.pack("<QQddd", wrong, 5, 0.0, 0.0, 0.0)
        ctypes.memmove(arguments[-1][1], packed, len(packed))
        for name, size in (("n expected", 8), ("n magnitude", 4)):
            ctypes.memset(data.memory.addresses[name], 0, n.count * size)

    data.helpers.run, data.helpers.context = run, MagicMock()
    driver = {"cuModuleLoadData": lambda cubin: "module", "cuModuleUnload": lambda module: None}
    monkeypatch.setattr(verify, "cu", SimpleNamespace(**vars(verify.cu), **driver))
    monkeypatch.setattr(verify, "fill_bytes", ctypes.memset)
    monkeypatch.setattr(verify, "Kernel", MagicMock())
    reference = EXACT
    if wrong:
        with pytest.raises(KernelError, match=r"no integer up to 2\^53 in 2 of 24 elements \(\[1, 1\]\)"):
            verifier_of(data, kernel=reference)
    else:
        assert verifier_of(data, kernel=reference).possible
    assert turned == [[data.memory.addresses["n expected"], 24]]


@pytest.mark.parametrize(("count", "blocks"), [(257, 2), (2**20 + 1, 4096)])
def test_each_thread_compares_an_element_up_to_4096_blocks(count: int, blocks: int) -> None:
    data, grids = (
        Data((Buffer("x", (count,), "float32", "input"), Buffer("y", (count,), "float32", "output"))),
        set(),
    )

    def run(kernel: str, grid: int, threads: int, arguments: Sequence[tuple[str, Any]]) -> None:
        grids.add((kernel, grid, threads))
        compare(kernel, grid, threads, arguments)

    data.helpers.run = run
    assert verifier_of(data, numpy={"y": f"arange({count})"}).is_small() is (count <= 2**20)
    assert grids == {("compare_float64", blocks, 256)}


def test_large_problems_go_by_the_cuda_reference_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = Buffer("w", (CROSS_CHECK_ELEMENTS + 1,), "float32", "input")
    data = Data((X, Y, large))
    python = function(tmp_path, "1 / 0")
    assert verifier_of(data, python=python, kernel=cuda(monkeypatch, 3.0)).possible
    assert not data.downloads
    monkeypatch.setitem(VALUES, "w", np.zeros(3))
    with pytest.raises(KernelError, match="ZeroDivisionError"):
        verifier_of(Data((X, Y, Z, large)), python=python)


def test_integers_lie_in_memory_as_integers_and_are_said_in_full() -> None:
    """A double has not all of those above 2^53."""
    n = Buffer("n", (6, 4), "int64", "output")
    data = Data((X, n))
    verifier = verifier_of(data, numpy={"n": f"arange(24)[:, None][:6] * 0 + arange(4) + {2**60}"})
    assert data.memory.arrays["n expected"].view(np.int64)[:4].tolist() == [2**60 + i for i in range(4)]
    data.element = lambda *_: 2**60 + 2  # type: ignore[attr-defined]
    comparison = (1, 3, 2.0, 1.0, 1.0)
    verifier._launch = lambda *_: comparison  # type: ignore[method-assign]
    data.address = lambda *_: 0  # type: ignore[attr-defined]
    assert verifier.check().message == (
        f"n[0, 3] is {2**60 + 2}, expected {2**60 + 3}; 1 of 24 elements are wrong"
    )


def of_the_whole(dtype: str, errors: float, scales: float) -> Any:
    """Return the verdict where all elements pass, and the squares of errors and scales are these."""
    y = Buffer("y", (100, 100), dtype, "output")
    data = Data((Buffer("x", (100, 100), dtype, "input"), y))
    data.address = lambda *_: 0  # type: ignore[attr-defined]
    verifier = verifier_of(data, numpy={"y": "zeros((100, 100))"}, reduction=1)
    verifier._launch = lambda *_: (0, 2**64 - 1, 0.5, errors, scales)  # type: ignore[method-assign]
    return verifier.check()


def test_the_error_of_the_whole_has_a_bound_of_its_own() -> None:
    bound = tolerance(1, "float32", "float32").norm_coefficient * norm_allowance(10_000)
    assert of_the_whole("float32", (0.99 * bound) ** 2, 1.0).passed
    wrong = of_the_whole("float32", (1.01 * bound) ** 2, 1.0)
    assert not wrong.passed and wrong.mismatches == 0 and "of the whole" in wrong.message
    assert of_the_whole("float32", 0.0, 0.0).passed
    nothing = of_the_whole("float32", 1e-60, 0.0)
    assert not nothing.passed and nothing.norm_error == 1e300
    assert not of_the_whole("float32", math.nan, 1.0).passed
    assert not of_the_whole("float32", math.inf, 1.0).passed
    assert of_the_whole("int32", 1.0, 1.0).passed  # each element was exact


@pytest.mark.parametrize(
    ("exact", "truth", "distance"), [(1.0, 1.01, 0.01 / 1.01), (0.0, 0.0, 0.0), (1.0, 0.0, math.inf)]
)
def test_the_distance_from_the_truth_is_a_share_of_it(exact: float, truth: float, distance: float) -> None:
    data = Data((X, Y))
    verifier = verifier_of(data, numpy={"y": f"{exact} * x"})
    found, true = np.float32(exact * VALUES["x"]), truth * VALUES["x"]
    data.address = lambda *_: found.ctypes.data  # type: ignore[attr-defined]
    assert verifier.check().true_error is None
    assert verifier.hold_against({"y": true.ctypes.data}) == pytest.approx(distance)
    assert verifier.check().passed and verifier.check().true_error == pytest.approx(distance)


@pytest.mark.parametrize(
    ("found", "passed", "ratio"),
    [
        ({"y": (0, 0, 0.2, 0.0, 1.0), "z": (0, 0, 0.7, 0.0, 1.0)}, True, 0.7),
        ({"y": (0, 0, 0.7, 0.0, 1.0), "z": (0, 0, 0.2, 0.0, 1.0)}, True, 0.7),
        ({"y": (3, 0, 0.1, 0.0, 1.0), "z": (0, 0, 0.7, 0.0, 1.0)}, False, 0.1),
        ({"y": (3, 0, math.inf, math.inf, 1.0), "z": (0, 0, 0.7, 0.0, 1.0)}, False, 1e300),
    ],
)
def test_of_several_outputs_the_worst_is_said(found: dict[str, Any], passed: bool, ratio: float) -> None:
    data = Data((X, Y, Z))
    data.address, data.element = lambda name, copy: name, lambda *_: 1.0  # type: ignore[attr-defined]
    verifier = verifier_of(data, numpy={"y": "x", "z": "x"}, reduction=1)
    verifier._launch = lambda dtype, out, *_: found[out]  # type: ignore[method-assign,index]
    verification = verifier.check()
    assert (verification.passed, verification.worst_ratio) == (passed, ratio)
    assert verification.mismatches == (0 if passed else 3)


def test_results_below_the_normal_numbers_are_rounded_to_multiples_of_the_smallest() -> None:
    exact = np.random.default_rng(0).uniform(0.0, 2.0**-16, 10_000)
    half, scales = exact.astype(np.float16), np.sum(exact**2)
    assert of_the_whole("float16", np.sum((half - exact) ** 2), scales).passed
    assert not of_the_whole("float16", np.sum((1.1 * half - exact) ** 2), scales).passed


@pytest.mark.parametrize("unknown", [12, 13])
def test_of_half_of_an_output_a_reference_may_say_nothing(tmp_path: Path, unknown: int) -> None:
    """Where a magnitude is infinite, rounding alone decides; 10^300 is infinite in float32."""
    python = function(tmp_path, f"{{'y': (x, 1 + 1e300 * (x < {unknown})), 'z': x}}")
    if unknown == 12:
        assert verifier_of(Data((X, Y, Z)), python=python).possible
    else:
        with pytest.raises(KernelError, match="rounding alone decides 13 of 24 elements of y"):
            verifier_of(Data((X, Y, Z)), python=python)


@pytest.mark.parametrize(
    ("flops", "factor", "small"), [(2**28, 1, True), (2**28 + 1, 1, False), (2**29, 2, True)]
)
def test_references_on_the_host_are_quick_up_to_some_work(flops: int, factor: int, small: bool) -> None:
    """A product of matrices of 512 rows and columns is the largest."""
    assert verifier_of(Data((X, Y)), numpy={"y": "x"}, flops=flops).is_small(factor) is small


def test_golden_files_are_for_the_outputs_that_there_are(tmp_path: Path) -> None:
    np.save(tmp_path / "z.npy", -VALUES["x"])
    data = Data((X, Z))
    assert verifier_of(data, golden={"z": tmp_path / "z.npy", "y": tmp_path / "none.npy"}).possible
    np.testing.assert_array_equal(data.expected(Z), -VALUES["x"].T)
    np.testing.assert_array_equal(data.expected(Z, "magnitude"), VALUES["x"].T)
