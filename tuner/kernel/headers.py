"""The headers of a kernel's own: files beside it, or below its include folders, that its sources name."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>|(\S))', re.MULTILINE)


def own_headers(sources: Iterable[str], folders: Sequence[Path]) -> list[Path]:
    """Return the files that sources include, directly or through each other, wherever a preprocessor might take them.

    Args:
        sources: CUDA C++, or templates of it: a name that a template fills in is not followed.
        folders: where included names are looked for; in what is found, beside it first. CUDA's are not among them.
    """
    found: dict[Path, None] = {}
    left = [(source, tuple(folders)) for source in sources]
    while left:
        text, places = left.pop()
        for quoted, angled, _ in _INCLUDE.findall(text):
            path = _first_file(quoted or angled, places)
            if path is not None and path not in found:
                found[path] = None
                left.append((path.read_text(errors="replace"), (path.parent, *folders)))
    return sorted(found)


def _first_file(name: str, folders: Sequence[Path]) -> Path | None:
    for folder in folders if name else ():
        try:
            if (path := folder / name).is_file() and os.access(path, os.R_OK):
                return path.resolve()
        except (OSError, ValueError):  # too long to be a file's name, or with a zero in it
            continue
    return None


def headers_digest(source: str, folders: Sequence[Path]) -> str | None:
    """Hash the names and contents of a source's own headers; None where a macro names one, which nobody can follow."""
    paths = own_headers([source], folders)
    texts = [source, *(path.read_text(errors="replace") for path in paths)]
    if any(macro for text in texts for _, _, macro in _INCLUDE.findall(text)):
        return None
    seen = hashlib.sha256()
    for path in paths:
        seen.update(str(path).encode() + b"\0" + path.read_bytes() + b"\0")
    return seen.hexdigest()
