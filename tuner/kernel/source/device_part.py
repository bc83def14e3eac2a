"""What of a CUDA source a kernel needs: NVRTC takes all for the device's, also what nvcc compiles for the CPU."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tuner.kernel.headers import with_own_headers
from tuner.kernel.source.declarations import Item, Source, read_declarations
from tuner.kernel.source.preprocessor import (
    MAX_SOURCE_BYTES,
    blank,
    preprocessed,
    uncommented,
    without_launches,
)
from tuner.kernel.source.tree import entry_name

_HOSTS = {
    "cout", "cerr", "endl", "printf", "fprintf", "malloc", "free", "new", "delete", "exit", "string", "vector",
}  # fmt: skip
_HAS_HOST_CODE = re.compile(r"<<<|\bmain\s*\(")


def device_part(text: str, entry: str = "") -> str:
    """Return what a kernel needs of a source that has a launch or a ``main``, and another source as it is."""
    has = _HAS_HOST_CODE.search(text) and _HAS_HOST_CODE.search(uncommented(text))
    return needed_part(text, entry) if has else text


@functools.lru_cache(maxsize=16)
def needed_part(text: str, entry: str = "") -> str:
    """Return a source without the declarations that a kernel does not need, as far as names say; its lines stay.

    Args:
        text: the source.
        entry: the kernel; empty for any.

    Raises:
        KernelError: the text is too large.
    """
    source = read_declarations(text, in_place=True)
    in_header = not any(one.kernel for one in source.items)  # whose names are not known here
    arguments = re.findall(r"[A-Za-z_]\w*", re.sub(r"\{\{.*?\}\}", "", entry.removeprefix(entry_name(entry))))
    places = _places(source)
    skipped = [
        words
        for line, words in source.skipped.items()
        if not (of.plain_function if (of := places.get(line)) else _of_host(words))
    ]
    also = source.names if in_header else frozenset(arguments).union(*skipped)
    kept, _ = source.reached(entry_name(entry), also)
    text = without_launches(text, source.macros)
    at, parts = 0, list[str]()
    plain = preprocessed(text).text.encode()
    for item in source.items:
        if item not in kept:
            start, end = (len(plain[:byte].decode()) for byte in (item.node.start_byte, item.node.end_byte))
            parts += [text[at:start], blank(text[start:end], directives=False)]
            at = end
    return "".join([*parts, text[at:]])


def in_all_branches(source: Source, kernel: str) -> set[str]:
    """Return the names that a kernel's code needs, also in branches that are not taken: another value takes these."""
    kept, reached = source.reached(kernel)
    places, others = _places(source), set[str]()
    for line, words in source.skipped.items():
        around = places.get(line)
        of_device = "__device__" in words and "__global__" not in words
        others |= words if (around in kept if around else of_device) else set()
    _, also = source.reached(kernel, others)
    return reached | also | others


def _places(source: Source) -> dict[int, Item]:
    """Return the declaration that stands in each line, from 1; the last of several."""
    rows = ((one, one.node.start_point.row, one.node.end_point.row) for one in source.items)
    return {line: one for one, first, last in rows for line in range(first + 1, last + 2)}


def _of_host(words: frozenset[str]) -> bool:
    """Return whether what is left out at a file's level is code of the host, by its words."""
    return bool(words & _HOSTS) and words.isdisjoint(("__device__", "__global__", "__constant__", "__host__"))


def declared_by(text: str, entry: str, folders: Sequence[Path] = ()) -> frozenset[str]:
    """Return the names that an entry's kernels declare: of their templates' parameters and of arguments.

    Args:
        text: the source.
        entry: names the kernels.
        folders: where its own headers are, one of which may have the kernel.
    """
    name = entry_name(entry)
    found = [one for one in read_declarations(text).kernels if name in (one.name, one.short_name)]
    if not found and folders and "#" in text and (whole := with_own_headers(text, folders, "")) != text:
        return declared_by(whole, entry)
    of_templates = (name for one in found for _, name, _ in one.template)
    return frozenset((*of_templates, *(argument.name for one in found for argument in one.parameters)))


def read_whole(text: str, file: Path | None, include: Sequence[Path] = ()) -> Source:
    """Return what a source declares with its own headers; kernels of headers only where it has none itself.

    Args:
        text: the source.
        file: where it was read from; None for nowhere, then it has no headers of its own.
        include: folders of headers beside its own.

    Raises:
        KernelError: it is too large, or a header is.
    """
    own = read_declarations(text)
    folders = [file.resolve().parent, *include] if file is not None else []
    whole = with_own_headers(text, folders, file.name) if file is not None else text
    if whole == text or len(whole) > MAX_SOURCE_BYTES:
        return own
    lines, read = {one.name: one.line for one in own.kernels}, read_declarations(whole)
    kernels = [replace(one, line=lines[one.name]) for one in read.kernels if one.name in lines]
    return replace(read, kernels=tuple(kernels)) if kernels else read
