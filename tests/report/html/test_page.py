"""``tune report``, read without a browser: what is on the page is what is in the database, and names stay text."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import said_by
from tests.report.html import reports
from tests.report.html.reports import CARD, Page, make_tuned, report, several, tuned
from tests.stored import make_benchmark, make_run, make_trial, make_winner
from tuner.core.model import Configuration, RunOptions, Status, Trial
from tuner.database.database import Database
from tuner.database.records import Metrics

pytestmark = pytest.mark.usefixtures("forked_children")

NBSP = "\xa0"


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Trial], Page]:
    """The trials of a run, and its page."""
    db = tmp_path_factory.mktemp("one") / "t.db"
    return tuned(db), report(db)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Page]:
    """A database of several problems, and the page of all."""
    db = tmp_path_factory.mktemp("whole") / "t.db"
    several(db)
    return db, report(db, "--all")


def test_values_are_those_of_the_database(one: tuple[list[Trial], Page]) -> None:
    trials, page = one
    timed = {trial.number + 1: trial.time_ns for trial in trials if trial.time_ns}
    drawn = page.traces("problem-1-convergence")
    assert dict(zip(drawn["trial"]["x"], drawn["trial"]["y"], strict=True)) == timed
    assert drawn["failed"]["x"] == [trial.number + 1 for trial in trials if trial.error]
    best_so_far = list(itertools.accumulate((trial.time_ns or 1e9 for trial in trials), min))
    assert drawn["best so far"]["y"] == best_so_far
    assert drawn["best so far"]["line"]["shape"] == "hv"  # steps, no slopes
    best = best_so_far[-1]
    race = page.traces("problem-1-comparison")
    assert race["bar"]["y"] == ["the winner", "default", "finalist 2"]
    assert race["bar"]["x"] == [1, 1.2, 1500 / best]
    assert race["bar"]["error_x"]["array"][1] == pytest.approx(0.01)
    columns = page.columns()
    assert columns["trial"] == [
        one.id for one in sorted(trials, key=lambda one: (bool(one.error), one.time_ns or 1e9))
    ]
    assert columns["time (ns)"][:55] == sorted(timed.values())[:55] and columns["time (ns)"][-2:] == [
        None,
        None,
    ]
    assert columns["status"].count("slow") == 3 and columns["status"][-2:] == [
        "compile_error",
        "wrong_result",
    ]
    assert {
        "block",
        "stages",
        "unroll",
        "message",
    } <= columns.keys() and "variant" not in columns  # all are tiled
    outcomes = page.traces("problem-1-outcomes")["bar"]
    assert dict(zip(outcomes["y"], outcomes["x"], strict=True)) == {
        "ok": 55, "slow": 3, "compile_error": 1, "wrong_result": 1
    }  # fmt: skip
    roof = page.traces("problem-1-roofline")["times"]["text"]
    assert roof[0].startswith(f"the winner: {best:.4g} ns") and roof[1].startswith("the default")
    assert "it failed" in page.text and "1.200x" in page.text


def test_reference_lines_are_where_their_values_are(one: tuple[list[Trial], Page]) -> None:
    trials, page = one
    drawn = page.traces("problem-1-convergence")
    (light,), (default,) = (
        [one for name, one in drawn.items() if name.startswith(which)] for which in ("speed", "def")
    )
    assert light["y"] == pytest.approx([500, 500])
    assert default["y"] == [trials[0].time_ns] * 2
    assert page.traces("problem-1-comparison")["speed of light"]["x"] == pytest.approx(
        [500 / trials_best(trials)] * 2
    )
    assert not any(
        one["layout"].get("shapes") for key, one in page.data["figures"].items() if "parallel" not in key
    )


def trials_best(trials: list[Trial]) -> float:
    return min(trial.time_ns for trial in trials if trial.time_ns)


def test_trials_that_are_far_slower_do_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def far(number: int, seed: int = 0, status: Status = Status.OK) -> Trial:
        trial = make_tuned(number, seed, status)
        return replace(trial, time_ns=200 * (trial.time_ns or 0.0)) if number % 10 == 5 else trial

    monkeypatch.setattr(reports, "make_tuned", far)
    tuned(tmp_path / "t.db")
    page = report(tmp_path / "t.db")
    times = page.traces("problem-1-convergence")["trial"]["y"]
    _, end = page.data["figures"]["problem-1-convergence"]["layout"]["yaxis"]["range"]
    assert max(times) > 100 * min(times) and 10**end < max(times) / 2


def test_each_figure_has_a_place_and_a_name(whole: tuple[Path, Page]) -> None:
    _, page = whole
    charts = {a["id"] for _, a in page.elements if a.get("class") == "chart"}
    assert charts == page.data["figures"].keys() and len(charts) > 20
    assert {key.rpartition("-")[2] for key in page.keys("")} == {
        *(
            "overview", "1", "comparison", "convergence", "importance", "roofline", "slices", "parallel",
            "contour",
        ),
        *("outcomes", "history"),
    }  # fmt: skip
    tags = [tag for tag, _ in page.elements]
    assert tags.count("figure") == len(charts) == tags.count("figcaption")
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_one_page_shows_several_problems_and_gpus(whole: tuple[Path, Page]) -> None:
    db, page = whole
    names = " ".join(page.data["figures"]["overview"]["layout"]["yaxis"]["ticktext"]).replace("<br>", " ")
    assert all(one in names for one in ("(NVIDIA H200)", "(NVIDIA A100)", "gemm ", "vector_add "))
    assert len(page.keys("-convergence")) == 3
    (history,) = page.keys("-history")
    assert [one[:12] for one in page.data["figures"][history]["data"][1]["text"]] == [
        "run aaaaaaaa",
        "run dddddddd",
    ]
    headings = [a["href"] for tag, a in page.elements if tag == "a" and a.get("class") != "skip"]
    assert headings == ["#problem-1", "#problem-2", "#problem-3"]
    kernel = report(db, "--kernel", "vector_add")
    assert len(kernel.keys("-convergence")) == 1
    assert "A100" not in kernel.text
    one = report(db, "--run", "bb").text.replace(NBSP, " ")
    assert (
        "gemm 4096 x 2048 x 1024 float16" in one
        and ": 995 ns, 1.20x the default" in one
        and "run bbbbbbbb" in one
    )


def test_what_is_not_the_default_is_marked_and_nothing_is_drawn_of_no_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The winner is of another variant than the default: the kernel's file knows that variant's own default."""
    command = [
        "--kernel", "gemm", "--device", "replay", "--trials", "3", "-q", "--db", str(tmp_path / "t.db"),
    ]  # fmt: skip
    assert said_by(capsys, *command).code == 0
    page = report(tmp_path / "t.db")
    assert "wgmma" in page.text
    marked = [
        attributes
        for tag, attributes in page.elements
        if tag == "li" and attributes.get("class") == "unusual"
    ]
    assert 0 < len(marked) < 6  # of 20
    assert page.keys("-convergence") and not page.keys("-outcomes")
    (copied,) = re.findall(r"tune explain gemm .*", page.text)
    for part in (
        "--size m=4096,n=4096,k=4096",
        "--dtype float16",
        "--option layout=nn",
        "--config 'wgmma sm_margin=4'",
    ):
        assert part in copied
    assert "SMs get none" not in page.text  # its grid leaves four on purpose
    narrow = ["vector_add", "--variant", "vectorized", "--fix", "vector_width=1", *command[2:]]
    assert said_by(capsys, *narrow).code == 0
    latest = ["report", "--db", str(tmp_path / "t.db"), "-o", str(tmp_path / "latest.html")]
    assert said_by(capsys, *latest).out.endswith("; --all also shows earlier runs\n")
    assert "move the same data with 1/4 of the loads" in report(tmp_path / "t.db").text.replace(NBSP, " ")


