"""Which products a torch program calls: counted in eager, compiled and captured code."""

from __future__ import annotations

from typing import Any

import pytest

from tests.program.two_layers import DOWN, UP, TwoLayers, counted

torch = pytest.importorskip("torch")

import tuner  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("backend", ["", "inductor"])
def test_products_are_counted_in_eager_and_compiled_code(backend: str) -> None:
    model, x = TwoLayers(), torch.randn(2, 5, 64)
    program = torch.compile(model, backend=backend, fullgraph=True) if backend else model
    with tuner.record() as calls:
        for _ in range(3):
            program(x)
    assert counted(calls) == {f"{UP} eager": 3, f"{DOWN} eager": 3}
    with tuner.record() as again:  # what was compiled before
        program(x)
    assert counted(again) == {f"{UP} eager": 1, f"{DOWN} eager": 1}
    program(x)
    assert sum(again.counts.values()) == 2


def test_gradients_are_products_of_other_layouts() -> None:
    model, x = TwoLayers(), torch.randn(10, 64)
    with torch.enable_grad(), tuner.record() as calls:
        model(x).sum().backward()
    found = counted(calls)
    assert found[f"{UP} eager"] == found[f"{DOWN} eager"] == 1
    # The output's gradient is one number, expanded: a matrix with gaps.
    assert found["gemm m=96 n=64 k=10 float32 layout=tn eager"] == 1
    assert any("operand a is a part" in kind.obstacle for kind, _ in calls.counts)


def eight(
    a: Any, b: Any, *scales: Any, dtype: Any = torch.bfloat16, bias: Any = None, fast: bool = True
) -> Any:
    a, b = a.repeat(1, 8), b.repeat(3, 4)[:, :16].repeat(3, 1)[:32]
    a, b = a.to(torch.float8_e4m3fn), b.t().contiguous().to(torch.float8_e4m3fn).t()
    scales = scales or (torch.ones(()), torch.ones(1))
    return torch._scaled_mm(a, b, *scales, bias, out_dtype=dtype, use_fast_accum=fast)


PRODUCTS: list[tuple[Any, str]] = [
    (lambda a, b: torch.mm(a, b), "gemm m=8 n=6 k=4 float32 layout=nn"),
    (lambda a, b: a @ b.t().contiguous().t(), "gemm m=8 n=6 k=4 float32 layout=nt"),
    (lambda a, b: a.t().contiguous().t() @ b, "gemm m=8 n=6 k=4 float32 layout=tn"),
    (lambda a, b: torch.bmm(a[None], b[None]), "gemm m=8 n=6 k=4 float32 layout=nn"),
    (lambda a, b: torch.bmm(a.expand(3, 8, 4).clone(), b.expand(3, 4, 6)), "gemm m=24 n=6 k=4"),
    (lambda a, b: torch.matmul(a.view(2, 2, 2, 4), b), "gemm m=8 n=6 k=4 float32 layout=nn"),
    (
        lambda a, b: torch.bmm(a.view(2, 4, 4), b.expand(2, 4, 6).clone()),
        "bmm batch=2 m=4 n=6 k=4 float32 layout=nn broadcast=none",
    ),
    (
        lambda a, b: torch.bmm(a.view(2, 4, 4).transpose(1, 2), b.expand(2, 4, 6)),
        "bmm batch=2 m=4 n=6 k=4 float32 layout=tn broadcast=b",
    ),
    (lambda a, b: torch.addmm(b[0], a, b), "linear m=8 n=6 k=4 float32 layout=nn op=x + bias"),
    (
        lambda a, b: torch.addmm(a @ b, a, b, alpha=2),
        "linear m=8 n=6 k=4 float32 layout=nn op=alpha * x + beta * residual",
    ),
    (
        lambda a, b: torch._addmm_activation(b[0], a, b, use_gelu=True),
        "linear m=8 n=6 k=4 float32 layout=nn op=gelu(x + bias)",
    ),
    (
        lambda a, b: torch.baddbmm((a @ b).view(2, 4, 6), a.view(2, 4, 4), b.expand(2, 4, 6), alpha=3),
        "linear m=8 n=6 k=4 float32 layout=nn op=alpha * x + beta * residual",
    ),
    (
        lambda a, b: torch.baddbmm(b[:2].view(2, 1, 6), a.view(2, 4, 4), b.expand(2, 4, 6).clone(), beta=3),
        "baddbmm batch=2 m=4 n=6 k=4 float32 layout=nn broadcast=none op=alpha * x + beta * bias",
    ),
    (
        lambda a, b: torch.baddbmm(
            a.view(2, 4, 4)[:, :, :1].clone(), a.view(2, 4, 4), b.view(2, 2, 6).repeat(1, 2, 1)
        ),
        "baddbmm batch=2 m=4 n=6 k=4 float32 layout=nn broadcast=none op=x + row_bias",
    ),
    (
        lambda a, b: torch.baddbmm(
            b.new_full((1,), torch.nan), a.view(2, 4, 4), b.view(2, 2, 6).repeat(1, 2, 1), beta=0, alpha=0.5
        ),
        "baddbmm batch=2 m=4 n=6 k=4 float32 layout=nn broadcast=none op=alpha * x",
    ),
    (
        lambda a, b: torch.addmm(b.new_full((1,), torch.nan), a, b, beta=0),
        "gemm m=8 n=6 k=4 float32 layout=nn",
    ),
    (lambda a, b: eight(a, b), "scaled_mm m=8 n=16 k=32 float8_e4m3fn scales=tensor accumulation=fast"),
    (
        lambda a, b: eight(a, b, torch.ones(8, 1), torch.ones(1, 16), fast=False),
        "scaled_mm m=8 n=16 k=32 float8_e4m3fn scales=rows accumulation=promoted layout=nt output=bfloat16",
    ),
    (
        lambda a, b: a.repeat(1, 4)[:, 4:12] @ b.repeat(2, 1).t().repeat(3, 2)[:6, 4:12].t(),
        "gemm m=8 n=6 k=8 float32 layout=nt lda=16 ldb=16",
    ),
    (
        lambda a, b: torch.bmm(a.repeat(2, 4).view(4, 4, 16)[:, :, 8:12], b.repeat(4, 2).view(4, 4, 12)),
        "bmm batch=4 m=4 n=12 k=4 float32 layout=nn broadcast=none lda=16",
    ),
    (lambda a, b: a.bfloat16() @ b.bfloat16(), "gemm m=8 n=6 k=4 bfloat16 layout=nn"),
    (
        lambda a, b: torch._grouped_mm(
            a.bfloat16().repeat(1, 4),
            b.bfloat16().repeat(4, 4).expand(2, 16, 24).clone(),
            offs=torch.tensor([3, 8], dtype=torch.int32),
        ),
        "grouped groups=2 m=8 n=24 k=16 bfloat16 layout=nn ragged=m",
    ),
    (lambda a, b: a.sum(), "reduce n=32 float32 op=sum"),
]
OBSTACLES: list[tuple[Any, str, str]] = [
    (
        lambda a, b: torch.bmm(a.view(2, 4, 4)[:, :3], b.expand(2, 4, 6).clone()),
        "bmm batch=2",
        "matrices of a batch of 2",
    ),
    (lambda a, b: torch.addmm(b[0].expand(8, 6).t().clone().t(), a, b), "gemm m=8", "adds what is no bias"),
    (
        lambda a, b: torch.baddbmm(a[:2, :1].view(2, 1, 1), a.view(2, 4, 4), b.expand(2, 4, 6).clone()),
        "bmm batch=2",
        "adds what is no bias",
    ),
    (  # a row for all products, not one for each of as many as there are rows
        lambda a, b: torch.baddbmm(b[None], a.view(4, 2, 4).repeat(1, 2, 1), b.expand(4, 4, 6).clone()),
        "bmm batch=4 m=4",
        "adds what is no bias",
    ),
    (lambda a, b: eight(a, b, bias=torch.ones(16).bfloat16()), "scaled_mm", "has a bias"),
    (lambda a, b: eight(a, b, dtype=None), "scaled_mm", "dtypes float8_e4m3fn, float8_e4m3fn, float8"),
    (lambda a, b: a.double() @ b.double(), "gemm m=8 n=6 k=4 float64 layout=nn", "dtype float64"),
    (lambda a, b: a @ b[:, :5], "mm m=8 n=5 k=4 float32", "operand b is a part"),
]


