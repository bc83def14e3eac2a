"""Which sizes a configuration's sources hold: they are right for these alone, where those of built-in kernels are
arguments."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.errors import KernelError
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
            try:
                used = problem_names(text, kernel.folder)
            except KernelError:  # of a file beside the template, which may be included: it is not known
                used = None
            sizes |= kernel.sizes.keys() if used is None else used
    return [name for name in kernel.sizes if name in sizes]
