"""What the head and a compiling child say to each other: a configuration or a source, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuner.model import Configuration, Gpu, Problem, Resources, Status
from tuner.processes import Channel
from tuner.protocol.record import Message


class RenderRequest(Message, frozen=True):
    """Render and compile one configuration of a kernel, or the kernel's CUDA reference."""

    kernel_file: Path
    problem: Problem
    gpu: Gpu
    configuration: Configuration
    reference: bool = False


class SourceRequest(Message, frozen=True):
    """Compile a source as it is."""

    source: str
    entry: str
    gpu: Gpu
    include: Path
    """Folder of its own headers."""


CompileRequest = RenderRequest | SourceRequest


@dataclass(frozen=True)
class Compilation:
    """What became of rendering and compiling one configuration."""

    status: Status
    """``ok`` or one of the compile failures."""
    error: str = ""
    sources: tuple[str, ...] = ()
    cubins: tuple[bytes, ...] = ()
    entries: tuple[str, ...] = ()
    resources: tuple[Resources, ...] = ()
    log: str = ""
    compile_s: float = 0.0


COMPILING: Channel[CompileRequest, Compilation] = Channel(CompileRequest, Compilation)
