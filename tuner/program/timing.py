"""Times of two ways to compute a product, taken in turn, in the way in which the program calls it.

In a program the left operand was just written by the kernel before, and the right one, a layer's weights, was last read
a whole pass ago. So each timed product follows a small kernel that writes its left operand, and takes another right
operand than the one before, until they fill the L2 cache twice. What those kernels take is measured and subtracted.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from tuner.core.errors import DeviceError, TunerError
from tuner.core.stats import median
from tuner.program.calling import NUMBERS
from tuner.program.kinds import DTYPES, EIGHT_BITS, CallKind, CallMode
from tuner.runtime.torch_gradients import evaluate_element

ROUNDS = 15
"""Replays of each way, in turn: the interval of a median of 15 leaves out the three lowest and highest."""
GROUP_NS = 2e6
"""Time of one replay, roughly: long beside the events' resolution of half a microsecond."""
WARM_UP_S = 0.2
"""Of replays before the first that counts: a program under load runs at the clock that the power limit leaves."""
MOST_CALLS = 400
"""In one replay."""
L2_TIMES = 2
"""How often the right operands fill the L2 cache together, so that none is found there."""
ASSUMED_FLOPS, ASSUMED_BYTES_PER_S = 5e14, 3e12
"""By which the calls of a replay are counted before anything is timed: those of a large GPU of 2024."""
EAGER_NS, MOST_EAGER_CALLS = 1e7, 50
"""Time and calls between two looks at the host's clock."""

CHECKED_ROWS = 128
"""Rows at the beginning and at the end of a product that are compared with the true one: they find a wrong column of
tiles or a wrong last row of them, and take little memory."""

Way = Callable[..., Any]
"""A product of two operands, and perhaps of what is added, as the program would write it."""
Around = Sequence[AbstractContextManager[Any, Any]]
"""What must hold while each way is called; may be entered many times."""


@dataclass(frozen=True)
class Operands:
    """Operands of a kind of product.

    Attributes:
        a: the left one.
        written: its memory.
        source: what that is written from before each product.
        bs: right ones, at different addresses.
        added: what is added, if anything is.
    """

    a: Any
    written: Any
    source: Any
    bs: Sequence[Any]
    added: tuple[Any, ...]


