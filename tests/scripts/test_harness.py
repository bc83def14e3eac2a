"""What scripts share: how they end, and what is kept when they are cut off."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts import harness, lab
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
        assert [rows.once(name, lambda: 2) for name in ("first", "second")] == [1, 2]
    assert not [*out.parent.iterdir()]
    with lab.unfinished(None, "NVIDIA H200") as rows:
        rows.keep(first=1)
