"""docs/measuring.md says what the evidence says: a figure measured again must be written again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
EVIDENCE = ROOT / "results" / "evidence"
PAGE = ROOT / "docs" / "measuring.md"

pytestmark = pytest.mark.skipif(not EVIDENCE.is_dir(), reason="needs the evidence of a checkout")


def evidence(name: str) -> Any:
    return json.loads((EVIDENCE / f"{name}.json").read_text())


def cells() -> list[list[str]]:
    lines = (line for line in PAGE.read_text().splitlines() if line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_comparison_of_twins_is_there() -> None:
    rows = evidence("twins")["rows"]
    equal = {row["case"] for row in rows if row["share"] == 0.0}
    assert equal == {"arithmetic", "copy", "addition", "short addition", "product"}
    assert {(row["case"], row["share"]) for row in rows if row["share"]} == {
        (case, share) for case in ("arithmetic", "copy") for share in (0.005, 0.01)
    }
    for row in rows:
        share = f"{100 * row['share']:.1f} %" if row["share"] else "none"
        counts = [str(row["verdicts"][word]) for word in ("faster", "same", "ambiguous", "slower")]
        assert [row["case"], share, *counts] in [line[:6] for line in cells()], row["case"]
        assert sum(row["verdicts"].values()) == row["times"] == 200


def test_tables_of_modes_spread_and_tools_are_the_measured_ones() -> None:
    known = cells()

    def text(us: float) -> str:
        return f"{us:.2f}" if us < 100 else f"{us:.1f}"

    for row in evidence("modes")["rows"]:
        names = ("cold", "rotating", "warm", "real rotation")
        wanted = [f"2^{row['exponent']}", *(text(row["us"][name]) for name in names)]
        assert wanted in [line[:5] for line in known]
    for call, us in evidence("tools")["us"].items():
        assert [call, *(text(time_us) for time_us in us.values())] in known
    spread = evidence("spread")
    assert len(spread["lines"]) == 10
    for name in ("rested", "sustained", "naive"):
        found = spread[name]
        assert [name, f"{found['median_us']:.0f} us", f"{100 * found['spread']:.2f} %"] in [
            n[:3] for n in known
        ]


def test_sentences_have_the_measured_figures() -> None:
    page = PAGE.read_text()
    assert f"was {100 * evidence('ten-runs')['worst']:.2f} % from the re-measurement" in page
    for row in evidence("race-cost")["rows"]:
        assert f"{row['seconds']:.1f} s ({row['rounds']} rounds)" in page
