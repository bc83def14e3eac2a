"""scripts/torch_ops.py on operations that the CPU computes, and the page's table of it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from scripts import torch_ops as script  # noqa: E402
from scripts.page_figures import evidence, program  # noqa: E402
from tests import torch_on_cpu as cpu  # noqa: E402
from tests.torch_cases import cases  # noqa: E402


def test_each_way_to_call_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu.pose_as_gpu(monkeypatch)
    monkeypatch.setattr("scripts.calling.host.BATCHES", 2)
    monkeypatch.setattr("scripts.calling.host.CALLS", 3)
    rows = {}
    for case in cases(65, (6, 3, 7), (3, 5, 8)):
        if case.name in ("gemm nt", "linear", "saxpy"):
            problems = [{"input": script.DTYPE, **choices} for choices in case.choices]
            operation = cpu.on_cpu(case.kernel, getattr(cpu, case.kernel), problems)
            rows[f"host {case.name} bfloat16 small"] = {"us": script.measured(case, operation, "cpu")}
    assert {"op()", "op.torch()", "torch", "op.torch().in_place"} <= rows["host saxpy bfloat16 small"][
        "us"
    ].keys()
    where = {"gpu": "G", "torch": "2", "python": "3"}
    text = evidence.shown("torch-ops", {"where": where, "rows": rows}, program.operators)
    assert "| us | op() | op.torch() | torch |" in text and "| `gemm nt` |" in text
