"""``tune report``, read without a browser: what is on the page is what is in the database, and names stay text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import assert_refused, said_by
from tests.report.html.reports import CARD, Page, hostile, make_tuned, several, tuned
from tests.stored import make_run, make_trial, make_winner
from tuner.core.model import Configuration, RunOptions, Status, Trial
from tuner.database.database import Database
from tuner.database.records import Metrics
from tuner.report.html.page import ASSETS
from tuner.report.html.parameter_figures import worth
from tuner.report.html.subjects import MOST_DETAILED

pytestmark = pytest.mark.usefixtures("forked_children")

NBSP = "\xa0"
ROOT = Path(__file__).resolve().parents[3]
ELEMENTS = set(
    re.findall(
        r"\w+",
        "html head meta title style body a header div h1 h2 h3 p fieldset legend label input nav ul li strong main "
        "noscript section figure figcaption details summary span table thead tbody tr th td dl dt dd b footer script",
    )
)


def report(capsys: pytest.CaptureFixture[str], db: Path, *options: str) -> Page:
    path = db.parent / "report.html"
    assert said_by(capsys, "report", "--db", str(db), "-o", str(path), "--force", *options).code == 0
    return Page(path)


def test_values_are_those_of_the_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trials = tuned(tmp_path / "t.db")
    page = report(capsys, tmp_path / "t.db")
    drawn = page.data["problem-1-convergence"]
    assert drawn["time_ns"] == [trial.time_ns for trial in trials]
    assert [drawn["statuses"][i] for i in drawn["status"]] == [trial.status for trial in trials]
    assert drawn["trial"] == [trial.id for trial in trials]
    assert drawn["speed_of_light_ns"] == pytest.approx(500)
    best = min(trial.time_ns for trial in trials if trial.time_ns)
    winner, default, finalist = page.data["problem-1-comparison"]["entries"]
    assert (winner["time_ns"], default["time_ns"], finalist["time_ns"]) == (best, trials[0].time_ns, 1500.0)
    assert (default["ratio"], default["low"], default["high"]) == (1.2, 1.19, 1.21)
    outcomes = page.data["problem-1-outcomes"]
    counts = dict(zip(outcomes["outcome"], outcomes["trials"], strict=True))
    assert counts == {"ok": 55, "slow": 3, "compile_error": 1, "wrong_result": 1}
    shown = page.data["problem-1-samples"]["series"][0]
    assert statistics.median(shown["samples_ns"]) == shown["median_ns"]
    assert page.data["problem-1-clocks"]["clock_hz"] == [trial.sm_clock_hz for trial in trials]
    points = page.data["problem-1-roofline"]["points"]
    assert [point["time_ns"] for point in points] == [best, trials[0].time_ns]
    assert "it failed" in page.text
    assert "1.200x" in page.text


def test_each_figure_has_a_table_and_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    several(tmp_path / "t.db")
    page = report(capsys, tmp_path / "t.db", "--all")
    charts = {attributes["id"] for _, attributes in page.elements if attributes.get("class") == "chart"}
    tags = [tag for tag, _ in page.elements]
    assert charts == page.data.keys()
    assert tags.count("figure") == len(charts) == tags.count("figcaption") == tags.count("table")
    assert all(a.get("aria-label") for _, a in page.elements if a.get("role") == "img")
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_one_page_shows_several_problems_and_gpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    several(tmp_path / "t.db")
    whole = report(capsys, tmp_path / "t.db", "--all")
    assert {entry["gpu"] for entry in whole.data["overview"]["entries"]} == {"NVIDIA H200", "NVIDIA A100"}
    assert {entry["kernel"] for entry in whole.data["overview"]["entries"]} == {"gemm", "vector_add"}
    assert sum(key.endswith("-convergence") for key in whole.data) == 3
    history = next(figure for key, figure in whole.data.items() if key.endswith("-history"))
    assert [one["run"] for one in history["winners"]] == ["a" * 8, "d" * 8]
    kernel = report(capsys, tmp_path / "t.db", "--kernel", "vector_add")
    assert sum(key.endswith("-convergence") for key in kernel.data) == 1
    assert "A100" not in kernel.text
    assert "Run bbbbbbbb of gemm" in report(capsys, tmp_path / "t.db", "--run", "bb").text


def test_a_run_says_where_the_stored_best_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The overview has the best of all runs, which need not be the one that is shown in detail."""
    tuned(tmp_path / "t.db", make_run("a" * 32, gpu=CARD))
    tuned(tmp_path / "t.db", make_run("b" * 32, gpu=CARD), count=5)
    assert "995 ns in run aaaaaaaa" in report(capsys, tmp_path / "t.db").text.replace(NBSP, " ")
    assert " in run " not in report(capsys, tmp_path / "t.db", "--run", "aaaa").text


