"""scripts/mutate.py: its candidates, and what it makes of verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import mutate
from scripts.mutate import Author, result_of


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
