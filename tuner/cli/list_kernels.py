"""``tune list``: the built-in kernels."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.kernel.load import builtin_kernels, load_kernel
from tuner.report.next_steps import show_next
from tuner.report.tables import show, show_json

MOST_PRESETS = 6
"""Of a kernel, in a line that still can be read."""


def list_kernels(as_json: bool) -> None:
    """Print the built-in kernels with their variants."""
    kernels = [load_kernel(name) for name in builtin_kernels()]
    rows = [(kernel.name, kernel.summary, list(kernel.variants), list(kernel.presets)) for kernel in kernels]
    if as_json:
        keys = ("kernel", "summary", "variants", "presets")
        show_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    heads = ("kernel", "what it computes", "variants", "presets")
    show(heads, [(name, text, ", ".join(of), _some(name, presets)) for name, text, of, presets in rows])
    show_next({"tune show gemm": "what its variants do", "tune --kernel gemm": "tune it"})


def _some(kernel: str, presets: Sequence[str]) -> str:
    """Return the first presets, and how many more ``tune show`` has."""
    more = len(presets) - MOST_PRESETS
    named = ", ".join(presets[:MOST_PRESETS])
    return f"{named}, and {more} more: tune show {kernel}" if more > 0 else named
