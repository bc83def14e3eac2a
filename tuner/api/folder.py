"""The folder of a kernel that was described by a call: its file, the sources, and the values of its tensors."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tuner.api.caller import CALLERS, caller_file
from tuner.api.description import Described
from tuner.core.errors import TunerError, UsageError
from tuner.core.files import temporary_folder, whole_folder

KERNELS = "kernels"
"""Folder beside a database, with one for each kernel that was described by a call."""


def contents(described: Described) -> dict[str, Any]:
    """Return what the folder holds: bytes, or an array, by name; the kernel's file comes first."""
    files = {
        f"{described.draft.name}.toml": described.draft.toml().encode(),
        **described.files,
    }
    if described.reference is not None:
        names = [*described.draft.sizes, *described.draft.scalars]
        names += [name for name, tensor in described.draft.tensors.items() if tensor.role != "output"]
        available = {name: name for name in names}
        available |= {name: of for name, of in described.arguments.items() if of in names}
        files["caller.py"] = caller_file(described.reference, available).encode()
    return files


def kept(described: Described, database: Path) -> Path:
    """Return the kernel's file in a folder beside the database: equal calls have the same one.

    Raises:
        TunerError: it cannot be written.
    """
    files = contents(described)
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{getattr(content, 'dtype', '')}{getattr(content, 'shape', '')}\0".encode())
        digest.update(content if isinstance(content, bytes) else np.ascontiguousarray(content).data)
    name = described.draft.name
    folder = database.absolute().parent / KERNELS / f"{name}-{digest.hexdigest()[:12]}"
    if not (folder / f"{name}.toml").is_file():
        write(folder, files)
    return folder / f"{name}.toml"


def write(folder: Path, files: Mapping[str, Any]) -> None:
    """Write a folder: all of it or nothing; one of this name that is there is replaced.

    Raises:
        TunerError: it cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with whole_folder(folder) as partial:
            for name, content in files.items():
                path = partial / name
                path.parent.mkdir(parents=True, exist_ok=True)
                if isinstance(content, bytes):
                    path.write_bytes(content)
                else:
                    np.save(path, content)
    except OSError as error:
        raise TunerError(f"{folder}: {error.strerror}", "name another folder, with db=") from None


def write_as(described: Described, target: Path) -> Path:
    """Write a described kernel to a file of this name, and what lies beside it; return that."""
    with temporary_folder() as new:
        write(new / "kernel", contents(described))
        return save(new / "kernel" / f"{described.draft.name}.toml", target)


def save(file: Path, target: Path) -> Path:
    """Copy a kernel's file, and what lies beside it, to a file of another name; return that.

    Raises:
        UsageError: the target is no ``.toml``, or a file of a name that it needs is there; nothing is written.
        TunerError: it cannot be written.
    """
    if target.suffix != ".toml":
        raise UsageError(f"{target} is no .toml", f"write to a file such as {file.name}")
    inside = [path.relative_to(file.parent) for path in sorted(file.parent.rglob("*")) if path.is_file()]
    parts = [one for one in inside if CALLERS not in one.parts and "__pycache__" not in one.parts]
    places = {
        file.parent / one: target if file.parent / one == file else target.parent / one for one in parts
    }
    try:
        for path, to in places.items():
            if to.exists() and (not to.is_file() or to.read_bytes() != path.read_bytes()):
                raise UsageError(
                    f"{to} is there, and is another file", "save to a folder of its own, or remove it"
                )
        for path, to in places.items():
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to)
    except OSError as error:
        raise TunerError(f"{target}: {os.strerror(error.errno or 0)}", "name another file") from None
    return target
