"""Layers, biases, batches and groups are replaced, and a decision is for one configuration."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.program.two_layers import DOWN, UP, FakeGemm, TwoLayers, recorded

torch = pytest.importorskip("torch")

import tuner  # noqa: E402
from tuner.core.errors import CallError  # noqa: E402
from tuner.program.decisions import answers  # noqa: E402
from tuner.program.timing import scaled  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


class Planned(FakeGemm):
    """A tuned operation that says what it would run, as those of ``tuner.load`` do."""

    def __init__(self, stages: int) -> None:
        super().__init__()
        self.stages, self.warmed = stages, [0]

    def plan(self, *, dtypes: dict[str, str], options: dict[str, str], **sizes: int) -> Any:
        if dtypes != {"input": "float32"} or options != {"layout": "nt"}:
            raise CallError("gemm is here with float32 nt")
        if sizes["k"] == 96:
            raise CallError("k is 96")
        return SimpleNamespace(variant="wgmma", parameters={"stages": self.stages})

    def warm(self, problems: Any) -> None:
        self.warmed += [problem["k"] for problem in problems]


def test_a_decision_is_for_one_configuration(times: dict[str, tuple[float, float]], tmp_path: Path) -> None:
    times["gemm"] = (2.0, 1.0)
    model, x, file = TwoLayers(), torch.randn(10, 64), tmp_path / "decisions.json"
    calls, first = recorded(model, x), Planned(stages=4)
    report = tuner.replace(first, calls, decisions=file)
    report.decide()
    assert "no valid configuration: k is 96" in str(report)
    same, other = Planned(stages=4), Planned(stages=5)
    with tuner.replace(same, calls, decisions=file):  # it is loaded before it may be captured
        assert (same.warmed, same.calls) == ([0, 64], 0)
    with tuner.replace(other, calls, decisions=file):
        assert other.calls  # measured again
    assert file.read_text().count('"replaced": true') == 2


class FakeOperation:
    """Of a kernel of products: computes by torch, in float64, what it is told, and keeps what it was called with."""

    def __init__(self, name: str) -> None:
        self.name, self.calls = name, []

    def __call__(self, a: Any, b: Any, *added: Any, out: Any = None, **numbers: float) -> Any:
        self.calls.append((tuple(a.shape), tuple(b.shape), *(tuple(each.shape) for each in added), numbers))
        if self.name == "grouped":
            bounds = [0, *added[0].tolist()]
            made = torch.cat([a[s:e] @ b[g] for g, (s, e) in enumerate(pairwise(bounds))])
        elif self.name == "bmm":
            made = (a.double() @ b.double().transpose(1, 2)).to(a.dtype)
        elif self.name == "scaled_mm":
            made = (scaled(a.double(), added[0]) @ scaled(b.double(), added[1])).to(torch.bfloat16)
        else:
            made = numbers.get("alpha", 1.0) * (a.double() @ b.double())
            if added:
                made += numbers.get("beta", 1.0) * added[0].double()
            made = made.to(a.dtype)
        return made if out is None else out.copy_(made)


def test_bias_residual_and_batches_are_replaced(times: dict[str, tuple[float, float]]) -> None:
    times |= {"linear": (2.0, 1.0), "bmm": (2.0, 1.0)}
    layer, x, scores = torch.nn.Linear(64, 32), torch.randn(2, 5, 64), torch.randn(3, 8, 16)

    def program(x: Any) -> Any:
        up = layer(x)  # a bias
        rows = torch.addmm(up.flatten(0, 1), x.flatten(0, 1), layer.weight.t(), beta=3, alpha=2)  # a residual
        return rows.sum() + torch.bmm(scores, scores.transpose(1, 2)).sum()

    wanted, calls = program(x), recorded(program, x)
    linear, bmm = FakeOperation("linear"), FakeOperation("bmm")
    with tuner.replace({"linear": linear, "bmm": bmm}, calls) as report:
        linear.calls.clear(), bmm.calls.clear()
        torch.testing.assert_close(program(x), wanted)
    shapes = ((10, 64), (64, 32))
    assert linear.calls == [(*shapes, (32,), {}), (*shapes, (10, 32), {"alpha": 2.0, "beta": 3.0})]
    assert bmm.calls == [((3, 8, 16), (3, 8, 16), {})]  # as it lies in memory
    assert [answer.outcome for answer in answers(report) if answer.calls] == ["replaced"] * 3


def test_groups_of_rows_are_replaced(times: dict[str, tuple[float, float]]) -> None:
    times["grouped"] = (2.0, 1.0)
    a, b = torch.randn(20, 32).bfloat16(), torch.randn(3, 32, 16).bfloat16()
    ends, grouped = torch.tensor([7, 7, 20], dtype=torch.int32), FakeOperation("grouped")

    def program(_: Any) -> Any:
        return torch._grouped_mm(a, b, offs=ends)

    wanted, calls = program(None), recorded(program, None)
    with tuner.replace({"grouped": grouped}, calls) as report:
        grouped.calls.clear()
        torch.testing.assert_close(program(None), wanted)
    assert grouped.calls == [((20, 32), (3, 32, 16), (3,), {})]
    assert "replaced 100.0 %" in str(report)


def test_batches_with_what_is_added_are_replaced(times: dict[str, tuple[float, float]]) -> None:
    times["baddbmm"] = (2.0, 1.0)
    q, k, mask = torch.randn(3, 8, 16), torch.randn(3, 16, 24), torch.randn(3, 1, 24)

    def program(_: Any) -> Any:
        anything = torch.full((1,), torch.nan)  # which is not even read
        first = torch.baddbmm(mask, q, k, alpha=0.25, beta=3)
        return torch.baddbmm(first, q, k), torch.baddbmm(anything, q, k, beta=0, alpha=0.25)

    wanted, calls = program(None), recorded(program, None)
    baddbmm = FakeOperation("baddbmm")
    with tuner.replace({"baddbmm": baddbmm}, calls) as report:
        baddbmm.calls.clear()
        torch.testing.assert_close(program(None), wanted)
    shapes = ((3, 8, 16), (3, 16, 24))
    numbers = {"alpha": 0.25, "beta": 3.0}
    assert baddbmm.calls == [
        (*shapes, (3, 1, 24), numbers),
        (*shapes, (3, 8, 24), {}),
        (*shapes, {"alpha": 0.25}),
    ]
    assert "replaced 100.0 %" in str(report)


@pytest.mark.parametrize("scales", [((), (1,)), ((256, 1), (1, 128)), ((256, 3), (3, 1))])
def test_products_of_eight_bits_are_replaced(times: dict[str, tuple[float, float]], scales: Any) -> None:
    times["scaled_mm"] = (2.0, 1.0)
    a, b = (torch.randn(rows, 384).to(torch.float8_e4m3fn) for rows in (256, 128))
    of_a, of_b = (
        torch.rand(shape[::-1]).t() + 0.5 if len(shape) > 1 else torch.rand(shape) for shape in scales
    )

    def by_hand(
        a: Any, b: Any, of_a: Any, of_b: Any, *_: Any, **named: Any
    ) -> Any:  # the CPU's has no blocks
        of_a, of_b = (each.view(1, 1) if each.numel() == 1 else each for each in (of_a, of_b))
        return (scaled(a.float(), of_a) @ scaled(b.float(), of_b)).bfloat16()

    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("_scaled_mm", by_hand, "CPU", allow_override=True)

        def program(_: Any) -> Any:
            return torch._scaled_mm(a, b.t(), of_a, of_b, out_dtype=torch.bfloat16)

        wanted, calls = program(None), recorded(program, None)
        operation = FakeOperation("scaled_mm")
        with tuner.replace({"scaled_mm": operation}, calls) as report:
            operation.calls.clear()
            torch.testing.assert_close(program(None), wanted)
    taken = [each if len(each) > 1 else (1, 1) for each in scales]
    assert operation.calls == [((256, 384), (384, 128), *taken, {})]
    assert "replaced 100.0 %" in str(report)


def test_results_in_float32_of_shorter_operands_are_replaced(times: dict[str, tuple[float, float]]) -> None:
    times |= {"linear": (2.0, 1.0), "baddbmm": (2.0, 1.0)}
    a, b = torch.randn(2, 8, 16).bfloat16(), torch.randn(2, 16, 24).bfloat16()

    def tuned(a: Any, b: Any, out: Any = None) -> Any:
        made = (a.double() @ b.double()).float()
        return made if out is None else out.copy_(made)

    def program(_: Any) -> Any:
        out = torch.empty(8, 24)
        torch.mm(a[1], b[0], out_dtype=torch.float32, out=out)
        return torch.mm(a[0], b[0], out_dtype=torch.float32), torch.bmm(a, b, out_dtype=torch.float32), out

    def product(a: Any, b: Any, dtype: Any, out: Any = None) -> Any:
        """Of a CPU, which has none; this calls no other product."""
        made = (a.to(dtype).unsqueeze(-1) * b.to(dtype).unsqueeze(-3)).sum(-2)
        return made if out is None else out.copy_(made)

    with torch.library._scoped_library("aten", "IMPL") as library:
        for name in ("mm.dtype", "mm.dtype_out", "bmm.dtype"):
            library.impl(name, product, "CPU")
        wanted, calls = program(None), recorded(program, None)
        assert [kind.problem for kind, _ in calls.heaviest() if kind.is_product] == [
            "baddbmm batch=2 m=8 n=24 k=16 bfloat16 layout=nn broadcast=none op=x output=float32",
            "linear m=8 n=24 k=16 bfloat16 layout=nn op=x output=float32",
        ]
        with tuner.replace({"linear": tuned, "baddbmm": tuned}, calls) as report:
            found = program(None)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)
    assert sum(report.taken(kind) for kind in report.seen()) == 3


def test_eager_calls_are_not_intercepted_at_a_loss(
    times: dict[str, tuple[float, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One product gains 1 us, and the other loses what looking at it takes."""
    times |= {UP: (2000.0, 1000.0), DOWN: (1000.0, 2000.0)}
    model, x, gemm = TwoLayers(), torch.randn(10, 64), FakeGemm()
    calls = recorded(model, x)
    for passing_on_ns, replaced in ((1500.0, 0), (500.0, 1)):
        monkeypatch.setattr(tuner.replace, "_passing_on_ns", lambda _, ns=passing_on_ns: ns)
        with tuner.replace(gemm, calls) as report:
            before = gemm.calls
            model(x)
        assert gemm.calls == before + replaced
        assert ("costs more than is gained" in str(report)) is not bool(replaced)
        assert report.predict(10_000.0) == pytest.approx(10_000.0 - 1000.0 * replaced, rel=0.01)
    monkeypatch.undo()
    assert 0.0 < tuner.replace(gemm)._passing_on_ns() < 1e6
