"""scripts/teaching.py: some kernels are measured again beside what the evidence has of the others."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts import teaching
from scripts.harness import EVIDENCE, CommandError


def test_other_rows_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(EVIDENCE / "teaching.json", tmp_path)
    before = json.loads((tmp_path / "teaching.json").read_text())

    def measure(case: teaching.Case, *_: object) -> list[dict[str, Any]]:
        again = [row for row in before if (row["kernel"], row["dtype"]) == (case.kernel, case.dtype)]
        return [
            {**row, "ours_ns": 5e3} for row in again if row["problem"] in case.problems and row["rival_ns"]
        ]

    monkeypatch.setattr(teaching, "measure", measure)
    words = ["--kernels", "reduce", "--problems", "n=2**16;n=2**30", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["teaching.py", *words, "--work", str(tmp_path / "work")])
    assert teaching.main() == 0
    after = json.loads((tmp_path / "teaching.json").read_text())
    new = [row for row in after if row["ours_ns"] == 5e3]
    assert {row["problem"] for row in new} == {"n=2**16", "n=2**30"}
    assert [row for row in after if row not in new] == [
        row for row in before if row["problem"] not in ("n=2**16", "n=2**30") or row["kernel"] != "reduce"
    ]
    assert (tmp_path / "teaching.txt").read_text().count("| reduce |") == sum(
        row["kernel"] == "reduce" for row in after
    )
    monkeypatch.setattr(teaching, "measure", None)
    assert teaching.main() == 0  # nothing is measured again
    assert json.loads((tmp_path / "teaching.json").read_text()) == after


def test_the_evidence_is_not_written_over_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["teaching.py", "--out", str(tmp_path), "--work", str(tmp_path)])
    with pytest.raises(CommandError, match=r"teaching\.json of its own"):
        teaching.main()


def test_a_case_that_fails_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And rows of shapes that another seed has drawn stay."""
    rows = json.loads((EVIDENCE / "teaching.json").read_text())[:1]

    def measure(case: teaching.Case, *_: object) -> list[dict[str, Any]]:
        if case.kernel == "permute":
            raise CommandError("exit status 4")
        of = {"kernel": case.kernel, "dtype": case.dtype, "options": [*case.options]}
        return [{**rows[0], **of, "problem": case.problems[0]}]

    monkeypatch.setattr(teaching, "measure", measure)
    words = [
        "--kernels",
        "permute,rope",
        "--shapes",
        "1",
        "--out",
        str(tmp_path),
        "--work",
        str(tmp_path / "w"),
    ]
    for seed in (1, 2):
        monkeypatch.setattr(sys, "argv", ["teaching.py", *words, "--drawn", str(seed)])
        assert teaching.main() == 1
    found = json.loads((tmp_path / "models.json").read_text())
    assert [row["kernel"] for row in found] == ["rope", "rope"]
