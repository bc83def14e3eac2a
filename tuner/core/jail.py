"""Locks this process in, for good, before it imports code that somebody else wrote.

Landlock leaves it libraries and named files to read and one folder to write to; seccomp takes away the network, forks,
and other processes' memory, signals to them and their limits; limits bound memory and files. What this system does not
offer is said, and left out.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import struct
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

FOLDERS = "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/proc", "/sys", "/run/nvidia"
"""That can be read: libraries, compilers, what the driver asks of the system."""
FILES = (
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "passwd", "group", "nsswitch.conf", "localtime", "nvidia", "OpenCL",
    "os-release", "debian_version",
)  # fmt: skip
"""Of ``/etc``."""
DEVICES = "nvidia*", "dxg", "null", "zero", "full", "random", "urandom", "shm"
CACHES = (
    "HOME", "TMPDIR", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TRITON_HOME", "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR", "TORCH_HOME", "CUPY_CACHE_DIR", "CUDA_CACHE_PATH", "NUMBA_CACHE_DIR", "CUTE_DSL_CACHE_DIR",
)  # fmt: skip
"""Variables of the folders to which libraries write."""
FILE_BYTES, MEMORY_SHARE, THREADS = 1 << 31, 0.5, 1024
"""Of one file; of the host's memory; beside those that this user has already."""

# linux/landlock.h: rights by the version that brought them, and of those the ones that a file alone can have.
_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_FIRST = (1 << 13) - 1
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_CREATE, _ADD, _RESTRICT, _BENEATH = 444, 445, 446, 1
_NET_VERSION, _SCOPE_VERSION = 4, 6
_KEPT = 1 << 2 | 1 << 14
"""Rights that root keeps: to read files of another owner, and to lock memory; not to look into other processes."""
_BY_LANDLOCK = "files, memory of other processes in /proc"
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2

_SYSCALLS = {
    "x86_64": (
        (0xC000003E, 41, 53, 56, 302, 72, 16),
        (62, 200, 234, 129, 297),
        (42, 101, 310, 311, 109, 112, 57, 165, 166, 272, 308, 321, 298, 250, 248),
    ),
    "aarch64": (
        (0xC00000B7, 198, 199, 220, 261, 25, 29),
        (129, 130, 131, 138, 240),
        (203, 117, 270, 271, 154, 157, 40, 39, 97, 268, 280, 241, 219, 217),
    ),
}
"""AUDIT_ARCH, socket, socketpair, clone, prlimit64, fcntl, ioctl; kill, tkill, tgkill, rt_sigqueueinfo,
rt_tgsigqueueinfo; what always fails: connect, ptrace, process_vm_readv and _writev, setpgid and setsid (the whole group
is killed in the end), fork, mount, umount, unshare, setns, bpf, perf_event_open, keys."""
_EVERYWHERE = 424, 425, 434, 438, 440
"""pidfd_send_signal, which takes a folder of ``/proc``, io_uring_setup, which can open sockets, pidfd_open,
pidfd_getfd, process_madvise."""
_OWNERS = 8, 10, 15
"""F_SETOWN, F_SETSIG, F_SETOWN_EX: who is sent which signal when a file is ready; no library asks for it."""
_ASKED = 0x8901, 0x8902, 0x5412
"""FIOSETOWN and SIOCSPGRP, the same of sockets; TIOCSTI, which types on the user's terminal."""
_CLONE3, _CLONE_VM, _AF_UNIX = 435, 0x100, 1
_CONNECTED = tuple(kind | flags for kind in (1, 5) for flags in (0, 0x800, 0x80000, 0x80800))
"""SOCK_STREAM and SOCK_SEQPACKET; others send to an address without a connect, such as that of the system's log."""
_LOAD, _EQUAL, _ABOVE, _BITS, _RETURN, _X32 = 0x20, 0x15, 0x35, 0x45, 0x06, 1 << 30
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS, _EACCES = 1, 38, 13


def keep_caches_in(folder: Path) -> None:
    """Have libraries write there; before they are imported, since some look then."""
    for name in CACHES:
        os.environ[name] = str(folder)
    tempfile.tempdir = None
    # In this process: no forks, which a kernel's first compilation would make by the dozen.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"


