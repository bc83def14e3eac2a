"""Parts of rendered sources, by the names in their code: comments play no part in it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from tuner.emulator.source import code_of
from tuner.kernel.render import render, render_launch
from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration, Gpu, Problem

GENERATIONS = (75, 80, 90, 120)
"""Architectures to compile for: the others have the sources of the one before, and as many registers."""


def rendered(kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration) -> str:
    """Return the code of a configuration's last launch."""
    *_, (source, _) = render(kernel, problem, gpu, configuration)
    return code_of(source)


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


def between(code: str, first: str, behind: str) -> str:
    """Return the code from one statement up to another."""
    start = code.index(first)
    return code[start : code.index(behind, start)]


def definition(code: str, name: str) -> str:
    """Return a function (with its template line), a struct, or a lambda with all of its body."""
    found = re.search(
        rf"(?:^template <[^\n]*>\n)?^[^\n{{}};]*(?:\bstruct {name}|\b{name}\(|auto {name} = \[)[^;{{}}]*\{{",
        code,
        re.MULTILINE,
    )
    assert found, f"nothing is called {name}"
    depth, at = 1, found.end()
    while depth:
        depth += {"{": 1, "}": -1}.get(code[at], 0)
        at += 1
    return code[found.start() : at] + (";\n" if code[at : at + 1] == ";" else "\n")
