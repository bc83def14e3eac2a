from __future__ import annotations

import csv
import hashlib
import io
import json
import random
import re
import shutil
import sqlite3
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from commands import assert_refused, said_by

from tests.stored import PROBLEM, identity_of
from tuner.cli.commands.best import best
from tuner.cli.commands.db import db
from tuner.cli.commands.export import export
from tuner.cli.commands.query import query
from tuner.cli.commands.trial import trial
from tuner.cli.filters import parse_since, parse_sizes
from tuner.conditions import Calibration, Conditions, Mode, Regime
from tuner.database.database import Database
from tuner.database.records import Metrics, Winner
from tuner.errors import DatabaseError, TunerError, UsageError
from tuner.model import Configuration, Gpu, Problem, Resources, Run, RunOptions, Status, Trial, Verification

pytestmark = pytest.mark.usefixtures("forked_children", "defaults_once")

GPU = Gpu("NVIDIA H200", 90, 132, 60 << 20, 1 << 37, 232448, 233472, driver="580.95")
GEMM = PROBLEM
SMALL = replace(GEMM, sizes={"m": 1, "n": 1, "k": 1})
ADD = Problem("vector_add", {"n": 1 << 20}, {"input": "float32", "output": "float32"})
COLD = Conditions()
WARM = Conditions(Mode.WARM)
HOT = Conditions(Mode.COLD, Regime.SUSTAINED)


def configured(kernel: str, number: int) -> Configuration:
    """Return the configuration of a trial: one of the kernel's."""
    if kernel == "vector_add":
        values = {
            "block_size": 64 << number,
            "vector_width": 4,
            "items_per_thread": 1,
            "arrangement": "striped",
        }
        others = {"min_blocks": 0, "load_hint": "none", "store_hint": "none"}
        return Configuration.of("vectorized", {**values, **others})
    tile = {"block_m": 128, "block_n": 64, "block_k": 16, "thread_m": 4, "thread_n": 4}
    return Configuration.of(
        "split_k", {"split_k": 2 << number, **tile, "vector_width": 4, "double_buffer": False}
    )


def fill(
    path: Path,
    run_id: str,
    problem: Problem,
    device: str = "cuda:0",
    exportable: bool = True,
    edges_verified: bool = True,
    log: str = "ptxas info: \x1b]0;title\x07",
    conditions: Conditions = COLD,
    time_ns: float = 190_000.0,
    options: RunOptions | None = None,
) -> None:
    calibration = Calibration({"cold, rested": 0.002}, notes=("clocks are held at 1.2 GHz \x1b[31m",))
    text, computation = identity_of(problem.kernel)
    run = Run(
        run_id * 32,
        problem,
        GPU,
        device,
        1,
        "tpe",
        3,
        1,
        conditions=conditions,
        calibration=calibration,
        options=options or RunOptions(),
        kernel_digest=text,
        computation=computation,
    )
    best_ns = time_ns
    with Database.open(path) as database:
        database.start_run(run)
        for number, status in enumerate((Status.OK, Status.OK, Status.HANG)):
            trial_ns = None if status is Status.HANG else best_ns + 100.0 + number
            stored = Trial(
                number,
                configured(problem.kernel, number),
                status,
                trial_ns,
                trial_ns and trial_ns - 300,
                trial_ns and trial_ns + 300,
                () if status is Status.HANG else (190_000.0,) * 9 + (190_200.0, 290_000.0),
                Resources(128, 4096, 0, 0, 16, 2),
                Verification(True, worst_ratio=0.2, norm_error=1e-4, true_error=4.5e-4),
                "no answer after 2 s \x1b[31m" if status is Status.HANG else "",
                (f"// source of {number}\n\t__global__ void f();\n",),
                log,
                tags=("noisy",),
                sm_clock_hz=0.0 if number else 1.7554e9,
                capped_samples=0 if number else 4,
            )
            database.record(run.id, stored, metrics=Metrics(361.4, 500.0, 0.365))
        first = database.trials(run.id)[0]
        assert first.id
        database.record_winner(
            run.id,
            Winner(
                first.id, first.configuration, best_ns, first.id + 1, 240_000.0, 1.263, 1.25, 1.27,
                "faster", 190_300.0, edges_verified, exportable, "" if exportable else "a fresh process took 300 us",
            ),
        )  # fmt: skip
        database.finish_run(run.id, "finished")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "results" / "tuning.db"  # the default
    fill(path, "a", GEMM)
    fill(path, "b", ADD, device="replay:h200")
    return path


