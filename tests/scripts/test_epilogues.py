"""scripts/measuring/epilogues.py: what takes turns, and what the rows say of it; without a GPU or torch."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scripts import harness
from tuner.core.errors import CallError

MODULES = ("torch_here", "measuring.graphs", "measuring.epilogues")
"""Which import torch."""


class Torch:
    """Whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: object, **__: object) -> Any:
        return self


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, "torch", Torch())
    for name in MODULES:
        monkeypatch.delitem(sys.modules, f"scripts.{name}", raising=False)
    yield importlib.import_module("scripts.measuring.epilogues")
    for name in MODULES:
        sys.modules.pop(f"scripts.{name}")


def test_each_is_compared_with_the_plain_product_of_its_round(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    best, called = {"variant": "wgmma", "block_m": 128}, []

    def tuned(folder: Path, size: int, op: str, parameters: Any = None) -> Any:
        assert parameters == (None if op == "x" or folder.name == "by itself" else best)

        def operation(*arrays: object, out: object) -> None:
            called.append((op, len(arrays)))
            if op == "relu(x + bias)":
                raise CallError("there is no confirmed winner: it spills")

        return SimpleNamespace(best=best, operation=operation)

    def by_rounds(graphs: list[tuple[Any, int]], rest: float) -> list[list[float]]:
        """A clock that drifts; each graph has a start of 5 us; a call of the second operation takes 1.5 % more."""
        calls = list(dict.fromkeys(call for call, _ in graphs))
        cost = {call: 20.0 * (1.015 if number == 1 else 1.0) for number, call in enumerate(calls)}
        return [
            [(5 + count * cost[call] * (1 + 0.01 * number)) / 1e3 for number in range(60)]
            for call, count in graphs
        ]

    monkeypatch.setattr(script, "tuned", tuned)
    monkeypatch.setattr(script, "graph_of", lambda call, sets: (call, len(sets)))
    monkeypatch.setattr(script, "by_rounds", by_rounds)
    monkeypatch.setattr(harness, "machine", lambda: {"gpu": "G"})
    out = tmp_path / "epilogues.json"
    monkeypatch.setattr(sys, "argv", ["epilogues.py", "--sizes", "2048", "--out", str(out)])
    assert script.main() == 1  # one failed
    assert called == [(op, 2 if op == "x" else 3) for op in ("x", *script.OPS)] + [(script.FREE, 3)]
    (found,) = json.loads(out.read_text())["sizes"]
    assert found["configuration"] == best
    assert list(found["failed"]) == ["relu(x + bias)"] and "spills" in found["failed"]["relu(x + bias)"]
    for mode in ("rotating", "warm"):
        rows = {row["name"]: row for row in found["rows"] if row["mode"] == mode}
        assert rows.keys() == {"x", *script.OPS, script.BY_ITSELF, *script.TORCH} - {"relu(x + bias)"}
        assert rows["x + bias"]["over_plain"] == pytest.approx(1.015)
        assert rows["x + bias"]["low"] == pytest.approx(1.015) == rows["x + bias"]["high"]
        assert rows["torch.mm"]["over_plain"] == pytest.approx(1.0) and "allowed" not in rows["torch.mm"]
        assert (rows["x + bias"]["allowed"], rows["gelu(x + bias)"]["allowed"]) == (1.02, 1.06)
    assert (
        "| 2048^3 | warm | x + bias | 26.3 | 1.015 | 1.015 to 1.015 | 1.02: yes |" in capsys.readouterr().out
    )