def enter(
    folder: Path,
    readable: Iterable[Path],
    looked_up: Iterable[Path] = (),
    open_files: str = "",
    shared: Path | None = None,
) -> tuple[str, ...]:
    """Lock this process in, and what it starts from now on; return what could not be.

    Threads that run already stay outside, so this comes first.

    Args:
        folder: the only one that it may write to; caches of compilers go there.
        readable: files and folders that it may read, beside libraries.
        looked_up: folders of which it may read the files whose names it knows.
        shared: a file that it may change, too.
        open_files: why it is not kept from other files; empty if it is.
    """
    missing = list(_limit())
    if len(list(Path("/proc/self/task").iterdir())) > 1:  # NumPy's: OPENBLAS_NUM_THREADS may ask for them
        missing.append("threads that ran before (OPENBLAS_NUM_THREADS=1 leaves none)")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        missing.append("set-uid programs")
    if not os.getuid() and libc.capset(
        struct.pack("<Ii", 0x20080522, 0), struct.pack("<6I", *[_KEPT] * 2, *[0] * 4)
    ):
        missing.append("rights of root")
    missing += (
        [f"{_BY_LANDLOCK} ({open_files})"]
        if open_files
        else _landlock(libc, folder, readable, looked_up, shared)
    )
    missing += _seccomp(libc)
    return tuple(missing)


