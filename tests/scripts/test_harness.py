"""What scripts share: how they end, and what is kept when they are cut off."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts import gemm_shapes, harness, lab
from scripts.shape_notes import Shape
from tests.scripts.shape_command import Command, study
from tuner.core.errors import UsageError


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_a_missing_gpu_is_one_line(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["script.py", *words])
    monkeypatch.setattr(harness, "has_gpu", lambda: False)
    with pytest.raises(SystemExit) as ended:
        harness.run(lambda: 7, gpu=True)
    said = capsys.readouterr().err
    assert (ended.value.code, said.count("\n")) == ((7, 0) if words else (2, 1))
    assert words or said.startswith("error: this machine has no NVIDIA GPU")


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> int:
        raise UsageError("this is wrong", "do that")

    with pytest.raises(SystemExit, match="2"):
        harness.run(main)
    assert capsys.readouterr().err == "error: this is wrong; do that\n"


def test_rows_are_kept_until_all_are_there(tmp_path: Path) -> None:
    out = tmp_path / "evidence" / "rows.json"
    with pytest.raises(KeyboardInterrupt), lab.unfinished(out, "NVIDIA H200") as rows:
        rows.keep(first=1)
        raise KeyboardInterrupt
    with lab.unfinished(out, "NVIDIA L4") as rows:
        assert not rows.data  # of another card
    with lab.unfinished(out, "NVIDIA H200") as rows:
        assert rows.data == {"first": 1}
    assert not [*out.parent.iterdir()]
    with lab.unfinished(None, "NVIDIA H200") as rows:
        rows.keep(first=1)


def test_a_search_that_fails_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command()

    def tune(*words: str) -> tuple[str, float]:
        if words[0] == "--kernel" and "m=64,n=64,k=64" in words:
            raise harness.CommandError("tune: exit status 4")
        return command(*words)

    monkeypatch.setattr(gemm_shapes, "tune", tune)
    notes, rows = study(tmp_path, Shape(64, 64, 64), Shape(128, 64, 64))
    assert [row["m"] for row in rows] == [128] and rows[0]["race"]["rivals"]
    assert notes.failures == ["bfloat16-64x64x64: tune: exit status 4"]