def operands(kind: CallKind, device: str, *, copies: int = 0) -> Operands:
    """Return random operands of a kind of product, normally distributed.

    Args:
        kind: of a product.
        device: where.
        copies: of the right one; by default as many as fill the L2 cache twice.
    """
    sizes, options = dict(kind.sizes), dict(kind.options)
    m, n, k = (sizes[name] for name in "mnk")
    dtype = next(own for own, name in {**DTYPES, **EIGHT_BITS}.items() if name == kind.dtype)
    generator = torch.Generator(device).manual_seed(0)

    def tensor(*shape: int) -> Any:
        made = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
        return made.to(dtype)

    def wide(*shape: int, name: str) -> Any:
        """Return memory whose rows lie as far apart as the kind says."""
        return tensor(*shape[:-1], dict(kind.apart).get(f"ld{name}", shape[-1]))[..., : shape[-1]]

    def matrices(rows: int, columns: int, name: str) -> tuple[Any, Any]:
        """Return memory, and what it means."""
        swapped = options["layout"]["ab".index(name)] == "t"
        shape = (columns, rows) if swapped else (rows, columns)
        count = sizes.get("batch", sizes.get("groups", 0) if name == "b" else 0)
        if not count:
            made = wide(*shape, name=name)
            return made, made.t() if swapped else made
        shared = options.get("broadcast") == name
        made = wide(1 if shared else count, *shape, name=name)
        meant = made.transpose(1, 2) if swapped else made
        return made, meant.expand(count, -1, -1) if shared else meant

    memory, first = matrices(k, n, "b")
    copies = copies or _copies(memory.numel() * dtype.itemsize, device)
    bs = [first, *(_clone(first) for _ in range(copies - 1))]
    written, a = matrices(m, k, "a")
    added = (tensor(*kind.added_shape),) if kind.place else ()
    if kind.kernel == "scaled_mm":
        added = tuple(scales.uniform_(0.5, 2, generator=generator) for scales in _scales(kind, device))
    if kind.kernel == "grouped":  # of as many rows as possible, but the last
        rows = -(-m // sizes["groups"])
        ends = torch.arange(1, sizes["groups"] + 1, device=device) * rows
        added = (ends.clamp(max=m).to(torch.int32),)
    return Operands(a, written, written.clone(), bs, added)


def _scales(kind: CallKind, device: str) -> tuple[Any, Any]:
    """Return memory for the scales of both operands, as they lie where they are of blocks or otherwise."""
    m, n, k = (dict(kind.sizes)[name] for name in "mnk")
    blocks = -(-k // 128)
    each = {"tensor": ((1, 1), (1, 1)), "rows": ((1, m), (n, 1))}
    shapes = each.get(dict(kind.options)["scales"], ((blocks, m), (-(-n // 128), blocks)))
    of_a, of_b = (torch.empty(shape, device=device) for shape in shapes)
    return of_a.t(), of_b.t()


def scaled(matrix: Any, scales: Any) -> Any:
    """Return a matrix times its scales: one, one for each row or column, or one for each 128 of these."""
    for axis, size in enumerate(matrix.shape):
        if scales.shape[axis] not in (1, size):
            scales = scales.repeat_interleave(128, axis).narrow(axis, 0, size)
    return matrix * scales


def _clone(each: Any) -> Any:
    """Return a copy that lies as it does; what is one matrix for a whole batch stays one."""
    one = each[:1] if each.dim() == 3 and each.stride(0) == 0 else each
    copy = torch.empty_strided(one.shape, one.stride(), dtype=each.dtype, device=each.device)
    return copy.copy_(one).expand_as(each)


def _copies(size_bytes: int, device: str) -> int:
    if device != "cuda":
        return 1
    l2_bytes = int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)
    return max(1, min(64, math.ceil(L2_TIMES * l2_bytes / size_bytes)))


def times_in_turn(
    kind: CallKind, ways: Sequence[Way], around: Around, mode: CallMode, device: str, rounds: int = ROUNDS
) -> list[list[float]]:
    """Return the times of one call for each way, in ns, one of each for each round.

    Args:
        kind: of a product.
        ways: to be compared; called with operands of that kind.
        around: for each way a context to call it in.
        mode: ``graph``: on the GPU, in CUDA graphs; ``eager``: what the host or the GPU takes, whichever is longer.
        device: where.
        rounds: how many.
    """
    made = operands(kind, device)
    contexts: list[AbstractContextManager[Any, Any]] = [*around, nullcontext()]
    with torch.no_grad():
        groups = []
        for way, context in zip([*ways, None], contexts, strict=True):
            with context:
                if mode is CallMode.GRAPH:
                    groups.append(_graph(way, kind, made))
                elif way is not None:
                    groups.append(_loop(way, made, device))
        if mode is CallMode.GRAPH:
            began = time.monotonic()
            while time.monotonic() - began < WARM_UP_S:
                groups[0]()
        samples: list[list[float]] = [[] for _ in groups]
        turns, order = random.Random(0), range(len(groups))
        for _ in range(rounds):
            for number in turns.sample(order, len(order)):
                # A graph keeps what it was captured with. Entering takes milliseconds, in which the GPU would rest.
                with contexts[number] if mode is CallMode.EAGER else nullcontext():
                    samples[number].append(groups[number]())
    if mode is CallMode.GRAPH:
        writing = median(samples.pop())
        samples = [[max(sample - writing, 1.0) for sample in each] for each in samples]
    return samples


def _graph(way: Way | None, kind: CallKind, made: Operands) -> Callable[[], float]:
    """Return a function that replays a graph of writes and products, and gives the ns of one of them."""
    calls = _calls_of(kind, made)

    def pass_through(calls: int) -> None:
        for number in range(calls):
            _write(made)
            if way is not None:
                way(made.a, made.bs[number % len(made.bs)], *made.added)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what is loaded and allocated on the first call must not be captured
        pass_through(1)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pass_through(calls)
    graph.replay()
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def replay() -> float:
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e6 / calls

    return replay


def _write(made: Operands) -> None:
    """Write the left operand by a kernel: a copy would be no kernel, and what follows it would begin in another way."""
    if made.source.dtype in EIGHT_BITS:  # which have no arithmetic
        torch.bitwise_xor(made.source.view(torch.uint8), 128, out=made.written.view(torch.uint8))
    else:
        torch.neg(made.source, out=made.written)


def _calls_of(kind: CallKind, made: Operands) -> int:
    sizes = {"batch": 1, **dict(kind.sizes)}
    elements = int(made.a.numel() + made.bs[0].numel()) + sizes["batch"] * sizes["m"] * sizes["n"]
    moved = int(made.a.element_size()) * elements
    assumed_ns = 1e9 * max(kind.flop / ASSUMED_FLOPS, moved / ASSUMED_BYTES_PER_S) + 2000
    return max(len(made.bs), min(MOST_CALLS, math.ceil(GROUP_NS / assumed_ns)))


def _loop(way: Way, made: Operands, device: str) -> Callable[[], float]:
    """Return a function that calls a way again and again, and gives the ns of one call."""

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    def run(calls: int) -> float:
        wait()
        began = time.perf_counter_ns()
        for number in range(calls):
            way(made.a, made.bs[number % len(made.bs)], *made.added)
        wait()
        return (time.perf_counter_ns() - began) / calls

    run(1)  # what is loaded on the first call
    calls = max(1, min(MOST_EAGER_CALLS, int(EAGER_NS / run(1))))

    def run_twice() -> float:
        run(calls)  # after whatever the GPU did, or did not do, before
        return run(calls)

    return run_twice


def errors(kind: CallKind, ways: Sequence[Way], device: str) -> list[float]:
    """Return each way's error: the norm of its difference from the true product over that one's norm.

    The true product is summed up in float64 for float32, else in float32, where products of shorter numbers are exact.

    Raises:
        TunerError: a way fails, or returns something else.
    """
    made = operands(kind, device, copies=1)
    with torch.no_grad():
        a, b = made.a, made.bs[0]
        wide = torch.float64 if kind.dtype == "float32" else torch.float32
        # Of a batch the first and the last product, of a product its first and last rows.
        count = a.shape[0]
        most = 1 if a.dim() == 3 else CHECKED_ROWS
        ends = [slice(most), slice(max(most, count - most), None)]

        def some(tensor: Any) -> Any:
            return torch.cat([tensor[rows] for rows in ends]).to(wide)

        if kind.kernel == "grouped":
            rows = some(torch.arange(count, device=device)[:, None])
            of = (rows >= made.added[0]).sum(1)
            true = torch.cat([row[None] @ b[g].to(wide) for row, g in zip(some(a), of.tolist(), strict=True)])
        elif kind.kernel == "scaled_mm":
            of_a, of_b = made.added
            true = scaled(some(a), of_a if len(of_a) == 1 else some(of_a)) @ scaled(b.to(wide), of_b)
        else:
            true = some(a) @ (some(b) if b.dim() == 3 else b.to(wide))
        if kind.op:
            added = [some(each) if each.dim() > 1 else each.to(wide) for each in made.added]
            numbers = {
                name: torch.full((), value, dtype=wide, device=device) for name, value in NUMBERS.items()
            }
            places = dict(zip([kind.place] if kind.place else [], added, strict=True))
            true = evaluate_element(kind.op, {"x": true, **places, **numbers})
        norm = float(torch.linalg.vector_norm(true)) or 1.0
        return [
            float(torch.linalg.vector_norm(some(_product(way, kind, made)) - true)) / norm for way in ways
        ]


def _product(way: Way, kind: CallKind, made: Operands) -> Any:
    """Return a product of the first call; whatever is wrong with it is a reason not to use it.

    Raises:
        TunerError: it fails, or returns something else.
    """
    try:
        result = way(made.a, made.bs[0], *made.added)
    except (TunerError, torch.OutOfMemoryError, torch.AcceleratorError):  # the last ends all work on the GPU
        raise
    except Exception as error:
        raise DeviceError(f"it raises {type(error).__name__}: {' '.join(str(error).split())}") from error
    a = made.a
    wanted = (*a.shape[:-1], dict(kind.sizes)["n"])
    if not isinstance(result, torch.Tensor):
        raise DeviceError(f"it returns {type(result).__name__}")
    dtype = getattr(torch, kind.output) if kind.output else a.dtype
    if (tuple(result.shape), result.dtype, result.device) != (wanted, dtype, a.device):
        raise DeviceError(f"it returns {tuple(result.shape)} {result.dtype} on {result.device}")
    return result
