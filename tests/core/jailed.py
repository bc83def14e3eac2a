"""Enters a jail and tries to get out: prints what came of each attempt as JSON."""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tuner.core import jail


def udp() -> None:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()


def called(name: str, *arguments: int | ctypes.Array[ctypes.c_char] | None) -> None:
    """Call the kernel past the C library."""
    number = CALLS[name][platform.machine() != "x86_64"]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), name)


CALLS = {
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "sigqueue": (129, 138),
    "to a thread": (297, 240),
    "pidfd": (424,) * 2,
}
INFO = ctypes.create_string_buffer((-1).to_bytes(12, "little", signed=True), 128)
"""A siginfo_t of SI_QUEUE, as which any process may send one."""


def asked_for(parent: int) -> None:
    """Have the kernel signal the parent when there is something to read."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        fcntl.fcntl(ours, fcntl.F_SETOWN, parent)


def signalled() -> None:
    """Signal this process, as an assertion of a library does."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR1)
    resource.prlimit(0, resource.RLIMIT_CORE)


def compiled(own: Path) -> int:
    """Build a library with the C compiler and call it, as Triton does."""
    (own / "a.c").write_text("int f(void) { return 3; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", own / "a.so", own / "a.c"], check=True)
    return int(ctypes.CDLL(str(own / "a.so")).f())


def main() -> None:
    own, mine, secret, shared = map(Path, sys.argv[1:5])
    jail.keep_caches_in(own)
    missing = jail.enter(own, [mine], [secret.parent / "known"], sys.argv[5], shared)
    parent = os.getppid()
    attempts: dict[str, Callable[[], object]] = {
        "read its file": mine.read_text,
        "write in its folder": lambda: (own / "x").write_text("x"),
        "look up a file": (secret.parent / "known" / "key").read_text,
        "list the folder of it": lambda: list((secret.parent / "known").iterdir()),
        "read a secret": secret.read_text,
        "list other folders": lambda: list(secret.parent.iterdir()),
        "write beside": lambda: secret.with_name("new").write_text("x"),
        "change its file": lambda: mine.write_text("x"),
        "remove a file": secret.unlink,
        "change the shared file": lambda: mmap.mmap(os.open(shared, os.O_RDWR), 4).write(b"text"),
        "remove the shared file": shared.unlink,
        "write to a file of another owner": lambda: (own / "another's").write_text("x"),
        "TCP": lambda: socket.create_connection(("127.0.0.1", 9), 0.1),
        "UDP": udp,
        "connect to a socket": lambda: socket.socket(socket.AF_UNIX).connect(str(own / "x")),
        "datagrams": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).close(),
        "raw datagrams": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_RAW).close(),
        "a pair for datagrams": lambda: socket.socketpair(type=socket.SOCK_DGRAM),
        "a pair of sockets": lambda: [one.close() for one in socket.socketpair()],
        "a socket": lambda: socket.socket(socket.AF_UNIX).close(),
        "fork": os.fork,
        "leave the group": os.setsid,
        "signal itself": signalled,
        "write to its entries": lambda: Path("/proc/self/comm").write_text("mine"),
        "write to the parent's": lambda: os.open(f"/proc/{parent}/oom_score_adj", os.O_WRONLY),
        "signal the parent": lambda: os.kill(parent, 0),
        "signal the group": lambda: os.kill(0, 0),
        "signal all": lambda: os.kill(-1, 0),
        "signal the parent's thread": lambda: called("tkill", parent, 0),
        "signal the parent's first thread": lambda: called("tgkill", parent, parent, 0),
        "queue a signal": lambda: called("sigqueue", parent, 0, INFO),
        "queue a signal to a thread": lambda: called("to a thread", parent, parent, 0, INFO),
        "signal by a folder": lambda: called("pidfd", os.open(f"/proc/{parent}", os.O_RDONLY), 0, None, 0),
        "have the parent signalled": lambda: asked_for(parent),
        "limit the parent": lambda: resource.prlimit(parent, resource.RLIMIT_CORE, (0, 0)),
        "command of the parent": Path(f"/proc/{parent}/cmdline").read_bytes,
        "environment of the parent": Path(f"/proc/{parent}/environ").read_bytes,
        "memory of the parent": lambda: os.open(f"/proc/{parent}/mem", os.O_RDONLY),
        "take all memory": lambda: len(bytearray(3 * os.sysconf("SC_PHYS_PAGES") * 1024)),
        "write a file of 4 GiB": lambda: os.truncate(own / "x", 1 << 32),
        "run a program": lambda: subprocess.run(["/bin/echo"], check=True, capture_output=True).returncode,
        "caches": lambda: {os.environ[name] for name in jail.CACHES} == {str(own)},
    }
    if "cc" in sys.argv[0] or any((Path(one) / "cc").is_file() for one in ("/usr/bin", "/bin")):
        attempts["compile"] = lambda: compiled(own)
    found = {}
    for name, attempt in attempts.items():
        try:
            attempt()
            found[name] = "ok"
        except (OSError, MemoryError, subprocess.CalledProcessError) as error:
            found[name] = type(error).__name__
    json.dump({"missing": missing, "found": found}, sys.stdout)


if __name__ == "__main__":
    main()
