"""The measurements of calls: winners beside the tuner's own launches, on a driver without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts import calls
from scripts.calling.cases import Case, cases
from scripts.calling.races import LOADS, compared
from scripts.page_figures import evidence, program
from tuner.kernel.roofline import ARCHITECTURES

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.usefixtures("forked_children")


@pytest.fixture(scope="module")
def every() -> list[Case]:
    return cases(ARCHITECTURES[90])


def test_every_kernel_has_a_case(every: list[Case]) -> None:
    kernels = {case.kernel.name for case in every}
    assert kernels >= {"gemm", "vector_add", "saxpy", "transform", "reduce", "mean_matvec"}
    assert kernels >= {path.stem for path in (ROOT / "docs" / "examples").glob("*/*.toml")}
    assert len({case.key for case in every}) == len(every)
    products = [case for case in every if case.kernel.name == "gemm"]
    assert {case.problem.options["layout"] for case in products} == {"nn", "nt"} and len(products) >= 30


def row(*factors: float) -> dict[str, Any]:
    """Return a row of calls that take so many times as long as the tuner's launch, in 16 rounds."""
    own = [[100.0 + turn % 2 + 0.1 * load for turn in range(16)] for load in range(len(LOADS))]
    others = [[factor * time for time in own[0]] for factor in factors]
    names = [*LOADS, *(f"way {number}" for number in range(len(factors)))]
    found = compared(names, [*own, *others])
    times = dict.fromkeys(names, 100.0)
    return {**found, "times_ns": times, "verified": True, "mode": "cold", "configuration": "c"}


def test_what_is_slower_than_the_launch_differs_from_itself_is_named() -> None:
    assert [line.split(" takes")[0] for line in calls.misses({"a own": row(1.001, 1.05)})] == ["a own: way 1"]
    assert [*calls.misses({"a own": {"error": "no memory"}})] == ["a own: no memory"]


def test_the_page_says_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "FOLDER", tmp_path)
    data = {
        "where": {"gpu": "NVIDIA H200", "driver": "13.0"},
        "races": {"a own": row(1.001, 1.05), "b own": {"error": "no memory"}},
        "imports": {"bindings": [52.0, 53.0], "bundle": [90.0, 91.0]},
        "cold": {"C++": [1.5], "Python": [4.0]},
        "host": {"problem": "gemm", "launches": 1, "C++": [1.0, 2.0], "Python": 9.25, "torch.mm": 11.0},
        "size": {"winners": 10, "bytes": 1_700_000, "cubin_bytes": 900_000},
    }
    (tmp_path / "calls.json").write_text(json.dumps(data))
    races, host = program.races(), program.host()
    assert "| way 1 | 1 | 1.0500 | 1.0500 | 1 |" in races and "NVIDIA H200" in races
    assert "| a warm call, Python | 9.25 us |" in host and "| a bundle of 10 products | 1.70 MB |" in host
