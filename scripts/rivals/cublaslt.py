"""The best of cuBLASLt's own list as a contestant, on the same buffers and in the same graphs as the tuned kernels.

    tune bench gemm --against torch --against scripts/rivals/cublaslt.py:cublaslt

``torch.mm`` runs the first algorithm that cuBLASLt's heuristic names. The heuristic has a list, and what stands further
down is at times faster. :func:`cublaslt` asks for up to 32 algorithms, times each on copies of its own that together do
not fit into the L2, with pauses, and runs the fastest from then on. The choice is made once for a shape, dtype and
layout, before anything is captured. All sums are float32, like those of the kernels that it races: algorithms that add
parts of k in 16 bits are left out.

Needs torch, whose cuBLASLt is used.
"""

from __future__ import annotations

import ctypes
import functools
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

MOST_ALGORITHMS = 32
WORKSPACE_BYTES = 64 << 20
"""More than any algorithm of the list asks for at the sizes that were tried; those that want more are not listed."""
L2_BYTES_GONE_BY = 160_000_000
"""Copies of the matrices are made up to this much, which is 2.5 times the L2 of an H200: each call then finds its
operands in memory, as in a cold or a rotating race."""
GROUP_MS = 2.0
"""Back-to-back calls of one algorithm, so that the two events cost nothing and the power limit is not reached."""
REST = 1.5
"""Times its own length that a group is followed by a pause: the GPU is then busy 40 % of the time."""
MOST_CALLS = 200
HOPELESS = 1.5
"""What takes so many times as long as the best at once is not timed again."""
ROUNDS, FINALISTS, FINAL_ROUNDS = 3, 4, 9

DATA_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}
"""cudaDataType_t."""
COMPUTE_32F, SCALE_32F = 68, 0
DESC_TRANSA, DESC_TRANSB = 3, 4
NOT_TRANSPOSED, TRANSPOSED = 0, 1
PREFERENCE_WORKSPACE, PREFERENCE_REDUCTION = 1, 3
REDUCE_IN_COMPUTE_TYPE = 2


class RivalError(RuntimeError):
    """cuBLASLt cannot take part; the message is one line that says why."""


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


# -- what `tune bench` calls


def cublaslt(a: Any, b: Any, c: Any, stream: int) -> None:
    """C = A B by the fastest algorithm of the list."""
    if not hasattr(c, "data_ptr"):
        raise RivalError("cuBLASLt is called through torch, which is not installed")
    product = _product(*a.shape, b.shape[1], _dtype(c), _lies_transposed(a), _lies_transposed(b))
    if product.algorithm is None:
        product.algorithm = fastest(product, a, b, c, stream)
    product.run(product.algorithm, a, b, c, stream)


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).rpartition(".")[2]


def _lies_transposed(matrix: Any) -> bool:
    """Whether memory has its columns one after the other: A in ``tn`` and ``tt``, B in ``nt`` and ``tt``."""
    return not matrix.is_contiguous()


# -- a product, and what can compute it