def call(command: click.Command, *arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(command, arguments)
    if result.exception is not None and not isinstance(result.exception, (TunerError, SystemExit)):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def fails(command: click.Command, *arguments: str) -> TunerError:
    result = call(command, *arguments, code=1)
    assert isinstance(result.exception, TunerError)
    assert "\n" not in str(result.exception)
    assert result.exception.remedy
    return result.exception


# -- query


def test_query_prints_a_table(path: Path) -> None:
    lines = call(query).output.splitlines()
    assert len(lines) == 7
    for part in (
        "gemm", "m=4096 n=2048 k=1024 float16 layout=nn", "NVIDIA H200", "split_k block_m=128 double_buffer=no", "ok",
        "190.1 us", "189.8 .. 190.4 us", "361.4 TFLOP/s", "36.5%", "measured",
        "cold, rested",
    ):  # fmt: skip
        assert part in lines[6]
    assert "replayed" in lines[3]
    assert "hang" in lines[4]
    assert [line.split()[0] for line in lines[1:]] == ["6", "5", "4", "3", "2", "1"]  # the newest first


def test_query_with_nothing_is_an_empty_table(path: Path) -> None:
    for name in ("reduce", "gemm"):  # built in and never tuned; there, but not on this GPU
        result = call(query, "--kernel", name, "--gpu", "a100")
        assert len(result.stdout.splitlines()) == 1 and result.stderr == "no trial fits\n"
        assert json.loads(call(query, "--kernel", name, "--gpu", "a100", "--json").stdout) == []
    assert call(query, "--variant", "mma_sync").stderr == "no trial fits\n"


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
    assert len(json.loads(call(query, "--json", *arguments).stdout)) == count
    assert len(list(csv.DictReader(io.StringIO(call(query, "--csv", *arguments).stdout)))) == count


def test_query_that_finds_nothing_says_so(path: Path) -> None:
    result = call(query, "--kernel", "gemm", "--gpu", "a100", "--json")
    assert json.loads(result.stdout) == []
    assert result.stderr == "no trial fits\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--kernel", "gem"), "no kernel 'gem' in {}; did you mean gemm? choose from: gemm, vector_add"),
        (("--kernel", "gemm", "--variant", "nope"), "no variant 'nope' in {}; choose from: split_k"),
        (("--run", "zzzz"), "no run 'zzzz' in {}; the newest of 2: bbbbbbbb, aaaaaaaa"),
        (("--dtype", "flaot32"), "no dtype 'flaot32'; did you mean float32?"),
        (("--dtype", "float8"), "no dtype 'float8'; choose from: "),
        (("--status", "okay"), "'okay'"),
        (("--size", "mm=4096"), "no size 'mm' in {}; did you mean m?"),
        (("--size", "m=1", "--size", "m=2"), "gives m twice"),
        (("--kernel", "gemm", "--kernel", "reduce"), "--kernel is given 2 times"),
        (("--replayed", "--measured"), "--replayed/--measured is given 2 times"),
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
            result = CliRunner().invoke(query, [form], default_map={"limit": limit})
            assert (result.exit_code, result.stderr) == (0, said)
    assert call(query, "--csv", "--limit", "5").stderr == ""


def test_query_sorts(path: Path) -> None:
    numbers = [
        row["number"] for row in json.loads(call(query, "--json", "--run", "a", "--sort", "-time").output)
    ]
    assert numbers == [1, 0, 2]  # without a time: last
    assert "choose from: time" in str(fails(query, "--sort", "time; DROP TABLE trials"))


def test_query_json_and_csv_say_the_same(path: Path) -> None:
    (record,) = json.loads(call(query, "--json", "--limit", "1", "--sort", "id").output)
    (row,) = csv.DictReader(io.StringIO(call(query, "--csv", "--limit", "1", "--sort", "id").output))
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
    rows = [list(csv.DictReader(io.StringIO(call(query, "--csv", "--limit", n).output))) for n in ("0", "99")]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 6


