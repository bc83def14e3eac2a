"""A kernel's TOML file as data, with today's keys."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import KernelError
from tuner.kernel.toml.old_keys import rename_old_keys

MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True)
class KernelFile:
    """What a kernel's file holds."""

    path: Path
    data: dict[str, Any]
    old_keys: tuple[str, ...] = ()
    """Keys in it that have another name today, each as a sentence."""


def read_file(path: Path) -> KernelFile:
    """Return what a kernel's file holds.

    Raises:
        KernelError: it cannot be read, is no TOML, or has a key under its old name and its new one.
    """
    data = read_toml(path)
    return KernelFile(path, data, rename_old_keys(data, path.name))


def read_toml(path: Path) -> dict[str, Any]:
    """Return what a TOML file holds.

    Raises:
        KernelError: it cannot be read, or is no TOML.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            raise KernelError(f"{path}: too large", f"a kernel file has at most {MAX_FILE_BYTES} bytes")
        return tomllib.loads(raw.decode())
    except OSError as error:
        raise KernelError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or a number of thousands of digits
        raise KernelError(f"{path}: not valid TOML: {error}") from None