def test_a_newer_run_of_a_part_of_the_space_does_not_hide_the_search(tmp_path: Path) -> None:
    """The overview has the best of all runs, which need not be the one that is shown in detail."""
    whole, part = make_run("a" * 32, gpu=CARD), make_run("b" * 32, gpu=CARD)
    tuned(tmp_path / "t.db", replace(whole, options=RunOptions()))
    tuned(tmp_path / "t.db", replace(part, options=RunOptions(fixed={"stages": (2,)})), count=3)
    for options, trials in (("--all",), 60), (("--run", "aa"), 60), ((), 3):
        page = report(tmp_path / "t.db", *options)
        assert len(page.columns()["trial"]) == trials
        elsewhere = "995 ns in run aaaaaaaa" if options == () else ""
        assert elsewhere in page.text.replace(NBSP, " ") and (" in run " in page.text) == bool(elsewhere)


def test_benches_of_a_problem_are_beside_its_winner(tmp_path: Path) -> None:
    tuned(tmp_path / "t.db", make_run("d" * 32, gpu=CARD), count=8)
    with Database.open(tmp_path / "t.db") as database:
        run = database.run("d" * 32)
        own = make_benchmark(kernel_digest=run.kernel_digest, computation=run.computation)
        torch = replace(own, contestant="torch", configuration=None, time_ns=1125.0, ratio=1.25)
        database.record_benchmark([own, torch])
    page = report(tmp_path / "t.db")
    bars = page.traces("problem-1-comparison")["bar"]
    (found,) = [i for i, name in enumerate(bars["y"]) if name.endswith("torch")]
    assert bars["x"][found] == 1.25
    assert "1.125 us" in page.text.replace(NBSP, " ")


