"""``tune db`` and ``tune export``: files that are looked after, and headers."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.cli.filled_database import (
    COLD,
    GEMM,
    HOT,
    SMALL,
    WARM,
    call,
    fails,
    fill,
)
from tests.commands import assert_refused, said_by
from tests.compiled_once import run_once
from tuner.cli.commands.results import best, db, trials
from tuner.cli.commands.winners import export
from tuner.core.errors import DatabaseError, UsageError

pytestmark = pytest.mark.usefixtures("forked_children")


# -- db


def test_db_check_and_backup_and_merge(path: Path, tmp_path: Path) -> None:
    assert call(
        db, "check"
    ).output == "2 runs, 6 trials, 6 sources, 0 attempts, 2 winners, 0 benchmarks\nno problems\n".replace(
        "6 sources", "3 sources"
    )
    Path("copies").mkdir()
    call(db, "backup", "copies/b.db")
    assert "exists already" in str(fails(db, "backup", "copies/b.db"))
    whole = Path("copies/b.db").read_bytes()
    Path("bad.db").write_bytes(whole[:-4096] + bytes([255]) * 4096)
    assert str(fails(db, "backup", "c.db", "--db", "bad.db")).startswith("bad.db: the file is damaged")
    assert call(db, "check", "--db", "bad.db", code=1).output.startswith("structure: ")
    assert (
        "added 2 runs, 6 trials, 2 winners, 0 benchmarks"
        in call(db, "merge", "copies/b.db", "--db", "new.db").output
    )
    assert (
        "added 0 runs, 0 trials, 0 winners, 0 benchmarks"
        in call(db, "merge", "copies/b.db", "--db", "new.db").output
    )
    assert call(best, "--db", "new.db", "--json").output.count("gemm")
    assert "there is no database" in str(fails(db, "merge", "missing.db"))
    assert not (tmp_path / "missing.db").exists()
    (tmp_path / "notes.txt").write_text("no database")
    refused = str(fails(db, "merge", "notes.txt"))
    assert "notes.txt" in refused and "--db" not in refused  # which names the file that is written to


def test_db_delete_asks_first(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = CliRunner().invoke(db, ["delete", "aaaa"], input="n\n")
    assert result.exit_code == 1
    assert "gemm m=4096 n=2048 k=1024 float16 layout=nn, 3 trials" in result.output
    assert "add --yes" in str(fails(db, "delete", "aaaa"))  # no answer comes
    assert "too short" in str(call(db, "delete", "aaa", "--yes", code=1).exception)
    assert len(json.loads(call(trials, "--json").output)) == 6
    assert "deleted run aaaa" in call(db, "delete", "aaaa", "--yes").output
    assert len(json.loads(call(trials, "--json").output)) == 3
    t4 = ("export", "--format", "t4", "-o", "a")
    for words in (("db", "delete"), ("report", "--run"), (*t4, "--run"), (*t4, "--variant"), ("trials",)):
        assert_refused(said_by(capsys, *words, "9999"), 2, "there is no ", "9999")
    assert_refused(said_by(capsys, *t4[:-1], ""), 2, "--out is an empty text")


@pytest.mark.parametrize("command", [trials, best, export])
def test_a_database_that_is_not_there_is_not_made(tmp_path: Path, command: click.Command) -> None:
    more = ["-o", str(tmp_path / "x.hpp")] if command is export else []
    error = fails(command, "--db", str(tmp_path / "none.db"), *more)
    assert isinstance(error, DatabaseError)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_opened_is_not_sent_to_db_check(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])
    for error in (fails(db, "check"), fails(trials)):
        assert "the file is damaged" in error.problem
        assert error.remedy == "restore a backup, or name another file with --db"


@pytest.mark.parametrize("arguments", [("delete", "abcd", "--yes"), ("merge", "missing.db")])
def test_db_makes_no_database_for_what_is_refused(path: Path, arguments: tuple[str, ...]) -> None:
    before = sorted(path.parent.parent.rglob("*"))
    said = str(fails(db, *arguments, "--db", "none.db"))
    assert "there is no database " + ("none.db" if arguments[0] == "delete" else "missing.db") in said
    assert sorted(path.parent.parent.rglob("*")) == before


# -- export


def test_export_writes_a_header(path: Path, tmp_path: Path) -> None:
    assert "wrote 1 configuration of 1 kernel" in call(export, "-o", "tuned.hpp").output
    text = (tmp_path / "tuned.hpp").read_text()
    assert "namespace gemm {" in text
    assert "vector_add" not in text
    assert call(export, "-o", "-").stdout == text
    again = fails(export, "-o", "tuned.hpp", "--replayed")
    assert "tuned.hpp exists already; add --force" in str(again)
    assert (tmp_path / "tuned.hpp").read_text() == text
    call(export, "-o", "tuned.hpp", "--replayed", "--force")
    text = (tmp_path / "tuned.hpp").read_text()
    assert "replayed from a recording (replay:h200; cold, rested)" in text
    assert "// recorded samples only, not confirmed" in text
    assert text.count("in a fresh process") == 1
    if shutil.which("g++"):
        (use := tmp_path / "use").mkdir()
        (use / "use.cpp").write_text('#include "tuned.hpp"\nint main() { return 0; }\n')
        (use / "tuned.hpp").write_text(text)
        command = [
            "g++",
            "-std=c++17",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-fsyntax-only",
            "use.cpp",
        ]
        assert run_once(*command, folder=use).returncode == 0


def test_export_into_a_namespace_of_its_own(path: Path, tmp_path: Path) -> None:
    call(export, "-o", "tuned.hpp", "--namespace", "mine")
    text = (tmp_path / "tuned.hpp").read_text()
    assert "namespace mine {" in text
    assert "kernel_tune" not in text
    for name in ("no-name", "int", "a::b", ""):
        result = call(export, "-o", "other.hpp", "--namespace", name, code=1)
        assert isinstance(result.exception, UsageError)
        assert "--namespace" in str(result.exception)


def test_export_leaves_unconfirmed_winners_out(path: Path, tmp_path: Path) -> None:
    fill(path, "c", SMALL, exportable=False)
    call(export, "-o", "tuned.hpp")
    assert "m1_n1" not in (tmp_path / "tuned.hpp").read_text()
    assert "no confirmed winner" in str(fails(export, "--gpu", "a100", "-o", "other.hpp"))
    assert "--replayed" in str(fails(export, "--kernel", "vector_add", "-o", "other.hpp"))
    assert "--replayed" not in str(fails(export, "--kernel", "reduce", "-o", "other.hpp"))
    assert not (tmp_path / "other.hpp").exists()


def test_export_takes_the_mode_that_was_tuned_last(path: Path, tmp_path: Path) -> None:
    call(export, "-o", "cold.hpp")
    fill(path, "c", GEMM, conditions=WARM, time_ns=90_000.0)
    result = call(export, "-o", "tuned.hpp")
    assert "wrote 1 configuration of 1 kernel" in result.stdout
    assert "1 of 1 problems were tuned in several modes: took the last; --mode names one" in result.stderr
    assert "// 90 us, measured (warm, rested); in the search" in (tmp_path / "tuned.hpp").read_text()
    fill(path, "d", GEMM, conditions=COLD, time_ns=195_000.0)
    assert "// 190 us, measured (cold, rested)" in call(export, "-o", "-").stdout  # the best of this mode
    result = call(export, "-o", "-", "--mode", "warm")
    assert "// 90 us, measured (warm, rested)" in result.stdout
    assert result.stderr == ""
    assert call(export, "-o", "-", "--mode", "cold").stdout == (tmp_path / "cold.hpp").read_text()


def test_export_prefers_what_was_measured_whatever_its_mode(path: Path) -> None:
    fill(path, "c", GEMM, device="replay:h200", conditions=WARM, time_ns=90_000.0)
    text = call(export, "-o", "-", "--replayed", "--kernel", "gemm").stdout
    assert "// 190 us, measured (cold, rested)" in text
    assert "90 us, replayed" not in text


def test_export_takes_sustained_times_only_on_request(path: Path) -> None:
    fill(path, "c", GEMM, conditions=HOT, time_ns=90_000.0)
    assert "// 190 us, measured (cold, rested)" in call(export, "-o", "-").stdout
    text = call(export, "-o", "-", "--regime", "sustained").stdout
    assert "// 90 us, measured (cold, sustained)" in text
    small = replace(GEMM, dtypes=dict.fromkeys(GEMM.dtypes, "float32"))
    fill(path, "d", small, conditions=HOT)
    error = fails(export, "-o", "x.hpp", "--dtype", "float32")
    assert "--mode cold --regime sustained" in error.remedy
