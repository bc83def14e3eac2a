"""Precompiled headers of CUB, libcu++ and cooperative groups, made once and shared by all compile children.

NVRTC compiles a kernel that includes CUB in 1.5 to 2.0 s of a core, and in 0.4 to 0.5 s where CUB's headers are
precompiled, from a file of 200 to 350 MB. It takes such a file only at the address in memory at which it was made: each
child has NVRTC's heap for them at the same one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import secrets
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tuner.children.cubin_cache import remove_oldest
from tuner.children.headers import FIRST, Headers
from tuner.children.nvrtc import compile_options, nvrtc, nvrtc_version, precompile
from tuner.core import files
from tuner.core.errors import CompileError
from tuner.core.model import digest

HEAP_BYTES = 1 << 29
"""CUB with cooperative groups and the rest of libcu++ takes 360 MB of it. What is not used takes no memory."""
WAIT_S = 10.0
"""For another process that makes it, in 3 s of a core: it may have been stopped."""
MOST = 4
"""Files that a child makes: each set of compiler options has its own."""
MAX_FOLDER_BYTES = 2 << 30
LEAST_FREE_BYTES = 4 << 30
"""A disk with less room is left alone."""
_BELOW = 0x7E00_0000_0000
"""Where the heap ends: below the place where Linux puts libraries, wherever that is drawn to be."""
_NEW = ".new-"
_PRIVATE, _ANYWHERE, _NO_RESERVE, _EXACTLY = 0x02, 0x20, 0x4000, 0x100000


class PrecompiledHeaders:
    """A folder of precompiled headers. One that another user could change is never read nor written.

    Make it before the process's memory is limited. Where the heap cannot be at its address, nothing is precompiled.

    Args:
        folder: where; it and the folder above are made when they are needed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        refused = files.refusal(folder.parent) or files.refusal(folder)
        self._heap = 0 if refused else _heap()
        self._asked: set[str] = set()
        self._refused: set[str] = set()

    def find(
        self, headers: Headers, arch: str, options: tuple[str, ...], include: tuple[Path, ...]
    ) -> Path | None:
        """Return the file of what a source's first headers are precompiled to; None to compile without.

        It is made where it is missing. While another process makes one, the first source is compiled without, and the
        next ones wait.
        """
        if not self._heap or FIRST not in headers.texts:
            return None
        used = compile_options(arch, options, include, headers.first)
        stamps = [
            _changed(folder / "cub" / "version.cuh") + _changed(folder / "cuda.h")
            for folder in headers.folders
        ]
        key = digest([*used, nvrtc_version(), headers.first.digest, self._heap, HEAP_BYTES, stamps])
        if key in self._refused:
            return None
        if (found := self._kept(key)) is None and len(self._asked | {key}) <= MOST:
            make = partial(precompile, headers.first, arch, options, include)
            with contextlib.suppress(OSError):
                self._make(key, make, WAIT_S if key in self._asked else 0.0)
            found = self._kept(key)
        self._asked.add(key)
        return found

    def refuse(self, file: Path) -> None:
        """Take note that NVRTC does not take a file, which goes."""
        self._refused.add(file.name.partition(".")[0])
        file.unlink(missing_ok=True)

    def _kept(self, key: str) -> Path | None:
        for path in self._folder.glob(f"{key}.*"):
            with contextlib.suppress(OSError):
                status = path.lstat()
                # NVRTC reads a file that is too short until it is killed for it.
                if files.is_private(status) and path.name == _name(key, status.st_size):
                    os.utime(path)
                    return path
        return None

    def _make(self, key: str, make: Callable[[Path], bool], wait_s: float) -> None:
        """Precompile headers, written whole or not at all, unless another process does that, or the disk is full."""
        files.make_private(self._folder.parent, self._folder)
        with files.alone(self._folder / ".lock", wait_s) as alone:
            if not alone and wait_s:
                self._refused.add(key)
            if not alone or self._kept(key) or shutil.disk_usage(self._folder).free < LEAST_FREE_BYTES:
                return
            # Of killed processes: only the one that is alone writes.
            for left in self._folder.glob(f"{_NEW}*"):
                left.unlink(missing_ok=True)
            new = self._folder / f"{_NEW}{secrets.token_hex(8)}"
            try:
                if make(new):
                    new.chmod(0o600)
                    files.sync(new)
                    new.replace(self._folder / _name(key, new.stat().st_size))
                else:
                    self._refused.add(key)
            finally:
                new.unlink(missing_ok=True)
            kept = [(path.lstat(), str(path)) for path in self._folder.glob("*.pch")]
            remove_oldest([(one.st_mtime, one.st_size, path) for one, path in kept], MAX_FOLDER_BYTES)


def _name(key: str, size: int) -> str:
    return f"{key}.{size}.pch"


def _changed(path: Path) -> int:
    """Return when a file was written; 0 where there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _heap() -> int:
    """Have NVRTC take its heap for precompiled headers, and return its address; 0 where it cannot be.

    It is the same in each child: Linux takes the highest gap that is large enough, and what lies above is filled
    meanwhile.
    """
    try:
        bindings = nvrtc()  # whose libraries must not lie where the heap will
        mapped = [start for start, _ in _mappings() if start >= _BELOW]
        memory = ctypes.CDLL(None, use_errno=True)
        memory.mmap.restype = ctypes.c_void_p
        # This process may still map some memory of its own below what is mapped: the gap is too small for the heap.
        size = ctypes.c_size_t(min(mapped) - HEAP_BYTES // 4 - _BELOW)
        flags = _PRIVATE | _ANYWHERE | _NO_RESERVE | _EXACTLY
        filled = memory.mmap(ctypes.c_void_p(_BELOW), size, 0, flags, -1, ctypes.c_long(0))
    except (CompileError, OSError, ValueError, AttributeError):
        return 0
    if filled != _BELOW:
        return 0
    try:
        bindings.nvrtcSetPCHHeapSize(HEAP_BYTES)
        _, program = bindings.nvrtcCreateProgram(b"", b"none.cu", 0, None, None)
        # Options that are refused, in 0.4 ms, as there can be no such folder: the heap is taken before.
        bindings.nvrtcCompileProgram(program, 2, [b"--pch", b"--pch-dir=/dev/null/none"])
        bindings.nvrtcDestroyProgram(program)
        found = [start for start, end in _mappings() if start < _BELOW and end - start >= HEAP_BYTES]
        return max(found, default=0)
    finally:
        memory.munmap(ctypes.c_void_p(_BELOW), size)


def _mappings() -> list[tuple[int, int]]:
    """Return where this process's mappings begin and end."""
    lines = Path("/proc/self/maps").read_text()
    return [
        (int(start, 16), int(end, 16)) for start, end in re.findall(r"^(\w+)-(\w+) ", lines, re.MULTILINE)
    ]
