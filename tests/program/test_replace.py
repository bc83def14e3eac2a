"""Products of a torch program are replaced where that is faster; a stand-in on the CPU is the tuned operation."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.program.two_layers import DOWN, UP, TwoLayers

torch = pytest.importorskip("torch")

import tuner  # noqa: E402
from tuner.core.errors import CallError, TunerError, UsageError  # noqa: E402
from tuner.program import products  # noqa: E402
from tuner.program.calls import Calls  # noqa: E402
from tuner.program.decisions import answers  # noqa: E402
from tuner.program.kinds import CallMode  # noqa: E402
from tuner.program.timing import scaled  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.no_grad():
        yield
    torch.set_num_threads(threads)


class FakeGemm:
    """A tuned operation that is as fast as it is told, by torch's own clock: it answers, and counts."""

    name = "gemm"

    def __init__(self, error: float = 0.0, refuses: str = "") -> None:
        self.calls, self.error, self.refuses = 0, error, refuses

    def __call__(self, a: Any, b: Any, out: Any = None) -> Any:
        if self.refuses:
            raise CallError(self.refuses)
        self.calls += 1
        result = torch.from_numpy(a.double().numpy() @ b.double().numpy()).to(a.dtype) * (1 + self.error)
        return result if out is None else out.copy_(result)


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[float, float]]:
    """Times of torch and of the tuned operation, in ns, by the beginning of a problem; measured where there is none."""
    told: dict[str, tuple[float, float]] = {}
    measure = products.times_in_turn

    def times_in_turn(kind: Any, ways: Any, around: Any, mode: CallMode, device: str) -> list[list[float]]:
        for begins, pair in told.items():
            if kind.problem.startswith(begins):
                told["measured " + kind.problem] = pair
                return [[time * (1 + n / 10000) for n in range(15)] for time in pair]
        return measure(kind, ways, around, mode, device)

    monkeypatch.setattr(products, "times_in_turn", times_in_turn)
    monkeypatch.setattr(tuner.replace, "_passing_on_ns", lambda _: 0.0)
    return told


def recorded(program: Any, x: Any) -> Calls:
    with tuner.record() as calls:
        program(x)
    return calls


@pytest.mark.parametrize("backend", ["", "aot_eager"])
def test_what_is_faster_is_replaced(times: dict[str, tuple[float, float]], backend: str) -> None:
    times |= {UP: (2000.0, 1000.0), DOWN: (1000.0, 2000.0)}
    model, x, gemm = TwoLayers(), torch.randn(2, 5, 64), FakeGemm()
    program = torch.compile(model, backend=backend, fullgraph=True) if backend else model
    wanted = program(x)  # compiled before anything is replaced
    calls = recorded(program, x)
    with tuner.replace(gemm, calls) as report:
        before = gemm.calls
        torch.testing.assert_close(program(x), wanted)
        assert gemm.calls == before + 1
    program(x)
    assert gemm.calls == before + 1
    text = str(report)
    up, down = (next(line for line in text.splitlines() if problem in line) for problem in (UP, DOWN))
    assert "replaced" in up and "2.000" in up
    assert "not faster" in down and "slower" in down and "0.500" in down
    assert "torch takes 3.0 us for all that was timed; with what is replaced 2.0 us" in text
    assert report.predict(10_000.0) == pytest.approx(9_000.0, rel=0.01)
    assert report.predict(100_000.0, calls.times(10)) == pytest.approx(90_000.0, rel=0.01)


def test_gradients_go_through_replaced_products(times: dict[str, tuple[float, float]]) -> None:
    times["gemm"] = (2.0, 1.0)
    model, x, gemm = TwoLayers(), torch.randn(10, 64, requires_grad=True), FakeGemm()
    with torch.enable_grad():
        wanted = torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])
        calls = recorded(lambda x: torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()]), x)
        with tuner.replace(gemm, calls):
            before = gemm.calls
            found = torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])
    assert gemm.calls - before == 6
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_only_modes_that_are_named_are_decided(times: dict[str, tuple[float, float]]) -> None:
    times["gemm"] = (2.0, 1.0)
    model, x, gemm = TwoLayers(), torch.randn(10, 64), FakeGemm()
    calls = recorded(model, x)
    with tuner.replace(gemm, calls, modes=["graph"]) as report:  # the CPU has no graphs
        model(x)
    assert not gemm.calls and "not timed" in str(report)
    with tuner.replace(gemm, calls, modes=["eager"]):
        model(x)
    assert gemm.calls
    with pytest.raises(CallError, match="no mode 'graphs'"):
        tuner.replace(gemm, modes=["graphs"])


