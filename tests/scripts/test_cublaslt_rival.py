"""scripts/rivals/cublaslt.py against a library that multiplies matrices on the host: layouts, lists, and the choice.

The library here knows of column-major matrices only, as cuBLASLt does, and reads what it is given by the C interface.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.kernel.baselines import parse_baseline
from tuner.kernel.functions import BaselineKind, arguments_for, load_function
from tuner.kernel.load import load_kernel

SCRIPT = Path(__file__).parents[2] / "scripts" / "rivals" / "cublaslt.py"
NOT_SUPPORTED = 15


def target(pointer: Any) -> Any:
    """Return what a ``byref`` points to."""
    return pointer._obj


class HostLibrary:
    """cuBLASLt's functions, as far as the rival calls them, with matrices in host memory."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)
        self.things: dict[int, dict[Any, int]] = {}
        self.listed = 3
        self.ran: list[int] = []
        self.asked: dict[int, int] = {}
        self.cublasLtGetStatusString = lambda status: b"CUBLAS_STATUS_NOT_SUPPORTED"

    def _make(self, pointer: Any, **values: int) -> int:
        number = next(self.numbers)
        self.things[number] = dict(values)
        target(pointer).value = number
        return 0

    def cublasLtCreate(self, handle: Any) -> int:  # noqa: N802
        return self._make(handle)

    def cublasLtMatmulDescCreate(self, made: Any, compute: int, scale: int) -> int:  # noqa: N802
        assert (compute, scale) == (68, 0)
        return self._make(made)

    def cublasLtMatmulDescSetAttribute(self, made: Any, attribute: int, value: Any, size: Any) -> int:  # noqa: N802
        assert size.value == ctypes.sizeof(target(value)) == 4
        self.things[made.value][attribute] = target(value).value
        return 0

    def cublasLtMatrixLayoutCreate(  # noqa: N802
        self, made: Any, kind: int, rows: Any, columns: Any, pitch: Any
    ) -> int:
        return self._make(made, kind=kind, rows=rows.value, columns=columns.value, pitch=pitch.value)

    def cublasLtMatmulPreferenceCreate(self, made: Any) -> int:  # noqa: N802
        return self._make(made)

    def cublasLtMatmulPreferenceSetAttribute(self, made: Any, attribute: int, value: Any, size: Any) -> int:  # noqa: N802
        assert size.value == ctypes.sizeof(target(value))
        self.asked[attribute] = target(value).value
        return 0

    def cublasLtMatmulPreferenceDestroy(self, made: Any) -> int:  # noqa: N802
        return 0

    def cublasLtMatmulAlgoGetHeuristic(self, *given: Any) -> int:  # noqa: N802
        *_, wanted, found, count = given
        target(count).value = min(wanted, self.listed)
        for number in range(target(count).value):
            found[number].algorithm[0] = number
            found[number].state = NOT_SUPPORTED if number == 1 else 0
        return 0

    def cublasLtMatmul(self, handle: Any, description: Any, one: Any, *rest: Any) -> int:  # noqa: N802
        first, first_layout, second, second_layout, zero, before, before_layout, to, to_layout = rest[:9]
        algorithm, workspace, size, stream = rest[9:]
        assert (target(one).value, target(zero).value, before.value, stream.value) == (1.0, 0.0, to.value, 77)
        assert workspace.value == 4096 and size.value == 64 << 20
        number = int(ctypes.cast(algorithm, ctypes.POINTER(ctypes.c_uint64))[0])
        self.ran.append(number)
        operations = self.things[description.value]
        left = self._matrix(first, first_layout, transposed=operations[3] == 1)
        right = self._matrix(second, second_layout, transposed=operations[4] == 1)
        assert before_layout.value == to_layout.value
        self._matrix(to, to_layout, transposed=False)[:] = left @ right
        return 0

    def _matrix(self, address: Any, layout: Any, *, transposed: bool) -> Any:
        shape = self.things[layout.value]
        assert shape["kind"] == 0  # float32
        count = shape["pitch"] * shape["columns"]
        flat = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (count,))
        matrix = flat.reshape(shape["columns"], shape["pitch"])[:, : shape["rows"]].T
        return matrix.T if transposed else matrix


