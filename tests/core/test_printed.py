"""What a child has printed is read as it comes, and its end says why the child died."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.core.test_processes import child_of
from tests.fork_server import NO_FORK
from tuner.core import printed
from tuner.core.printed import Printed
from tuner.core.processes import ChildDied


def test_why_it_died_does_not_wait_for_the_thread_that_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(threading.Thread):
        def start(self) -> None:
            pass

    with monkeypatch.context() as patch:
        patch.setattr(printed, "threading", SimpleNamespace(Thread=Late, Lock=threading.Lock))
        child = child_of(tmp_path, monkeypatch, "raise SystemExit('the disk is on fire')")
    with pytest.raises(ChildDied, match="exit status 1: the disk is on fire"):
        child.receive(100.0)
    child.kill()
    os.close(child._printed._reading)


def test_a_thread_that_cannot_be_started_leaves_no_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise RuntimeError("can't start new thread")

    ends = os.pipe()
    monkeypatch.setattr(os, "pipe", lambda: ends)
    monkeypatch.setattr(printed, "threading", SimpleNamespace(Thread=refuse, Lock=threading.Lock))
    with pytest.raises(OSError, match="can't start new thread"):
        Printed()
    for end in ends:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(end)


def test_what_a_child_prints_is_read_in_pieces_and_its_end_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Python, unbuffered as containers have it, as bytes, by the system's call, and by one that it leaves behind."""
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    monkeypatch.setenv(NO_FORK, "1")
    child = child_of(
        tmp_path,
        monkeypatch,
        """
        import os, resource, subprocess, sys
        pipe = ParentPipe(ANYTHING)
        for i in range(200_000):
            print("line", i)
            print("line", i, file=sys.stderr)
        sys.stdout.buffer.write(bytes(range(256)) * 100_000)
        for _ in range(1000):
            os.write(1, b"word")
        used = resource.getrusage(resource.RUSAGE_SELF)
        pipe.send({"cpu_s": used.ru_utime + used.ru_stime})
        left = subprocess.Popen(["sleep", "60"], start_new_session=True)
        pipe.send({"left": left.pid})
        print("the end")
        sys.exit(3)
        """,
    )
    used, left = child.receive(100.0), child.receive(100.0)
    assert used is not None and used["cpu_s"] < 10.0
    with pytest.raises(ChildDied, match=r"^exit status 3: the end$"):
        child.receive(100.0)
    child.kill()
    assert left is not None
    os.kill(left["left"], signal.SIGKILL)