def test_real_times_decide_without_being_told() -> None:
    model, x = TwoLayers(), torch.randn(10, 64)
    report = tuner.replace(FakeGemm(), recorded(model, x))  # slower: it multiplies in float64
    report.decide()
    assert [answer.outcome for answer in answers(report)] == ["not faster"] * 2
    assert report.predict(1000.0) == 1000.0
    for kind, _ in report.calls.heaviest():
        made = report.decision(kind, CallMode.EAGER)
        assert made is not None and made.ratio_low < made.ratio < made.ratio_high


def test_decisions_are_kept(times: dict[str, tuple[float, float]], tmp_path: Path) -> None:
    times["gemm"] = (2.0, 1.0)
    model, x, file, gemm = TwoLayers(), torch.randn(10, 64), tmp_path / "decisions.json", FakeGemm()
    tuner.replace(gemm, recorded(model, x), decisions=file).decide()
    times.clear()
    times["gemm"] = (1.0, 2.0)
    with tuner.replace(gemm, decisions=file) as report:  # a program that was not recorded again
        before = gemm.calls
        model(x)
        torch.mm(torch.randn(3, 4), torch.randn(4, 5))
    assert gemm.calls == before + 2
    assert not [name for name in times if name.startswith("measured")]
    assert "not timed" in next(line for line in str(report).splitlines() if "m=3" in line)
    both = [tuner.replace(gemm, decisions=file) for _ in range(2)]  # two processes with one file
    for report, rows_ in zip(both, (3, 5), strict=True):
        report.decide(recorded(lambda m: torch.mm(torch.randn(m, 8), torch.randn(8, 8)), rows_))
    assert file.read_text().count('"problem"') == 4
    file.write_text('{"format": "something else"}')
    with pytest.raises(UsageError, match=r"decisions\.json"):
        tuner.replace(gemm, decisions=file)


def test_what_cannot_be_replaced_says_why(times: dict[str, tuple[float, float]]) -> None:
    times["gemm"] = (2.0, 1.0)
    model, x = TwoLayers(bias=True), torch.randn(10, 64)
    calls = recorded(model, x)
    with tuner.replace(FakeGemm(error=0.01), calls) as report:
        torch.testing.assert_close(model(x), model(x))
    assert "its error is 0.01" in str(report)
    assert "no operation of linear is given" in str(report)
    with tuner.replace(FakeGemm(refuses="k is odd"), calls) as report:
        model(x)
    assert "no valid configuration: k is odd" in str(report)


def test_a_call_that_is_refused_is_left_to_torch(times: dict[str, tuple[float, float]]) -> None:
    times["gemm"] = (2.0, 1.0)
    model, x, gemm = TwoLayers(), torch.randn(10, 64), FakeGemm()
    with tuner.replace(gemm, recorded(model, x)) as report:
        gemm.refuses = "a lies at 0x7"
        model(x)
    assert "1 calls: a lies at 0x7" in str(report)


def test_a_bias_is_not_forgotten_beside_the_same_product_without(
    times: dict[str, tuple[float, float]],
) -> None:
    times["gemm"] = (2.0, 1.0)
    plain, biased, x, gemm = TwoLayers(), TwoLayers(bias=True), torch.randn(10, 64), FakeGemm()

    def program(x: Any) -> Any:
        return plain(x), biased(x)

    wanted, calls = program(x), recorded(program, x)
    with tuner.replace(gemm, calls) as report:
        for _ in range(2):
            for one, other in zip(program(x), wanted, strict=True):
                torch.testing.assert_close(one, other)
            report.decide()
    assert report.predict(100.0) == pytest.approx(97.0, rel=1e-3)  # three of four calls gain 1 ns


def test_what_was_seen_before_may_be_decided_later(times: dict[str, tuple[float, float]]) -> None:
    times["gemm"] = (2.0, 1.0)
    model, x, gemm = TwoLayers(), torch.randn(10, 64), FakeGemm()
    report = tuner.replace(gemm)
    with report:
        model(x)
    assert gemm.calls == 0
    report.decide(recorded(model, x))
    before = gemm.calls
    with report:
        model(x)
    assert gemm.calls == before + 2


