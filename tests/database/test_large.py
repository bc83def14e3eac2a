"""A database of many trials: what is read of it, and how much memory that takes."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stored import filled, make_run, make_trial
from tuner.core.errors import DatabaseError
from tuner.core.model import Status
from tuner.database.database import Database
from tuner.database.records import SORTS, Filters, StoredWinner
from tuner.formats.autotuners import cache_of, t4_of
from tuner.formats.files import write_text
from tuner.formats.results import Results, results_of
from tuner.report.tables import show_json

pytestmark = pytest.mark.usefixtures("forked_children")

ROOT = Path(__file__).resolve().parents[2]
RUNS, TRIALS = 5, 100


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 503 trials."""
    path = tmp_path_factory.mktemp("large") / "tuning.db"
    filled(path)
    with Database.open(path) as database:
        database.connection.execute("PRAGMA synchronous = OFF")
        for index in range(RUNS):
            run = make_run(f"{index:032x}")
            database.start_run(run)
            with database.transaction():
                for number in range(TRIALS):
                    status = Status.OK if number % 10 else Status.SLOW
                    database.record(run.id, make_trial(number, 1000.0 + (number * 7919) % 1000, status))
            database.finish_run(run.id, "finished")
    return path


def reads(database: Database, filters: Filters, sort: str, limit: int) -> list[str]:
    """Return what SQLite does for a list: the steps of the plan of each statement."""
    statements: list[str] = []
    database.connection.set_trace_callback(statements.append)
    list(database.each_trial([], filters, sort, limit))
    database.connection.set_trace_callback(None)
    return [row["detail"] for text in statements for row in database.select(f"EXPLAIN QUERY PLAN {text}")]


@pytest.mark.parametrize("filters", [Filters(), Filters(kernel="gemm", statuses=("ok",), sizes={"m": 4096})])
@pytest.mark.parametrize("sort", ["id", *(f"-{key}" for key in SORTS)])
def test_a_list_reads_an_index_and_the_rows_that_it_shows(large: Path, filters: Filters, sort: str) -> None:
    with Database.open(large, write=False) as database:
        steps = [step for step in reads(database, filters, sort, 5) if "trials" in step or " t" in step]
    assert steps
    ordered_by_number = ("SCAN t", "SCAN trials") if filters == Filters() and sort.endswith("id") else ()
    for step in steps:
        by_number = "USING INTEGER PRIMARY KEY" in step
        assert by_number or "COVERING INDEX trials_by_run" in step or step in ordered_by_number, step


def test_lists_are_in_the_order_of_their_key_with_missing_values_last(large: Path) -> None:
    with Database.open(large, write=False) as database:
        for sort in ("time", "-time", "number", "-id"):
            rows = database.query(Filters(statuses=("ok",)), sort, 300).rows
            key = {"time": "time_ns", "number": "number", "id": "id"}[sort.removeprefix("-")]
            values = [getattr(stored.trial, key) for stored in rows]
            assert len(values) == 300
            assert values == sorted(values, reverse=sort.startswith("-"))


def test_a_list_of_all_holds_one_row_at_a_time(large: Path) -> None:
    with Database.open(large, write=False) as database:
        tracemalloc.start()
        count = sum(1 for _ in database.each_trial([], Filters(), "-time"))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert count == RUNS * TRIALS + 3
    assert peak < 2e6


def test_all_trials_are_printed_as_json_and_csv(large: Path) -> None:
    command = [sys.executable, "-m", "tuner", "query", "--db", str(large), "--limit", "0"]
    for option in ("--json", "--csv"):
        text = subprocess.run([*command, option], capture_output=True, text=True, check=True, cwd=ROOT).stdout
        lines = json.loads(text) if option == "--json" else text.splitlines()[1:]
        assert len(lines) == RUNS * TRIALS + 3


