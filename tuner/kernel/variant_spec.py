"""How a kernel is computed: its variants, their parameters, constraints, scratch memory and launches.

Expressions stay unevaluated here; ``tuner.kernel.plan`` evaluates them for one configuration. Launches and scratch
memory are entries as a bundle has them (``tuner.runtime.entries``).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.core.model import Value
from tuner.expressions.arithmetic import Expression
from tuner.kernel.functions import PythonFunction
from tuner.runtime.entries import LaunchEntry, ScratchEntry
from tuner.runtime.launch_limits import DEVICE_LIMITS

RESOURCE_NAMES = (
    "registers", "static_shared_bytes", "dynamic_shared_bytes", "stack_bytes", "spill_bytes",
    "active_blocks",
)  # fmt: skip
"""What the compiler reports: fields of :class:`tuner.core.model.Resources`. Only constraints may use them;
they are checked after compiling."""


def own_first(names: Iterable[str]) -> list[str]:
    """Return names for a message: those of the kernel's file before those of devices and of the compiler."""
    return sorted(names, key=lambda name: (name in DEVICE_LIMITS or name in RESOURCE_NAMES, name))


@dataclass(frozen=True)
class ParameterSpec:
    """A tunable parameter: its values in order."""

    name: str
    values: tuple[Value, ...]
    default: Value
    doc: str = ""


@dataclass(frozen=True)
class LaunchSpec(LaunchEntry):
    """One kernel launch of a variant, with the file that it is rendered from."""

    template: Path = Path()

    @property
    def condition(self) -> str:
        """Where it is launched, as far as no pass of its loops decides that; empty for everywhere."""
        texts = [f"({loop.count.text}) > 0" for loop in self.repeat if not loop.count.names & self.varying]
        if self.when is not None and not self.when.names & self.varying:
            texts.append(f"({self.when.text})")
        return " and ".join(texts)


Constraints = tuple[tuple[str, Expression], ...]
"""Pairs of the reason shown to users and the condition that must be true."""


def first_unmet(constraints: Constraints, names: Mapping[str, Any]) -> str | None:
    """Return the reason of the first condition that does not hold; None if all do."""
    return next((reason for reason, condition in constraints if not condition.holds(names)), None)


@dataclass(frozen=True)
class VariantSpec:
    """One way to compute the kernel."""

    name: str
    summary: str
    requires: Expression | None
    parameters: Mapping[str, ParameterSpec]
    constraints: Constraints
    scratch: tuple[ScratchEntry, ...]
    launches: tuple[LaunchSpec, ...]
    listed: Sequence[Sequence[int]] | None = field(default=None, compare=False)
    """All valid combinations, as indices of the values, if they are listed instead of described."""
    pruning_rules: Constraints = ()
    """Where one is false, a configuration is valid, but no search tries it."""
    requirements: Constraints = ()
    """What :attr:`requires` joins; none where the file gives no reasons."""
    state: tuple[str, ...] = ()
    """Variables of its code that may differ after a run."""
    compile_options: tuple[str, ...] = ()
    """Of this variant alone, as the file has them."""
    call: PythonFunction | None = None
    """A function that computes it on the GPU, or builds what does, in place of launches."""

    def columns(self, matrix: NDArray[Any], names: Container[str]) -> dict[str, NDArray[Any]]:
        """Return the values of those parameters that are named, for rows of indices, as an expression takes them."""
        return {
            name: value_array(parameter.values)[column]
            for (name, parameter), column in zip(self.parameters.items(), matrix.T, strict=True)
            if name in names
        }

    def is_usable(self, names: Mapping[str, Any]) -> bool:
        """Return whether a problem and a GPU have what the variant requires."""
        return self.requires is None or bool(self.requires.evaluate(names))

    def refused(self, names: Mapping[str, Any]) -> str:
        """Return what a problem and a GPU lack for the variant, in words where the file has them; empty if nothing."""
        if self.is_usable(names):
            return ""
        assert self.requires is not None
        unmet = [reason for reason, condition in self.requirements if not condition.holds(names)]
        return f"needs {' and '.join(unmet)}" if unmet else f"requires {self.requires.written}"

    @cached_property
    def constraints_before(self) -> Constraints:
        """The constraints that can be checked before compiling."""
        return tuple(c for c in self.constraints if c[1].names.isdisjoint(RESOURCE_NAMES))

    @cached_property
    def search_conditions(self) -> Constraints:
        """The conditions on configurations that a search may try, checked before compiling."""
        return (*self.constraints_before, *self.pruning_rules)

    @cached_property
    def constraints_after(self) -> Constraints:
        """The constraints that need what the compiler reports."""
        return tuple(c for c in self.constraints if not c[1].names.isdisjoint(RESOURCE_NAMES))

    @property
    def defaults(self) -> dict[str, Value]:
        """The default value of each parameter."""
        return {name: parameter.default for name, parameter in self.parameters.items()}


Typed = tuple[type, Value]
"""A value as a dictionary's key: ``True == 1 == 1.0`` in Python, but as values of a parameter only 1 and 1.0 are
equal."""


def typed(value: Value) -> Typed:
    """Return a value as a key: a file may turn an integer into a float, but not a boolean into a number."""
    return (type(value) if isinstance(value, bool | str) else float, value)


def indices(values: Iterable[Value]) -> dict[Typed, int]:
    """Return the index of each value in a list of values."""
    return {typed(value): index for index, value in enumerate(values)}


def value_array(values: Sequence[Value]) -> NDArray[Any]:
    """Return values as an array to calculate with: booleans as 0 and 1, since NumPy adds them with "or"."""
    array = np.array(values)
    return array.astype(np.int64) if array.dtype == bool else array


def index_of(value: Any, values: Iterable[Value]) -> int | None:
    """Return the index of a value in a list, or None: a whole number may be a float, a boolean is not a number."""
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, bool | int | float | str):
        return None
    return indices(values).get(typed(value))


def index_of_text(value: Value, values: Iterable[Value]) -> int | None:
    """Return the index of a value in a list, or None; text from the command line may stand for any type."""
    values = tuple(values)
    if (index := index_of(value, values)) is not None or not isinstance(value, str):
        return index
    words = {True: ("true", "yes"), False: ("false", "no")}
    texts = [words[v] if isinstance(v, bool) else (str(v).lower(),) for v in values]
    return next((index for index, text in enumerate(texts) if value.strip().lower() in text), None)