class HostTensor:
    """As much of a torch tensor as the rival looks at."""

    def __init__(self, array: Any, dtype: str = "torch.float32") -> None:
        self.array, self.dtype, self.shape = array, dtype, array.shape

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def is_contiguous(self) -> bool:
        return bool(self.array.flags.c_contiguous)

    def numel(self) -> int:
        return int(self.array.size)

    def element_size(self) -> int:
        return int(self.array.itemsize)

    def clone(self) -> HostTensor:
        return HostTensor(self.array.copy(order="K"), self.dtype)


@pytest.fixture
def library() -> HostLibrary:
    return HostLibrary()


@pytest.fixture
def rival(library: HostLibrary, monkeypatch: pytest.MonkeyPatch) -> Any:
    load_function("cublaslt", SCRIPT)
    module = sys.modules["baseline_cublaslt"]
    monkeypatch.setattr(module, "_library", lambda: library)
    monkeypatch.setattr(module, "_workspace", lambda: 4096)
    for cached in (module._product, module._handle):
        cached.cache_clear()
    yield module
    for cached in (module._product, module._handle):
        cached.cache_clear()


def matrices(m: int, k: int, n: int, layout: str = "nn") -> tuple[HostTensor, HostTensor, HostTensor]:
    draw = np.random.default_rng(0)
    operands = []
    for (rows, columns), lies in zip(((m, k), (k, n)), layout, strict=True):
        stored = draw.normal(size=(rows, columns) if lies == "n" else (columns, rows)).astype(np.float32)
        operands.append(HostTensor(stored if lies == "n" else stored.T))
    return *operands, HostTensor(np.full((m, n), np.nan, np.float32))  # type: ignore[return-value]


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 8, 16)])
def test_rows_or_columns_the_product_is_right(
    shape: tuple[int, int, int], layout: str, rival: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rival, "fastest", lambda product, *others: product.algorithms()[0])
    a, b, c = matrices(*shape, layout)
    rival.cublaslt(a, b, c, 77)
    np.testing.assert_allclose(c.array, a.array @ b.array, rtol=1e-5, atol=1e-5)


def test_the_choice_is_made_once_for_a_shape(
    rival: Any, library: HostLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[Any] = []

    def second(product: Any, *others: Any) -> Any:
        chosen.append(product)
        return product.algorithms()[1]

    monkeypatch.setattr(rival, "fastest", second)
    for _ in range(3):
        rival.cublaslt(*matrices(3, 5, 7), 77)
    for layout in ("nt", "tn", "tt"):
        rival.cublaslt(*matrices(3, 5, 7, layout), 77)
    assert len(chosen) == 4
    # The second of the list is one that the heuristic says cannot be run: what it lists behind that counts.
    assert library.ran == [2] * 6
    assert library.asked == {
        1: 64 << 20,
        3: 2,
    }  # workspace; sums of parts in the type of the computation only


def runner(rival: Any, number: int, true_ms: float, first_ms: float, noise: float) -> Any:
    draw = np.random.default_rng(number)
    heuristic = rival.Heuristic()
    heuristic.algorithm[0] = number
    return rival.Runner(heuristic, first_ms, lambda: true_ms * (1 + noise * float(draw.normal())))


def test_the_fastest_is_chosen(rival: Any) -> None:
    """The first time of each is noisy, and its order says nothing; a few percent are found in a few rounds."""
    times = [1.06, 1.0, 1.3, 1.04, 1.1, 1.2, 1.15, 1.08]
    field = [runner(rival, i, ms, ms * (1.2 if i == 1 else 1.0), 0.01) for i, ms in enumerate(times)]
    assert rival.choose(field).algorithm.algorithm[0] == 1


def test_it_gets_what_the_kernel_has(rival: Any) -> None:
    baseline = parse_baseline(f"{SCRIPT}:cublaslt")
    assert (baseline.kind, baseline.name) == (BaselineKind.PYTHON, "cublaslt.py:cublaslt")
    kernel = load_kernel("gemm")
    known = dict.fromkeys([*kernel.present(kernel.problem()), *kernel.scalars, *kernel.sizes, "stream"], 1)
    _, named = arguments_for(rival.cublaslt, known, "cublaslt")
    assert set(named) == {"a", "b", "c", "stream"}


def test_the_structure_is_the_librarys(rival: Any) -> None:
    """cublasLtMatmulHeuristicResult_t of cublasLt.h, CUDA 11 to 13."""
    layout = {name: getattr(rival.Heuristic, name).offset for name, _ in rival.Heuristic._fields_}
    assert layout == {"algorithm": 0, "workspace_bytes": 64, "state": 72, "waves": 76, "reserved": 80}
    assert ctypes.sizeof(rival.Heuristic) == 96
