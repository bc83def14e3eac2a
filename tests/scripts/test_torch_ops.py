"""scripts/torch_ops.py: each step on operations that the CPU computes, resumed, and what it says of faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from scripts import torch_ops as script  # noqa: E402
from tests import torch_on_cpu as cpu  # noqa: E402
from tests.torch_cases import OperatorCase, cases  # noqa: E402


def test_steps_are_done_once_and_faults_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu.pose_as_gpu(monkeypatch)
    small = cases(65, (6, 3, 7), (3, 5, 8))
    chosen = [case for case in small if case.name in ("gemm nt", "linear", "saxpy", "reduce max")]
    monkeypatch.setattr(script, "SHAPES", {"small": chosen})
    monkeypatch.setattr(script, "HOST", {case.name: case for case in chosen})
    monkeypatch.setattr("scripts.calling.host.BATCHES", 2)
    monkeypatch.setattr("scripts.calling.host.CALLS", 3)
    operations: dict[str, Any] = {}

    def make(case: OperatorCase, dtype: str) -> Any:
        if case.kernel not in operations:
            problems = [{"input": dtype, **choices} for choices in case.choices]
            operations[case.kernel] = cpu.on_cpu(case.kernel, getattr(cpu, case.kernel), problems)
        return operations[case.kernel]

    steps, state = ("results", "opcheck", "compiled", "host"), tmp_path / "state.json"
    study = script.Study(make, "cpu", state)
    assert study.do(steps, ["float32"]) and script.faults(study.data) == []
    assert len(study.data) == 4 * len(chosen)
    assert {"op()", "op.torch()", "torch", "op.torch().in_place"} <= study.data["host saxpy float32 small"][
        "us"
    ].keys()
    text = script.table(study.data)
    assert "results: 4 of 4 pass" in text and "opcheck: 4 of 4 pass" in text and "host's time" in text

    again = script.Study(lambda *_: pytest.fail("done already"), "cpu", state, seconds=100)
    assert again.do(steps, ["float32"]) and again.data == json.loads(state.read_text())
    assert not script.Study(make, "cpu", tmp_path / "other.json", seconds=1e-9).do(steps, ["float32"])

    operations["saxpy"].compute = lambda tensors, **_: tensors["y"].fill_(3.0)
    wrong = script.Study(make, "cpu", tmp_path / "wrong.json")
    wrong.do(["results"], ["float32"])
    (fault,) = script.faults(wrong.data)
    assert fault.startswith("results saxpy float32 small: an error is")
    operations["saxpy"].compute = lambda tensors, **_: 1 / 0
    wrong = script.Study(make, "cpu", tmp_path / "failed.json")
    wrong.do(["results"], ["float32"])
    assert not wrong.broken
    first, *others = wrong.left(["results", "opcheck"], ["float32"])
    assert (first[1], others[-1][0]) == ("opcheck", "results saxpy float32 small")  # what failed comes last
    assert script.faults(wrong.data) == ["results saxpy float32 small: ZeroDivisionError: division by zero"]
    assert script.table(wrong.data).startswith("results: 3 of 4 pass")

    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("Offset increment outside graph capture")

    monkeypatch.setattr(torch, "randn", fails)
    assert not wrong.do(["results", "opcheck"], ["float32"])
    assert wrong.broken and len(wrong.data) == len(chosen) + 1  # the rest is for another process
