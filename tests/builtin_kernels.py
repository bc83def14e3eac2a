"""Built-in kernels, read once a process: gemm's file takes 80 ms, and most tests and commands read one."""

from __future__ import annotations

from pathlib import Path

from tuner.core import paths
from tuner.kernel import load
from tuner.kernel.spec import KernelSpec
from tuner.kernel.toml.file import KernelFile, read_toml

_read_file, _kernel_of = load.read_file, load.kernel_of
_files: dict[Path, KernelFile] = {}
_kernels: dict[Path, KernelSpec] = {}


def read_once() -> None:
    """Let :mod:`tuner.kernel.load` keep what it has read of the package's own kernels; a user's are read each time."""
    load.read_file, load.kernel_of = _file_of, _kernel_once


def own_kernels() -> list[str]:
    """Return the built-in kernels that are like no other one, whose templates they would share."""
    names = load.builtin_kernels()
    return [name for name in names if "like" not in read_toml(load.find_kernel(name))]


def _file_of(path: Path) -> KernelFile:
    if path not in _files:
        file = _read_file(path)
        if path.parent != paths.search_spaces().resolve():
            return file
        _files[path] = file
    return _files[path]


def _kernel_once(file: KernelFile) -> KernelSpec:
    if _files.get(file.path) is not file:
        return _kernel_of(file)
    if file.path not in _kernels:
        _kernels[file.path] = _kernel_of(file)
    return _kernels[file.path]