class Product:
    """One shape: descriptors, algorithms, workspace. Lives as long as the process, like the graphs that use it.

    Row-major C = A B is column-major C^T = B^T A^T, so that the library is given B as its first operand and A as its
    second, and sees n x m.

    Args:
        m, k, n: A is m x k, B is k x n.
        dtype: of all three.
        a_transposed: whether memory has A^T, k x m.
        b_transposed: whether memory has B^T, n x k.

    Raises:
        RivalError: the library is missing, or has no algorithm for this.
    """

    def __init__(self, m: int, k: int, n: int, dtype: str, *, a_transposed: bool, b_transposed: bool) -> None:
        if dtype not in DATA_TYPES:
            raise RivalError(f"cuBLASLt is not asked for products of {dtype}")
        self.algorithm: Heuristic | None = None
        """The one that is run; none is chosen yet."""
        library, kind = _library(), DATA_TYPES[dtype]
        self._library = library
        self._handle = _handle()
        self._description = ctypes.c_void_p()
        _check(library.cublasLtMatmulDescCreate(ctypes.byref(self._description), COMPUTE_32F, SCALE_32F))
        for attribute, transposed in ((DESC_TRANSA, b_transposed), (DESC_TRANSB, a_transposed)):
            setting = ctypes.c_int32(TRANSPOSED if transposed else NOT_TRANSPOSED)
            _check(
                library.cublasLtMatmulDescSetAttribute(
                    self._description, attribute, ctypes.byref(setting), ctypes.c_size_t(4)
                )
            )
        self._first = _matrix(library, kind, *((k, n) if b_transposed else (n, k)))
        self._second = _matrix(library, kind, *((m, k) if a_transposed else (k, m)))
        self._result = _matrix(library, kind, n, m)
        self._one, self._zero = ctypes.c_float(1.0), ctypes.c_float(0.0)

    def algorithms(self) -> list[Heuristic]:
        """Return what the heuristic lists, in its order.

        Raises:
            RivalError: nothing.
        """
        library, preference = self._library, ctypes.c_void_p()
        _check(library.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)))
        settings = (
            (PREFERENCE_WORKSPACE, ctypes.c_uint64(WORKSPACE_BYTES)),
            (PREFERENCE_REDUCTION, ctypes.c_uint32(REDUCE_IN_COMPUTE_TYPE)),
        )
        for attribute, value in settings:
            _check(
                library.cublasLtMatmulPreferenceSetAttribute(
                    preference, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))
                )
            )
        found, count = (Heuristic * MOST_ALGORITHMS)(), ctypes.c_int(0)
        status = library.cublasLtMatmulAlgoGetHeuristic(
            self._handle,
            self._description,
            self._first,
            self._second,
            self._result,
            self._result,
            preference,
            MOST_ALGORITHMS,
            found,
            ctypes.byref(count),
        )
        library.cublasLtMatmulPreferenceDestroy(preference)
        _check(status)
        listed = [one for one in found[: count.value] if one.state == 0]
        if not listed:
            raise RivalError("cuBLASLt lists no algorithm for this product")
        return listed

    def run(self, algorithm: Heuristic, a: Any, b: Any, c: Any, stream: int) -> None:
        """Queue the product.

        Raises:
            RivalError: the library refuses.
        """
        address = ctypes.c_void_p
        _check(
            self._library.cublasLtMatmul(
                self._handle,
                self._description,
                ctypes.byref(self._one),
                address(b.data_ptr()),
                self._first,
                address(a.data_ptr()),
                self._second,
                ctypes.byref(self._zero),
                address(c.data_ptr()),
                self._result,
                address(c.data_ptr()),
                self._result,
                ctypes.byref(algorithm, Heuristic.algorithm.offset),
                address(_workspace()),
                ctypes.c_size_t(WORKSPACE_BYTES),
                address(stream),
            )
        )


@functools.cache
def _product(m: int, k: int, n: int, dtype: str, a_transposed: bool, b_transposed: bool) -> Product:
    return Product(m, k, n, dtype, a_transposed=a_transposed, b_transposed=b_transposed)


def _matrix(library: Any, kind: int, rows: int, columns: int) -> ctypes.c_void_p:
    """Describe a column-major matrix whose columns follow each other."""
    layout = ctypes.c_void_p()
    pitch = ctypes.c_int64(rows)
    _check(
        library.cublasLtMatrixLayoutCreate(
            ctypes.byref(layout), kind, ctypes.c_uint64(rows), ctypes.c_uint64(columns), pitch
        )
    )
    return layout


# -- which is fastest


@dataclass
class Runner:
    """An algorithm with what it took, in milliseconds."""

    algorithm: Heuristic
    once_ms: float
    """Its first time."""
    replay: Callable[[], float]
    """Take another."""
    times_ms: list[float] = field(default_factory=list)


def fastest(product: Product, a: Any, b: Any, c: Any, stream: int) -> Heuristic:
    """Time everything that the heuristic lists, and the best of it once more.

    Raises:
        RivalError: nothing of it can be run.
    """
    copies = _copies(a, b, c)
    runners: list[Runner] = []
    refusal = ""
    for algorithm in product.algorithms():
        try:
            runners.append(_runner(product, algorithm, copies, stream))
        except RivalError as error:  # listed, and yet not for these addresses
            refusal = str(error)
    if not runners:
        raise RivalError(f"no algorithm of cuBLASLt's list can be run: {refusal}")
    return choose(runners).algorithm


