"""What a user's Python files import: other files, which belong to what a kernel is, and libraries."""

from __future__ import annotations

import ast
from pathlib import Path

from tuner.kernel.headers import read_source
from tuner.kernel.spec import KernelSpec


def imported_files(tree: ast.Module, path: Path) -> list[Path]:
    """Return the files that a Python file imports, directly or not, from its folder.

    Args:
        tree: what counts of the file.
        path: the file.
    """
    return [file for file in modules_of(tree, path) if file != path and file.is_relative_to(path.parent)]


def libraries_built_with(kernel: KernelSpec) -> set[str]:
    """Return what the functions import, directly or by files beside them, that build a kernel's variants; and torch,
    in whose tensors they get the arrays, where there are any."""
    calls = [variant.call for variant in kernel.variants.values() if variant.call is not None]
    names = {"torch"} if any(call.builds for call in calls) else set()
    for path in {call.file for call in calls if call.builds}:
        for tree in modules_of(ast.parse(read_source(path)), path).values():
            for node in ast.walk(tree):
                if isinstance(node, ast.Import):
                    names |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    names.add(node.module)
    return {name.partition(".")[0] for name in names}


def modules_of(tree: ast.Module, path: Path) -> dict[Path, ast.Module]:
    """Return the syntax trees of a Python file and of all that it imports from its folder."""
    trees, pending = {path: tree}, [path]
    while pending:
        file = pending.pop(0)
        for module in sorted(_imported(trees[file], file, path.parent) - trees.keys()):
            trees[module] = ast.parse(read_source(module))
            pending.append(module)
    return trees


def _imported(tree: ast.Module, file: Path, folder: Path) -> set[Path]:
    """Return the files in a folder that a module of it may import."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [(folder, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = file.parents[min(node.level, len(file.parents)) - 1] if node.level else folder
            names += [(start, f"{node.module or ''}.{alias.name}") for alias in node.names]
    files = set()
    for start, name in names:
        module = start
        for part in filter(None, name.split(".")):
            module /= part
            files |= {module.with_name(f"{part}.py"), module / "__init__.py"}
    return {path for path in files if path.is_file()}
