"""What a process may read in which code runs that others wrote."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tuner.kernel.baselines import Baseline
from tuner.kernel.modules import FILE
from tuner.kernel.spec import KernelSpec

COPIES = "judged"
"""Folder, in one of candidates, of copies of them, each in one of its own."""


def readable_for(task: KernelSpec, candidate: KernelSpec, baselines: Iterable[Baseline]) -> list[Path]:
    """Return the files that a process needs: the candidate's, and those of its task but for what says what is right."""
    own = candidate.file
    files = [one.file for one in baselines if one.file]
    files += [tensor.file for tensor in task.tensors.values() if tensor.file]
    model = task.folder / FILE
    files += [model] if model.is_file() else []
    files += [one for file in files for one in imported(file)]
    calls = [variant.call.file for variant in candidate.variants.values() if variant.call]
    owned = [own.parent] if own.parent.parent.name == COPIES else [own, *calls]
    return [*owned, *files]


def imported(file: Path) -> list[Path]:
    """Return what a Python file, and what it imports, imports from beside it: there may be others' candidates, too."""
    found: dict[Path, None] = {}
    waiting = [file] if file.suffix == ".py" else []
    while waiting:
        with suppress(OSError, SyntaxError, ValueError):  # running it says so
            for node in ast.walk(ast.parse(waiting.pop().read_bytes())):
                names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                for first in filter(None, (name.partition(".")[0] for name in names)):
                    for one in (file.with_name(first), file.with_name(f"{first}.py")):
                        if one.exists() and one not in found:
                            found[one] = None
                            waiting += [one] if one.is_file() else one.rglob("*.py")
    return list(found)
