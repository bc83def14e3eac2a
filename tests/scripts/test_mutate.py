"""scripts/mutate.py: its candidates, and what it makes of verdicts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from scripts import mutate
from scripts.mutate import FAULTS, GENES, Author, rendered, result_of


def test_it_goes_on_from_what_is_faster_and_counts_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A referee that likes wide vectors."""
    monkeypatch.setattr(mutate, "POLL_S", 0.0)
    best, answered = [0], list[str]()

    def alive() -> bool:
        for file in sorted(tmp_path.glob("*.cu")):
            if file.name in answered:
                continue
            answered.append(file.name)
            text = file.read_text()
            width = int(text.partition("VECTOR = ")[2][0])
            right, faster = "softmax__right" in text, width > best[0]
            versus = (
                [{"baseline": "best so far", "verdict": "faster" if faster else "tied"}] if best[0] else []
            )
            best[0] = max(best[0], width) if right else best[0]
            modes = [{"time_ns": 1e6 / width, "versus": versus}]
            verdict = {"judged": "right" if right else "wrong", "reason": "" if right else "wrong_result"}
            answer = {**verdict, "problems": [{"modes": modes}]}
            (tmp_path / f"{file.name}.verdict.json").write_text(json.dumps(answer))
        return len(answered) < 40

    kept = list[int]()
    author = Author(tmp_path, 1, lambda rows: kept.append(len(rows)))
    author.run(alive)
    assert kept == [*range(1, len(author.rows) + 1)]  # also if this process is killed
    found = result_of(author.rows, 1.0)
    assert found["gain"] == 4.0 and author.best["vector"] == 4 and not found["wrong called right"]
    assert found["judged"]["meant to be right: right"] > 20
    assert sum(found["judged"].values()) == len({file.read_text() for file in tmp_path.glob("*.cu")}) >= 38


def test_each_fault_is_in_the_text() -> None:
    genes = {name: values[-1] for name, values in GENES.items()}
    texts = [rendered(genes, fault) for fault in ("", *FAULTS)]
    assert len({text.replace(fault, "") for fault, text in zip(("right", *FAULTS), texts, strict=True)}) == 4
    assert not any("@" in text for text in texts)


def test_a_judgement_that_comes_out_otherwise_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    best = {"judged": "right", "speed": "faster", "seed": 1, "problems": [{"modes": [{"time_ns": 5.0}]}]}
    (tmp_path / "best.json").write_text(
        json.dumps(best | {"candidate": {"copy": "judged/a", "name": "1.cu"}})
    )
    refused = {**best, "judged": "refused", "speed": None, "problems": []}
    for again, status in (refused, 3), ({**best, "speed": "slower"}, 4), (best, 0):
        program = f"print({json.dumps(json.dumps(again))}); exit({status})"
        monkeypatch.setattr(mutate, "TUNE", (sys.executable, "-c", program))
        assert mutate.repeated(tmp_path) is (again == best)
    assert "1.cu: right, faster; again refused, None; [5.0] ns" in capsys.readouterr().out
