"""Tuners take turns on a GPU: every user can, and whatever lies in the place of the lock stops no tuner for ever."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tuner.core.errors import DeviceError
from tuner.gpu import turns
from tuner.gpu.turns import Turns

pytestmark = pytest.mark.usefixtures("forked_children")


@pytest.fixture(autouse=True)
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for all users."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(turns, "SHARED_FOLDERS", (folder,))
    monkeypatch.setattr(turns, "SAY_EVERY_S", 0.1)
    return folder


@pytest.fixture
def lock(shared: Path) -> Path:
    return shared / "kernel-tune-GPU-1.lock"


def test_the_mask_takes_nothing_away(lock: Path) -> None:
    before = os.umask(0o077)
    try:
        Turns("GPU-1")
    finally:
        os.umask(before)
    assert lock.stat().st_mode & 0o777 == 0o666
    lock.chmod(0o444)
    with Turns("GPU-1").turn():  # a second time, and nothing is changed
        assert lock.stat().st_mode & 0o777 == 0o444


def test_a_link_is_not_followed(lock: Path, tmp_path: Path) -> None:
    """Anybody can put one into a folder for all."""
    private = tmp_path / "private"
    private.touch(mode=0o600)
    lock.symlink_to(private)
    with pytest.raises(DeviceError, match="kernel-tune-GPU-1"):
        Turns("GPU-1")
    assert private.stat().st_mode & 0o777 == 0o600


@pytest.mark.timeout(100)
@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_is_named(lock: Path, kind: str) -> None:
    """To open a pipe is to wait for what never comes."""
    lock.mkdir() if kind == "folder" else os.mkfifo(lock)
    with pytest.raises(DeviceError, match=r"kernel-tune-GPU-1\.lock.*; delete it"):
        Turns("GPU-1")


def test_one_after_the_other(lock: Path) -> None:
    first, second = Turns("GPU-1"), Turns("GPU-1")
    order: list[str] = []

    def wait() -> None:
        with second.turn(order.append):
            order.append("second")

    with first.turn():
        thread = threading.Thread(target=wait)
        thread.start()
        deadline = time.monotonic() + 100
        while not order and time.monotonic() < deadline:
            time.sleep(0.01)
        order.append("first")
    thread.join(100)
    turns = ["first", "second"]
    assert [each for each in order if each in turns] == turns
    said = set(order) - set(turns)
    assert said, "it says that it waits"
    assert all(f"process {os.getpid()}" in what for what in said)
    with lock.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nothing is held afterwards


def test_another_may_have_it_while_what_has_it_computes_on_the_host(lock: Path) -> None:
    def is_free() -> bool:
        with lock.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    turns = Turns("GPU-1")
    with turns.released():
        assert is_free()
    assert is_free()
    with turns.turn():
        with pytest.raises(ZeroDivisionError), turns.released():
            assert is_free()
            _ = 1 / 0
        assert not is_free()
    assert is_free()


def test_a_turn_ends_with_its_process(lock: Path) -> None:
    lock.touch()
    code = "import fcntl,sys; f=open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print('ok', flush=True); input()"
    command = [sys.executable, "-c", code, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ok\n"
        said: list[str] = []

        def kill(what: str) -> None:
            said.append(what)
            process.kill()

        with Turns("GPU-1").turn(kill):  # its end is what this waits for
            assert said
