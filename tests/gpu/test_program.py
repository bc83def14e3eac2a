"""Programs of torch on the GPU: recorded and replaced, eagerly, in CUDA graphs and in compiled code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.stored_winners import store_winners
from tuner.devices.local import LocalDevice
from tuner.kernel.load import load_kernel
from tuner.kernel.space import SearchSpace
from tuner.runtime.operation import Operation

torch = pytest.importorskip("torch")

from tuner.program import products  # noqa: E402

SIZES = {"m": 256, "n": 512, "k": 1024}


@pytest.fixture(scope="module")
def gemm(device: LocalDevice, tmp_path_factory: pytest.TempPathFactory) -> Operation:
    """The default configurations for all layouts, as if they had won."""
    kernel, folder = load_kernel("gemm"), tmp_path_factory.mktemp("gemm")
    problems = [
        kernel.problem(SIZES, {"input": "bfloat16"}, {"layout": layout}) for layout in ("nn", "nt", "tn")
    ]
    stored = [(one, SearchSpace.from_kernel(kernel, one, device.gpu).default) for one in problems]
    store_winners(folder / "w.db", kernel, stored, device.gpu)
    command = ["bundle", "--kernel", "gemm", "--db", folder / "w.db", "-o", folder / "b"]
    subprocess.run([sys.executable, "-m", "tuner", *command], check=True)
    return tuner.load("gemm", bundle=folder / "b")


@pytest.fixture
def faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every product be faster than torch's."""
    monkeypatch.setattr(products, "times_in_turn", lambda *_: [[2000.0] * 15, [1000.0] * 15])


