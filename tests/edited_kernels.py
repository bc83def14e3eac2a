"""A kernel's file that is edited, and what identifies it then."""

from __future__ import annotations

from pathlib import Path

from tests.faults.kernels import configuration
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import read_kernel
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES

GPU = ARCHITECTURES[90]


def identity(path: Path) -> KernelIdentity:
    return KernelIdentity(read_kernel(path))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def implementation(path: Path) -> str:
    kernel = read_kernel(path)
    sources = [source for source, _ in render(kernel, kernel.problem(), GPU, configuration())]
    return KernelIdentity(kernel).implementation("plain", sources)
