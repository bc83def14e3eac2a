"""Interrupted runs on recordings beside unbroken ones; ``scripts/resume_test.py`` does so a hundred times."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.interrupting import Plan, compare
from tuner.kernel.load import load_kernel

RECORDED = Path(__file__).resolve().parents[2] / "results" / "recorded"


@pytest.mark.parametrize(
    ("sampler", "lookahead", "compilers", "from_scratch"),
    [
        ("gp-ei", 12, 4, False),
        ("tpe", 8, 0, True),
        ("random", 6, 0, False),
    ],
)
def test_the_interrupted_run_is_the_unbroken_run(
    tmp_path: Path, sampler: str, lookahead: int, compilers: int, from_scratch: bool
) -> None:
    problem = load_kernel("vector_add").problem(preset="small")
    (recording,) = RECORDED.glob("vector_add-*")
    plan = Plan(recording, problem, sampler, 3, 20, lookahead, compilers, from_scratch)
    comparison = compare(plan, tmp_path, random.Random(str(plan)), most=2)
    assert comparison.ends[0] != "to its end"
    assert comparison.same_sequence
    assert comparison.same_winner
