"""The digests of a kernel's files with all that they include, without comments and documentation."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tuner.core import paths
from tuner.core.model import digest
from tuner.kernel.headers import read_source
from tuner.kernel.render import source_digest

_JINJA_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_JINJA_CODE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_INCLUDE = re.compile(r"\{%[-+]?\s*(?:include|import|from|extends)\b(.*?)%\}", re.DOTALL)
_LITERAL = re.compile(r"\"([^\"]+)\"|'([^']+)'")


def file_digest(path: Path) -> str:
    """Return the digest of a file of a reference: of Python its code, with the modules beside it that it imports.

    Of anything else it is that of its bytes. Of a file that cannot be read it is the error's name.
    """
    try:
        if path.suffix == ".py":
            with contextlib.suppress(ValueError, SyntaxError, RecursionError):
                return digest([_plain(tree) for tree in _modules(path)])
        stat = path.stat()
        return _bytes_digest(path, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        return type(error).__name__


@functools.lru_cache(maxsize=64)
def _bytes_digest(path: Path, changed_ns: int, size: int) -> str:  # noqa: ARG001 - of the key
    with path.open("rb") as file:  # a golden file may have gigabytes
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


def _modules(path: Path) -> Iterator[ast.Module]:
    """Yield the syntax tree of a Python file, and of each that it imports, directly or not, from its folder."""
    seen, pending = {path}, [path]
    while pending:
        file = pending.pop(0)
        tree = ast.parse(read_source(file))
        yield tree
        for module in sorted(_imported(tree, file, path.parent) - seen):
            seen.add(module)
            pending.append(module)


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


def _plain(node: Any) -> Any:
    """Return a syntax tree as plain data without documentation; what is empty, Python's versions write differently."""
    if isinstance(node, ast.AST):
        told = {name: _plain(value) for name, value in ast.iter_fields(node)}
        return [type(node).__name__, {name: value for name, value in told.items() if value not in (None, [])}]
    if isinstance(node, list):
        return [_plain(item) for item in node if not _documents(item)]
    return None if node is None else repr(node)


def _documents(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def template_digest(template: Path, texts: Iterable[str]) -> str:
    """Return the digest of a template with all that it includes, without comments.

    Args:
        template: of Jinja, or a plain ``.cu``.
        texts: by :func:`template_texts`.
    """
    code = _jinja_digest if template.suffix == ".j2" else source_digest
    return digest([code(text) for text in texts])


@functools.lru_cache(maxsize=512)
def _jinja_digest(text: str) -> str:
    """Return the digest of a template's text; what is Jinja's counts as it is: its ``//`` divides."""
    code = _JINJA_COMMENT.sub("", text)
    return digest([source_digest(_JINJA_CODE.sub("{}", code)), *_JINJA_CODE.findall(code)])


def template_texts(folder: Path, template: Path, read: Callable[[Path], str] = read_source) -> Iterator[str]:
    """Yield the text of a template, and of each template that it includes, directly or not.

    Where an expression names the included file, all templates of the template's folder count as included.

    Args:
        folder: the kernel's.
        template: of Jinja, or a plain ``.cu``.
        read: returns a file's text.
    """
    seen, pending = {template}, [template]
    while pending:
        text = read(pending.pop(0))
        yield text
        for tag in _INCLUDE.findall(_JINJA_COMMENT.sub("", text)):
            for path in _included(folder, template, tag):
                if path not in seen:
                    seen.add(path)
                    pending.append(path)


def _included(folder: Path, template: Path, tag: str) -> list[Path]:
    names = ["".join(quoted) for quoted in _LITERAL.findall(tag)]
    files = [_first_file([folder / name, paths.templates() / name]) for name in names]
    named = [path for path in files if path is not None]
    return named if named and len(named) == len(files) else [*named, *sorted(template.parent.glob("*.j2"))]


def _first_file(named: Iterable[Path]) -> Path | None:
    return next((path for path in named if path.is_file()), None)
