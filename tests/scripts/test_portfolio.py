"""The script that measures portfolios: what is held out, and what misses."""

from __future__ import annotations

from typing import Any

import pytest

from scripts import portfolio as script

pytestmark = pytest.mark.usefixtures("forked_children")


ROW: dict[str, Any] = {"over_tuned": 1.0, "slower_than_default": False, "expected": 1.1, "match": "portfolio"}
ROW |= {"layout": "nn", "over_best_kept": 1.0}
MEASURED: dict[str, Any] = {
    "problems": {str(number): ROW for number in range(40)},
    "cubins": 30,
    "seconds": 100.0,
    "how": {"trials": 120, "time_s": 10.0},
}


def missed(changed: dict[str, Any] | None = None, **others: Any) -> Any:
    problems = MEASURED["problems"] | ({"0": changed} if changed else {})
    return script.summary({**MEASURED, "problems": problems, **others})["missed"]


def test_what_misses_is_named() -> None:
    assert missed() == []
    slow = {**ROW, "over_tuned": 1.5, "slower_than_default": True}
    everything = {str(number): slow for number in range(39)} | {"39": {"error": "wrong"}}
    assert missed(problems=everything, cubins=40, seconds=901.0) == [
        "median", "p95", "worst", "cubins", "seconds", "invalid", "slower_than_default",
    ]  # fmt: skip


def test_nothing_passes_by_accident() -> None:
    assert missed({**ROW, "over_tuned": float("nan")}) == ["median", "p95", "worst"]
    assert missed({**ROW, "match": "default"}) == ["unmatched"]
    assert missed({**ROW, "slower_than_default": True}) == ["slower_than_default"]
    assert missed(problems={"0": ROW}) == ["held_out"]
    assert missed(how={"trials": 10, "time_s": 1.0}) == ["trials", "time_s"]


def test_what_is_held_out_is_not_made() -> None:
    made, held_out = script.drawn(10)
    assert made and not {problem.key for problem in made} & {problem.key for problem in held_out}
