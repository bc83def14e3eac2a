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
@pytest.mark.parametrize("compiled", [False, True])
def test_layers_of_a_model_call_the_operator(gemm: Operation, faster: None, compiled: bool) -> None:
    torch.compiler.reset()
    model, x = Layers(), some()
    wanted = model(x)
    with tuner.record() as calls:
        model(x)
    assert tuner.replace(gemm, calls).linear_layers(model, "graph") == ["up", "down"]
    program = torch.compile(model, fullgraph=True) if compiled else model
    graph, y = captured(program, x)
    graph.replay()
    close(y, wanted)


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
