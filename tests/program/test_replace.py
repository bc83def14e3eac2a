"""Products of a torch program are replaced where that is faster; a stand-in on the CPU is the tuned operation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.program.two_layers import DOWN, UP, FakeGemm, TwoLayers, recorded

torch = pytest.importorskip("torch")

import tuner  # noqa: E402
from tuner.core.errors import CallError, TunerError, UsageError  # noqa: E402
from tuner.program.decisions import answers  # noqa: E402
from tuner.program.kinds import CallMode  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


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


def test_parts_of_matrices_are_timed_and_passed_as_they_lie(times: dict[str, tuple[float, float]]) -> None:
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
        lambda x: torch.addmm(torch.full((8,), torch.nan), x[0], x[1].t(), beta=0),
        lambda x: torch.addmm(x[0, :, :8].t(), x[0], x[1].t(), out=torch.empty(8, 16)[:, ::2]),
        lambda x: x[0, 1:, 4:8] @ x[1, :, 8:12].t(),
        lambda x: x[:, :, 4:8] @ x[:, :4],
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


@pytest.mark.parametrize(
    ("times_ns", "error", "dtype", "said"),
    [
        ((1.0, 1.0), 0.0, torch.float32, "as fast as torch's"),
        ((2.0, 1.0), 0.01, torch.bfloat16, "its error is 0.01"),
    ],
)
def test_what_is_no_faster_or_less_exact_is_left_to_torch(
    times: dict[str, tuple[float, float]], times_ns: tuple[float, float], error: float, dtype: Any, said: str
) -> None:
    times["gemm"] = times_ns
    a, b, gemm = torch.randn(64, 512, dtype=dtype), torch.randn(512, 96, dtype=dtype), FakeGemm(error)
    with tuner.replace(gemm, recorded(lambda a: a @ b, a)) as report:
        before = gemm.calls
        a @ b
    assert gemm.calls == before and said in str(report)


def test_a_wrong_device_or_database_is_named(tmp_path: Path) -> None:
    with pytest.raises(CallError, match="no device 'tpu'"), tuner.record(device="tpu"):
        pass
    with pytest.raises(TunerError, match="nothing"):
        tuner.replace(tmp_path / "nothing.db")