def test_columns_are_chosen_by_the_names_of_the_table_and_of_csv(path: Path) -> None:
    lines = call(
        query, "--columns", "trial,time,block_m,sizes.n,double_buffer", "--sort", "id"
    ).output.splitlines()
    assert lines[0].split() == ["trial", "time", "block_m", "n", "double_buffer"]
    assert lines[1].split() == ["1", "190.1", "us", "128", "2048", "no"]
    said = call(query, "--csv", "--columns", "trial,block_m,time", "--sort", "id").output.splitlines()
    assert said[:2] == ["id,parameters.block_m,time_ns", "1,128,190100.0"]
    assert "did you mean time?" in str(fails(query, "--columns", "tim"))
    assert "--json has all" in str(fails(query, "--columns", "time", "--json"))


def test_query_sql(path: Path) -> None:
    text = "SELECT status, count(*) AS n FROM trials GROUP BY status ORDER BY status"
    assert call(query, "--sql", text).output.split() == ["status", "n", "hang", "2", "ok", "4"]
    assert json.loads(call(query, "--sql", text, "--json").output)[1] == {"status": "ok", "n": 4}
    assert call(query, "--sql", text, "--csv").output == "status,n\nhang,2\nok,4\n"
    assert "can only read" in str(fails(query, "--sql", "DELETE FROM trials"))
    for more in (["--kernel", "gemm"], ["--limit", "3"], ["--sort", "time"]):
        assert "exclude each other" in str(fails(query, "--sql", text, *more))
    twice = "SELECT 1 AS a, 2 AS a"
    assert "two columns 'a'; name one" in str(fails(query, "--sql", twice, "--json"))
    assert call(query, "--sql", twice, "--csv").output == "a,a\n1,2\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--size", "m"],
        ["--size", "m=x"],
        ["--size", "m=-1"],
        ["--size", "=1"],
        ["--size", "m='1'"],
        ["--size", "m=4096,m=4096"],
        ["--since", "yesterday"],
        ["--since", "2026-13-01"],
        ["--status", "okay"],
        ["--json", "--csv"],
        ["--sort", ""],
    ],
)
def test_what_query_cannot_use_is_one_line(path: Path, arguments: list[str]) -> None:
    assert isinstance(fails(query, *arguments), UsageError)


def test_a_number_that_sqlite_cannot_hold_is_refused_by_name(path: Path) -> None:
    assert "--limit" in call(query, "--limit", "9" * 24, code=2).output
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
    parts = [
        "'",
        '"',
        ";",
        "--",
        "/*",
        "\\",
        "%",
        "../",
        "$(id)",
        "é",
        "DROP TABLE trials",
        "\n",
        "ATTACH 'x' AS y",
        "=1",
    ]
    options = [
        "--kernel",
        "--gpu",
        "--dtype",
        "--size",
        "--variant",
        "--status",
        "--since",
        "--run",
        "--sort",
        "--sql",
    ]
    for _ in range(100):
        text = "".join(chance.choices(parts, k=chance.randrange(1, 5)))
        result = CliRunner().invoke(query, [f"{chance.choice(options)}={text}", "--json"])
        assert isinstance(result.exception, (TunerError, type(None))), result.exception
        assert result.exception or result.stdout.strip() == "[]"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert sorted(tmp_path.rglob("*")) == files


def test_control_characters_do_not_reach_the_terminal(path: Path) -> None:
    output = call(query).output + call(trial, "3").output
    assert "\x1b" not in output
    assert "\x07" not in output
    assert "\\x1b[31m" in output


