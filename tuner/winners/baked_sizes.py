"""Which sizes a configuration's sources hold: they are right for these alone, where those of built-in kernels are
arguments."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

from tuner.core.errors import KernelError
from tuner.kernel.contents import template_texts
from tuner.kernel.render import problem_names
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import LaunchSpec


def baked_sizes(kernel: KernelSpec, launches: Iterable[LaunchSpec]) -> list[str]:
    """Return the sizes that the sources or the entries of launches may hold, in the kernel's order.

    Sizes reach a template by the name ``problem`` alone; a plain ``.cu`` gets none.
    """
    sizes: set[str] = set()
    for launch in launches:
        texts = [launch.entry]
        if launch.template.suffix == ".j2":
            texts += template_texts(kernel.folder, launch.template)
        for text in texts:
            used = _problem_names(text, kernel.folder)
            sizes |= kernel.sizes.keys() if used is None else used
    return [name for name in kernel.sizes if name in sizes]


@functools.lru_cache(maxsize=256)
def _problem_names(text: str, folder: Path) -> frozenset[str] | None:
    """Return the sizes that a template takes from ``problem``; None where they are not known. Parsing takes 3 ms."""
    try:
        names = problem_names(text, folder)
    except KernelError:  # of a file beside the template, which may be included
        return None
    return None if names is None else frozenset(names)
