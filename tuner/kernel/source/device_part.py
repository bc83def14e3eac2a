"""What of a CUDA source only the CPU compiles: nvcc leaves it out, NVRTC takes every function for the device's."""

from __future__ import annotations

import functools
import re

from tuner.kernel.source.signature import Source, read_signatures

_HAS_SOME = re.compile(r"<<<|\bmain\s*\(")
_HEADERS = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*(?:<(?!cuda/|cub/|thrust/|nv/|cute/|cutlass/)[\w/]+>"
    r"|<(?:std\w+|math|string|time|assert|float|limits|errno|unistd|sys/\w+|omp)\.h>"
    r"|[<\"](?:cuda|cuda_runtime\w*|cuda_profiler_api|device_launch_parameters|helper_\w+|cu(?:blas|rand|fft|solver|sparse)\w*|nvToolsExt)\.h[>\"])"
    r"|^[ \t]*using[ \t]+namespace[ \t]+std[ \t]*;",
    re.MULTILINE,
)
"""Headers of C++, of the operating system and of CUDA's libraries, of which NVRTC has none."""


@functools.lru_cache(maxsize=16)
def device_part(text: str) -> str:
    """Return a source without what only the CPU compiles, if it has a launch or a ``main``; its lines stay.

    Left out are functions that no code of the device names, and headers that NVRTC does not have.
    """
    if not _HAS_SOME.search(text):
        return text
    source = read_signatures(text)
    kept = _reached(source)
    for function in reversed(source.functions):
        if function.name not in kept:
            start, last = function.tokens[0].at, function.tokens[-1]
            end = last.at + len(last.text)
            text = text[:start] + _blank(text[start:end]) + text[end:]
    return _HEADERS.sub(lambda match: _blank(match[0]), text)


def _reached(source: Source) -> set[str]:
    """Return the names that code of the device uses, and functions that it calls use in turn."""
    plain = {token.at for function in source.functions for token in function.tokens}
    names = {token.text for token in source.tokens if token.at not in plain}
    names |= {
        word
        for macro in source.macros.values()
        if macro.name in names
        for word in re.findall(r"\w+", macro.value)
    }
    while True:
        more = {
            token.text
            for function in source.functions
            if function.name in names and function.name != "main"
            for token in function.tokens
        }
        if more <= names:
            return names - {"main"}
        names |= more


def _blank(text: str) -> str:
    return "\n" * text.count("\n")
