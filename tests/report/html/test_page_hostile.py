"""Pages of databases that others wrote, that are damaged, or that hold more than there is room for."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import assert_refused, said_by
from tests.report.html.reports import hostile, make_tuned, report, several, tuned
from tests.stored import make_run, make_winner
from tuner.database.database import Database
from tuner.database.records import Metrics
from tuner.report.html import subjects

pytestmark = pytest.mark.usefixtures("forked_children")

ELEMENTS = set(
    re.findall(
        r"\w+",
        "html head meta title style body a header div h1 h2 h3 p fieldset legend label input select button code nav ul "
        "li strong main noscript section figure figcaption details summary span table thead tbody tr th td dl dt dd b "
        "footer script",
    )
)


def texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, str):
        yield value


OWN_MARKUP = re.compile(r"<extra></extra>|<br>")


def test_names_of_others_stay_text(tmp_path: Path) -> None:
    hostile(tmp_path / "t.db")
    page = report(tmp_path / "t.db", "--all")
    assert {tag for tag, _ in page.elements} <= ELEMENTS
    assert len(page.scripts) == 3
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert not any("src" in attributes for _, attributes in page.elements)
    assert "<script>alert(1)</script>" in page.text  # as text, on sight
    assert "\u202e" not in page.text
    assert not [text for text in texts(page.data) if "\u202e" in text]
    drawn = [OWN_MARKUP.sub("", text) for text in texts(page.data["figures"])]
    assert any("&lt;script&gt;" in text for text in drawn)
    assert not [text for text in drawn if re.search("[<>]", re.sub("speedup|-> ", "", text))]


def test_the_policy_names_what_is_there_and_nothing_else(tmp_path: Path) -> None:
    tuned(tmp_path / "t.db", count=20)
    page = report(tmp_path / "t.db")

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    policy = dict(part.strip().split(" ", 1) for part in page.policy().split(";"))
    library = gzip.decompress(base64.b64decode(page.scripts[1])).decode()
    assert policy.pop("script-src").split() == [digest(page.scripts[2]), digest(library)]
    assert policy.pop("style-src") == "'unsafe-inline'"  # Plotly's; no name becomes a style
    assert policy.pop("img-src") == "data: blob:"  # of a figure that is saved as a picture
    assert set(policy.values()) == {"'none'"} and "default-src" in policy
    assert not [a for _, a in page.elements if not a.get("href", "#").startswith("#")]  # type: ignore[union-attr]


def test_numbers_that_cannot_be_are_left_out_and_named(tmp_path: Path) -> None:
    odd = (1e-300, 1e-310, 5e-324, 1e308)
    with Database.open(tmp_path / "t.db") as database:
        for letter, number in zip("abcd", odd, strict=True):
            run = make_run(letter * 32)
            database.start_run(run)
            trials = [make_tuned(i) for i in range(10)]
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
    for letter in "abcd":
        page = report(tmp_path / "t.db", "--run", letter)
        assert len(page.traces("problem-1-convergence")["trial"]["y"]) == 7
        assert max(page.traces("problem-1-convergence")["trial"]["y"]) < 1e4
        assert page.text.count("numbers that cannot be") >= 3
        assert bool(page.keys("-comparison")) is (letter == "d")


def test_damaged_rows_are_left_out_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    several(tmp_path / "t.db", count=20)
    with Database.open(tmp_path / "t.db") as database:
        database.connection.execute(
            "UPDATE trials SET error = 'changed' WHERE run_id LIKE 'd%' AND number = 3"
        )
        database.connection.execute("UPDATE runs SET seed = 99 WHERE id LIKE 'b%'")
    page = report(tmp_path / "t.db", "--all")
    assert len(page.keys("-convergence")) == 2
    assert len(page.columns()["trial"]) == 19
    assert "does not fit its content" in page.text
    to = ("report", "--db", str(tmp_path / "t.db"), "-o", str(tmp_path / "new.html"))
    assert_refused(said_by(capsys, *to, "--run", "bb"), 1, "damaged")


def test_more_problems_than_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subjects, "MOST_DETAILED", 2)
    for number in range(4):
        problem = replace(make_run().problem, sizes={"m": number + 1, "n": 1, "k": 1})
        tuned(tmp_path / "t.db", make_run(f"{number:032x}", problem), count=4)
    page = report(tmp_path / "t.db", "--all")
    assert len(page.traces("overview")["scatter"]["x"]) == 4
    assert len(page.keys("-convergence")) == 2
    assert "2 more problems" in page.text


def test_bad_input_is_one_line_and_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db, out = tmp_path / "t.db", tmp_path / "report.html"
    tuned(db, count=8)
    out.write_text("mine")
    to = ("report", "--db", str(db), "-o", str(out))
    assert_refused(said_by(capsys, *to), 1, "exists already", "--force")
    assert_refused(said_by(capsys, *to, "--run", "77"), 2, "77")
    assert_refused(said_by(capsys, *to, "--kernel", "gemn"), 2, "gemn")
    assert_refused(said_by(capsys, *to, "--all", "--run", "aa"), 2, "exclude")
    assert_refused(said_by(capsys, *to, "--kernel", "gemm", "--gpu", "none such"), 2, "none such")
    assert_refused(said_by(capsys, "report", "--db", str(tmp_path / "no.db"), "-o", str(out)), 1, "no.db")
    assert_refused(
        said_by(capsys, "report", "--db", str(db), "-o", str(tmp_path / "no" / "r.html")), 2, "no folder"
    )
    assert out.read_text() == "mine"
    assert said_by(capsys, "report", "--db", str(db), "-o", "-").out.startswith("<!DOCTYPE html>")
