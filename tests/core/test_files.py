"""Files that are written as a whole, and what is never replaced; how much of one is read."""

from __future__ import annotations

import os
import signal
import sqlite3
import tempfile
from pathlib import Path

import pytest

from tests.commands import assert_refused, said_by
from tuner.cli import problems
from tuner.cli.jobs import TuningJob, shard_of
from tuner.cli.options import ProblemTexts
from tuner.cli.problems import make_problems
from tuner.core.errors import TunerError, UsageError
from tuner.core.files import temporary_folder, whole_file, whole_folder
from tuner.kernel.load import load_kernel
from tuner.report.plots import sheet

KERNEL = load_kernel("vector_add")


def made_database(path: Path) -> bytes:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t(x)")
    return path.read_bytes()


def test_neither_a_database_nor_a_device_is_replaced(tmp_path: Path) -> None:
    database, pipe, folder = (tmp_path / name for name in ("a.db", "pipe", "folder"))
    was = made_database(database)
    os.mkfifo(pipe)
    folder.mkdir()
    for path in (database, pipe, folder):
        with pytest.raises(OSError, match=r"not replaced|plain file"), whole_file(path, replace=True) as new:
            new.write_text("a page")
    assert database.read_bytes() == was
    assert pipe.is_fifo() and sorted(tmp_path.iterdir()) == [database, folder, pipe]


@pytest.mark.parametrize("name", ["a" * 255, "\u00fc" * 127])
def test_a_name_as_long_as_file_systems_take_is_written(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for text in ("first", "second"):
        with whole_file(path, replace=True) as new:
            new.write_text(text)
    assert path.read_text() == "second" and list(tmp_path.iterdir()) == [path]
    path.unlink()
    with whole_folder(path) as folder:
        (folder / "a").touch()
    assert list(tmp_path.rglob("*")) == [path, path / "a"]


def test_a_figure_that_cannot_be_finished_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    path.write_text("the old one")

    class Broken:
        def __str__(self) -> str:
            raise OSError("no space is left")

    with pytest.raises((OSError, ValueError, TypeError)), sheet(path, 2, 2) as (figure, _):
        figure.draw = lambda *_: str(Broken())
    assert path.read_text() == "the old one"
    assert list(tmp_path.iterdir()) == [path]


def read(path: Path) -> int:
    return len(make_problems(KERNEL, ProblemTexts(problem_file=path)))


def test_a_full_disk_names_the_file_that_was_wanted(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    with pytest.raises(OSError) as full, whole_file(path):
        Path("/dev/full").write_text("a")
    assert full.value.filename == str(path)
    with pytest.raises(OSError) as missing, whole_file(path):
        (tmp_path / "another").read_text()
    assert missing.value.filename == str(tmp_path / "another")


def test_a_file_of_problems_is_read_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "MOST_PROBLEMS", 8)
    with pytest.raises(UsageError, match="more than 16 MiB"):
        read(Path("/dev/zero"))
    file = tmp_path / "problems.csv"
    file.write_text("n\n" + "".join(f"{n}\n" for n in range(1, 9)))
    assert read(file) == 8
    for text in ("n\n" + "".join(f"{n}\n" for n in range(1, 10)), "n,samples\n1..99,5\n100..999,5\n"):
        file.write_text(text)
        with pytest.raises(UsageError, match="more than 8 problems"):
            read(file)


def test_many_problems_are_dealt_out_to_many_shards_at_once() -> None:
    jobs = [
        TuningJob([problem])
        for problem in make_problems(KERNEL, ProblemTexts(problem_texts=["n=1..2**20,samples=4096"]))
    ]
    assert len(shard_of(jobs, KERNEL, "1/100000", 10)) == 1


def test_the_folder_of_a_killed_process_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "kernel-tune-0").mkdir()  # this name is something else's
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        with temporary_folder() as folder:
            (folder / "sub").mkdir()
            os.write(write, os.fsencode(folder))
            signal.pause()
    left = Path(os.fsdecode(os.read(read, 4096)))
    with temporary_folder() as mine:
        assert left.is_dir() and mine.parent == tmp_path
    assert not mine.exists()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with temporary_folder() as mine:
        assert sorted(tmp_path.iterdir()) == [tmp_path / "kernel-tune-0", mine]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(TunerError, match="TMPDIR"), temporary_folder():
        pass


def test_a_report_does_not_replace_the_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "tuning.db")
    assert (
        said_by(capsys, "-k", "vector_add", "--device", "replay", "--trials", "3", "--db", file, "-q").code
        == 0
    )
    was = Path(file).read_bytes()
    assert_refused(said_by(capsys, "report", "--db", file, "-o", file, "--force"), 1, "is a database")
    assert Path(file).read_bytes() == was
