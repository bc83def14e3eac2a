"""Cubin sources on disk: written whole or not at all, checked when read, bounded in size.

The key covers everything that decides the cubin: source, entry, options with the target, the compiler's
version, and the contents of the kernel's own headers.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import secrets
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from tuner.children.nvrtc import Cubin
from tuner.core import files, paths
from tuner.core.model import Resources, digest

MAX_CACHE_BYTES = 1 << 30
_NEW = ".new-"
"""Begins the name of a file that is being written."""


class CubinCache:
    """A folder of cubins. One that another user could change is never read nor written, nor is such an entry.

    Args:
        folder: where; it and the folder above are made when they are needed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.refusal = files.refusal(folder.parent) or files.refusal(folder)
        """Why the folder is not used; empty if it is."""

    @staticmethod
    def key(source: str, entry: str, options: Iterable[str], version: str, headers: str) -> str:
        """Return the name under which a compilation is kept."""
        return digest([source, entry, list(options), version, headers])

    def get(self, key: str) -> Cubin | None:
        """Return what is kept under a key; a damaged entry counts as absent."""
        if self.refusal:
            return None
        path = self._path(key)
        try:
            data = _own(path)
            head, cubin = data.split(b"\n", 1)
            meta = json.loads(head)
            if hashlib.sha256(cubin).hexdigest() != meta["sha256"]:
                return None
            with contextlib.suppress(OSError):
                os.utime(path)
            return Cubin(cubin, meta["entry"], Resources(**meta["resources"]), meta["log"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, key: str, compiled: Cubin) -> None:
        """Keep a compilation. A full or read-only disk costs the cache, not the trial."""
        if self.refusal:
            return
        meta = {"entry": compiled.entry, "resources": asdict(compiled.resources), "log": compiled.log}
        meta["sha256"] = hashlib.sha256(compiled.cubin).hexdigest()
        path = self._path(key)
        with contextlib.suppress(OSError):
            files.make_private(self.folder.parent, self.folder, path.parent)
            new = self.folder / f"{_NEW}{secrets.token_hex(8)}"
            lock = files.open_locked(new, 0o600)
            try:
                new.write_bytes(json.dumps(meta).encode() + b"\n" + compiled.cubin)
                new.replace(path)
            finally:
                os.close(lock)
                new.unlink(missing_ok=True)

    @contextlib.contextmanager
    def alone(self, name: str, most_s: float) -> Iterator[None]:
        """Wait while another process is within this for the same name, so that one compiles and the others read.

        Args:
            name: begins with two hexadecimal digits; names with the same two wait for each other, too.
            most_s: seconds after which it goes on: a stopped process must not hold up all.
        """
        with contextlib.ExitStack() as held:
            if not self.refusal:
                folder = self.folder / name[:2]
                # Without the lock, several compile, and one of them is kept.
                with contextlib.suppress(OSError):
                    files.make_private(self.folder.parent, self.folder, folder)
                    held.enter_context(files.alone(folder / ".lock", most_s))
            yield

    def sweep(self) -> None:
        """Remove what killed processes were writing."""
        if not self.refusal:
            for entry in _entries(self.folder):
                if entry.name.startswith(_NEW):
                    files.remove_unlocked(Path(entry.path))

    def trim(self, limit_bytes: int = MAX_CACHE_BYTES) -> None:
        """Delete the entries that were not read for longest until the rest fits; no link is followed."""
        if self.refusal:
            return
        self.sweep()
        entries = []
        folders = [entry for entry in _entries(self.folder) if entry.is_dir(follow_symlinks=False)]
        for entry in itertools.chain.from_iterable(_entries(folder.path) for folder in folders):
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    entries.append((status.st_mtime, status.st_size, entry.path))
        remove_oldest(entries, limit_bytes)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.cubin"


def remove_oldest(entries: Collection[tuple[float, int, str]], limit_bytes: int) -> None:
    """Remove files, each with the time when it was last read and its size, the oldest first until the rest fits."""
    excess = sum(size for _, size, _ in entries) - limit_bytes
    for _, size, path in sorted(entries):
        if excess <= 0:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108 - a Path each would take most of the time
            excess -= size


def _own(path: Path) -> bytes:
    """Return the content of a file that only this user can have written.

    Raises:
        OSError: it cannot be read, or another user could have written it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        private = files.is_private(status) and files.is_private(path.parent.lstat())
        if not private or not stat.S_ISREG(status.st_mode):
            raise PermissionError(f"{path} may be of another user")
        return file.read()


def _entries(folder: Path | str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def usable(cache: Path | None, say: Callable[[str], None]) -> Path | None:
    """Return the folder of the cubin cache if it is used; say why not, or where it is if that is no usual place."""
    if cache is None:
        return None
    if refusal := CubinCache(cache).refusal:
        say(
            f"{refusal}: nothing that was compiled is kept; delete it, or make it yours alone (chmod -R go-w)"
        )
        return None
    if cache == paths.cubins() and paths.homeless():
        say(f"this user has no home folder: what was compiled is kept in {cache.parent}")
    return cache
