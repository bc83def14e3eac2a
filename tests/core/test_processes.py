"""Children that die, lie, or will not die: the parent finds out, and no process is left behind."""

from __future__ import annotations

import itertools
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.faults.processes import alive, gone
from tests.fork_server import NO_FORK
from tuner.core import processes
from tuner.core.messages import Channel, UnsendableError
from tuner.core.processes import Child, ChildDied
from tuner.core.signals import OutOfTimeError, time_limit

ROOT = Path(__file__).resolve().parents[2]
ANYTHING: Channel[object, object] = Channel(dict[str, Any], dict[str, Any])


class Point(msgspec.Struct, tag=True):
    x: float
    at: Path
    names: tuple[str, ...] = ()


class Line(msgspec.Struct, tag=True):
    points: list[Point]


TYPED: Channel[Point | Line, Point | Line] = Channel(Point | Line, Point | Line)


def child_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, channel: Channel[Any, Any] = ANYTHING
) -> Child[Any, Any]:
    """Start a child that runs this text."""
    (tmp_path / "child_under_test.py").write_text(HEAD + textwrap.dedent(body))
    monkeypatch.syspath_prepend(str(tmp_path))
    return Child("child_under_test", channel)


HEAD = """
from tuner.core.processes import Channel, ParentPipe
ANYTHING = Channel(dict, dict)
"""
ECHO = """
pipe = ParentPipe(ANYTHING)
while (message := pipe.receive()) is not None:
    print("this is not a message")
    pipe.send({"got": message})
"""
MIRROR = """
from typing import Any
pipe = ParentPipe(Channel(Any, Any))
while (message := pipe.receive()) is not None:
    pipe.send(message)
"""


def test_files_where_a_command_begins_do_not_take_the_place_of_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NO_FORK, "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "msgspec.py").write_text("raise SystemExit('of others')")
    child = child_of(tmp_path, monkeypatch, "ParentPipe(ANYTHING).send({'said': 'mine'})")
    try:
        assert child.receive(100.0) == {"said": "mine"}
    finally:
        child.kill()


def test_typed_messages_arrive_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also numbers that JSON has no form for, NumPy's, and paths that are not text."""
    child = child_of(tmp_path, monkeypatch, MIRROR, TYPED)
    odd = Path(os.fsdecode(b"/tmp/\xff"))
    try:
        for message in (
            Point(math.inf, odd, ("a", "b")),
            Line([Point(1e22, Path("y")), Point(np.float64(0.5), Path())]),
        ):
            child.send(message)
            assert child.receive(100.0) == message
    finally:
        child.kill()


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"type": "Line", "points": [{"type": "Point", "x": "far"}]}, r"got `str` - at `\$\.points\[0\]\.x`"),
        ({"type": "Point", "x": 1.0, "at": 3}, r"Expected `Path`, got `int` - at `\$\.at`"),
    ],
)
def test_malformed_message_is_a_death_that_names_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: dict[str, Any], said: str
) -> None:
    body = f"import time\npipe = ParentPipe(ANYTHING)\npipe.send({sent!r})\ntime.sleep(1000)"
    child = child_of(tmp_path, monkeypatch, body, TYPED)
    with pytest.raises(ChildDied, match=f"killed after nonsense: .*{said}"):
        child.receive(100.0)
    assert gone(child.pid)
    child.kill()