def test_an_operation_may_call_torch(times: dict[str, tuple[float, float]]) -> None:
    times["gemm"] = (2.0, 1.0)
    model, x = TwoLayers(), torch.randn(10, 64)
    with tuner.replace(lambda a, b, out=None: torch.mm(a, b, out=out), recorded(model, x)) as report:
        torch.testing.assert_close(model(x), model(x))
    assert [report.taken(kind) for kind in report.seen()] == [2, 2]


def test_outputs_that_are_given(times: dict[str, tuple[float, float]]) -> None:
    times["gemm"] = (2.0, 1.0)
    a, b, gemm = torch.randn(4, 8, 16), torch.randn(16, 24), FakeGemm()
    out, rows_apart, resized = torch.empty(4, 8, 24), torch.empty(8, 48)[:, :24], torch.empty(0)

    def program(_: Any) -> None:
        torch.bmm(a, b.expand(4, 16, 24), out=out)
        torch.mm(a[0], b, out=rows_apart)
        torch.mm(a[0], b, out=resized)

    calls = recorded(program, None)
    with tuner.replace(gemm, calls):
        before = gemm.calls
        program(None)
    assert gemm.calls == before + 1  # not into rows that lie apart, nor into what torch enlarges
    torch.testing.assert_close(resized, a[0] @ b)
    torch.testing.assert_close(out, a @ b)
    torch.testing.assert_close(rows_apart, a[0] @ b)


def test_parts_of_matrices_are_timed_and_passed_as_they_lie(
    times: dict[str, tuple[float, float]],
) -> None:
    x, w, lying = torch.randn(16, 96), torch.randn(24, 32), []

    class Seen(FakeGemm):
        def __call__(self, a: Any, b: Any, out: Any = None) -> Any:
            lying.append((a.stride(), b.stride()))
            return super().__call__(a, b, out)

    def program(_: Any) -> Any:
        return x[:, 32:64] @ w.t(), x[:, :32].contiguous() @ w.t()

    times |= {"gemm m=16 n=24 k=32 float32 layout=nt lda=96": (2.0, 1.0), "gemm": (1.0, 2.0)}
    wanted, calls, seen = program(None), recorded(program, None), Seen()
    with tuner.replace(seen, calls) as report:
        lying.clear()
        torch.testing.assert_close(program(None), wanted)
    assert lying == [((96, 1), (1, 32))]
    report = tuner.replace(seen, calls)  # by real times, of operands that lie so, too
    times.clear()
    lying.clear()
    report.decide()
    assert {a for a, _ in lying} == {(96, 1), (32, 1)}


def test_a_decision_is_for_calls_of_its_kind(times: dict[str, tuple[float, float]]) -> None:
    square = "gemm m=16 n=16 k=16 float32 layout="
    times |= {f"{square}nt": (2.0, 1.0), f"{square}nn": (1.0, 2.0)}
    a, w = torch.randn(16, 16), torch.randn(16, 16)

    def program(_: Any) -> None:
        a @ w.t()
        a @ w  # of the same shapes

    calls, gemm = recorded(program, None), FakeGemm()
    with tuner.replace(gemm, calls):
        before = gemm.calls
        program(None)
    assert gemm.calls == before + 1


def heads() -> Any:
    torch.manual_seed(0)
    return torch.nn.MultiheadAttention(32, 4, batch_first=True).eval()


@pytest.mark.parametrize(
    "program",
    [
        lambda x: torch.vmap(torch.mm, (0, None))(x, x[0].t().contiguous()),
        lambda x: torch.func.grad(lambda w: (x[0] @ w).sin().sum())(x[1].t().contiguous()),
        lambda x: heads()(x, x, x)[0],
        lambda x: x[0].relu().to_sparse() @ x[0].t(),
        lambda x: x[0].to(torch.complex64).conj() @ x[0].t().to(torch.complex64),
        lambda x: torch.addmm(x[0, 0, :8], x[0], x[1].t(), beta=0.5, alpha=2),
        lambda x: torch.addmm(x[0, :, :8] + 0j, x[0] + 0j, x[1].t() + 0j, alpha=1j),
        lambda x: torch.addmm(torch.ones(()), x[0], x[1].t()),
        lambda x: torch.addmm(x[0, :, :1], x[0], x[1].t()),
        lambda x: torch.baddbmm(torch.ones(5, 8, 8), x, x.mT),
        lambda x: torch.inference_mode()(torch.mm)(x[0], x[0].t()),
        lambda x: torch.linalg.lstsq(x[0].t(), x[1].t()).solution,
        lambda x: torch.autocast("cpu", torch.bfloat16)(torch.mm)(x[0], x[0].t()),
    ],
)
def test_programs_do_what_they_did(times: dict[str, tuple[float, float]], program: Any) -> None:
    times["gemm"] = (2.0, 1.0)
    x = torch.randn(5, 8, 32)
    wanted = program(x)
    with tuner.record() as calls:
        torch.testing.assert_close(program(x), wanted)
    with tuner.replace(FakeGemm(), calls):
        torch.testing.assert_close(program(x), wanted, rtol=1e-2, atol=1e-4)


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