def test_runs_without_a_winner_or_with_a_strange_race_are_shown(tmp_path: Path) -> None:
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
    without = report(tmp_path / "t.db", "--run", "1")
    assert without.data["figures"] == {} and "no configuration was verified" in without.text
    before_the_race = report(tmp_path / "t.db", "--run", "4").text
    assert "no configuration was verified" not in before_the_race and "fastest trial" in before_the_race
    hung = report(tmp_path / "t.db", "--run", "2")
    assert hung.keys("") == ["problem-1-outcomes"] and hung.traces("problem-1-outcomes")["bar"]["y"] == [
        "hang"
    ]
    assert report(tmp_path / "t.db", "--run", "3").traces("problem-1-comparison")["bar"]["y"] == [
        "the winner: the default"
    ]


def test_the_page_says_of_what_the_race_spoke_and_why_the_fastest_did_not_win(tmp_path: Path) -> None:
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
    said = {letter: report(tmp_path / "t.db", "--run", letter).text.replace(NBSP, " ") for letter in races}
    assert "16 rounds: the winner is faster than every other finalist" in said["a"]
    assert "fastest finalist" not in said["a"]
    assert "also fast with warm caches: 1.74 % behind the fastest finalist cold" in said["b"]
    assert "16 rounds: the winner is slower than the fastest finalist" in said["c"]
    assert "nearer to an initial configuration was chosen: 1.74 % behind the fastest finalist" in said["c"]
    assert "100 % is 500 ns, the least time that the hardware allows" in said["a"]


def test_parameters_are_ranked_and_those_of_very_many_values_left_out(tmp_path: Path) -> None:
    """Block decides the time most, then stages; of unroll it is the noise alone."""
    run = make_run("a" * 32, gpu=CARD)
    with Database.open(tmp_path / "t.db") as database:
        database.start_run(run)
        for number in range(120):
            trial = make_tuned(number)
            values = {**trial.configuration.values, "each": number, "kind": ("a<b>", "b")[number % 2]}
            values["huge"] = (2**60 + 1, 1.5e308, -(2**60), 0.5)[
                number * 7 // 5 % 4
            ]  # a script would round them
            database.record(run.id, replace(trial, configuration=Configuration.of("tiled", values)))
    page = report(tmp_path / "t.db")
    ranked = page.traces("problem-1-importance")["Objective Value"]
    assert ranked["y"][-1] == "block" and set(ranked["y"]) == {"block", "stages", "unroll", "kind", "huge"}
    assert sum(ranked["x"]) == pytest.approx(1)
    slices = page.data["figures"]["problem-1-slices"]
    axes = {one["title"]["text"]: one for name, one in slices["layout"].items() if name.startswith("xaxis")}
    assert axes["block"]["categoryarray"] == ["32", "64", "128", "256"]
    assert axes["kind"]["categoryarray"] == ["a&lt;b&gt;", "b"]
    assert {*page.columns()["huge"]} == {str(2**60 + 1), "1.5e+308", str(-(2**60)), 0.5}
    lines = page.data["figures"]["problem-1-parallel"]["data"]
    assert len(lines) == 121 and "each" in page.columns()  # the table has it
