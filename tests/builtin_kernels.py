"""Built-in kernels and recordings, read once a process: gemm's file takes 80 ms, and most tests and commands read one.

So are the texts of their templates, and what digests and bundles make of them, and the valid rows of their spaces.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from tests import compiled_once  # noqa: F401 - before what compiles is imported
from tuner.core import paths
from tuner.devices import choose, replay
from tuner.formats import recording
from tuner.kernel import enumeration, load, space
from tuner.kernel.identity import KernelIdentity, template_texts
from tuner.kernel.spec import KernelSpec
from tuner.kernel.toml.file import KernelFile, read_toml
from tuner.winners import records

_read_file, _kernel_of = load.read_file, load.kernel_of
_files: dict[Path, KernelFile] = {}
_kernels: dict[Path, KernelSpec] = {}
_texts: dict[tuple[Path, Path], list[str]] = {}
_codes: dict[tuple[Path, Path], dict[str, list[Any]]] = {}
_rows: dict[tuple[object, ...], enumeration.Valid] = {}
LIMITS = ("CHUNK", "HUGE", "MAX_PARTIAL", "MAX_ROWS", "MAX_TESTED")
MOST_ROWS = 24
"""Spaces whose rows are kept: those of gemm have up to some megabytes."""


def read_once() -> None:
    """Let :mod:`tuner.kernel.load` keep what it has read of the package's own kernels; a user's are read each time."""
    load.read_file, load.kernel_of = _file_of, _kernel_once
    space.valid_configurations = _rows_once
    records.template_texts = _texts_once  # type: ignore[assignment]
    choose.read_recording = replay.read_recording = _recording_once
    code = functools.cached_property(_code_once)
    code.__set_name__(KernelIdentity, "_variant_code")
    KernelIdentity._variant_code = code  # type: ignore[method-assign]


def own_kernels() -> list[str]:
    """Return the built-in kernels that are like no other one, whose templates they would share."""
    return list(_own_kernels())


@functools.cache
def _own_kernels() -> tuple[str, ...]:
    names = load.builtin_kernels()
    return tuple(name for name in names if "like" not in read_toml(load.find_kernel(name)))


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


_code_of = KernelIdentity._variant_code.func
_rows_of = space.valid_configurations
_read_recording = functools.cache(recording.read_recording)


def _texts_once(folder: Path, template: Path) -> list[str]:
    if not template.is_relative_to(paths.templates()):
        return list(template_texts(folder, template))
    if (folder, template) not in _texts:
        _texts[folder, template] = list(template_texts(folder, template))
    return _texts[folder, template]


def _code_once(identity: KernelIdentity) -> dict[str, list[Any]]:
    kernel = identity.kernel
    if _kernels.get(kernel.file) is not kernel:
        return _code_of(identity)
    key = kernel.file, paths.templates()
    if key not in _codes:
        _codes[key] = _code_of(identity)
    return _codes[key]


def _rows_once(kernel: KernelSpec, variant: Any, problem: Any, gpu: Any, *how: Any) -> enumeration.Valid:
    """Return what is no sample as it was found before."""
    rng, allowed = (*how, None)[:2]
    if _kernels.get(kernel.file) is not kernel or kernel.variants[variant.name] is not variant:
        return _rows_of(kernel, variant, problem, gpu, *how)
    limits = [getattr(enumeration, name) for name in LIMITS]
    key = (
        kernel.file, variant.name, problem.key, str(gpu), str(allowed and sorted(allowed.items())),
        *limits,
    )  # fmt: skip
    found = _rows.pop(key, None) or _rows_of(kernel, variant, problem, gpu, rng, allowed)
    if not found.sampled:
        _rows[key] = found
        if len(_rows) > MOST_ROWS:
            del _rows[next(iter(_rows))]
    return found


def _recording_once(path: Path) -> recording.Recording:
    ours = path.resolve().parent == paths.recordings().resolve()
    return _read_recording(path) if ours else recording.read_recording(path)
