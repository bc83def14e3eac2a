"""Another container on the same machine: a host name and process numbers of its own, and the same files."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import socket
import subprocess
from pathlib import Path

from tests import fork_server
from tuner.core.processes import die_with_parent

NEW_MOUNTS, NEW_UTS, NEW_USER, NEW_PIDS = 0x00020000, 0x04000000, 0x10000000, 0x20000000
PRIVATE = 0x44000
"""``MS_PRIVATE | MS_REC``."""


def inside(host: str) -> list[str]:
    """Return what to put before a command, so that it runs in another container."""
    become = ["--user", "--map-root-user", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"]
    return ["unshare", *become, "sh", "-c", 'hostname "$0"; exec "$@"', host]


@functools.cache
def permitted() -> bool:
    """Return whether this machine lets us make one."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*inside("probe"), "true"], capture_output=True, check=False).returncode == 0


def enter(host: str) -> None:
    """Go on in another container, as what ``inside`` runs does: this process waits, and takes it along when it dies."""
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(NEW_MOUNTS | NEW_UTS | NEW_USER | NEW_PIDS))
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        Path(f"/proc/self/{name}").write_text(text)
    socket.sethostname(host)
    if first := os.fork():
        os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) & 0xFF)
    die_with_parent()
    _check(libc.mount(b"none", b"/", None, PRIVATE, None))
    _check(libc.mount(b"proc", b"/proc", b"proc", 0, None))
    fork_server.give_own_server()


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
