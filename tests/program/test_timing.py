"""How products are timed as a program calls them: on the CPU, with a CUDA whose clock is told what each call takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tuner.program import timing  # noqa: E402
from tuner.program.kinds import CallKind, CallMode  # noqa: E402


def kind(m: int, n: int, k: int, layout: str = "nt", dtype: str = "bfloat16") -> CallKind:
    sizes = (("m", m), ("n", n), ("k", k))
    return CallKind("mm", "gemm", sizes, dtype, (("layout", layout),), 2.0 * m * n * k)


class Cuda:
    """Graphs that take what was done while they were captured; events that read that clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pending = 0.0
        self.rights: list[int] = []

    def spend(self, time_ns: float, right: Any = None) -> None:
        self.pending += time_ns
        if right is not None:
            self.rights.append(right.data_ptr())

    @contextmanager
    def graph(self, graph: Any) -> Iterator[None]:
        self.pending, self.rights = 0.0, []
        yield
        graph.time_ns = self.pending

    def make_graph(self) -> Any:
        graph = SimpleNamespace(time_ns=0.0)
        graph.replay = lambda: setattr(self, "now", self.now + graph.time_ns)
        return graph

    def make_event(self, **_: Any) -> Any:
        event = SimpleNamespace(at=0.0, synchronize=lambda: None)
        event.record = lambda: setattr(event, "at", self.now)
        event.elapsed_time = lambda end: (end.at - event.at) / 1e6
        return event


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    fake = Cuda()
    stream = SimpleNamespace(wait_stream=lambda _: None)
    for name, value in {
        "CUDAGraph": fake.make_graph,
        "graph": fake.graph,
        "Event": fake.make_event,
        "Stream": lambda: stream,
        "stream": lambda _: nullcontext(),
        "current_stream": lambda: stream,
        "synchronize": lambda: None,
        "current_device": lambda: 0,
        "get_device_properties": lambda _: SimpleNamespace(L2_cache_size=1 << 20),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(timing, "_write", lambda _: fake.spend(700.0))
    return fake


def test_products_in_graphs_are_timed_in_turn_without_the_writes(cuda: Cuda) -> None:
    inside: list[str] = []

    class Replacing:
        def __enter__(self) -> None:
            inside.append("in")

        def __exit__(self, *_: object) -> None:
            inside.append("out")

    def multiply(_: Any, b: Any) -> None:
        cuda.spend(50_000.0 if inside[-1:] == ["in"] else 60_000.0, b)

    own, tuned = timing.times_in_turn(
        kind(16, 256, 64), [multiply, multiply], [nullcontext(), Replacing()], CallMode.GRAPH, "cpu", 5
    )
    assert own == pytest.approx([60_000.0] * 5)
    assert tuned == pytest.approx([50_000.0] * 5)


def test_right_operands_fill_the_cache_twice(cuda: Cuda) -> None:
    small = kind(16, 256, 256)  # 128 KiB beside a cache of 1 MiB
    assert timing._copies(256 * 256 * 2, "cuda") == 16
    assert timing._copies(1 << 30, "cuda") == 1
    made = timing.operands(small, "cpu", copies=16)
    assert len({b.data_ptr() for b in made.bs}) == 16
    timing._graph(lambda _, b: cuda.spend(1.0, b), small, made)
    assert len(cuda.rights) > 16
    assert len(set(cuda.rights[:16])) == 16  # none again before all others


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_operands_lie_as_the_layout_says(layout: str) -> None:
    made = timing.operands(kind(6, 10, 14, layout), "cpu")
    assert (made.a.shape, made.bs[0].shape) == ((6, 14), (14, 10))
    assert (made.a.is_contiguous(), made.bs[0].is_contiguous()) == (layout[0] == "n", layout[1] == "n")
    timing._write(made)
    assert torch.equal(made.written, -made.source)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_errors_are_those_of_the_rounding(dtype: str) -> None:
    one = kind(300, 20, 400, dtype=dtype)

    def wrong_at_the_end(a: Any, b: Any) -> Any:
        result = torch.mm(a, b)
        result[-1] *= 1.5
        return result

    right, wrong = timing.errors(one, [torch.mm, wrong_at_the_end], "cpu")
    assert right < {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-6}[dtype]
    assert wrong > 3 * right