def test_what_is_not_the_default_is_marked_and_nothing_is_drawn_of_no_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The winner is of another variant than the default: the kernel's file knows that variant's own default."""
    command = [
        "--kernel",
        "gemm",
        "--device",
        "replay",
        "--trials",
        "3",
        "-q",
        "--db",
        str(tmp_path / "t.db"),
    ]
    assert said_by(capsys, *command).code == 0
    page = report(capsys, tmp_path / "t.db")
    assert "wgmma" in page.text
    marked = [
        attributes
        for tag, attributes in page.elements
        if tag == "li" and attributes.get("class") == "unusual"
    ]
    assert 0 < len(marked) < 6  # of 20
    assert "problem-1-convergence" in page.data
    assert "problem-1-outcomes" not in page.data


def test_a_newer_run_of_a_part_of_the_space_does_not_hide_the_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, part = make_run("a" * 32, gpu=CARD), make_run("b" * 32, gpu=CARD)
    tuned(tmp_path / "t.db", replace(whole, options=RunOptions()))
    tuned(tmp_path / "t.db", replace(part, options=RunOptions(fixed={"stages": (2,)})), count=3)
    for options, trials in (("--all",), 60), (("--run", "bb"), 3), ((), 3):
        page = report(capsys, tmp_path / "t.db", *options)
        assert len(page.data["problem-1-convergence"]["trial"]) == trials


def test_benches_of_a_problem_are_beside_its_winner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    several(tmp_path / "t.db")
    with Database.open(tmp_path / "t.db") as database:
        run, bench = database.run("a" * 32), database.benchmarks().rows[0]
        own = replace(bench, id=None, kernel_digest=run.kernel_digest, computation=run.computation)
        torch = replace(own, contestant="torch", configuration=None, time_ns=1125.0, ratio=1.25)
        database.record_benchmark([replace(own, bench="f" * 32), replace(torch, bench="f" * 32)])
    entries = report(capsys, tmp_path / "t.db", "--run", "dd").data["problem-1-comparison"]["entries"]
    (found,) = [entry for entry in entries if entry["name"].endswith("torch")]
    assert (found["time_ns"], found["ratio"]) == (1125.0, 1.25)


def test_names_of_others_stay_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile(tmp_path / "t.db")
    for options in ((), ("--all",)):
        page = report(capsys, tmp_path / "t.db", *options)
        assert {tag for tag, _ in page.elements} <= ELEMENTS
        assert len(page.scripts) == 3
        assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
        assert not any("style" in attributes or "src" in attributes for _, attributes in page.elements)
        assert "<script>alert(1)</script>" in page.text  # as text, on sight
        assert "\u202e" not in page.text
        assert "\u202e" not in json.dumps(page.data, ensure_ascii=False)


def test_the_policy_names_what_is_there_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned(tmp_path / "t.db", count=20)
    page = report(capsys, tmp_path / "t.db")

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    policy = dict(part.strip().split(" ", 1) for part in page.policy().split(";"))
    assert policy.pop("script-src").split() == [digest(script) for script in page.scripts[1:]]
    assert policy.pop("style-src") == digest(page.styles[0])
    assert set(policy.values()) == {"'none'"} and "default-src" in policy
    assert not [a for _, a in page.elements if not a.get("href", "#").startswith("#")]  # type: ignore[union-attr]


def test_runs_without_a_winner_or_with_a_strange_race_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Database.open(tmp_path / "t.db") as database:
        empty, failed, strange, stopped = (make_run(letter * 32) for letter in "1234")
        for run in (empty, failed, strange, stopped):
            database.start_run(run)
        database.record(stopped.id, make_tuned(0))
        database.record(failed.id, make_tuned(0, status=Status.HANG))
        database.record(strange.id, make_trial(0))
        trial = database.trials(strange.id)[0]
        race = {"medians_ns": 7, "rounds": [], "incumbent": "none", "noise_floor": "high"}
        database.record_winner(strange.id, make_winner(trial, race=race))
    without = report(capsys, tmp_path / "t.db", "--run", "1")
    assert without.data == {} and "no configuration was verified" in without.text
    before_the_race = report(capsys, tmp_path / "t.db", "--run", "4").text
    assert "no configuration was verified" not in before_the_race and "fastest trial" in before_the_race
    assert report(capsys, tmp_path / "t.db", "--run", "2").data["problem-1-outcomes"]["outcome"] == ["hang"]
    assert report(capsys, tmp_path / "t.db", "--run", "3").data["problem-1-comparison"]["entries"]


def test_the_page_says_of_what_the_race_spoke_and_why_the_fastest_did_not_win(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slower = {"rounds": 16, "verdict": "slower", "behind": 1.0174}
    races = {
        "a": {"rounds": 16, "verdict": "faster", "behind": 1.0},
        "b": {**slower, "warm_race": {"passed_over": "tiled"}},
        "c": slower,
    }
    with Database.open(tmp_path / "t.db") as database:
        for number, (letter, race) in enumerate(races.items()):
            run = make_run(letter * 32)
            database.start_run(run)
            trial = replace(
                make_trial(number),
                id=database.record(run.id, make_trial(number), metrics=Metrics(100.0, 2000.0, 0.5)),
            )
            database.record_winner(run.id, make_winner(trial, race=race))
            database.finish_run(run.id, "finished")
    said = {
        letter: report(capsys, tmp_path / "t.db", "--run", letter).text.replace(NBSP, " ") for letter in races
    }
    assert "16 rounds: the winner is faster than every other finalist" in said["a"]
    assert "fastest finalist" not in said["a"]
    assert "also fast with warm caches: 1.74 % behind the fastest finalist cold" in said["b"]
    assert "16 rounds: the winner is slower than the fastest finalist" in said["c"]
    assert "nearer to an initial configuration was chosen: 1.74 % behind the fastest finalist" in said["c"]
    assert "100 % is 500 ns, the least time that the hardware allows" in said["a"]


def test_numbers_that_cannot_be_are_left_out_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = (1e-300, 1e-310, 5e-324, 1e308)
    with Database.open(tmp_path / "t.db") as database:
        for letter, number in zip("abcd", odd, strict=True):
            run = make_run(letter * 32)
            database.start_run(run)
            trials = [make_tuned(i) for i in range(30)]
            trials[1] = replace(trials[1], time_ns=number, ci_low_ns=number, ci_high_ns=number)
            trials[2] = replace(trials[2], samples_ns=(min(number, 1e30), 1.0, 1.0))
            for trial in trials:
                metrics = Metrics(1e308 if trial.number == 4 else None, 2000.0, 0.5)
                database.record(run.id, trial, metrics=metrics)
            stored = database.trials(run.id)
            changes = {"a": {"time_ns": number}, "b": {"ratio": number}, "c": {"default_time_ns": number}}
            race = {"medians_ns": [["x", number]], "noise_floor": number}
            winner = make_winner(stored[5], **{"race": race, **changes.get(letter, {})})
            database.record_winner(run.id, winner)
    for letter, number in zip("abcd", odd, strict=True):
        page = report(capsys, tmp_path / "t.db", "--run", letter)
        assert number not in page.data["problem-1-convergence"]["time_ns"]
        assert len(page.data["problem-1-convergence"]["time_ns"]) == 27
        assert page.text.count("numbers that cannot be") >= 3
        assert ("problem-1-comparison" in page.data) is (letter == "d")


def test_damaged_rows_are_left_out_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    several(tmp_path / "t.db")
    with Database.open(tmp_path / "t.db") as database:
        database.connection.execute(
            "UPDATE trials SET error = 'changed' WHERE run_id LIKE 'd%' AND number = 3"
        )
        database.connection.execute("UPDATE runs SET seed = 99 WHERE id LIKE 'b%'")
    page = report(capsys, tmp_path / "t.db", "--all")
    assert sum(key.endswith("-convergence") for key in page.data) == 2
    assert len(page.data["problem-1-convergence"]["time_ns"]) == 59
    assert "does not fit its content" in page.text
    to = ("report", "--db", str(tmp_path / "t.db"), "-o", str(tmp_path / "new.html"))
    assert_refused(said_by(capsys, *to, "--run", "bb"), 1, "damaged")


def test_more_problems_than_there_is_room_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(MOST_DETAILED + 2):
        problem = replace(make_run().problem, sizes={"m": number + 1, "n": 1, "k": 1})
        tuned(tmp_path / "t.db", make_run(f"{number:032x}", problem), count=4)
    page = report(capsys, tmp_path / "t.db", "--all")
    assert len(page.data["overview"]["entries"]) == MOST_DETAILED + 2
    assert sum(key.endswith("-convergence") for key in page.data) == MOST_DETAILED
    assert "2 more problems" in page.text


def test_bad_input_is_one_line_and_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db, out = tmp_path / "t.db", tmp_path / "report.html"
    several(db)
    out.write_text("mine")
    to = ("report", "--db", str(db), "-o", str(out))
    assert_refused(said_by(capsys, *to), 1, "exists already", "--force")
    assert_refused(said_by(capsys, *to, "--run", "77"), 1, "77")
    assert_refused(said_by(capsys, *to, "--kernel", "gemn"), 2, "gemn")
    assert_refused(said_by(capsys, *to, "--all", "--run", "aa"), 2, "exclude")
    assert_refused(said_by(capsys, *to, "--kernel", "gemm", "--gpu", "none such"), 1, "no run")
    assert_refused(said_by(capsys, "report", "--db", str(tmp_path / "no.db"), "-o", str(out)), 1, "no.db")
    assert_refused(
        said_by(capsys, "report", "--db", str(db), "-o", str(tmp_path / "no" / "r.html")), 1, "no folder"
    )
    assert out.read_text() == "mine"
    assert said_by(capsys, "report", "--db", str(db), "-o", "-").out.startswith("<!DOCTYPE html>")


def test_effects_are_found_however_the_search_went() -> None:
    # More stages are tried with the best block alone, as searches do: the raw means of both are too good.
    trials = [make_tuned(number) for number in range(240)]
    values = [trial.configuration.values for trial in trials]
    kept = [t for t, v in zip(trials, values, strict=True) if v["stages"] == 1 or v["block"] == 256]
    best = next(t for t in trials if t.configuration.values["block"] == 256).configuration
    fitted = worth(kept, best)
    assert fitted is not None
    assert [one.name for one in fitted.parameters][:2] == ["block", "stages"]
    assert fitted.explained > 0.95
    assert sum(one.importance for one in fitted.parameters) == pytest.approx(1, abs=0.05)
    block = {effect.value: effect for effect in fitted.parameters[0].effects}
    assert block[256].factor == 1
    assert block[32].factor == pytest.approx(8**0.5, rel=0.03)
    assert block[64].low < block[64].factor < block[64].high
    unroll = next(one for one in fitted.parameters if one.name == "unroll")
    assert abs(unroll.effects[0].factor / unroll.effects[1].factor - 1) < 0.01
    assert worth(trials[:10], best) is None


def test_parameters_of_very_many_values_are_left_out() -> None:
    def grown(trial: Trial, name: str, value: int) -> Trial:
        values = trial.configuration.values | {name: value} | {f"p{i}": value % 40 + i for i in range(30)}
        return replace(trial, configuration=Configuration.of("tiled", values))

    trials = [grown(make_tuned(number), "each", number) for number in range(200)]
    fitted = worth(trials, trials[0].configuration)
    assert fitted is not None
    names = {one.name for one in fitted.parameters}
    assert "each" not in names
    assert {"block", "stages", "unroll", "p0"} <= names
    assert len(names) < 15


def test_the_library_is_the_one_that_is_named() -> None:
    wanted = json.loads((ROOT / "scripts/report/package.json").read_text())["dependencies"]["echarts"]
    bundle = (ASSETS / "echarts.min.js").read_text(encoding="utf-8")
    assert bundle.startswith(f"/*! Apache ECharts {wanted}, Apache License 2.0")
    licence = (ASSETS / "echarts.LICENSE.txt").read_text(encoding="utf-8")
    assert licence.startswith(f"Apache ECharts {wanted} with zrender")
    assert "Apache License" in licence and "BSD 3-Clause License" in licence
    assert "</script" not in bundle.lower() and "<!--" not in bundle