def choose(runners: Sequence[Runner]) -> Runner:
    """Let all that may be the fastest run in turn, in shuffled rounds, then the best few again; gives the fastest."""
    draw = random.Random(0)
    limit_ms = HOPELESS * min(runner.once_ms for runner in runners)
    left = [runner for runner in runners if runner.once_ms <= limit_ms]
    for rounds, most in ((ROUNDS, FINALISTS), (FINAL_ROUNDS, 1)):
        for _ in range(rounds):
            for runner in draw.sample(left, len(left)):
                runner.times_ms.append(runner.replay())
        left = sorted(left, key=lambda runner: statistics.median(runner.times_ms))[:most]
    return left[0]


def _copies(a: Any, b: Any, c: Any) -> list[tuple[Any, Any, Any]]:
    """Return enough sets of matrices that none is in the L2 when its turn comes; the first is the one given."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in (a, b, c))
    more = -(-L2_BYTES_GONE_BY // size) if size < L2_BYTES_GONE_BY else 0
    # clone() keeps the strides of a transposed matrix.
    return [(a, b, c), *((a.clone(), b.clone(), c.clone()) for _ in range(min(more, 255)))]


def _runner(
    product: Product, algorithm: Heuristic, copies: Sequence[tuple[Any, Any, Any]], stream: int
) -> Runner:
    """Run an algorithm, time it once, and capture so many calls of it as take about :data:`GROUP_MS`."""
    import torch

    product.run(algorithm, *copies[0], stream)  # what the library loads when it is first used is not captured
    torch.cuda.current_stream().synchronize()
    once = _graph(product, algorithm, copies[:1], 1, stream)
    once_ms = _timed(once)
    once.reset()
    calls = max(1, min(2 * len(copies), MOST_CALLS, round(GROUP_MS / max(once_ms, 1e-3))))
    graph = _graph(product, algorithm, copies, calls, stream)

    def replay() -> float:
        took_ms = _timed(graph)
        time.sleep(REST * took_ms * 1e-3)
        return took_ms / calls

    return Runner(algorithm, once_ms, replay)


def _graph(
    product: Product, algorithm: Heuristic, copies: Sequence[tuple[Any, Any, Any]], calls: int, stream: int
) -> Any:
    """Capture calls on the copies in turn, on torch's current stream, which is the one named."""
    import torch

    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(capture_error_mode="relaxed")
    try:
        for call in range(calls):
            product.run(algorithm, *copies[call % len(copies)], stream)
    finally:
        graph.capture_end()  # torch must end it, whatever has happened
    return graph


def _timed(graph: Any) -> float:
    """Replay a graph; gives milliseconds."""
    import torch

    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before.record()
    graph.replay()
    after.record()
    after.synchronize()
    return float(before.elapsed_time(after))


# -- the library


@functools.cache
def _library() -> Any:
    """Find the cuBLASLt that torch has loaded.

    Raises:
        RivalError: there is none.
    """
    import torch

    major = str(torch.version.cuda or "").partition(".")[0]
    if not major:
        raise RivalError("this torch has no CUDA, and so no cuBLASLt")
    try:
        library = ctypes.CDLL(f"libcublasLt.so.{major}")  # by the name under which torch has loaded it
    except OSError as error:
        raise RivalError(f"cuBLASLt cannot be loaded: {error}") from None
    library.cublasLtGetStatusString.restype = ctypes.c_char_p
    return library


@functools.cache
def _handle() -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    _check(_library().cublasLtCreate(ctypes.byref(handle)))
    return handle


@functools.cache
def _workspace_tensor() -> Any:
    import torch

    return torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")


def _workspace() -> int:
    """Return the address of the memory that algorithms may use; one is enough, because they follow each other."""
    return int(_workspace_tensor().data_ptr())


def _check(status: int) -> None:
    if status:
        raise RivalError(f"cuBLASLt: {_library().cublasLtGetStatusString(status).decode()}")
