"""scripts/compare_triton/compare.py: what is measured is kept, and one problem's fault is not the others'."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[2] / "scripts" / "compare_triton" / "compare.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("compare_triton", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: name)
    return module


def test_it_goes_on_where_it_was(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, broken, asked = tmp_path / "triton.json", [1], list[int]()

    def compared(
        kernel: str, function: str, sizes: dict[str, int], dtype: str, trials: int, effort: str
    ) -> Any:
        number = script.PROBLEMS.index((kernel, function, sizes, dtype))
        asked.append(number)
        if number in broken:
            raise RuntimeError("an illegal address")
        return {
            "kernel": Path(kernel).stem,
            "sizes": sizes,
            "dtype": dtype,
            "tune": {"trials": trials},
            "triton": {},
        }

    monkeypatch.setattr(script, "compared", compared)
    monkeypatch.setattr(sys, "argv", ["compare.py", "--out", str(out), "--seconds", "70"])
    assert script.main() == 1 and not asked  # no time for any
    monkeypatch.setattr(sys, "argv", ["compare.py", "--out", str(out)])
    assert script.main() == 1 and asked == [0, 1, 2, 3, 4]
    assert len(json.loads(out.read_text())) == 4
    broken.clear()
    assert script.main() == 0 and asked[5:] == [1]
    assert len(json.loads(out.read_text())) == 5
