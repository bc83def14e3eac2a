"""The database's file: refused, migrated, shared by processes, killed, damaged, kept up."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stored import (
    GPU,
    PROBLEM,
    WARM,
    file_hash,
    filled,
    make_run,
    make_trial,
    make_winner,
)
from tuner.conditions import Conditions
from tuner.database import cells, inspection, owners, schema, sql
from tuner.database.database import Database
from tuner.database.records import Filters, Metrics
from tuner.errors import DatabaseError, UsageError
from tuner.model import RunOptions, Status

pytestmark = pytest.mark.usefixtures("forked_children")

ROOT = Path(__file__).resolve().parent.parent


def with_a_flipped_bit(sound: bytes, chance: random.Random) -> bytes:
    """Return a file's content with one bit wrong, somewhere behind its header."""
    data = bytearray(sound)
    data[chance.randrange(100, len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


# -- files that are refused


def refused(path: Path, match: str, *, write: bool = True) -> None:
    before = file_hash(path) if path.is_file() else None
    neighbours = sorted(path.parent.iterdir())
    with pytest.raises(DatabaseError, match=match) as caught:
        Database.open(path, write=write)
    assert "\n" not in str(caught.value)
    assert caught.value.remedy
    assert (file_hash(path) if path.is_file() else None) == before
    assert sorted(path.parent.iterdir()) == neighbours


@pytest.mark.parametrize("write", [True, False])
def test_foreign_files_are_refused_untouched(tmp_path: Path, write: bool) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("my notes, longer than a header\n" * 20)
    refused(text, "is not an SQLite file", write=write)
    short = tmp_path / "short"
    short.write_bytes(b"SQLite format 3\0")
    refused(short, "is not an SQLite file", write=write)
    foreign = tmp_path / "browser.db"
    connection = sqlite3.connect(foreign)
    connection.executescript("CREATE TABLE trials (x); INSERT INTO trials VALUES (1)")
    connection.close()
    refused(foreign, "a database of another program", write=write)
    refused(tmp_path, "is not a file", write=write)


def test_a_missing_or_empty_file_is_not_made_by_reading(path: Path) -> None:
    path.parent.mkdir()
    refused(path, "there is no database", write=False)
    path.touch()
    refused(path, "is empty", write=False)
    filled(path)  # writing may use the empty file


@pytest.mark.parametrize("write", [True, False])
def test_a_newer_file_is_refused_untouched(path: Path, write: bool) -> None:
    filled(path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {len(schema.MIGRATIONS) + 1}")
    connection.close()
    refused(path, "newer kernel-tune", write=write)


def test_a_read_only_file_can_be_read_and_not_written(path: Path) -> None:
    filled(path)
    path.chmod(0o444)
    refused(path, "is read-only")
    with Database.open(path, write=False) as database:
        assert len(database.query().rows) == 3
        with pytest.raises(DatabaseError, match="opened for reading"):
            database.finish_run(make_run().id, "failed")


def test_network_filesystems_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nserver:/x {tmp_path}/with\\040space nfs4 rw 0 0\n")
    assert schema.filesystem_of(tmp_path / "with space" / "sub" / "x.db", mounts) == "nfs4"
    assert schema.filesystem_of(tmp_path / "with spaces" / "x.db", mounts) == "ext4"
    assert schema.filesystem_of(tmp_path, tmp_path / "none") == ""
    assert schema.filesystem_of(tmp_path) not in schema.NETWORK_FILESYSTEMS
    path.parent.mkdir()
    monkeypatch.setattr(schema, "filesystem_of", lambda _: "nfs")
    refused(path, "network filesystem")


def test_a_full_disk_loses_nothing_and_says_so(path: Path) -> None:
    run = make_run()
    with Database.open(path) as database:
        database.start_run(run)
        pages = database.connection.execute("PRAGMA page_count").fetchone()[0]
        database.connection.execute(f"PRAGMA max_page_count = {pages + 6}")
        done = 0
        with pytest.raises(DatabaseError, match="the disk is full"):
            for number in range(100):
                database.record(run.id, replace(make_trial(number), sources=(f"{number}" * 2000,)))
                done += 1
        assert done > 0
    with Database.open(path) as database:
        assert len(database.trials(run.id)) == done
        assert database.check().problems == []


def test_a_file_size_limit_loses_nothing(fast: Path) -> None:
    code = """
    import resource, signal, sys
    from tests.stored import *
    from tuner.errors import DatabaseError
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    database = Database.open(Path(sys.argv[1])); database.start_run(make_run())
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    for number in range(1000):
        try:
            database.record(make_run().id, replace(make_trial(number), sources=(f"{number}" * 3000,)))
        except DatabaseError as error:
            print(error); break
        print(number, flush=True)
    """
    path = fast / "t.db"
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    *numbers, message = result.stdout.splitlines()
    assert "disk is full" in message or "writing failed" in message
    with Database.open(path) as database:
        assert [str(trial.number) for trial in database.trials(make_run().id)] == numbers
        assert len(numbers) > 2
        assert database.check().problems == []


# -- versions


def _add_note(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE notes (text TEXT) STRICT")


def test_an_older_file_is_migrated_with_its_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trials = filled(path)
    older = len(schema.MIGRATIONS)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, _add_note))
    with Database.open(path, write=False) as database:  # reading migrates too
        assert database.select("SELECT count(*) AS n FROM notes") == [{"n": 0}]
        assert database.connection.execute("PRAGMA user_version").fetchone()[0] == older + 1
        assert database.trials(make_run().id) == trials
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:-1])
    refused(path, "newer kernel-tune")


