"""Cubin sources on disk: written whole or not at all, checked when read, bounded in size.

The key covers everything that decides the cubin: source, entry, options with the target, the compiler's
version, and the contents of the kernel's own headers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from tuner.compile.nvrtc import Cubin
from tuner.model import Resources, canonical_json

MAX_CACHE_BYTES = 1 << 30


class CubinCache:
    """A folder of cubins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def key(source: str, entry: str, options: Iterable[str], version: str, headers: str) -> str:
        """Return the name under which a compilation is kept."""
        return hashlib.sha256(
            canonical_json([source, entry, list(options), version, headers]).encode()
        ).hexdigest()

    def get(self, key: str) -> Cubin | None:
        """Return what is kept under a key; a damaged entry counts as absent."""
        path = self._path(key)
        try:
            data = path.read_bytes()
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
        meta = {
            "sha256": hashlib.sha256(compiled.cubin).hexdigest(),
            "entry": compiled.entry,
            "resources": asdict(compiled.resources),
            "log": compiled.log,
        }
        path = self._path(key)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
                try:
                    file.write(json.dumps(meta).encode() + b"\n" + compiled.cubin)
                    file.flush()
                    Path(file.name).replace(path)
                except OSError:
                    Path(file.name).unlink()
                    raise

    def trim(self, limit_bytes: int = MAX_CACHE_BYTES) -> None:
        """Delete the entries that were not read for longest until the rest fits."""
        entries = []
        for path in self.folder.glob("??/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
        excess = sum(size for _, size, _ in entries) - limit_bytes
        for _, size, path in sorted(entries):
            if excess <= 0:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                excess -= size

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.cubin"
