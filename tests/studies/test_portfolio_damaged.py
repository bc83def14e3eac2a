"""Rows of portfolios that another program may have written into a database: left out, whatever they hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.stored import GPU, make_benchmark
from tuner.core.model import Configuration
from tuner.database.database import Database
from tuner.database.records import Benchmark
from tuner.kernel.default import default_configuration
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import load_kernel
from tuner.winners.portfolios import MEMBER, TIMED, stored_portfolios

KERNEL = load_kernel("vector_add")
PROBLEM = KERNEL.problem({"n": 2**20})


def row(contestant: str, **changes: Any) -> Benchmark:
    default = default_configuration(KERNEL, PROBLEM, GPU)
    own = {"problem": PROBLEM, "configuration": default, "kernel_digest": KernelIdentity(KERNEL).text}
    return make_benchmark(contestant, **{**own, **changes})


DAMAGED = {
    "a time of zero": row(TIMED, time_ns=0.0),
    "a size of zero": row(TIMED, problem=replace(PROBLEM, sizes={"n": 0})),
    "other sizes": row(TIMED, problem=replace(PROBLEM, sizes={"m": 8})),
    "a member that was not timed": row(
        MEMBER, configuration=Configuration.of("vectorized", {"block_size": 1})
    ),
    "a variant that there is not": row(MEMBER, configuration=Configuration.of("none", {})),
}


def test_what_cannot_be_meant_is_left_out(tmp_path: Path) -> None:
    for what, damaged in DAMAGED.items():
        with Database.open(tmp_path / f"{what}.db") as database:
            database.record_benchmark([row(TIMED), row(MEMBER, tags=("bound=1.05",)), damaged])
            (portfolio,) = stored_portfolios(database, KERNEL)
        assert [problem.sizes["n"] for problem in portfolio.problems] == [2**20], what
        assert {one.variant for one, _ in portfolio.members} == {"vectorized"}, what
        assert portfolio.bound == 1.05, what


@pytest.mark.parametrize("tag", ["bound=nan", "bound=x", "bound=-1", "bound=1e400"])
def test_a_bound_that_is_none_allows_no_slowdown(tag: str, tmp_path: Path) -> None:
    with Database.open(tmp_path / "p.db") as database:
        database.record_benchmark([row(TIMED), row(MEMBER, tags=(tag,))])
        assert [one.bound for one in stored_portfolios(database, KERNEL)] == [1.0]
