"""A kernel's TOML file as data, and the file beside it that has its initial configurations."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.core import paths
from tuner.core.errors import KernelError
from tuner.kernel.toml.values import exists

MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True)
class KernelFile:
    """What a kernel's file holds."""

    path: Path
    data: dict[str, Any]
    initial: KernelFile | None = None
    """The file that has the initial configurations, if it names one."""


def read_file(path: Path) -> KernelFile:
    """Return what a kernel's file holds, and what the one with its initial configurations does.

    Raises:
        KernelError: one cannot be read, or is no TOML.
    """
    data = read_toml(path)
    if not isinstance(name := data.get("initial"), str):
        return KernelFile(path, data)
    beside = _beside(path, name)
    return KernelFile(path, data, KernelFile(beside, read_toml(beside)))


def _beside(path: Path, name: str) -> Path:
    """Return the file that a kernel's file names, beside it or among the tuner's own."""
    candidates = [folder / name for folder in (path.parent, paths.search_spaces())]
    if not name.endswith(".toml"):
        raise KernelError(
            f"{path.name}: initial = {name!r} is no TOML file", 'write [[initial]], or "NAME.initial.toml"'
        )
    for candidate in candidates:
        if exists(candidate) and candidate.is_file():
            return candidate.resolve()
    raise KernelError(
        f"{path.name}: initial = {name!r}: no such file", f"put it beside {path.name}, or correct the name"
    )


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
        return tomllib.loads(raw.decode("utf-8-sig"))
    except OSError as error:
        raise KernelError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise KernelError(f"{path}: byte {error.start} is not UTF-8", "save the file as UTF-8") from None
    except (ValueError, RecursionError) as error:  # not TOML, or a number of thousands of digits
        raise KernelError(f"{path}: not valid TOML: {error}") from None
