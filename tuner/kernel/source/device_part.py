"""What of a CUDA source a kernel needs: NVRTC takes all for the device's, also what nvcc compiles for the CPU."""

from __future__ import annotations

import functools
import re

from tuner.kernel.source.declarations import read_declarations
from tuner.kernel.source.preprocessor import blank, preprocessed, uncommented
from tuner.kernel.source.tree import entry_name

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
    source = read_declarations(text)
    kept, _ = source.reached(entry_name(entry), source.skipped)
    at, parts = 0, list[str]()
    plain = preprocessed(text).text.encode()
    for item in source.items:
        if item not in kept:
            start, end = (len(plain[:byte].decode()) for byte in (item.node.start_byte, item.node.end_byte))
            parts += [text[at:start], blank(text[start:end], directives=False)]
            at = end
    return "".join([*parts, text[at:]])


def declared_by(text: str, entry: str) -> frozenset[str]:
    """Return the names that an entry's kernels declare: of their templates' parameters and of arguments."""
    name = entry_name(entry)
    found = [one for one in read_declarations(text).kernels if name in (one.name, one.short_name)]
    of_templates = (name for one in found for _, name in one.template)
    return frozenset((*of_templates, *(argument.name for one in found for argument in one.parameters)))
