"""Pieces of templates, rendered for a configuration; comments play no part in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tuner.emulator.source import code_of
from tuner.kernel.render import render_launch
from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration, Gpu, Problem

GENERATIONS = (75, 80, 90, 120)
"""Architectures to compile for: the others have the sources of the one before, and as many registers."""


def pieces(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration, template: str, folder: Path
) -> str:
    """Return what a template of a test's own renders to for a configuration: ``{% include %}`` brings pieces in."""
    file = folder / "pieces.cu.j2"
    file.write_text(template)
    *_, launch = kernel.launches(problem, gpu, configuration)
    launch = replace(launch, template=file, programmatic=False)  # a piece need not wait for another kernel
    source, _ = render_launch(kernel, launch, problem, gpu, configuration)
    return code_of(source)
