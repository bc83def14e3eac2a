"""``tune run`` in a process of its own: signals, a resumed batch, templates that do not compile, closed streams."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.command_line import Fake, assert_no_process_left, attempts_in, trials_in
from tests.faults.kernels import write_kernel
from tests.faults.killing import marked
from tests.faults.processes import command_of

ROOT = Path(__file__).parents[2]


def test_ctrl_c_once(tmp_path: Path) -> None:
    """Other signals: tests/tuning/test_signals.py, and tests/cli/test_shard.py for SIGTERM."""
    kernel = write_kernel(tmp_path / "own", items=range(1, 30))
    database = tmp_path / "results" / "tuning.db"
    fake = Fake(tmp_path, "--kernel", str(kernel), "--trials", "12", "--json", sleep_s=0.5)
    fake.wait_for_trials(database, 1)
    began = time.monotonic()
    fake.interrupt()
    said = fake.ends()
    assert time.monotonic() - began < 60.0
    assert said.code == 130, said.err
    assert "Traceback" not in said.err
    last = said.err.strip().splitlines()[-1]
    assert "--resume" in last
    assert "stopped after" in last
    assert_no_process_left(fake.mark)
    kept = trials_in(database)
    assert f"stopped after {kept} of 12" in last
    (record,) = json.loads(said.out)
    assert last == f"tune: {record['error']}" and not record["winner"] and record["best_yet"]["time_ns"] > 0
    with sqlite3.connect(database) as connection:
        assert connection.execute("SELECT state FROM runs").fetchall() == [("interrupted",)]
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    again = Fake(tmp_path, "--kernel", str(kernel), "--trials", "12", "--resume", sleep_s=0.0)
    said = again.ends()
    assert said.code == 0, said.err
    assert f"resuming after {kept} trials" in said.err
    with sqlite3.connect(database) as connection:
        found = connection.execute(
            "SELECT count(*), count(DISTINCT configuration), count(DISTINCT run_id) FROM trials"
        )
        assert found.fetchone() == (12, 12, 1)
    assert_no_process_left(again.mark)


def test_ctrl_c_twice_is_immediate(tmp_path: Path) -> None:
    kernel = write_kernel(tmp_path / "own", items=range(1, 30))
    database = tmp_path / "results" / "tuning.db"
    fake = Fake(tmp_path, "--kernel", str(kernel), "--trials", "60", sleep_s=300.0)
    deadline = time.monotonic() + 100.0
    while not attempts_in(database) and time.monotonic() < deadline:
        time.sleep(0.01)
    fake.interrupt()
    time.sleep(0.3)
    began = time.monotonic()
    fake.interrupt()
    said = fake.ends()
    assert time.monotonic() - began < 100.0  # a measurement takes 300
    assert said.code == 130, said.err
    assert "Traceback" not in said.err
    assert_no_process_left(fake.mark)
    with sqlite3.connect(database) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_resume_of_several_problems(tmp_path: Path) -> None:
    """The first is done, the second was interrupted, the third never began: the same command with --resume ends it."""
    kernel = write_kernel(tmp_path / "own", blocks=(32, 64), items=range(1, 13))
    database = tmp_path / "results" / "tuning.db"
    command = ("--kernel", str(kernel), "--trials", "6", *(f"--problem=n={n}" for n in (1024, 2048, 4096)))
    fake = Fake(tmp_path, *command, sleep_s=0.15)
    fake.wait_for_trials(database, 8)
    fake.interrupt()
    said = fake.ends()
    assert said.code == 130 and "all of them are kept" in said.err
    assert "\n  best yet   " in said.out and "NOT: the search was stopped before the race" in said.out
    said = Fake(tmp_path, *command, "--resume", "-q", sleep_s=0.0).ends()
    assert said.code == 0, said.err
    with sqlite3.connect(database) as connection:
        rows = connection.execute(
            "SELECT count(*), count(DISTINCT t.configuration), r.state FROM trials t JOIN runs r ON r.id = t.run_id "
            "GROUP BY r.id ORDER BY r.started_at"
        ).fetchall()
    assert rows == [(6, 6, "finished")] * 3


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ unknown }}", "'unknown' is undefined"),
        (
            'extern "C" __global__ void scale__{{ fault }}() { nonsense; }',
            'identifier "nonsense" is undefined',
        ),
    ],
)
def test_template_that_does_not_compile(tmp_path: Path, source: str, words: str) -> None:
    kernel = write_kernel(tmp_path / "own", source=source)
    said = Fake(tmp_path, "--kernel", str(kernel), "--trials", "3", "-q", sleep_s=0.0).ends()
    assert said.code == 1
    (line,) = said.err.strip().splitlines()
    assert "3 of 3 ended as compile_error" in line
    with sqlite3.connect(tmp_path / "results" / "tuning.db") as connection:
        rows = connection.execute("SELECT status, error FROM trials").fetchall()
    assert len(rows) == 3
    assert all(status == "compile_error" and words in error for status, error in rows), rows


def test_kernel_edited_during_a_run(tmp_path: Path) -> None:
    """Compilers that are there go on with the text that they have read; one that starts later must not take another."""
    kernel = write_kernel(tmp_path / "own", items=range(1, 100))
    database = tmp_path / "results" / "tuning.db"
    fake = Fake(tmp_path, "--kernel", str(kernel), "--trials", "300")
    fake.wait_for_trials(database, 5)
    template = tmp_path / "own" / "scale.cu.j2"
    template.write_text(template.read_text().replace("2.0f", "3.0f"))
    fake.wait_for_trials(database, 15)
    for pid in marked(fake.mark):
        if "tuner.children.compile_worker" in command_of(pid):
            os.kill(pid, signal.SIGKILL)
    said = fake.ends()
    assert said.code == 1
    assert "scale.toml or its templates have changed" in said.err.strip().splitlines()[-1]
    with sqlite3.connect(database) as connection:
        sources = [text for (text,) in connection.execute("SELECT text FROM sources")]
        blamed = connection.execute("SELECT count(*) FROM trials WHERE error LIKE '%changed%'").fetchone()
    assert len(sources) >= 15
    assert [source for source in sources if "2.0f" not in source] == []
    assert blamed == (0,)


@pytest.mark.parametrize(
    ("closed", "words"), [("stderr", ["show", "vector_add"]), ("stdout", ["query", "--db", "none.db"])]
)
def test_closed_streams_are_nothing_to_write_to(closed: str, words: list[str], tmp_path: Path) -> None:
    """As ``tune show >&-`` has it."""
    close = {"stdout": ">&-", "stderr": "2>&-"}[closed]
    command = ["sh", "-c", f'exec "$0" -m tuner "$@" {close}', sys.executable, *words]
    root = Path(__file__).resolve().parents[2]
    found = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(root)}
    )
    assert "Traceback" not in found.stderr + found.stdout
    assert found.returncode == (0 if words[0] == "show" else 1)
    assert not (tmp_path / "none.db").exists()


def test_children_live_with_less_memory_than_they_would_ask_for(tmp_path: Path) -> None:
    """As after ``ulimit -v``, which batch systems set."""
    file = write_kernel(tmp_path / "own", items=(1,))
    file.write_text(file.read_text().replace(', "float16"', ""))  # its kernel takes float alone
    command = ["check", str(file), "--configurations", "1", "--cc", "80"]
    limit = f"import resource as r; r.setrlimit(r.RLIMIT_AS, ({4 << 30},) * 2); from tuner.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", limit, *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "died" not in done.stderr
