"""A kernel's own headers: files beside its sources, or in its include folders, that the sources include."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tuner.core.errors import KernelError
from tuner.core.reading import read_at_most

MAX_HEADER_BYTES = 16 << 20
"""A longer file is no header and no template: the largest single-header libraries have about a megabyte."""
HEADER_SUFFIXES = (".h", ".hh", ".hpp", ".cuh", ".inc", ".inl", ".cu")

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>|(\S))', re.MULTILINE)
_LINE = re.compile(r'#line (\d+) "([^"]*)"')
_FILLED_IN = re.compile(r"\{\{.*?\}\}")


def own_headers(sources: Iterable[str], folders: Sequence[Path], *, templates: bool = False) -> list[Path]:
    """Return all files that sources include, directly or through each other, in any branch of the preprocessor.

    Args:
        sources: CUDA C++, or templates of it.
        folders: include folders, without CUDA's. A header's own folder comes before them.
        templates: whether a name of which a template fills in a part means all headers that fit, instead of none.

    Raises:
        KernelError: a header is too large.
    """
    headers: set[Path] = set()
    pending = [(source, tuple(folders)) for source in sources]
    while pending:
        text, searched = pending.pop()
        for quoted, angled, _ in _INCLUDE.findall(text):
            name = quoted or angled
            pattern = _FILLED_IN.sub("*", name)
            fitting = _fitting(pattern, searched) if templates and pattern != name else [name]
            for path in (_readable(one, searched) for one in fitting):
                if path is not None and path not in headers:
                    headers.add(path)
                    pending.append((read_source(path), (path.parent, *folders)))
    return sorted(headers)


def with_own_headers(text: str, folders: Sequence[Path], file: str) -> str:
    """Return a source with the texts of its own headers instead of their includes, each once, between ``#line``s.

    Args:
        text: the source.
        folders: include folders, without CUDA's.
        file: what the compiler calls the source.

    Raises:
        KernelError: a header is too large.
    """
    done = set[Path]()

    def whole(text: str, searched: Sequence[Path], name: str) -> str:
        lines, number = list[str](), 0
        for line in text.split("\n"):
            number += 1
            if at := _LINE.match(line):
                number, name = int(at[1]) - 1, at[2]
            include = _INCLUDE.match(line)
            path = _readable(include[1] or include[2], searched) if include else None
            if path is not None:
                inner = "" if path in done else read_source(path)
                done.add(path)
                inner = whole(inner, (path.parent, *folders), path.name)
                line = f'#line 1 "{path.name}"\n{inner}\n#line {number + 1} "{name}"'
            lines.append(line)
        return "\n".join(lines)

    return whole(text, folders, file)


def included_names(texts: Iterable[str]) -> list[str]:
    """Return the names that texts include, each once, in any branch of the preprocessor."""
    found = (quoted or angled for text in texts for quoted, angled, _ in _INCLUDE.findall(text))
    return list(dict.fromkeys(name for name in found if name))


def _fitting(pattern: str, folders: Sequence[Path]) -> list[str]:
    """Return the names of headers that fit a pattern."""
    try:
        return [
            str(path.relative_to(folder))
            for folder in folders
            for path in folder.glob(pattern)
            if path.suffix in HEADER_SUFFIXES
        ]
    except (OSError, ValueError, NotImplementedError):  # too long, with a zero byte, or absolute
        return []


def _readable(name: str, folders: Sequence[Path]) -> Path | None:
    return first_file((folder / name for folder in folders if name), os.R_OK)


def first_file(paths: Iterable[Path], access: int = os.F_OK) -> Path | None:
    """Return the first of some paths that is a file's, resolved; None where none is, as of too long a name.

    Args:
        paths: in the order in which they are tried.
        access: that this user must have, as of ``os.access``.
    """
    for path in paths:
        with contextlib.suppress(OSError, ValueError):  # too long, or with a zero byte
            if path.is_file() and os.access(path, access):
                return path.resolve()
    return None


def named_file(text: str) -> Path | None:
    """Return the file that a user names, resolved; None where there is none, as of a user who has no home."""
    with contextlib.suppress(RuntimeError):
        return first_file([Path(text).expanduser()])
    return None


def read_source(path: Path) -> str:
    """Return the text of a header or a template.

    Raises:
        KernelError: it is too large, or has a character NUL, where NVRTC would end it without a word.
    """
    try:
        text = read_at_most(path, MAX_HEADER_BYTES).decode("utf-8-sig", "replace")
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        raise KernelError(
            f"{path} is too large for a source", f"the limit is {MAX_HEADER_BYTES} bytes"
        ) from None
    if "\0" in text:
        raise KernelError(f"{path} has a character NUL, as UTF-16 has", "save it as UTF-8")
    return text


def headers_digest(source: str, folders: Sequence[Path]) -> str | None:
    """Return a hash of the names and contents of a source's own headers.

    It is empty where there can be none, and None if a macro names an included file.

    Raises:
        KernelError: a header is too large.
    """
    paths = own_headers([source], folders)
    texts = [source, *map(read_source, paths)]
    if any(macro for text in texts for _, _, macro in _INCLUDE.findall(text)):
        return None
    content = hashlib.sha256()
    for path in paths:
        content.update(str(path).encode() + b"\0" + path.read_bytes() + b"\0")
    # What is said of includes elsewhere, perhaps behind a comment, may be one.
    read = len(_INCLUDE.findall(source)) == source.count("include")
    return "" if read and not paths else content.hexdigest()