def test_a_migration_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path)

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("DROP TABLE winners")
        connection.execute("nonsense")

    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, _add_note, fail))
    with pytest.raises(DatabaseError, match="nonsense"):
        Database.open(path)
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:-2])
    with Database.open(path) as database:
        assert database.check().problems == []
        assert len(database.best().rows) == 1


def test_a_read_only_older_file_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path)
    path.chmod(0o444)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, _add_note))
    refused(path, "older schema", write=False)


VERSION_1 = (ROOT / "tests/version-1.sql").read_text()
"""What ``iterdump`` gave of a file that version 1 wrote.

Runs: a, measured and finished; b, replayed; c, interrupted, with its trial 1 altered behind the database's back; d,
altered itself; e, whose trials have the status ``untrusted``, which later became two.
"""


def version_1(path: Path, *statements: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.executescript(VERSION_1)
    connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


@pytest.mark.parametrize("write", [True, False])
def test_a_version_1_file_keeps_working(path: Path, write: bool) -> None:
    version_1(path)
    with Database.open(path, write=write) as database:
        assert database.connection.execute("PRAGMA user_version").fetchone()[0] == len(schema.MIGRATIONS)
        assert database.run("a" * 32) == replace(
            make_run(), calibration=None, options=RunOptions(), kernel_digest="d1", computation=""
        )
        noisy, good, hang = (database.trial(number) for number in (1, 2, 3))
        old = {"sm_clock_hz": 0.0, "capped_samples": 0}
        samples = (1000.0,) * 18 + (1001.0, 1200.0)
        assert noisy.trial == replace(make_trial(0), samples_ns=samples, id=1, **old)
        assert good.trial == replace(make_trial(1), id=2, **old)
        assert (noisy.metrics, noisy.outliers, good.outliers) == (Metrics(100.0, 2000.0, 0.5), 1, 0)
        assert (hang.trial.status, hang.trial.time_ns, hang.outliers) == (Status.HANG, None, 0)
        winners = [(s.run.id[0], s.run.conditions, s.winner.time_ns) for s in database.winners().rows]
        assert winners == [("a", Conditions(), 900.0), ("b", Conditions(), 850.0)]
        assert database.best_known(PROBLEM, GPU.name) == (make_trial(0).configuration, 900.0)
        assert len(database.query(Filters(mode="cold", regime="rested", run="a")).rows) == 3
        assert database.pending_attempts("c" * 32) == [(2, make_trial(2).configuration, 1)]
        assert database.benchmarks().rows == []


def test_a_version_1_file_is_written_on(path: Path) -> None:
    version_1(path)
    with Database.open(path) as database:
        run = database.resume_run("c" * 32)
        assert run.conditions == Conditions()
        number = database.record(run.id, make_trial(2))
        database.record_winner(run.id, make_winner(database.trial(number).trial))
        database.mark_unstable(2, "came back at 2 us")
        database.retag(1, ("suspect",))
        new = make_run("f" * 32, conditions=WARM)
        database.start_run(new)
        database.record(new.id, make_trial(0))
        assert [trial.number for trial in database.trials(new.id)] == [0]
        assert len(database.check().problems) == 3  # those of the damaged rows
        assert database.trial(1).trial.tags == ("suspect",)


def test_untrusted_times_get_the_status_that_says_why(path: Path) -> None:
    version_1(path)
    with Database.open(path) as database:
        fast, mismatch = database.trials("e" * 32)
        assert (fast.status, mismatch.status) == (Status.TOO_FAST, Status.CLOCK_MISMATCH)
        assert fast.error == "0.80 us is less than the hardware needs (1.20 us)"


def test_damage_in_a_version_1_file_stays_damage(path: Path) -> None:
    version_1(path)
    with Database.open(path) as database:
        assert [trial.number for trial in database.trials("a" * 32)] == [0, 1, 2]
        assert [s.trial.number for s in database.query(Filters(run="c")).rows] == [0]
        assert "is damaged" in database.query(Filters(run="c")).damaged[0]
        with pytest.raises(DatabaseError, match=r"run d+ is damaged"):
            database.run("d" * 32)
        problems = database.check().problems
        assert [problem.split(" is damaged")[0].split(": ")[-1] for problem in problems] == [
            "run " + "d" * 32,
            "trial 6",
            "run " + "d" * 32,  # its trial's
        ]


def test_a_migrated_file_has_the_tables_of_a_new_one(path: Path, tmp_path: Path) -> None:
    version_1(path)
    tables = []
    for file in (path, tmp_path / "new.db"):
        with Database.open(file) as database:
            schemas = database.select("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
            tables.append({row["name"]: row["sql"] for row in schemas})
            strict = database.select("SELECT strict FROM pragma_table_list WHERE name = 'benchmarks'")
            assert strict == [{"strict": 1}]
    assert tables[0] == tables[1]


def test_copies_migrated_apart_are_the_same(path: Path, tmp_path: Path) -> None:
    version_1(path)
    other = version_1(tmp_path / "other.db")
    with Database.open(path) as database:
        merged = database.merge(other)  # migrates it, too
        assert (merged.runs, merged.trials, merged.winners, merged.benchmarks) == (0, 0, 0, 0)
        assert len(merged.refused) == 2
        assert all("damaged" in line for line in merged.refused)
    with Database.open(tmp_path / "new.db") as database:
        merged = database.merge(path)
        assert (merged.runs, merged.trials, merged.winners) == (4, 7, 2)
        assert database.check().problems == []


def test_a_file_on_which_an_older_tuner_works_is_not_migrated(path: Path) -> None:
    working = "UPDATE runs SET state = 'running', owner = '{}' WHERE id LIKE 'c%'"
    version_1(path, working.format(owners.this_process()))
    for write in (True, False):
        refused(path, f"still going in process {os.getpid()}, an older kernel-tune", write=write)
    path.unlink()
    version_1(path, working.format("host:1:1"))
    Database.open(path).close()


def test_a_trigger_does_not_see_the_migration(path: Path) -> None:
    version_1(path, "CREATE TRIGGER t AFTER UPDATE ON trials BEGIN DELETE FROM winners; END")
    refused(path, "trigger 't'")


def test_no_flipped_bit_survives_the_migration(fast: Path) -> None:
    path = version_1(fast / "t.db")
    sound, chance, noticed = path.read_bytes(), random.Random(8), 0
    with Database.open(path) as database:
        truth = {stored.trial.id: stored for stored in database.query().rows}
        winners = {stored.id: stored for stored in database.winners().rows}
    assert truth and winners
    for _ in range(75):
        path.write_bytes(with_a_flipped_bit(sound, chance))
        try:
            with Database.open(path) as database:
                assert all(stored == truth[stored.trial.id] for stored in database.query().rows)
                assert all(stored == winners[stored.id] for stored in database.winners().rows)
                noticed += len(database.check().problems) > 3
        except DatabaseError:
            noticed += 1
    assert noticed > 7


# -- several processes, and death

WRITER = """
import os, sys
from tests.stored import *
path, (name, *others), count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
forks = []
for other in others:
    forks.append(os.fork())
    if not forks[-1]:
        name, forks = other, []
        break
run = make_run(name * 32)
with Database.open(path) as database:
    database.start_run(run)
    for number in range(count):
        database.attempt(run.id, number, make_trial(number).configuration)
        database.record(run.id, make_trial(number))
        print(number, flush=True)
    database.finish_run(run.id, "finished")
sys.exit(any(os.waitpid(fork, 0)[1] for fork in forks))
"""


def start_writer(path: Path, names: str, count: int) -> subprocess.Popen[str]:
    """Start a process that writes so many trials, and a fork of it for each further letter."""
    command = [sys.executable, "-c", WRITER, str(path), names, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def test_eight_processes_write_one_file(fast: Path) -> None:
    path = fast / "t.db"  # created by all of them at once
    writer = start_writer(path, "abcdefgh", 20)
    out, err = writer.communicate(timeout=200)
    assert writer.returncode == 0, err
    assert len(out.splitlines()) == 160
    with Database.open(path) as database:
        check = database.check()
        assert check.problems == []
        assert (check.rows["runs"], check.rows["trials"], check.rows["attempts"]) == (8, 160, 0)


def test_a_killed_writer_loses_no_recorded_trial(fast: Path) -> None:
    path, chance = fast / "t.db", random.Random(5)
    for name in "0123":
        writer = start_writer(path, name, 100_000)
        assert writer.stdout is not None
        acknowledged = [writer.stdout.readline()]
        time.sleep(chance.uniform(0.0, 0.1))
        writer.send_signal(signal.SIGKILL)
        acknowledged += writer.stdout.readlines()
        writer.communicate()
        numbers = [int(line) for line in acknowledged if line.endswith("\n")]
        with Database.open(path) as database:
            stored = [trial.number for trial in database.trials(name * 32)]
            assert stored[: len(numbers)] == numbers
            assert len(stored) - len(numbers) in (0, 1)  # the last may be written and not yet acknowledged
            assert stored == list(range(len(stored)))
            assert [n for n, _, _ in database.pending_attempts(name * 32)] in ([], [len(stored)])
            assert database.check().problems == []


# -- damage


def test_no_flipped_bit_reaches_a_result(fast: Path) -> None:
    path = fast / "t.db"
    filled(path, count=30)
    with Database.open(path) as database:
        truth = {stored.trial.id: stored for stored in database.query().rows}
        best = database.best().rows[0]
    measured = [(stored.trial.configuration, stored.trial.time_ns) for stored in truth.values()]
    sound, chance, noticed = path.read_bytes(), random.Random(3), 0
    for _ in range(50):
        path.write_bytes(with_a_flipped_bit(sound, chance))
        try:
            with Database.open(path) as database:
                selection, winners = database.query(), database.best()
                fastest = database.best_known(PROBLEM, GPU.name)
                noticed += bool(database.check().problems)
        except DatabaseError:
            noticed += 1
            continue
        for stored in selection.rows:
            assert stored == truth[stored.trial.id]
        for winner in winners.rows:
            assert replace(winner, id=best.id) == best
        assert fastest in [None, (best.winner.configuration, 900.0), *measured]
    assert noticed > 12


def test_truncated_files_are_one_clear_error(fast: Path) -> None:
    path = fast / "t.db"
    filled(path)
    sound = path.read_bytes()
    for cut in range(1, len(sound), len(sound) // 40):
        path.write_bytes(sound[:cut])
        try:
            with Database.open(path) as database:
                database.query()
                database.check()
        except DatabaseError as error:
            assert "\n" not in str(error)


def test_damaged_rows_are_left_out_and_reported(path: Path) -> None:
    trials = filled(path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE trials SET time_ns = 1.0 WHERE id = ?", (trials[0].id,))
    connection.execute("UPDATE sources SET text = text || ' '  WHERE text LIKE '%source 1%'")
    connection.commit()
    connection.close()
    with Database.open(path) as database:
        selection = database.query()
        assert [stored.trial.number for stored in selection.rows] == [1, 2]
        assert len(selection.damaged) == 1
        assert f"trial {trials[0].id} is damaged" in selection.damaged[0]
        assert database.best().rows == []
        assert len(database.best().damaged) == 1
        assert database.best_known(PROBLEM, GPU.name) == (trials[1].configuration, 1001.0)
        with pytest.raises(DatabaseError, match="is damaged"):
            database.trials(make_run().id)
        with pytest.raises(DatabaseError, match="source"):
            database.trial(trials[1].id or 0)
        problems = "\n".join(database.check().problems)
        assert f"trial {trials[0].id} is damaged" in problems
        assert "source" in problems


def test_a_hostile_row_with_a_right_digest_is_damage_not_a_crash(path: Path) -> None:
    filled(path, count=1)
    chance = random.Random(1)
    columns = (
        "configuration",
        "samples",
        "sample_count",
        "verification",
        "tags",
        "status",
        "registers",
        "variant",
    )
    texts = (
        "[]",
        "{",
        '{"a": [1]}',
        '{"a": NaN}',
        "null",
        "[" * 5000,
        '"x"',
        "{}",
        "7",
        '{"passed": 1, "x": 2}',
    )
    with Database.open(path) as database:
        sound = database.select("SELECT * FROM trials")[0]
        for _ in range(200):
            column = chance.choice(columns)
            value: object = chance.choice(texts)
            if column in ("sample_count", "registers"):
                value = (
                    chance.choice((-1, 10**12, None, 3))
                    if column == "registers"
                    else chance.choice((-1, 10**12))
                )
            elif column == "samples":
                value = chance.randbytes(20)
            row = cells.sealed("trials", **{**sound, column: value})
            names = ", ".join(f"{name} = ?" for name in row)
            database.connection.execute(f"UPDATE trials SET {names}", list(row.values()))
            selection = database.query()
            assert len(selection.rows) + len(selection.damaged) == 1
            assert isinstance(database.check().problems, list)


# -- upkeep


def test_merge_adds_what_is_missing_once(path: Path, tmp_path: Path) -> None:
    filled(path, make_run("a" * 32), count=5)
    other = tmp_path / "other.db"
    trials = filled(other, make_run("b" * 32))
    before = file_hash(other)
    with Database.open(path) as database:
        merged = database.merge(other)
        assert (merged.runs, merged.trials, merged.winners, merged.refused) == (1, 3, 1, [])
        again = database.merge(other)
        assert (again.runs, again.trials, again.winners, again.refused) == (0, 0, 0, [])
        assert database.check().problems == []
        moved = database.trials("b" * 32)
        assert [replace(trial, id=None) for trial in moved] == [replace(trial, id=None) for trial in trials]
        assert database.trial(moved[2].id or 0).trial.sources == make_trial(2).sources
        winner = next(s for s in database.winners().rows if s.run.id[0] == "b")
        assert winner.winner.trial_id == winner.winner.default_trial_id == moved[0].id != trials[0].id
        with pytest.raises(UsageError, match="is the database itself"):
            database.merge(path)
    assert file_hash(other) == before


def test_merge_leaves_out_damage_and_conflicts(path: Path, tmp_path: Path) -> None:
    filled(path, make_run("a" * 32))
    other = tmp_path / "other.db"
    shutil.copy(path, other)
    for file, time_ns in ((path, 5.0), (other, 6.0)):
        with Database.open(file) as database:
            database.record("a" * 32, make_trial(3, time_ns))
    with Database.open(other) as database:
        database.record("a" * 32, make_trial(4))
    filled(other, make_run("b" * 32))
    third = tmp_path / "third.db"
    filled(third, make_run("a" * 32))  # the same id, but started at another time
    connection = sqlite3.connect(other)
    connection.execute("UPDATE trials SET time_ns = 1.0 WHERE run_id LIKE 'b%' AND number = 1")
    connection.commit()
    connection.close()
    with Database.open(path) as database:
        kept = database.trials("a" * 32)
        merged = database.merge(other)
        assert (merged.runs, merged.trials, merged.winners) == (1, 3, 1)
        assert len(merged.refused) == 2
        assert any("trial 3 of run aaaa" in line and "differs" in line for line in merged.refused)
        assert any("is damaged" in line for line in merged.refused)
        assert database.trials("a" * 32)[:4] == kept
        assert len(database.trials("a" * 32)) == 5
        merged = database.merge(third)
        assert (merged.runs, merged.trials, merged.winners) == (0, 0, 0)
        assert "is another run" in merged.refused[0]
        assert database.check().problems == []


@pytest.mark.parametrize("write", [True, False])
def test_backup_is_a_whole_database(path: Path, tmp_path: Path, write: bool) -> None:
    trials = filled(path)
    target = tmp_path / "backups" / "copy.db"
    with Database.open(path, write=write) as database:
        database.backup(target)
        with pytest.raises(DatabaseError, match="exists already"):
            database.backup(target)
    assert sorted(target.parent.iterdir()) == [target]
    with Database.open(target) as copy:
        assert copy.trials(make_run().id) == trials
        assert copy.check().problems == []


def test_deleting_a_run_keeps_the_others_and_their_sources(path: Path) -> None:
    filled(path, make_run("a" * 32), count=3)
    filled(path, make_run("ab" + "b" * 30), count=2)
    with Database.open(path) as database:
        with pytest.raises(DatabaseError, match="2 runs start with"):
            database.delete_run("a")
        with pytest.raises(DatabaseError, match="there is no run"):
            database.delete_run("")
        assert database.delete_run("aa") == 3
        check = database.check()
        assert check.problems == []
        assert check.rows == {
            "runs": 1,
            "trials": 2,
            "sources": 3,
            "attempts": 0,
            "winners": 1,
            "benchmarks": 0,
        }
        with pytest.raises(DatabaseError, match="there is no run"):
            database.run("a" * 32)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("ATTACH '{}/new.db' AS other", "can only read"),
        ("VACUUM INTO '{}/new.db'", "can only read"),
        ("PRAGMA user_version = 9", "can only read"),
        ("PRAGMA user_version", "can only read"),
        ("DELETE FROM trials", "can only read"),
        ("CREATE TABLE x (y)", "can only read"),
        ("CREATE TEMP TABLE x (y)", "can only read"),
        ("BEGIN", "can only read"),
        ("SELECT load_extension('x')", "not authorized"),
        ("SELECT 1; DELETE FROM trials", "one statement"),
        ("", "is empty"),
        ("SELECT \0", "null character|unrecognized"),
        ("SELECT * FROM nowhere", "no such table"),
        ("WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT x FROM t", "too large"),
        ("SELECT zeroblob(1000000000)", "too big"),
    ],
)
def test_sql_can_only_read(path: Path, tmp_path: Path, text: str, match: str) -> None:
    filled(path)
    before = file_hash(path)
    with Database.open(path, write=False) as database, pytest.raises(UsageError, match=match):
        database.sql(text.format(tmp_path))
    assert file_hash(path) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["results"]


SLOW = (
    "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT count(*) FROM t",
    "SELECT instr(zeroblob(15000000) || x'01', zeroblob(7000000) || x'01')",  # one instruction
)


@pytest.mark.parametrize("text", SLOW)
def test_sql_is_stopped_after_a_while(path: Path, text: str) -> None:
    filled(path)
    began = time.monotonic()
    with pytest.raises(UsageError, match=r"more than 0\.2 s"):
        sql.read_only(path, text, limit_s=0.2)
    assert time.monotonic() - began < 5


def running(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def readers_of(pid: int) -> list[int]:
    """Return the children of a process that read a database for it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"sql_worker" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("text", SLOW)
def test_sql_is_stopped_by_its_user(path: Path, text: str, number: signal.Signals) -> None:
    filled(path)
    command = [sys.executable, "-m", "tuner", "query", "--db", str(path), "--sql", text]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    deadline = time.monotonic() + 20
    while not (children := readers_of(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    (child,) = children
    time.sleep(0.1)
    began = time.monotonic()
    process.send_signal(number)
    assert process.wait(20) != 0
    while running(child) and time.monotonic() < began + 20:
        time.sleep(0.01)
    assert time.monotonic() - began < 5


def test_sql_reads_with_functions(path: Path) -> None:
    filled(path)
    with Database.open(path, write=False) as database:
        columns, values = database.sql(
            "SELECT t.number AS n, j.value FROM trials t, json_each(t.tags) j ORDER BY 1 LIMIT 1"
        )
    assert (columns, values) == (["n", "value"], [(0, "noisy")])


def test_a_journal_that_is_gone_when_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process ends its transaction between the look for the file and the look into it."""
    path = tmp_path / "t.db"
    Database.open(path).close()
    journal = tmp_path / "t.db-journal"
    journal.write_bytes(b"\0" * 28)
    read = inspection._ending

    def too_late(beside: Path, length: int) -> bytes:
        journal.unlink()
        return read(beside, length)

    monkeypatch.setattr(inspection, "_ending", too_late)
    Database.open(path).close()
    assert not journal.exists()
