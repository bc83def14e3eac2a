"""The script that measures portfolios, on a simulated GPU: it goes on, and its figures are what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts import portfolio as script
from tests.simulated_gpu import SimulatedGpu
from tuner.core.model import canonical_json
from tuner.database.database import Database
from tuner.kernel.spec import KernelSpec
from tuner.winners.contents import contents_of
from tuner.winners.current import Kernels
from tuner.winners.manifest import CompiledConfiguration, manifest_of, manifest_record
from tuner.winners.portfolios import stored_portfolios
from tuner.winners.records import CompiledLaunch

pytestmark = pytest.mark.usefixtures("forked_children")

NAME = "0" * 32


def bundle(kernel: KernelSpec, database: Path, folder: Path) -> None:
    """Write a bundle's manifest and names of cubins, without a compiler."""
    with Database.open(database, write=False) as opened:
        contents = contents_of([], Kernels(), stored_portfolios(opened, kernel))
    compiled = [
        CompiledConfiguration({number: CompiledLaunch(NAME, NAME, "x") for number in item.launches}, None)
        for item in contents.configurations
    ]
    (folder / "cubin").mkdir(parents=True, exist_ok=True)
    (folder / "cubin" / NAME).touch()
    (folder / "manifest.json").write_text(
        canonical_json(manifest_record(manifest_of(contents, compiled, {90: NAME}, 13)))
    )


def test_it_goes_on_and_compares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "open_device", lambda *_: SimulatedGpu())
    monkeypatch.setattr(script, "write_bundle", bundle)
    monkeypatch.setattr(script, "CURVE", (4, 32))
    for name, few in {
        "portfolio.TURNS": 1,
        "portfolio_candidates.DRAWS": 10,
        "portfolio.EXPECTED": 4,
    }.items():
        monkeypatch.setattr(f"tuner.studies.{name}", few)
    given = ["--work", str(tmp_path / "w"), "--out", str(tmp_path / "o"), "--count", "6", "--trials", "2"]
    given += ["--search", "0"]
    assert script.main([*given, "--seconds", "1e-9"]) == 1
    assert not (tmp_path / "o").exists()
    script.main(given)
    monkeypatch.setattr(script.session, "tune", None)  # nothing is tuned again
    script.main(given)
    data = json.loads((tmp_path / "o" / "portfolio.json").read_text())
    rows = data["problems"].values()
    assert len(rows) == 2
    assert {row["layout"] for row in rows} == {"nn", "nt"}
    assert all(row["over_tuned"] > 0 and row["expected"] >= 1 for row in rows)
    assert all(row["over_best_kept"] >= 1 for row in rows)
    assert set(data["summary"]["layouts"]) == {"nn", "nt"}
    assert data["summary"]["invalid"] == 0
    assert data["summary"]["slower_than_default"] == 0
    assert set(data["decisions"]) == set(script.METHODS)
    assert [row["most"] for row in data["curve"]] == list(script.CURVE)
    assert all(row["cubins"] <= max(row["most"], data["curve"][0]["cubins"]) for row in data["curve"])
    assert data["curve"][-1]["median"] <= data["curve"][0]["median"]
    made, held_out = script.drawn(10)
    assert not {problem.key for problem in made} & {problem.key for problem in held_out}


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
