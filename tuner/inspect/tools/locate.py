"""Where NVIDIA's tools lie: on the PATH, in a CUDA toolkit, in a folder or pip package of their own."""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tuner.core.errors import TunerError, UsageError


class ToolMissingError(TunerError):
    """A tool of NVIDIA's is not installed, or may not do what it is for."""


@dataclass(frozen=True)
class Tool:
    """An executable that comes with CUDA but is not needed for tuning."""

    name: str
    title: str
    option: str
    """Of the command line, for its path, if there is one."""
    folders: tuple[str, ...]
    """Where it may be when it is not on the PATH; patterns, below each toolkit where they are relative."""
    source: str
    """How to get it."""


NCU = Tool(
    "ncu",
    "Nsight Compute",
    "--ncu",
    ("bin", "nsight-compute*", "/opt/nvidia/nsight-compute/*"),
    "it comes with the CUDA toolkit (Debian, Ubuntu: cuda-nsight-compute-13-0) and from "
    "developer.nvidia.com/nsight-compute",
)
SANITIZER = Tool(
    "compute-sanitizer",
    "Compute Sanitizer",
    "--compute-sanitizer",
    ("bin", "compute-sanitizer"),
    "it comes with the CUDA toolkit (Debian, Ubuntu: cuda-sanitizer-13-0)",
)
NVDISASM = Tool(
    "nvdisasm",
    "CUDA's disassembler",
    "",
    (f"{sysconfig.get_paths()['purelib']}/nvidia/cu13/bin", "bin"),
    "pip install nvidia-cuda-nvdisasm",
)


def find(tool: Tool, given: Path | None = None) -> Path:
    """Return a tool's executable.

    Args:
        tool: which.
        given: where the user says that it is.

    Raises:
        UsageError: it is not there.
        ToolMissingError: it is nowhere.
    """
    if given is not None:
        if not _executable(given):
            raise UsageError(f"{given} is no executable", f"give the path of {tool.name} itself")
        return given.absolute()
    on_path = shutil.which(tool.name)
    if on_path:
        return Path(on_path)
    for folder in _folders(tool):
        if _executable(folder / tool.name):
            return folder / tool.name
    raise ToolMissingError(
        f"{tool.title} ({tool.name}) is not installed",
        f"{tool.source}; or say where it is with {tool.option} PATH",
    )


def _executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _folders(tool: Tool) -> Iterator[Path]:
    """Return where a tool may be, newer versions first."""
    named = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    toolkits = [*named, *_newest_first(Path("/usr/local").glob("cuda*"))]
    for pattern in tool.folders:
        for root in [Path("/")] if pattern.startswith("/") else toolkits:
            yield from _newest_first(root.glob(pattern.lstrip("/")))


def _newest_first(folders: Iterable[Path]) -> list[Path]:
    return sorted(
        folders, key=lambda folder: [int(number) for number in re.findall(r"\d+", folder.name)], reverse=True
    )
