"""Programs of torch that fail, operations that are broken, and contexts that end in another order than they began."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tuner  # noqa: E402
from tuner.core.errors import CallError, UsageError  # noqa: E402
from tuner.program.calls import Calls  # noqa: E402
from tuner.program.decisions import Decision, Decisions  # noqa: E402

PROBLEM = "gemm m=8 n=6 k=4 float32 layout=nn"


def product(a: Any, b: Any, out: Any = None) -> Any:
    result = torch.from_numpy(a.double().numpy() @ b.double().numpy()).to(a.dtype)
    return result if out is None else out.copy_(result)


def recorded(a: Any, b: Any) -> Calls:
    with torch.no_grad(), tuner.record() as calls:
        torch.mm(a, b)
    return calls


def decided(path: Path, *problems: str) -> Path:
    decisions = Decisions(path)
    for problem in problems:
        decisions.add(Decision("CPU", torch.__version__, problem, "eager", "", True, "faster"))
    return path


@pytest.mark.parametrize("last", ["replace", "record"])
def test_contexts_end_in_any_order(last: str) -> None:
    a, b, count = torch.ones(8, 4), torch.ones(4, 6), lambda calls: sum(calls.counts.values())
    first = tuner.record()
    calls = first.__enter__()
    second: Any = tuner.record() if last == "record" else tuner.replace(product)
    other = second.__enter__()
    torch.mm(a, b)
    first.__exit__(None, None, None)
    torch.mm(a, b)
    second.__exit__(None, None, None)
    torch.mm(a, b)
    assert count(calls) == 1
    assert last == "replace" or count(other) == 2
    assert torch.cuda.CUDAGraph.replay.__module__ == "torch.cuda.graphs"


def test_a_replacement_may_come_back_below_another_one() -> None:
    first, second = tuner.replace(product), tuner.replace(product)
    first.install()
    second.install()
    first.remove()
    first.install()
    with pytest.raises(CallError, match="installed already"):
        first.install()
    torch.mm(torch.ones(2, 3), torch.ones(3, 2))
    assert first.seen() == second.seen() != []
    second.remove()
    first.remove()
    first.remove()


def test_a_generator_that_is_left_behind_lets_torch_go() -> None:
    def program() -> Any:
        with tuner.record() as calls:
            yield calls

    left = program()
    calls = next(left)
    del left
    torch.mm(torch.ones(2, 3), torch.ones(3, 2))
    assert not calls.counts


def test_a_capture_that_was_under_way_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeGraph:
        ended = 0

        def capture_begin(self) -> None: ...

        def capture_end(self) -> None:
            self.ended += 1

        def replay(self) -> None: ...

    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    graph = FakeGraph()
    graph.capture_begin()
    with tuner.record():
        graph.capture_end()
    assert graph.ended == 1


@pytest.mark.parametrize(
    ("call", "shapes"),
    [
        (torch.mm, [(3,), (3, 2)]),
        (torch.mm, [(3, 2), (2,)]),
        (torch.mm, [(8, 4), (6, 4)]),
        (torch.bmm, [(2, 3, 4), (3, 4, 5)]),
        (torch.bmm, [(8, 4), (4, 6)]),
    ],
)
def test_wrong_shapes_have_the_error_of_torch(
    call: Any, shapes: list[tuple[int, ...]], tmp_path: Path
) -> None:
    operands = [torch.ones(1).expand(shape) for shape in shapes]
    if call is torch.bmm and len(shapes[0]) == 3:
        operands[0] = operands[0].contiguous()
    with pytest.raises(RuntimeError) as wanted:
        call(*operands)
    file = decided(tmp_path / "d.json", "gemm m=6 n=5 k=4 float32 layout=nn", PROBLEM)
    for context in (tuner.record(), tuner.replace(product, decisions=file)):
        with pytest.raises(RuntimeError) as found, context:
            call(*operands)
        assert str(found.value) == str(wanted.value)


def raising(a: Any, b: Any, out: Any = None) -> Any:
    raise ValueError("boom\n\x1b[31m")


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (raising, "it raises ValueError: boom"),
        (lambda a, b, out=None: None, "it returns NoneType"),
        (lambda a, b, out=None: a, "it returns (8, 4)"),
        (lambda a, b, out=None: a.double() @ b.double(), "it returns (8, 6) torch.float64"),
        (lambda a, b, out=None: product(a, b) * float("nan"), "its error is nan"),
    ],
)
def test_a_broken_operation_is_refused_and_said(broken: Any, reason: str, tmp_path: Path) -> None:
    a, b, file = torch.randn(8, 4), torch.randn(4, 6), tmp_path / "d.json"
    calls = recorded(a, b)
    with torch.no_grad(), tuner.replace(broken, calls, decisions=file) as report:
        assert torch.equal(torch.mm(a, b), a @ b)
    assert reason in str(report) and "\x1b" not in str(report)
    tuner.replace(product, decisions=file)  # whatever was kept can be read


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "[" * 100_000,
        '{"format": "kernel-tune decisions", "version": true, "decisions": []}',
        '{"format": "kernel-tune decisions", "version": 2, "decisions": []}',
        '{"format": "kernel-tune decisions", "version": 1, "decisions": [{"gpu": 1}]}',
    ],
)
def test_damaged_decisions_are_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "d.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"d\.json"):
        tuner.replace(product, decisions=file)
    assert file.read_text() == text


def test_decisions_that_cannot_be_written_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"d\.json cannot be written"):
        tuner.replace(product, decisions=tmp_path / "missing" / "d.json")


def test_decisions_end_somewhere_and_hold_no_control_characters(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no plain file"):
        tuner.replace(product, decisions="/dev/zero")
    a, b = torch.randn(8, 4), torch.randn(4, 6)
    file = decided(tmp_path / "d.json", PROBLEM)
    data = json.loads(file.read_text())
    data["decisions"][0]["reason"] = "\x1b[2J\nreplaced"
    file.write_text(json.dumps(data))
    report = tuner.replace(product, recorded(a, b), decisions=file)
    report.decide()
    assert "\x1b" not in str(report) and "\nreplaced" not in str(report)
