"""A configuration as people read it: what differs from its variant's default, or all of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from tuner.core.errors import TunerError
from tuner.core.model import Configuration, Run, Value, value_text
from tuner.formats.results import ABSENT
from tuner.kernel.load import builtin_kernels, kernel_of_run, load_kernel
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec


def head_of(name: str, *, full: bool) -> str:
    """Return the head of a column of :meth:`Texts.cell`."""
    return name if full else f"{name} (else default)"


def differing(configuration: Configuration, defaults: Mapping[str, Value] | None) -> dict[str, Value]:
    """Return the parameters that differ from the variant's default; all where that is not known, or has others."""
    values = configuration.values
    if defaults is None or defaults.keys() != values.keys():
        return values
    return {name: value for name, value in values.items() if value != defaults[name]}


class Texts:
    """The texts of one kernel's configurations.

    Args:
        defaults: values of the parameters, by variant; where a variant has none, all parameters are named.
        foreign: another tool's configurations, of which all parameters are named that each has: variants and defaults
            are unknown.
    """

    def __init__(
        self, defaults: Mapping[str, Mapping[str, Value]] | None = None, *, foreign: bool = False
    ) -> None:
        self._defaults, self._foreign = defaults or {}, foreign
        self.full = not self._defaults
        """Whether all parameters are named."""

    @classmethod
    def of_kernel(cls, kernel: KernelSpec | None, *, full: bool = False) -> Texts:
        """Return those of a kernel; with ``full`` or without a kernel all parameters are named."""
        if full or kernel is None:
            return cls()
        return cls({variant.name: variant.defaults for variant in kernel.variants.values()})

    @classmethod
    def of_space(cls, space: SearchSpace, *, full: bool = False, foreign: bool = False) -> Texts:
        """Return those of a search space; another tool's (``foreign``) has no defaults, so all parameters are named."""
        if full or foreign:
            return cls(foreign=foreign)
        return cls({v.name: {p.name: p.default for p in v.parameters} for v in space.variants})

    def defaults(self, variant: str) -> Mapping[str, Value]:
        """Return a variant's default values; nothing where they are not known."""
        return self._defaults.get(variant, {})

    def cell(self, configuration: Configuration) -> str:
        """Return variant and values; what is not named is the default, which ``--config`` means, too."""
        shown = differing(configuration, self._defaults.get(configuration.variant))
        if self._foreign:
            return " ".join(f"{n}={value_text(v)}" for n, v in shown.items() if v != ABSENT)
        return " ".join([configuration.variant, *(f"{n}={value_text(v)}" for n, v in shown.items())])

    def __call__(self, configuration: Configuration) -> str:
        """Return the same, and how many parameters are not named."""
        shown = differing(configuration, self._defaults.get(configuration.variant))
        rest = len(configuration.parameters) - len(shown)
        text = self.cell(configuration)
        if not rest:
            return text
        others = f"{rest} other{'s' if rest > 1 else ''} default"
        return f"{text}, {others}" if shown else f"{text}, all default"


def builtin(name: str) -> KernelSpec | None:
    """Return the built-in kernel of a name; None where there is none."""
    return load_kernel(name) if name in builtin_kernels() else None


class StoredTexts:
    """The texts of configurations of stored runs; of a kernel whose file is gone they name all parameters.

    Args:
        full: whether all parameters are named.
    """

    def __init__(self, *, full: bool = False) -> None:
        self._full = full
        self._texts: dict[tuple[str, str, str], Texts] = {}

    def of(self, run: Run) -> Texts:
        """Return those of a run's kernel."""
        key = run.problem.kernel, run.kernel_file, run.foreign
        if key not in self._texts:
            kernel: KernelSpec | None = None
            if not (self._full or run.foreign):
                with suppress(TunerError):
                    kernel = kernel_of_run(run)
            self._texts[key] = Texts(foreign=True) if run.foreign else Texts.of_kernel(kernel)
        return self._texts[key]