@pytest.mark.parametrize("backend", ["", "aot_eager"])
def test_layers_of_a_model_keep_their_replacement(
    times: dict[str, tuple[float, float]], backend: str
) -> None:
    times |= {UP: (2.0, 1.0), DOWN: (1.0, 2.0)}
    model, x, gemm = TwoLayers(), torch.randn(2, 5, 64), FakeGemm()
    wanted, names = model(x), list(model.state_dict())
    report = tuner.replace(gemm, recorded(model, x))
    assert report.linear_layers(model, "eager") == ["up"]
    assert list(model.state_dict()) == names
    program = torch.compile(model, backend=backend) if backend else model
    if not backend:
        before = gemm.calls
        program(x)
        program(torch.randn(3, 64))  # rows that nothing was decided for
        assert gemm.calls == before + 1
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(program(x).sum(), [model.up.weight])
            assert slope.abs().max() > 0
        with pytest.raises(RuntimeError, match="dtype"):
            model.up(x.bfloat16())  # as torch refuses it
    torch.testing.assert_close(program(x), wanted)


def test_layers_with_a_bias_or_of_another_layout_stay_torchs(times: dict[str, tuple[float, float]]) -> None:
    times["gemm"] = (2.0, 1.0)
    x, weight = torch.randn(10, 64), torch.randn(64, 96)
    report = tuner.replace(FakeGemm(), recorded(TwoLayers(), x))
    assert report.linear_layers(TwoLayers(bias=True), "eager") == ["up"]
    report = tuner.replace(FakeGemm(), recorded(lambda x: x @ weight, x))
    assert report.linear_layers(TwoLayers(), "eager") == [] and "replaced" in str(report)


@pytest.mark.parametrize(
    ("times_ns", "error", "dtype", "said"),
    [
        ((1.0, 1.0), 0.0, torch.float32, "as fast as torch's"),
        ((2.0, 1.0), 0.01, torch.bfloat16, "its error is 0.01"),
    ],
)
def test_what_is_no_faster_or_less_exact_is_left_to_torch(
    times: dict[str, tuple[float, float]],
    times_ns: tuple[float, float],
    error: float,
    dtype: Any,
    said: str,
) -> None:
    times["gemm"] = times_ns
    a, b, gemm = torch.randn(64, 512, dtype=dtype), torch.randn(512, 96, dtype=dtype), FakeGemm(error)
    with tuner.replace(gemm, recorded(lambda a: a @ b, a)) as report:
        before = gemm.calls
        a @ b
    assert gemm.calls == before and said in str(report)


def test_a_missing_torch_is_named() -> None:
    program = """
import sys
sys.modules["torch"] = None
import tuner
try:
    tuner.record
except tuner.core.errors.CallError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "tuner.record needs torch; install torch 2.10 or later\n"


def test_a_wrong_device_or_database_is_named(tmp_path: Path) -> None:
    with pytest.raises(CallError, match="no device 'tpu'"), tuner.record(device="tpu"):
        pass
    with pytest.raises(TunerError, match="nothing"):
        tuner.replace(tmp_path / "nothing.db")


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
    layers = torch.nn.Sequential(layer)
    assert report.linear_layers(layers, "eager") == ["0"]
    linear.calls.clear()
    torch.testing.assert_close(layers(x), torch.nn.functional.linear(x, layer.weight, layer.bias))
    assert linear.calls == [(*shapes, (32,), {})]


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
        assert report.linear_layers(TwoLayers(), "eager") == ["up"]  # which intercepts nothing
    monkeypatch.undo()
    assert 0.0 < tuner.replace(gemm)._passing_on_ns() < 1e6