def test_a_merge_holds_one_trial_at_a_time(tmp_path: Path) -> None:
    with Database.open(tmp_path / "theirs.db") as theirs, Database.open(tmp_path / "ours.db") as ours:
        theirs.start_run(run := make_run())
        with theirs.transaction():
            for number in range(50):
                theirs.record(run.id, replace(make_trial(number, 1e3), compile_log="x" * 200_000))
        theirs.finish_run(run.id, "finished")
        tracemalloc.start()
        merged = ours.merge(theirs.path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert merged.trials == 50 and not merged.refused
    assert peak < 4e6


def test_json_holds_one_text_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial may have the same long source for each of its launches."""
    sizes: list[int] = []
    monkeypatch.setattr("click.echo", lambda text, **_: sizes.append(len(text)))
    tracemalloc.start()
    show_json({"sources": ["\x7f" * 100_000] * 50})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(sizes) > 6 * 50 * 100_000 and peak < 5e6


@pytest.mark.parametrize("content", [t4_of, cache_of])
def test_an_export_holds_one_trial_at_a_time(
    large: Path, content: Callable[[Results], Iterator[str]]
) -> None:
    with Database.open(large, write=False) as database:
        tracemalloc.start()
        results = results_of(database, Filters())
        size = sum(map(len, content(results)))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert size > 100 * TRIALS
    assert peak < 2e6


@pytest.mark.parametrize("content", [t4_of, cache_of])
def test_an_export_has_the_newest_trial_of_each_configuration_where_it_was_first_tried(
    path: Path, content: Callable[[Results], Iterator[str]]
) -> None:
    filled(path, make_run("a" * 32))
    with Database.open(path) as database:
        later = make_run("b" * 32)
        database.start_run(later)
        for number, like in ((0, 1), (1, 5), (2, 0), (3, 1)):
            trial = make_trial(like, 2e6 + number)
            database.record(later.id, replace(trial, number=number))
        text = "".join(content(results_of(database, Filters())))
    assert text == json.dumps(json.loads(text), indent=1) + "\n"
    found = re.findall(r'"z_block": (\d+).*?"(?:value|time)": ([\d.]+)', text, re.DOTALL)
    expected = {64: 2.000002, 65: 2.000003, 66: 0.001002, 69: 2.000001}
    assert [(int(block), float(time_ms)) for block, time_ms in found] == list(expected.items())


def test_a_trial_that_is_deleted_while_it_is_exported_leaves_no_file(path: Path, tmp_path: Path) -> None:
    filled(path)
    with Database.open(path) as database:
        pieces = t4_of(results_of(database, Filters()))
        database.delete_run("a" * 32)
        with pytest.raises(DatabaseError):
            write_text(tmp_path / "out.json.gz", pieces, force=False)
    assert not [file for file in tmp_path.iterdir() if "out" in file.name]


def test_of_winners_that_cannot_be_current_one_is_read_and_the_current_one_is_found(path: Path) -> None:
    for index in range(6):
        text = "new" if index == 5 else "old"
        filled(path, replace(make_run(f"{index:032x}"), kernel_digest=text))
    read: list[str] = []

    def current(stored: StoredWinner) -> bool | None:
        read.append(stored.run.kernel_digest)
        return True if stored.run.kernel_digest == "new" else None

    with Database.open(path, write=False) as database:
        (best,) = database.best(current=current).rows
    assert best.run.id == f"{5:032x}"
    assert read == ["old", "new"]


def test_damaged_rows_do_not_count_towards_a_limit(path: Path) -> None:
    filled(path, count=30)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE trials SET error = 'altered' WHERE id <= 20")
        connection.commit()
    with Database.open(path, write=False) as database:
        for limit in (1, 5):
            selection = database.query(limit=limit)
            assert [stored.trial.id for stored in selection.rows] == list(range(21, 21 + limit))
            assert len(selection.damaged) == 20


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_backup_that_is_stopped_leaves_nothing_for_the_next_one(
    large: Path, tmp_path: Path, number: signal.Signals
) -> None:
    target = tmp_path / "copy.db"
    command = [sys.executable, "-m", "tuner", "db", "backup", str(target), "--db", str(large)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 100
    while not list(tmp_path.iterdir()) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(number)
    stopped = process.wait(100) != 0
    if number != signal.SIGKILL and stopped:
        assert list(tmp_path.iterdir()) in ([], [target])
    target.unlink(missing_ok=True)  # it was faster
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    assert list(tmp_path.iterdir()) == [target]


def test_a_backup_that_finds_no_space_leaves_nothing(large: Path, tmp_path: Path) -> None:
    limit = "import resource as r, signal as s; s.signal(s.SIGXFSZ, s.SIG_IGN); "
    limit += "r.setrlimit(r.RLIMIT_FSIZE, (300_000, 300_000)); from tuner.cli import main; main()"
    command = [sys.executable, "-c", limit, "db", "backup", str(tmp_path / "copy.db"), "--db", str(large)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_file_with_damaged_pages_is_not_written_to(large: Path, tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    data = bytearray(large.read_bytes())
    for page in range(40, len(data) // 4096 - 1, 50):
        data[page * 4096 : page * 4096 + 8] = b"\xff" * 8
    path.write_bytes(data)
    command = [sys.executable, "-m", "tuner", "--kernel", "gemm", "--device", "replay", "--trials", "2"]
    done = subprocess.run([*command, "--db", str(path)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1
    assert "the file is damaged" in done.stderr.splitlines()[-1]
    assert path.read_bytes() == data