@pytest.mark.parametrize(("call", "problem", "obstacle"), [*((*row, "") for row in PRODUCTS), *OBSTACLES])
def test_what_a_call_is(call: Any, problem: str, obstacle: str) -> None:
    with tuner.record() as calls:
        call(torch.randn(8, 4), torch.randn(4, 6))
    *_, (kind, _) = calls.counts
    assert kind.problem.startswith(problem)
    assert kind.obstacle.startswith(obstacle) and bool(kind.obstacle) == bool(obstacle)


def test_what_computes_nothing_is_not_counted() -> None:
    with tuner.record() as calls:
        torch.mm(torch.randn(0, 4), torch.randn(4, 6))
        torch.mm(torch.randn(3, 0), torch.randn(0, 6))
    assert not calls.counts
    assert "no calls" in str(calls)


class FakeGraph:
    """A CUDA graph that runs nothing when it is replayed."""

    def capture_begin(self) -> None: ...

    def capture_end(self) -> None: ...

    def replay(self) -> None: ...


def test_captured_calls_count_as_often_as_they_are_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    model, x, graph, other = TwoLayers(), torch.randn(10, 64), FakeGraph(), FakeGraph()
    other.capture_begin()
    model(x)
    other.capture_end()
    with tuner.record() as calls:
        model(x)
        graph.capture_begin()
        model(x)
        graph.capture_end()
        graph.replay()
        other.replay()
    assert counted(calls) == {f"{p} {m}": 1 for p in (UP, DOWN) for m in ("eager", "graph")}
    assert calls.unknown_replays == 1 and "not counted: 1 replays" in str(calls)
    with tuner.record() as later:
        for _ in range(4):
            graph.replay()
    assert counted(later) == {f"{UP} graph": 4, f"{DOWN} graph": 4}
    graph.replay()
    assert sum(later.counts.values()) == 8


def test_a_program_that_fails_leaves_torch_as_it_was() -> None:
    with pytest.raises(RuntimeError), tuner.record() as calls:
        torch.mm(torch.randn(2, 3), torch.randn(4, 5))
    torch.mm(torch.randn(2, 3), torch.randn(3, 5))
    assert sum(calls.counts.values()) <= 1