class Layers(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(1024, 512, bias=False, device="cuda", dtype=torch.bfloat16)
        self.down = torch.nn.Linear(512, 1024, bias=False, device="cuda", dtype=torch.bfloat16)

    def forward(self, x: Any) -> Any:
        return self.down(torch.relu(self.up(x)))


def some(rows: int = 256) -> Any:
    return torch.randn(rows, 1024, device="cuda", dtype=torch.bfloat16)


def captured(program: Any, x: Any) -> tuple[Any, Any]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        program(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = program(x)
    return graph, y


def close(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual.float(), expected.float(), rtol=2e-2, atol=2e-2)


@torch.no_grad()
def test_graphs_are_recorded_and_replaced(gemm: Operation, faster: None) -> None:
    model, x = Layers(), some()
    with tuner.record() as calls:
        graph, _ = captured(model, x)
        for _ in range(3):
            graph.replay()
    assert sorted(calls.counts.values()) == [1, 1, 3, 3]
    assert {str(mode) for _, mode in calls.counts} == {"eager", "graph"}
    with tuner.replace(gemm, calls) as report:
        replaced, y = captured(model, x)
    assert [report.taken(kind) for kind in report.seen()] == [2, 2]
    assert "refused" not in str(report)
    for _ in range(2):
        x.copy_(some())
        replaced.replay()
        close(y, model(x))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_code_is_recorded_and_replaced(gemm: Operation, faster: None, mode: str) -> None:
    torch.compiler.reset()
    model, x = Layers(), some()
    with torch.no_grad():
        program, wanted = torch.compile(model, mode=mode, fullgraph=True), model(x)
        with tuner.record() as calls:
            program(x)
        assert len(calls.counts) == 2
        with tuner.replace(gemm, calls) as report:
            torch.compiler.reset()  # a graph keeps what it was captured with
            for _ in range(4):
                close(program(x), wanted)
        assert all(report.taken(kind) for kind in report.seen())


def test_gradients_go_through_replaced_products(gemm: Operation, faster: None) -> None:
    model, x = Layers(), some().requires_grad_()
    weights = torch.randn(256, 1024, device="cuda", dtype=torch.bfloat16)

    def gradients() -> Any:
        return torch.autograd.grad((model(x) * weights).sum(), [x, *model.parameters()])

    wanted = gradients()
    with tuner.record() as calls:
        gradients()
    with tuner.replace(gemm, calls) as report:
        found = gradients()
    assert sum(report.taken(kind) for kind in report.seen()) == 6
    for one, other in zip(found, wanted, strict=True):
        assert float((one.float() - other.float()).norm() / other.float().norm()) < 2e-2


@torch.no_grad()
def test_real_times_decide_in_both_modes(gemm: Operation, tmp_path: Path) -> None:
    model, x, file = Layers(), some(), tmp_path / "decisions.json"
    with tuner.record() as calls:
        model(x)
    calls.time()
    assert all(0 < time_ns < 1e6 for time_ns in calls.time_ns.values())
    report = tuner.replace(gemm, calls, decisions=file)
    report.decide()
    text = file.read_text()
    assert text.count('"mode": "eager"') == text.count('"mode": "graph"') == 2
    assert "not timed" not in str(report) and "refused" not in str(report)
    before = text
    tuner.replace(gemm, calls, decisions=file).decide()
    assert file.read_text() == before


def won(kernel: str, folder: Path, device: LocalDevice, kinds: list[tuple[Any, Any, str]]) -> Path:
    """Return a database in which a configuration of a variant, or the default one, has won each problem of a kernel."""
    spec, stored = load_kernel(kernel), []
    for sizes, named, variant in kinds:
        dtypes = {role: dtype for role, dtype in named.items() if role in spec.dtypes}
        options = {name: value for name, value in named.items() if name in spec.options}
        problem = spec.problem(sizes, dtypes, options)
        if variant:
            [space] = SearchSpace.from_kernel(spec, problem, device.gpu, [variant]).variants
            stored.append((problem, space.configuration(len(space) // 2)))
        else:
            stored.append((problem, SearchSpace.from_kernel(spec, problem, device.gpu).default))
    store_winners(folder / "won.db", spec, stored, device.gpu)
    return folder / "won.db"


@torch.no_grad()
@pytest.mark.parametrize("variant", ["wgmma", "wgmma_split_k", "mma_sync"])
def test_parts_of_matrices_are_read_where_they_lie(
    device: LocalDevice, tmp_path: Path, faster: None, variant: str
) -> None:
    if device.gpu.cc != 90:
        pytest.skip("tensor maps of matrices are Hopper's here")
    for layout in ("nt", "nn", "tn"):
        db = won("gemm", tmp_path, device, [(SIZES, {"input": "bfloat16", "layout": layout}, variant)])
    function = tuner.load("gemm", db=db).torch()
    x, w = (
        torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16),
        torch.randn(2048, 3072, device="cuda", dtype=torch.bfloat16),
    )
    products = [
        (x[:256, 128:1152], w[:512, 64:1088].t()),
        (x[3:259, 512:1536], w[:1024, 512:1024]),
        (x[:1024, 8:264].t(), w[5:1029, 1024:1536]),
        (x[:256, 1:1025], w[:512, :1024].t()),  # at no multiple of 16 bytes: copied
    ]
    for number, (a, b) in enumerate(products):
        wanted = function(a.clone(), b.clone())
        close(wanted, a @ b)
        assert torch.equal(function(a, b), wanted)
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        function(a, b)
        made = torch.cuda.memory_stats()["allocation.all.allocated"] - before
        assert (made == 1) is (variant != "mma_sync" and number < 3)
    function(*products[0])
    graph, y = captured(lambda a: function(a, products[0][1]), products[0][0])
    graph.replay()
    close(y, products[0][0] @ products[0][1])
    a, b = products[0]
    with tuner.record() as calls:
        a @ b
    with tuner.replace(db, calls) as report:
        close(a @ b, wanted_of(a, b))
    assert sum(report.taken(kind) for kind in report.seen()) == (variant != "mma_sync"), str(report)


def wanted_of(a: Any, b: Any) -> Any:
    return (a.float() @ b.float()).to(a.dtype)


@torch.no_grad()
def test_batches_with_what_is_added_are_replaced(device: LocalDevice, tmp_path: Path, faster: None) -> None:
    batch = {"batch": 12, "m": 256, "n": 192, "k": 128}
    named = {"input": "bfloat16", "layout": "nt", "broadcast": "none"}
    texts = ("alpha * x + beta * bias", "x + residual", "alpha * x")
    variants = ("wgmma", "", "wgmma_split_k") if device.gpu.cc == 90 else ("", "", "")
    kinds = [(batch, {**named, "op": op}, variant) for op, variant in zip(texts, variants, strict=True)]
    db = won("baddbmm", tmp_path, device, kinds)
    q, k = (torch.randn(12, rows, 128, device="cuda", dtype=torch.bfloat16) for rows in (256, 192))
    bias = torch.randn(12, 1, 192, device="cuda", dtype=torch.bfloat16)
    anything = torch.full((1,), torch.nan, device="cuda", dtype=torch.bfloat16)

    def program() -> Any:
        first = torch.baddbmm(bias, q, k.mT, alpha=0.25, beta=3)
        return first, torch.baddbmm(first, q, k.mT), torch.baddbmm(anything, q, k.mT, beta=0, alpha=0.25)

    wanted = program()
    with tuner.record() as calls:
        program()
    with tuner.replace(db, calls) as report:
        found = program()
    assert sum(report.taken(kind) for kind in report.seen()) == 3, str(report)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.float(), other.float(), rtol=2e-2, atol=0.25)


@torch.no_grad()
@pytest.mark.parametrize(("scales", "fast"), [("tensor", True), ("rows", False), ("blocks", False)])
def test_products_of_eight_bits_are_replaced(
    device: LocalDevice, tmp_path: Path, faster: None, scales: str, fast: bool
) -> None:
    if device.gpu.cc < 89:
        pytest.skip("no instructions of 8 bits")
    m, n, k = 256, 512, 1024
    named = {"output": "bfloat16", "scales": scales, "accumulation": "fast" if fast else "promoted"}
    db = won("scaled_mm", tmp_path, device, [({"m": m, "n": n, "k": k}, named, "")])
    wide = torch.randn(m, 2 * k, device="cuda").to(torch.float8_e4m3fn)
    b = torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn)
    shapes = {
        "tensor": [(1, 1), (1, 1)],
        "rows": [(1, m), (n, 1)],
        "blocks": [(k // 128, m), (n // 128, k // 128)],
    }
    of_a, of_b = (torch.rand(shape, device="cuda").add(0.5).t() for shape in shapes[scales])

    def program() -> Any:
        a = wide[:, :k].contiguous()
        return torch._scaled_mm(a, b.t(), of_a, of_b, out_dtype=torch.bfloat16, use_fast_accum=fast)

    try:
        wanted = program()
    except RuntimeError as error:
        pytest.skip(f"this torch has no such scales: {str(error).splitlines()[0]}")
    with tuner.record() as calls:
        program()
    with tuner.replace(db, calls) as report:
        found = program()
    assert sum(report.taken(kind) for kind in report.seen()) == 1, str(report)
    assert float((found.float() - wanted.float()).norm() / wanted.float().norm()) < 1e-2


@torch.no_grad()
def test_results_in_float32_of_shorter_operands_are_replaced(
    device: LocalDevice, tmp_path: Path, faster: None
) -> None:
    if device.gpu.cc != 90:
        pytest.skip("products straight from registers are Hopper's")
    named = {"input": "bfloat16", "output": "float32", "layout": "nt", "op": "x"}
    db = won("linear", tmp_path, device, [(SIZES, named, "wgmma_split_k")])
    x, w = (torch.randn(rows, 1024, device="cuda", dtype=torch.bfloat16) for rows in (256, 512))
    wanted = torch.mm(x, w.t(), out_dtype=torch.float32)
    with tuner.record() as calls:
        torch.mm(x, w.t(), out_dtype=torch.float32)
    with tuner.replace(db, calls) as report:
        found = torch.mm(x, w.t(), out_dtype=torch.float32)
    assert sum(report.taken(kind) for kind in report.seen()) == 1, str(report)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-3)