def test_damage_is_reported_and_left_out(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("UPDATE trials SET time_ns = 1 WHERE id = 1")
    connection.commit()
    connection.close()
    result = call(query, "--json")
    assert [row["id"] for row in json.loads(result.stdout)] == [6, 5, 4, 3, 2]
    assert "trial 1 is damaged" in result.stderr
    assert "no winner" in str(fails(best, "--kernel", "gemm"))
    assert "no confirmed winner" in str(fails(export, "-o", "x.hpp"))
    assert "is damaged" in str(fails(trial, "1"))
    assert "2 problems" in str(fails(db, "check"))


# -- best


def test_best_says_how_sure_it_is(path: Path) -> None:
    head, line = call(best).output.splitlines()
    for part in (
        "gemm", "split_k block_m=128 double_buffer=no", "190 us", "1.263x (1.250 .. 1.270) faster",
        "190.3 us in a fresh process, right at its edges",
    ):  # fmt: skip
        assert part in line
    assert "versus default" in head


def test_a_winners_rate_is_that_of_its_time(path: Path) -> None:
    """Its trial took 190.1 us in the search, at 500 GB/s; in the race it took 190 us."""
    (record,) = json.loads(call(best, "--json").output)
    assert record["time_ns"] == 190_000.0
    assert record["gbytes_per_s"] == pytest.approx(500 * 190.1 / 190)
    assert record["speed_of_light"] == pytest.approx(0.365 * 190.1 / 190)


def test_best_says_when_no_edge_case_size_suited_the_winner(path: Path) -> None:
    fill(path, "c", SMALL, edges_verified=False)
    said = call(best, "--size", "m=1").output
    assert "190.3 us in a fresh process, at no edge-case size: none suits it" in said


def test_replayed_winners_are_shown_on_request(path: Path) -> None:
    assert [row["kernel"] for row in json.loads(call(best, "--json").output)] == ["gemm"]
    found = json.loads(call(best, "--json", "--replayed").output)
    assert [(row["kernel"], row["replayed"]) for row in found] == [("gemm", False), ("vector_add", True)]
    assert found[1]["exportable"] is True
    (line,) = [line for line in call(best, "--replayed").output.splitlines() if "vector_add" in line]
    assert "recorded samples only, not confirmed" in line
    assert "fresh process" not in line


def test_replayed_winners_are_shown_where_nothing_was_measured(path: Path) -> None:
    said = call(best, "--kernel", "vector_add")
    assert "replays of recordings" in said.stderr
    assert said.stdout.splitlines()[1].endswith("replayed")


def test_best_without_a_winner_says_what_to_run(path: Path) -> None:
    assert "tune --kernel saxpy" in str(fails(best, "--kernel", "saxpy"))
    result = call(best, "--kernel", "saxpy", "--json", code=1)
    assert json.loads(result.stdout) == []


def test_best_of_a_kernel_that_is_there_or_of_none_says_what_is_wrong(path: Path) -> None:
    assert "leave out a filter" in str(fails(best, "--kernel", "gemm", "--gpu", "a100"))
    assert "leave out a filter" in str(fails(best, "--gpu", "a100"))
    wrong = str(fails(best, "--kernel", "gem"))
    assert "did you mean gemm?" in wrong and "tune --kernel" not in wrong
    fill(path, "c", replace(GEMM, kernel="mine"))
    assert "leave out a filter" in str(fails(best, "--kernel", "mine", "--gpu", "a100"))
    assert "did you mean mine?" in str(fails(best, "--kernel", "min"))
    softmax = str(Path(__file__).parents[1] / "docs/examples/softmax/softmax.toml")
    assert f"find one with: tune --kernel {softmax}" in str(fails(best, "--kernel", softmax))


def test_an_unconfirmed_winner_says_why(path: Path) -> None:
    fill(path, "c", SMALL, exportable=False)
    assert "no: a fresh process took 300 us" in call(best, "--size", "m=1").output
    assert len(list(csv.DictReader(io.StringIO(call(best, "--csv").output)))) == 2


def test_best_keeps_ways_of_timing_apart(path: Path) -> None:
    fill(path, "c", GEMM, conditions=WARM, time_ns=90_000.0)
    fill(path, "d", GEMM, conditions=HOT, time_ns=210_000.0)
    found = json.loads(call(best, "--json").output)
    assert [(row["mode"], row["regime"], row["time_ns"]) for row in found] == [
        ("cold", "rested", 190_000.0),
        ("cold", "sustained", 210_000.0),
        ("warm", "rested", 90_000.0),
    ]
    lines = call(best).output.splitlines()[1:]
    assert ["cold, rested" in line for line in lines] == [True, False, False]
    assert ["cold, sustained" in line for line in lines] == [False, True, False]
    for arguments, times in (
        (["--mode", "warm"], [90_000.0]),
        (["--mode", "cold"], [190_000.0, 210_000.0]),
        (["--regime", "sustained"], [210_000.0]),
    ):
        assert [row["time_ns"] for row in json.loads(call(best, "--json", *arguments).output)] == times
    assert "no winner" in str(fails(best, "--mode", "rotating"))


@pytest.mark.parametrize("command", [query, best, export])
def test_only_known_modes_and_regimes_are_taken(path: Path, command: click.Command) -> None:
    more = ["-o", "x.hpp"] if command is export else []
    assert "'cold', 'rotating', 'warm'" in call(command, "--mode", "hot", *more, code=2).output
    assert "'rested', 'sustained'" in call(command, "--regime", "tired", *more, code=2).output


def test_records_say_how_a_time_was_taken(path: Path) -> None:
    found = json.loads(call(query, "--json", "--run", "a", "--sort", "id").output)
    timing = ("mode", "regime", "sm_clock_hz", "capped_samples", "outliers")
    assert [tuple(row[name] for name in timing) for row in found] == [
        ("cold", "rested", 1.7554e9, 4, 1),
        ("cold", "rested", None, 0, 1),
        ("cold", "rested", None, 0, 0),
    ]
    (row,) = csv.DictReader(io.StringIO(call(best, "--csv").output))
    assert [row[name] for name in timing] == ["cold", "rested", "1755400000.0", "4", "1"]


def test_best_tells_the_bound_and_the_error(path: Path) -> None:
    fill(
        path,
        "c",
        replace(GEMM, dtypes={**GEMM.dtypes, "input": "bfloat16"}),
        options=RunOptions(max_error=1e-3),
    )
    found = json.loads(call(best, "--json", "--dtype", "bfloat16").output)
    assert [(row["max_error"], row["true_error"]) for row in found] == [(1e-3, 4.5e-4)]
    (row,) = csv.DictReader(io.StringIO(call(best, "--csv", "--dtype", "bfloat16").output))
    assert (row["max_error"], row["true_error"]) == ("0.001", "0.00045")
    unbounded = json.loads(call(best, "--json", "--kernel", "gemm").output)
    assert None in [row["max_error"] for row in unbounded]


# -- trial


def test_trial_shows_everything(path: Path) -> None:
    output = call(trial, "1").output
    for part in (
        "number 0 of run aaaa", "gemm m=4096", "580.95", "block_m", "190.1 us", "361.4 TFLOP/s", "128",
        "noisy", "2 lines; --source prints it", "ptxas info", "yes: largest error 0.2", "--json lists them",
        "cold, rested", "1.755 GHz", "1 of 11", "4 of 11: the power limit", "0.00045 of the norm",
        "clocks are held at 1.2 GHz \\x1b[31m",
    ):  # fmt: skip
        assert part in output
    assert "// source of 0" not in output
    assert "replayed from a recording" not in output
    assert "cold, rested; replayed from a recording" in call(trial, "4").output


def test_a_trial_says_nothing_of_what_was_not_looked_at(path: Path) -> None:
    output = call(trial, "3").output
    assert not re.search("SM clock|capped|outliers", output)
    assert "capped" not in call(trial, "2").output


def test_a_replayed_trial_has_no_invented_figures(path: Path) -> None:
    output = call(trial, "4").output
    assert re.search(r"^verified +when it was recorded$", output, re.MULTILINE)
    assert "0.2 of the allowed" not in output
    record = json.loads(call(trial, "4", "--json").output)
    assert record["replayed"] is True
    assert record["verification"]["passed"] is True
    assert record["verification"]["worst_ratio"] is None


def test_an_empty_log_says_so(path: Path) -> None:
    fill(path, "c", SMALL, log="")
    result = call(trial, "7", "--log")
    assert result.stdout == ""
    assert "said nothing about trial 7" in result.stderr


def test_trial_parts(path: Path) -> None:
    assert call(trial, "1", "--source").output == "// source of 0\n\t__global__ void f();\n"
    assert call(trial, "1", "--log").output.startswith("ptxas info")
    record = json.loads(call(trial, "1", "--json").output)
    assert record["samples_ns"] == [*[190_000.0] * 9, 190_200.0, 290_000.0]
    assert record["verification"]["true_error"] == 4.5e-4
    assert record["calibration"]["noise"] == {"cold, rested": 0.002}
    assert record["sources"] == ["// source of 0\n\t__global__ void f();\n"]
    assert record["verification"]["worst_ratio"] == 0.2
    assert "exclude each other" in str(fails(trial, "1", "--json", "--log"))
    assert "there is no trial 99" in str(fails(trial, "99"))
    call(trial, "0", code=2)


def test_trial_again_compares(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def rerun(database: Database, trial_id: int, device: str) -> Trial:
        calls.append((trial_id, device))
        return replace(database.trial(trial_id).trial, time_ns=380_200.0)

    monkeypatch.setattr("tuner.cli.trial.rerun", rerun)
    output = call(trial, "1", "--again", "--device", "cuda:1").output
    assert "190.1 us" in output
    assert "380.2 us" in output
    assert "now takes 2.000 times as long as then" in output
    assert json.loads(call(trial, "1", "--again", "--json").output)["new_over_old"] == 2.0
    call(trial, "4", "--again")
    assert calls == [(1, "cuda:1"), (1, "cuda:0"), (4, "replay:h200")]


# -- db


def test_db_check_and_backup_and_merge(path: Path, tmp_path: Path) -> None:
    assert call(
        db, "check"
    ).output == "2 runs, 6 trials, 6 sources, 0 attempts, 2 winners, 0 benchmarks\nno problems\n".replace(
        "6 sources", "3 sources"
    )
    call(db, "backup", "copies/b.db")
    assert "exists already" in str(fails(db, "backup", "copies/b.db"))
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


def test_db_delete_asks_first(path: Path) -> None:
    result = CliRunner().invoke(db, ["delete", "aaaa"], input="n\n")
    assert result.exit_code == 1
    assert "gemm m=4096 n=2048 k=1024 float16 layout=nn, 3 trials" in result.output
    assert "too short" in str(call(db, "delete", "aaa", "--yes", code=1).exception)
    assert len(json.loads(call(query, "--json").output)) == 6
    assert "deleted run aaaa" in call(db, "delete", "aaaa", "--yes").output
    assert len(json.loads(call(query, "--json").output)) == 3
    assert "there is no run 'zzzz'" in str(fails(db, "delete", "zzzz", "--yes"))


@pytest.mark.parametrize("command", [query, best, export])
def test_a_database_that_is_not_there_is_not_made(tmp_path: Path, command: click.Command) -> None:
    more = ["-o", str(tmp_path / "x.hpp")] if command is export else []
    error = fails(command, "--db", str(tmp_path / "none.db"), *more)
    assert isinstance(error, DatabaseError)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_opened_is_not_sent_to_db_check(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])
    for error in (fails(db, "check"), fails(query)):
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
        (tmp_path / "use.cpp").write_text('#include "tuned.hpp"\nint main() { return 0; }\n')
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
        assert subprocess.run(command, check=False).returncode == 0


def test_export_into_a_namespace_of_its_own(path: Path, tmp_path: Path) -> None:
    call(export, "-o", "tuned.hpp", "--namespace", "mine")
    text = (tmp_path / "tuned.hpp").read_text()
    assert "namespace mine {" in text
    assert "kernel_tune" not in text
    for name in ("no-name", "int", "a::b", ""):
        result = call(export, "-o", "other.hpp", "--namespace", name, code=1)
        assert isinstance(result.exception, UsageError)
        assert "--namespace" in result.exception.remedy


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


def test_short_helps_are_whole() -> None:
    assert "..." not in call(db, "--help").output.partition("Commands:")[2]


@pytest.mark.parametrize("command", [query, best, trial, db, export, *db.commands.values()])
def test_help_says_what_it_does(command: click.Command) -> None:
    output = call(command, "--help").output
    assert "Usage:" in output
    if command in (query, best, trial, export):
        assert f"tune {command.name} " in output