def test_nothing_is_read_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A length that no message has is nonsense at once, before its bytes are waited for."""
    body = "import os, time; os.write(1, b'\\xff\\xff\\xff\\xff' + bytes(1000)); time.sleep(1000)"
    child = child_of(tmp_path, monkeypatch, body)
    with pytest.raises(ChildDied, match="killed after nonsense: a message of 4294967295 bytes"):
        child.receive(100.0)
    assert gone(child.pid)
    child.kill()


def test_message_that_cannot_be_written_costs_the_child_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = child_of(tmp_path, monkeypatch, ECHO)
    try:
        for message in ({"n": 2**70}, {"what": object()}):
            with pytest.raises(UnsendableError, match="cannot be sent"):
                child.send(message)
        monkeypatch.setattr("tuner.core.messages.MAX_MESSAGE_BYTES", 1000)
        with pytest.raises(UnsendableError, match="a message of 20"):
            child.send({"text": "x" * 2000})
        child.send({"text": "y"})
        assert child.receive(100.0) == {"got": {"text": "y"}}
    finally:
        child.kill()


def test_messages_go_both_ways_whatever_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = child_of(tmp_path, monkeypatch, ECHO)
    try:
        for text in ("a", "é" * 10, "x" * 3_000_000):
            child.send({"text": text})
            assert child.receive(100.0) == {"got": {"text": text}}
        assert child.receive(0.01) is None
    finally:
        assert child.kill()
    assert gone(child.pid)


def test_death_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = child_of(tmp_path, monkeypatch, "raise SystemExit('the disk is on fire')")
    with pytest.raises(ChildDied, match=r"exit status 1: the disk is on fire"):
        child.receive(100.0)
    child.kill()
    child = child_of(tmp_path, monkeypatch, "import os; os.kill(os.getpid(), 11)")
    with pytest.raises(ChildDied, match="killed by SIGSEGV") as caught:
        child.receive(100.0)
    assert caught.value.max_rss_bytes > 1 << 20
    child.kill()


def test_how_it_died_is_known_to_a_process_that_stood_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = child_of(tmp_path, monkeypatch, "raise SystemExit(3)")
    assert gone(child.pid)
    clock = itertools.count(0.0, 1000.0)
    monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=time.sleep))
    with pytest.raises(ChildDied, match="exit status 3"):
        child.receive(None)
    child.kill()


def test_what_it_said_before_it_died_is_read_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = child_of(
        tmp_path,
        monkeypatch,
        """
        import os
        pipe = ParentPipe(ANYTHING)
        pipe.send({"word": 1}); pipe.send({"word": 2})
        os._exit(3)
        """,
    )
    assert gone(child.pid)
    assert child.receive(100.0) == {"word": 1}
    assert child.receive(100.0) == {"word": 2}
    with pytest.raises(ChildDied, match="exit status 3"):
        child.receive(100.0)
    with pytest.raises(ChildDied, match="exit status 3"):  # asked again it says the same
        child.send({"more": "x" * 100_000})
    child.kill()


def test_child_that_closes_its_pipe_and_lives_on_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.core.processes.EXIT_S", 1.0)
    child = child_of(tmp_path, monkeypatch, "import os, time; os.close(1); time.sleep(1000)")
    with pytest.raises(ChildDied, match="killed by SIGKILL"):
        child.receive(100.0)
    assert child.kill()
    assert gone(child.pid)


def test_killing_takes_grandchildren_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = child_of(
        tmp_path,
        monkeypatch,
        """
        import subprocess, time
        pipe = ParentPipe(ANYTHING)
        pipe.send({"pid": subprocess.Popen(["sleep", "1000"]).pid})
        time.sleep(1000)
        """,
    )
    word = child.receive(100.0)
    assert word is not None
    assert alive(word["pid"])
    assert child.kill()
    assert gone(word["pid"])


def test_ctrl_c_is_the_parents_to_act_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = child_of(tmp_path, monkeypatch, ECHO)
    child.send({})
    assert child.receive(100.0) == {"got": {}}
    os.kill(child.pid, signal.SIGINT)
    child.send({})
    assert child.receive(100.0) == {"got": {}}
    child.kill()


READS = HEAD + "pipe = ParentPipe(ANYTHING)\nwhile pipe.receive() is not None: pass\n"
HANGS = HEAD + "import time\npipe = ParentPipe(ANYTHING)\npipe.send({})\ntime.sleep(999)\n"
PARENT = """
import sys, time
from tuner.core.processes import Channel, Child
child = Child("end_with_me", Channel(dict, dict))
if sys.argv[1] == "wait": child.receive(100)
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
        assert child.receive(100.0) == {"got": {"a": 1}}
        child.kill()
    finally:
        for descriptor in files:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


THREADS = """
import os
import numpy
pipe = ParentPipe(ANYTHING)
numpy.ones((300, 300)) @ numpy.ones((300, 300))
while pipe.receive() is not None:
    pipe.send({"threads": len(os.listdir("/proc/self/task"))})
"""


def test_a_child_starts_no_blas_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(variable, raising=False)
    child = child_of(tmp_path, monkeypatch, THREADS)
    child.send({})
    assert child.receive(100.0) == {"threads": 1}
    child.kill()


def test_a_limit_of_memory_counts_from_what_is_mapped_already() -> None:
    """A library's threads map address space for each core; that must leave a compiler its own."""
    code = """
import mmap
from tuner.core.processes import limit_memory
threads = mmap.mmap(-1, 1 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
limit_memory(256 << 20)
for megabytes in (128, 512):
    try:
        bytearray(megabytes << 20)
        print("fits")
    except MemoryError:
        print("refused")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["fits", "refused"]


def test_a_limit_within_a_limit_leaves_the_outer_one() -> None:
    with pytest.raises(OutOfTimeError), time_limit(0.05):
        with time_limit(20.0):
            pass
        while True:
            pass


def test_half_a_message_is_a_death(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = child_of(tmp_path, monkeypatch, "import os; os.write(1, b'\\xff\\x00\\x00\\x00{\"a\"')")
    with pytest.raises(ChildDied, match="exit status 0"):
        child.receive(100.0)
    child.kill()


def test_child_reads_nothing_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = child_of(tmp_path, monkeypatch, ECHO)
    child._in.write(b"\xff\xff\xff\xff")
    child._in.flush()
    with pytest.raises(
        ChildDied, match=r"exit status 1: msgspec\.DecodeError: a message of 4294967295 bytes"
    ):
        child.receive(100.0)
    child.kill()


def test_text_that_is_none_is_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's name need not be text; an error that quotes it must come through all the same."""
    child = child_of(tmp_path, monkeypatch, MIRROR, Channel(Line, Line))
    child.send(Line([Point(1.0, Path("p"), ("caf\udce9",))]))
    assert child.receive(100.0) == Line([Point(1.0, Path("p"), ("caf\\udce9",))])
    child.kill()