def _limit() -> Iterator[str]:
    """Bound what it takes, and have the kernel end it first where memory runs out."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, FILE_BYTES)
    _lower(resource.RLIMIT_DATA, int(MEMORY_SHARE * memory))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    if os.getuid():
        _lower(resource.RLIMIT_NPROC, _threads_of_user() + THREADS)
    else:
        yield "number of processes (root has no limit)"


def _lower(which: int, limit: int) -> None:
    _, hard = resource.getrlimit(which)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(which, (limit, limit))


def _threads_of_user() -> int:
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid == os.getuid():
                count += sum(1 for _ in (process / "task").iterdir())
    return count


# -- files --------------------------------------------------------------------------------------------------------


def installed() -> Iterator[Path]:
    """Yield folders and archives to which something has installed modules."""
    prefixes = {Path(prefix) for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    yield from prefixes
    for entry in map(Path, filter(None, sys.path)):
        named = entry.name in ("site-packages", "dist-packages") or entry.is_file()
        if (named or any(entry.glob("*.dist-info"))) and not any(map(entry.is_relative_to, prefixes)):
            yield entry


@contextlib.contextmanager
def installed_only() -> Iterator[None]:
    """Have nothing else imported: where a command begins, there may lie what a process is locked in for."""
    before, known = sys.path[:], list(installed())
    sys.path[:] = [one for one in before if any(map(Path(one).is_relative_to, known))]
    try:
        yield
    finally:
        sys.path[:] = before


def libraries() -> Iterator[Path]:
    """Yield folders and modules from which Python imports, but not what else lies beside them in a checkout."""
    whole = list(installed())
    yield from whole
    found = ":".join(os.environ.get(name, "") for name in ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH"))
    yield from (Path(entry) for entry in found.split(":") if entry.startswith("/"))
    for entry in map(Path, filter(None, sys.path)):
        if entry.is_dir() and not any(map(entry.is_relative_to, whole)):
            yield from (one for one in entry.iterdir() if (one / "__init__.py").is_file())
    package = Path(__file__).resolve().parents[1]
    yield from (package, package.parent / "templates", package.parent / "search_spaces")


def _landlock(
    libc: ctypes.CDLL,
    folder: Path,
    readable: Iterable[Path],
    looked_up: Iterable[Path],
    shared: Path | None,
) -> Iterator[str]:
    version = libc.syscall(_CREATE, None, 0, 1)
    if version < 1:
        yield f"{_BY_LANDLOCK} (no Landlock)"
        return
    handled = _FIRST | (_REFER if version > 1 else 0) | (_TRUNCATE if version > 2 else 0)
    handled |= _IOCTL if version >= 5 else 0
    attributes = [handled, 3, 3][: 1 + (version >= _NET_VERSION) + (version >= _SCOPE_VERSION)]
    packed = struct.pack(f"<{len(attributes)}Q", *attributes)
    rules = libc.syscall(_CREATE, packed, len(packed), 0)
    if rules < 0:
        yield f"{_BY_LANDLOCK} (Landlock refuses)"
        return
    read = _EXECUTE | _READ | _LIST
    for path in (*map(Path, FOLDERS), *(Path("/etc") / name for name in FILES), *libraries(), *readable):
        _allow(libc, rules, path, read & handled)
    for path in looked_up:
        _allow(libc, rules, path, _READ)
    if shared is not None:
        _allow(libc, rules, shared, _READ | _WRITE)
    for path in (one for name in DEVICES for one in Path("/dev").glob(name)):
        _allow(libc, rules, path, handled & ~_EXECUTE)
    # The driver opens an entry of its own process with O_TRUNC; without both rights, cuInit says
    # CUDA_ERROR_OPERATING_SYSTEM (580.159 on Linux 6.18). It needs no other rule than these to make a context.
    _allow(libc, rules, Path("/proc/self"), (read | _WRITE | _TRUNCATE) & handled)
    _allow(libc, rules, folder, handled & ~_IOCTL)
    if libc.syscall(_RESTRICT, rules, 0):
        yield f"{_BY_LANDLOCK} (Landlock refuses)"
    os.close(rules)


def _allow(libc: ctypes.CDLL, rules: int, path: Path, rights: int) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rights &= ~0 if path.is_dir() else _OF_FILES
        libc.syscall(_ADD, rules, _BENEATH, struct.pack("<Qi", rights, descriptor), 0)
        os.close(descriptor)


# -- system calls -------------------------------------------------------------------------------------------------


def _seccomp(libc: ctypes.CDLL) -> Iterator[str]:
    if platform.machine() not in _SYSCALLS:
        yield f"network, forks, signals to other processes (no filter for {platform.machine()})"
        return
    own_calls, signals, denied = _SYSCALLS[platform.machine()]
    architecture, socket, socketpair, clone, limit, fcntl, ioctl = own_calls
    own = os.getpid()
    code = [
        (_LOAD, 0, 0, 4),  # the architecture; another one's calls have other numbers
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
        (_LOAD, 0, 0, 0),
        (_ABOVE, 0, 1, _X32),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
        (_EQUAL, 0, 1, _CLONE3),  # whose flags are in memory: the C library takes clone instead
        (_RETURN, 0, 0, _ERRNO | _ENOSYS),
        *_refused((*denied, *_EVERYWHERE)),
        *_branch(socket, 1, _CONNECTED, None, _ERRNO | _EACCES),
        *_branch(socketpair, 1, _CONNECTED, None, _ERRNO | _EACCES),
        *_branch(socket, 0, (_AF_UNIX,), _ALLOW, _ERRNO | _EACCES),
        *(step for number in signals for step in _branch(number, 0, (own,), _ALLOW, _ERRNO | _EPERM)),
        *_branch(limit, 0, (0, own), _ALLOW, _ERRNO | _EPERM),
        *_branch(fcntl, 1, _OWNERS, _ERRNO | _EPERM, _ALLOW),
        *_branch(ioctl, 1, _ASKED, _ERRNO | _EPERM, _ALLOW),
        (_EQUAL, 0, 2, clone),
        (_LOAD, 0, 0, 16),
        (_BITS, 0, 1, _CLONE_VM),  # threads, and vfork, behind which a program follows
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
    ]
    program = b"".join(struct.pack("<HBBI", *one) for one in code)
    held = ctypes.create_string_buffer(program)
    header = struct.pack("<HxxxxxxQ", len(code), ctypes.addressof(held))
    if libc.prctl(_PR_SET_SECCOMP, _FILTER, header, 0, 0):
        yield "network, forks, signals to other processes (no seccomp)"


Step = tuple[int, int, int, int]
"""An instruction of a filter: its code, how many to skip if what it compares is so and if not, and its operand."""


def _branch(
    number: int, argument: int, values: Sequence[int], among: int | None, else_: int
) -> Iterator[Step]:
    """Yield the steps that answer a call by whether the lower half of an argument is among some values.

    If there is no answer for these, what follows decides.
    """
    yield (_EQUAL, 0, len(values) + 3, number)
    yield (_LOAD, 0, 0, 16 + 8 * argument)
    yield from ((_EQUAL, len(values) - i, 0, value) for i, value in enumerate(values))
    yield (_RETURN, 0, 0, else_)
    yield (_LOAD, 0, 0, 0) if among is None else (_RETURN, 0, 0, among)


def _refused(numbers: Sequence[int]) -> Iterator[Step]:
    for number in numbers:
        yield (_EQUAL, 0, 1, number)
        yield (_RETURN, 0, 0, _ERRNO | _EPERM)
