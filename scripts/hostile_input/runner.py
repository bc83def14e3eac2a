"""A command in a process of its own, forked from one that has imported everything, and the verdict on it.

Starting ``tune`` anew would take half a second each time, and the memory of an import would hide what the input costs.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

CPU_S = 5.0
"""Processor time that a command may take, its children's included."""
SQL_S = 12.0
"""The same for ``--sql``, which may take ten seconds."""
COMPILING_S = 80.0
"""The same for one that compiles: `tune check gemm` takes 27 s for 73 kernels, one configuration of each of 13
variants, and 56 s where other programs share the caches and the threads of the cores."""
PATIENCE = 9.0
"""Times the processor time that a command may take by the clock, before it is killed: the machine may be busy, with as
many of these commands as it has cores, each with compilers of its own."""
RSS_BYTES = 300 << 20
"""Resident memory that a command may have beyond what the imports take."""
CHILD_RSS_BYTES = 1 << 30
"""The same for its compiling children, which have limits of their own."""
ADDRESS_SPACE = 6 << 30
"""So that what fails does not take the machine with it."""
HUGE = 1 << 30
"""A longer file is not read: a journal can give a database terabytes that hold nothing."""
MAX_ERROR = 2000
"""Characters of an error's line."""
STATUSES = (0, 1, 2)
CHANGES = {f"os.{name}" for name in ("remove", "rmdir", "mkdir", "rename", "link", "symlink", "truncate")}
CACHES = ("home/kernel-tune", "home/matplotlib", "home/.config")
"""What may be made in a user's home: the tuner's cache, and matplotlib's."""
_BIDI = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True)
class Command:
    """A command line to run in a case's folder."""

    kind: str
    arguments: tuple[str, ...]
    makes: tuple[str, ...] = ()
    """Files that it may make or change, relative to the folder."""
    compiles: bool = False
    allowed_s: float = 0.0
    """Of processor time, if it may take more than others."""

    @classmethod
    def noted(cls, kind: str, arguments: Iterable[str], notes: str) -> Command:
        """Return a command of notes: files that it makes, ``compiles``, and ``sql`` for more time."""
        words = notes.split()
        makes = tuple(word for word in words if word not in ("compiles", "sql"))
        return cls(kind, tuple(arguments), makes, "compiles" in words, SQL_S if "sql" in words else 0.0)


@dataclass
class Ended:
    """How a command ended."""

    status: int
    wall_s: float
    cpu_s: float
    rss_bytes: int  # beyond what the forked process had
    child_rss_bytes: int
    out: bytes
    err: bytes
    problems: list[str] = field(default_factory=list)


def forked(work: Callable[[], int], streams: Path, kill_s: float = PATIENCE * CPU_S) -> Ended:
    """Run a function in a forked process group; its return value is the exit status."""
    note = streams / "note"
    note.unlink(missing_ok=True)
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _child(work, streams, note)
    status, usage = _waited(pid, began + kill_s)
    wall_s = time.monotonic() - began
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    peak = usage.ru_maxrss << 10
    own = int(note.read_text() or 0) if note.exists() else peak
    return Ended(
        status, wall_s, usage.ru_utime + usage.ru_stime, own, peak,
        (streams / "out").read_bytes(), (streams / "err").read_bytes(),
    )  # fmt: skip


def _waited(pid: int, deadline: float) -> tuple[int, resource.struct_rusage]:
    pause = 0.001
    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), usage
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
            _, status, usage = os.wait4(pid, 0)
            return os.waitstatus_to_exitcode(status), usage
        time.sleep(pause)
        pause = min(0.02, 1.5 * pause)


