"""What of a CUDA source a kernel needs: NVRTC takes all for the device's, also what nvcc compiles for the CPU."""

from __future__ import annotations

import functools
import re

from tuner.kernel.source.declarations import read_declarations
from tuner.kernel.source.preprocessor import blank, preprocessed

_HAS_HOST_CODE = re.compile(r"<<<|\bmain\s*\(")
_HEADERS = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*(?:<(?!cuda/|cub/|thrust/|nv/|cute/|cutlass/)[\w/]+>"
    r"|<(?:std\w+|math|string|time|assert|float|limits|errno|unistd|sys/\w+|omp)\.h>"
    r"|[<\"](?:cuda|cuda_runtime\w*|cuda_profiler_api|device_launch_parameters|helper_\w+|cu(?:blas|rand|fft|solver|sparse)\w*|nvToolsExt)\.h[>\"])"
    r"|^[ \t]*using[ \t]+namespace[ \t]+std[ \t]*;",
    re.MULTILINE,
)
"""Headers of C++, of the operating system and of CUDA's libraries, of which NVRTC has none."""


def device_part(text: str, entry: str = "") -> str:
    """Return a source without what only the CPU compiles, if it has a launch or a ``main``; its lines stay.

    Left out are declarations that the kernel does not need, as far as names say, and headers that NVRTC does not have.

    Args:
        text: the source.
        entry: the kernel; empty for any.
    """
    if not _HAS_HOST_CODE.search(text):
        return text
    return _HEADERS.sub(lambda match: blank(match[0]), needed_part(text, entry))


@functools.lru_cache(maxsize=16)
def needed_part(text: str, entry: str = "") -> str:
    """Return a source without the declarations that a kernel does not need, as far as names say; its lines stay."""
    source = read_declarations(text)
    kept, _ = source.reached(re.split(r"[<({]", entry)[0].strip())
    at, parts = 0, list[str]()
    plain = preprocessed(text).text.encode()
    for item in source.items:
        if item not in kept:
            start, end = (len(plain[:byte].decode()) for byte in (item.node.start_byte, item.node.end_byte))
            parts += [text[at:start], blank(text[start:end], directives=False)]
            at = end
    return "".join([*parts, text[at:]])
