"""The script that measures a fleet on GPUs: its steps run once, and its figures follow from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import fleet_throughput
from tuner.children.measuring import GpuList

ROOT = Path(__file__).parents[2]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return what the tuner is asked for, on a host with two GPUs."""
    asked: list[tuple[str, ...]] = []

    def timed(self: fleet_throughput.Study, name: str, *words: str) -> dict[str, object]:
        asked.append((name, *words))
        return {"seconds": {"fleet": 50.0, "one": 100.0, "serial": 140.0}[name], "exit_status": 0}

    monkeypatch.setattr(fleet_throughput, "visible_gpus", lambda: GpuList(("NVIDIA H200",) * 2, ("0", "1")))
    monkeypatch.setattr(fleet_throughput.Study, "timed", timed)
    monkeypatch.setattr(fleet_throughput.Study, "calibrate", lambda self: None)
    return asked


def test_steps_are_measured_once_and_compared(measured: list[tuple[str, ...]], tmp_path: Path) -> None:
    words = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "out"), "--jobs", "32"]
    assert fleet_throughput.main([*words, "--seconds", "150"]) == 1  # 20 problems may take 180 s on one GPU
    assert [name for name, *_ in measured] == ["fleet"]
    assert fleet_throughput.main(words) == 0
    assert [name for name, *_ in measured] == ["fleet", "one", "serial"]
    assert measured[0][-3:] == ("cuda:0,cuda:1", "-j", "32")
    assert measured[1][-3:] == ("cuda:0", "-j", "16")
    assert measured[2][-1] == "--no-overlap"
    found = json.loads((tmp_path / "out" / "fleet-2.json").read_text())
    assert found["figures"] == {"fleet_over_one": 2.0, "overlap_over_serial": 1.4, "fleet_over_serial": 2.8}


def test_the_problems_are_different(measured: list[tuple[str, ...]]) -> None:
    listed = [tuple(shape.values()) for shape in fleet_throughput.shapes(40)]
    assert len(set(listed)) == 40