def _child(work: Callable[[], int], streams: Path, note: Path) -> None:
    status = 70
    noted = os.open(note, os.O_WRONLY | os.O_CREAT)
    inherited = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10  # of the process that was forked
    try:
        os.setsid()
        for number, name in ((1, "out"), (2, "err")):
            descriptor = os.open(streams / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(descriptor, number)
            os.close(descriptor)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        sys.stdin, sys.stdout, sys.stderr = (
            open(n, m, encoding="utf-8", closefd=False)  # noqa: SIM115 - descriptors
            for n, m in ((0, "r"), (1, "w"), (2, "w"))
        )
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        status = work()
    except BaseException:  # noqa: BLE001 - what a user would see
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            status = status or 71
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        os.write(noted, str(peak - inherited).encode())
        os._exit(status)


def tune(arguments: tuple[str, ...], folder: Path) -> Callable[[], int]:
    """Return a function that runs the command line in a folder, with the home and the caches in there."""

    def work() -> int:
        from tuner.cli import main

        os.chdir(folder)
        home = folder / "home"
        for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR"):
            os.environ[name] = str(home)
        tempfile.tempdir = None
        sys.addaudithook(_watch(folder.resolve()))
        try:
            main(list(arguments))
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else 72
        return 0

    return work


def _watch(folder: Path) -> Callable[[str, tuple[object, ...]], None]:
    """Return an audit hook that refuses to write anywhere else."""
    inside = f"{folder}/"

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if not writes or not isinstance(path, (str, bytes)):
                return
        elif event in CHANGES:
            path = arguments[-2] if event in ("os.rename", "os.link", "os.symlink") else arguments[0]
        else:
            return
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        full = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - links are not followed
        if not full.startswith((inside, "/dev/", "/proc/self")) and full != str(folder):
            if event == "os.mkdir" and Path(full).is_dir():
                return
            os.write(2, f"OUTSIDE: {event} {full!r}\n".encode())

    return hook


def snapshot(folder: Path) -> dict[str, str]:
    """Return what is in a folder: the digest of each file's content, and nothing of what is no file."""
    seen = {}
    for path in folder.rglob("*"):
        plain = path.is_file() and not path.is_symlink() and path.stat().st_size <= HUGE
        seen[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest() if plain else ""
    return seen


def run_and_check(
    command: Command, folder: Path, streams: Path, work: Callable[[], int] | None = None
) -> Ended:
    """Run a command, or a function in its place, and say what is wrong with how it ended."""
    (folder / "home").mkdir(exist_ok=True)
    before = snapshot(folder)
    allowed_s = COMPILING_S if command.compiles else command.allowed_s or CPU_S
    ended = forked(work or tune(command.arguments, folder), streams, PATIENCE * allowed_s)
    say = ended.problems.append
    if ended.wall_s > PATIENCE * allowed_s:
        say("hang: killed")
    elif ended.status < 0:
        say(f"signal: killed by {signal.Signals(-ended.status).name}")
    elif ended.status not in STATUSES:
        say(f"status: exit status {ended.status}")
    if ended.cpu_s > allowed_s:
        say(f"slow: {ended.cpu_s:.1f} s of processor time")
    if ended.rss_bytes > RSS_BYTES or (command.compiles and ended.child_rss_bytes > CHILD_RSS_BYTES):
        say(f"memory: {ended.rss_bytes >> 20} MiB, with children {ended.child_rss_bytes >> 20}")
    _check_streams(command, ended)
    _check_files(command, before, snapshot(folder), say)
    return ended


def _check_streams(command: Command, ended: Ended) -> None:
    say = ended.problems.append
    for name, data in (("stdout", ended.out), ("stderr", ended.err)):
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            say(f"bytes: {name} is not UTF-8: {error}")
            continue
        if name == "stdout" and {"--source", "--log"} & {*command.arguments}:
            continue  # byte for byte, as a file takes it; a terminal gets it escaped
        wild = {c for c in text if c not in "\n\t" and (c in _BIDI or not (c == " " or c.isprintable()))}
        if wild - {c for c in wild if unicodedata.category(c) in ("Zs", "Cn", "Co")}:
            say(f"control: {name} has {sorted(wild)[:4]!a}")
    err = ended.err.decode(errors="replace")
    if "Traceback (most recent call last)" in err:
        say("traceback: " + next((x for x in reversed(err.splitlines()) if x.strip()), "")[:160])
    for line in err.splitlines():
        if line.startswith("OUTSIDE: "):
            say(f"outside: {line[9:]}")
    lines = [line for line in err.split("\n") if line.strip()]
    lines = [
        line for line in lines if not line.startswith("  ")
    ] or lines  # what a message quotes is indented
    if ended.status in (1, 2) and (not lines or not lines[-1].startswith("tune: ")):
        say(f"error: the last line is {lines[-1][:100]!a}" if lines else "error: nothing says why")
    if any(len(line) > MAX_ERROR for line in lines):
        say("error: a line is longer than anyone reads")
    if "--csv" in command.arguments and not ended.problems:
        _check_csv(ended.out.decode(errors="replace"), say)


def _check_csv(text: str, say: Callable[[str], None]) -> None:
    csv.field_size_limit(1 << 30)
    for row in csv.reader(io.StringIO(text, newline="")):
        for cell in row:
            if cell and cell[0] in "=+-@\t\r":
                try:
                    float(cell)
                except ValueError:
                    say(f"formula: a cell is {cell[:40]!a}")
                    return


def _check_files(
    command: Command, before: dict[str, str], after: dict[str, str], say: Callable[[str], None]
) -> None:
    for path in sorted({*before, *after}):
        allowed = any(path == name or path.startswith((f"{name}-", f"{name}/")) for name in command.makes)
        if before.get(path) != after.get(path) and not allowed and not path.startswith(CACHES):
            what = "made" if path not in before else "removed" if path not in after else "changed"
            say(f"files: {what} {path}")
