"""``scripts/measuring/twins.py --judged``: it goes on where it was cut off, and counts what has a winner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.measuring import twins
from tests.simulated_gpu import SimulatedGpu


def test_judgements_are_kept_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, asked = tmp_path / "twins.json", list[int]()

    def judgement(_device: object, number: int, draws: int) -> dict[str, Any]:
        asked.append(number)
        if asked.count(2) == 1 and number == 2:
            raise KeyboardInterrupt
        judged = {"faster" if number == 4 else "tied": 1}
        return {"judged": judged, "drawn": {"tied": draws - 1, "slower": 1}, "seconds": 1.0 + number}

    monkeypatch.setattr(twins, "_judgement", judgement)
    with pytest.raises(KeyboardInterrupt):
        twins.judged(SimulatedGpu(), 5, out)
    assert not out.exists()
    assert twins.judged(SimulatedGpu(), 5, out) == 1 + 5
    assert asked == [0, 1, 2, 2, 3, 4]
    data = json.loads(out.read_text())
    assert data["judged"] == {"tied": 4, "faster": 1} and data["seconds"] == 3.0
    assert sum(data["drawn"].values()) == twins.DRAWN
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
