"""Children that die, lie, or will not die: the parent finds out, and nobody is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.faults.processes import alive, gone
from tuner.processes import Child, ChildDied

ROOT = Path(__file__).resolve().parents[1]


def child_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> Child:
    """Start a child that runs this text."""
    (tmp_path / "child_under_test.py").write_text(textwrap.dedent(body))
    monkeypatch.syspath_prepend(str(tmp_path))
    return Child("child_under_test")


ECHO = """
from tuner.processes import ParentPipe
pipe = ParentPipe()
while (message := pipe.receive()) is not None:
    print("this is not a message")
    pipe.send({"got": message})
"""


def test_messages_go_both_ways_whatever_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = child_of(tmp_path, monkeypatch, ECHO)
    try:
        for text in ("a", "é" * 10, "x" * 3_000_000):
            child.send({"text": text})
            assert child.receive(20.0) == {"got": {"text": text}}
        assert child.receive(0.01) is None
    finally:
        assert child.kill()
    assert gone(child.pid)


def test_death_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = child_of(tmp_path, monkeypatch, "raise SystemExit('the disk is on fire')")
    with pytest.raises(ChildDied, match=r"exit status 1: the disk is on fire"):
        child.receive(20.0)
    child.kill()
    child = child_of(tmp_path, monkeypatch, "import os; os.kill(os.getpid(), 11)")
    with pytest.raises(ChildDied, match="killed by SIGSEGV") as caught:
        child.receive(20.0)
    assert caught.value.max_rss_bytes > 1 << 20
    child.kill()


def test_what_it_said_before_it_died_is_read_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = child_of(
        tmp_path,
        monkeypatch,
        """
        import os
        from tuner.processes import ParentPipe
        pipe = ParentPipe()
        pipe.send({"word": 1}); pipe.send({"word": 2})
        os._exit(3)
        """,
    )
    time.sleep(0.3)
    assert child.receive(20.0) == {"word": 1}
    assert child.receive(20.0) == {"word": 2}
    with pytest.raises(ChildDied, match="exit status 3"):
        child.receive(20.0)
    with pytest.raises(ChildDied, match="exit status 3"):  # asked again it says the same
        child.send({"more": "x" * 100_000})
    child.kill()


def test_half_a_message_is_a_death(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = child_of(tmp_path, monkeypatch, "import os; os.write(1, b'\\xff\\x00\\x00\\x00{\"a\"')")
    with pytest.raises(ChildDied, match="exit status 0"):
        child.receive(20.0)
    child.kill()


def test_child_that_closes_its_pipe_and_lives_on_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.processes.EXIT_S", 0.2)
    child = child_of(tmp_path, monkeypatch, "import os, time; os.close(1); time.sleep(1000)")
    with pytest.raises(ChildDied, match="killed by SIGKILL"):
        child.receive(20.0)
    assert child.kill()
    assert gone(child.pid)


def test_killing_takes_grandchildren_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = child_of(
        tmp_path,
        monkeypatch,
        """
        import subprocess, time
        from tuner.processes import ParentPipe
        pipe = ParentPipe()
        pipe.send({"pid": subprocess.Popen(["sleep", "1000"]).pid})
        time.sleep(1000)
        """,
    )
    word = child.receive(20.0)
    assert word is not None
    assert alive(word["pid"])
    assert child.kill()
    assert gone(word["pid"])


def test_ctrl_c_is_the_parents_to_act_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = child_of(tmp_path, monkeypatch, ECHO)
    child.send({})
    assert child.receive(20.0) == {"got": {}}
    os.kill(child.pid, signal.SIGINT)
    child.send({})
    assert child.receive(20.0) == {"got": {}}
    child.kill()


READS = (
    "from tuner.processes import ParentPipe\npipe = ParentPipe()\nwhile pipe.receive() is not None: pass\n"
)
HANGS = "import time\nfrom tuner.processes import ParentPipe\npipe = ParentPipe()\npipe.send({})\ntime.sleep(999)\n"
PARENT = """
import sys, time
from tuner.processes import Child
child = Child("end_with_me")
if sys.argv[1] == "wait": child.receive(30)
print(child.pid, flush=True)
time.sleep(99)
"""


@pytest.mark.parametrize("body", [READS, HANGS])
def test_children_end_with_a_killed_parent(tmp_path: Path, body: str) -> None:
    """One that hangs is killed by the kernel; one that only just starts finds its pipe closed."""
    (tmp_path / "end_with_me.py").write_text(body)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, "wait" if body == HANGS else "no"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(pid)


def test_many_open_files_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1300:
        pytest.skip("too few files allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1300), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        child = child_of(tmp_path, monkeypatch, ECHO)
        child.send({"a": 1})
        assert child.receive(20.0) == {"got": {"a": 1}}
        child.kill()
    finally:
        for descriptor in files:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
