"""``tune query``: trials that fit, as a table, CSV, JSON or rows of SQL."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import random
import re
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.filled_database import (
    call,
    fails,
)
from tests.commands import assert_refused, said_by
from tuner.cli.commands.results import best, db, trial, trials
from tuner.cli.commands.winners import export
from tuner.cli.filters import parse_sizes
from tuner.core.errors import TunerError, UsageError
from tuner.winners.wanted import parse_since

pytestmark = pytest.mark.usefixtures("forked_children")


def test_query_prints_a_table(path: Path) -> None:
    lines = call(trials, "--full").output.splitlines()
    assert len(lines) == 7
    for part in (
        "gemm", "m=4096 n=2048 k=1024 float16 layout=nn", "NVIDIA H200", "split_k split_k=2 block_m=128", "ok",
        "190.1 us", "189.8 .. 190.4 us", "361.4 TFLOP/s", "36.5 %", "measured",
        "cold, rested",
    ):  # fmt: skip
        assert part in lines[6]
    assert "replayed" in lines[3]
    assert "hang" in lines[4]
    assert [line.split()[0] for line in lines[1:]] == [f"#{n}" for n in (6, 5, 4, 3, 2, 1)]  # newest first
    head, *lines = call(trials, "--kernel", "gemm").output.splitlines()
    assert re.split("  +", head) == [
        "trial",
        "problem",
        "configuration (else default)",
        "status",
        "time",
        "of peak",
    ]
    assert re.split("  +", lines[2].strip())[1:3] == [
        "gemm m=4096 n=2048 k=1024 float16 layout=nn",
        "split_k block_m=128 double_buffer=no",
    ]


def test_query_with_nothing_is_an_empty_table(path: Path) -> None:
    for name in ("reduce", "gemm"):  # built in and never tuned; there, but not on this GPU
        result = call(trials, "--kernel", name, "--gpu", "a100")
        assert len(result.stdout.splitlines()) == 1 and result.stderr == "no trial fits\n"
        assert json.loads(call(trials, "--kernel", name, "--gpu", "a100", "--json").stdout) == []
    assert call(trials, "--variant", "mma_sync").stderr == "no trial fits\n"


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["--kernel", "gemm"], 3),
        (["--gpu", "h200"], 6),
        (["--gpu", "a100"], 0),
        (["--dtype", "float32"], 3),
        (["--size", "m=4096"], 3),
        (["--size", "m=4096,n=2048"], 3),
        (["--size", "m=4096", "--size", "n=1"], 0),
        (["--size", "m=2**12,n=2^11"], 3),
        (["--replayed"], 3),
        (["--measured", "--kernel", "gemm"], 3),
        (["--measured", "--kernel", "vector_add"], 0),
        (["--variant", "split_k"], 3),
        (["--mode", "cold", "--regime", "rested"], 6),
        (["--mode", "warm"], 0),
        (["--regime", "sustained"], 0),
        (["--status", "hang"], 2),
        (["--status", "hang", "--status", "ok"], 6),
        (["--status", "failed"], 2),
        (["--since", "1h"], 6),
        (["--since", "2999-01-01"], 0),
        (["--run", "aaaa"], 3),
        (["--limit", "2"], 2),
        (["--limit", "0"], 6),
    ],
)
def test_query_filters(path: Path, arguments: list[str], count: int) -> None:
    assert len(json.loads(call(trials, "--json", *arguments).stdout)) == count
    assert len(list(csv.DictReader(io.StringIO(call(trials, "--csv", *arguments).stdout)))) == count


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--gpu", "h20O"), "no GPU 'h20O' in {}; choose from: NVIDIA H200"),
        (("--kernel", "gem"), "no kernel 'gem' in {}; did you mean gemm? choose from: gemm, vector_add"),
        (("--kernel", "gemm", "--variant", "nope"), "no variant 'nope' in {}; choose from: split_k"),
        (("--run", "zzzz"), "no run 'zzzz' in {}; the newest of 2: bbbbbbbb, aaaaaaaa"),
        (("--dtype", "flaot32"), "no dtype 'flaot32'; did you mean float32?"),
        (("--dtype", "float8"), "no dtype 'float8'; choose from: "),
        (("--status", "okay"), "'okay'"),
        (("--size", "mm=4096"), "no size 'mm' in {}; did you mean m?"),
        (("--size", "m=1", "--size", "m=2"), "gives m twice"),
        (("--kernel", "gemm", "--kernel", "reduce"), "--kernel is given 2 times"),
        (("--run", ""), "--run is an empty text"),
        (("--replayed", "--measured"), "--replayed and --measured exclude each other"),
    ],
)
def test_query_for_what_is_nowhere_says_what_there_is(
    path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    for command in ("query",) if {"--status", "--measured"} & set(arguments) else ("query", "best"):
        assert_refused(said_by(capsys, command, *arguments, "--json"), 2, said.format("results/tuning.db"))


def test_query_says_that_there_is_more(path: Path) -> None:
    """Where the default of --limit, here 5 of 6, cuts a list off; not where the caller did."""
    for limit, said in ((5, "tune: more than 5 trials fit; --limit 0 lists all\n"), (6, "")):
        for form in ("--csv", "--json"):
            result = CliRunner().invoke(trials, [form], default_map={"limit": limit})
            assert (result.exit_code, result.stderr) == (0, said)
    assert call(trials, "--csv", "--limit", "5").stderr == ""


def test_query_sorts(path: Path) -> None:
    numbers = [
        row["number"] for row in json.loads(call(trials, "--json", "--run", "a", "--sort", "-time").output)
    ]
    assert numbers == [1, 0, 2]  # without a time: last
    assert "choose from: time" in str(fails(trials, "--sort", "time; DROP TABLE trials"))


def test_query_json_and_csv_say_the_same(path: Path) -> None:
    (record,) = json.loads(call(trials, "--json", "--limit", "1", "--sort", "id").output)
    (row,) = csv.DictReader(io.StringIO(call(trials, "--csv", "--limit", "1", "--sort", "id").output))
    assert record["parameters"]["block_m"] == 128 and record["parameters"]["double_buffer"] is False
    assert (row["parameters.block_m"], row["parameters.double_buffer"]) == ("128", "false")
    assert record["sizes"] == {"m": 4096, "n": 2048, "k": 1024}
    assert (row["sizes.m"], row["options.layout"], row["replayed"]) == ("4096", "nn", "false")
    assert record["time_ns"] == float(row["time_ns"]) == 190_100.0
    assert (record["replayed"], record["registers"], record["status"]) == (False, 128, "ok")
    assert record["true_error"] == float(row["true_error"]) == 4.5e-4
    assert set(record) == {name.partition(".")[0] for name in row}


def test_csv_of_all_trials_has_every_parameter_that_any_has(path: Path) -> None:
    """Also where the rows are not held to find out."""
    rows = [
        list(csv.DictReader(io.StringIO(call(trials, "--csv", "--limit", n).output))) for n in ("0", "99")
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 6


def test_columns_are_chosen_by_the_names_of_the_table_and_of_csv(path: Path) -> None:
    lines = call(
        trials, "--columns", "trial,time,block_m,sizes.n,double_buffer", "--sort", "id"
    ).output.splitlines()
    assert lines[0].split() == ["trial", "time", "block_m", "n", "double_buffer"]
    assert lines[1].split() == ["#1", "190.1", "us", "128", "2048", "no"]
    said = call(trials, "--csv", "--columns", "trial,block_m,time", "--sort", "id").output.splitlines()
    assert said[:2] == ["id,parameters.block_m,time_ns", "1,128,190100.0"]
    said = call(trials, "--csv", "--columns", "time,interval,problem", "--sort", "id").output.splitlines()
    assert said[0] == "time_ns,interval,problem"
    assert said[1].startswith("190100.0,189.8 .. 190.4 us,m=4096 n=2048 k=1024 ")
    (row, *_) = csv.DictReader(
        io.StringIO(call(trials, "--csv", "--columns", "configuration", "--sort", "id").output)
    )
    assert "block_m=128" in row["configuration"] and "double_buffer=no" in row["configuration"]
    assert "did you mean time?" in str(fails(trials, "--columns", "tim"))
    assert "did you mean block_m?" in str(fails(trials, "--columns", "trial,block_mm"))
    assert "--json has all" in str(fails(trials, "--columns", "time", "--json"))


def test_query_sql(path: Path) -> None:
    text = "SELECT status, count(*) AS n FROM trials GROUP BY status ORDER BY status"
    assert call(trials, "--sql", text).output.split() == ["status", "n", "hang", "2", "ok", "4"]
    assert json.loads(call(trials, "--sql", text, "--json").output)[1] == {"status": "ok", "n": 4}
    assert call(trials, "--sql", text, "--csv").output == "status,n\nhang,2\nok,4\n"
    assert "--sql" in str(fails(trials, "SELECT count(*) FROM trials"))
    assert "can only read" in str(fails(trials, "--sql", "DELETE FROM trials"))
    for more in (["--kernel", "gemm"], ["--limit", "3"], ["--sort", "time"]):
        assert "exclude each other" in str(fails(trials, "--sql", text, *more))
    twice = "SELECT 1 AS a, 2 AS a"
    assert "two columns 'a'; name one" in str(fails(trials, "--sql", twice, "--json"))
    assert call(trials, "--sql", twice, "--csv").output == "a,a\n1,2\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--size", "m"],
        ["--size", "m=-1"],
        ["--size", "m='1'"],
        ["--since", "yesterday"],
        ["--since", "2026-13-01"],
        ["--json", "--csv"],
        ["--sort", ""],
    ],
)
def test_what_query_cannot_use_is_one_line(path: Path, arguments: list[str]) -> None:
    assert isinstance(fails(trials, *arguments), UsageError)


def test_a_number_that_sqlite_cannot_hold_is_refused_by_name(path: Path) -> None:
    assert "--limit" in call(trials, "--limit", "9" * 24, code=2).output
    assert "'N'" in call(trial, "9" * 24, code=2).output


def test_times_in_since() -> None:
    now = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
    assert parse_since("2d", now) == "2026-11-19T12:00:00"
    assert parse_since("90m", now) == "2026-11-21T10:30:00"
    assert parse_since("2026-11-01") == "2026-11-01T00:00:00"
    assert parse_since("2026-11-01T10:00:00+02:00") == "2026-11-01T08:00:00"
    assert parse_since("999999w", now) == ""
    assert parse_sizes(["m=1,n=2", "k=3"]) == {"m": 1, "n": 2, "k": 3}


def test_hostile_options_change_nothing(path: Path, tmp_path: Path) -> None:
    before, files = hashlib.sha256(path.read_bytes()).hexdigest(), sorted(tmp_path.rglob("*"))
    chance = random.Random(4)
    parts = ["'", '"', ";", "--", "/*", "\\", "%", "../", "$(id)", "é", "=1"]
    parts += ["DROP TABLE trials", "\n", "ATTACH 'x' AS y"]
    options = ["kernel", "gpu", "dtype", "size", "variant", "status", "since", "run", "sort", "sql"]
    for _ in range(40):
        text = "".join(chance.choices(parts, k=chance.randrange(1, 5)))
        result = CliRunner().invoke(trials, [f"--{chance.choice(options)}={text}", "--json"])
        assert isinstance(result.exception, (TunerError, type(None))), result.exception
        assert result.exception or result.stdout.strip() == "[]"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert sorted(tmp_path.rglob("*")) == files


def test_control_characters_do_not_reach_the_terminal(path: Path) -> None:
    output = call(trials).output + call(trial, "3").output
    assert "\x1b" not in output
    assert "\x07" not in output
    assert "\\x1b[31m" in output


def test_damage_is_reported_and_left_out(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("UPDATE trials SET time_ns = 1 WHERE id = 1")
    connection.commit()
    connection.close()
    result = call(trials, "--json")
    assert [row["id"] for row in json.loads(result.stdout)] == [6, 5, 4, 3, 2]
    assert "trial 1 is damaged" in result.stderr
    Path("results/tuning.db").rename("other.db")
    assert call(trials, "--db", "other.db").stderr.endswith("; run: tune db check --db other.db\n")
    Path("other.db").rename("results/tuning.db")
    assert "no winner" in str(fails(best, "--kernel", "gemm"))
    assert "no confirmed winner" in str(fails(export, "-o", "x.hpp"))
    assert "is damaged" in str(fails(trial, "1"))
    assert "2 problems" in str(fails(db, "check"))
