"""The alternatives to each value of a configuration: one parameter changes, and as little else as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.core.errors import UsageError, suggestion
from tuner.core.model import Configuration, Gpu, Problem, Value
from tuner.kernel.plan import invalid_reason, pruning_reason
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import typed


@dataclass(frozen=True)
class Change:
    """One parameter with another value."""

    parameter: str
    value: Value
    configuration: Configuration
    objection: str = ""
    """Why the configuration is not valid; empty if it is."""
    besides: tuple[str, Value] | None = None
    """Another parameter that had to change with it, and its value."""
    unsearched: str = ""
    """Why a search would not try it; empty if it would."""

    @property
    def name(self) -> str:
        """As tables show it."""
        besides = f" {self.besides[0]}={self.besides[1]}" if self.besides else ""
        return f"{self.parameter}={self.value}{besides}"


def changes(
    kernel: KernelSpec,
    problem: Problem,
    gpu: Gpu,
    configuration: Configuration,
    only: Sequence[str] = (),
) -> list[Change]:
    """Return every other value of each parameter, with everything else as it is, or as little else changed as can be.

    Args:
        kernel: whose configuration it is.
        problem: for which it is to be valid.
        gpu: on which.
        configuration: where to start.
        only: names of parameters; all when empty.

    Raises:
        UsageError: no such parameter.
    """
    variant = kernel.variants[configuration.variant]
    for name in only:
        if name not in variant.parameters:
            raise UsageError(
                f"{variant.name} has no parameter {name!r}", suggestion(name, variant.parameters)
            )
    return [
        _change(kernel, problem, gpu, configuration, name, value)
        for name, parameter in variant.parameters.items()
        if not only or name in only
        for value in parameter.values
        if typed(value) != typed(configuration.values[name])
    ]


def _change(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration, name: str, value: Value
) -> Change:
    changed = Configuration.of(configuration.variant, {**configuration.values, name: value})
    reason = invalid_reason(kernel, problem, gpu, changed)
    besides = _companion(kernel, problem, gpu, changed, name) if reason else None
    if besides is not None:
        changed = Configuration.of(changed.variant, {**changed.values, besides[0]: besides[1]})
        reason = ""
    left_out = "" if reason else pruning_reason(kernel, problem, gpu, changed)
    return Change(name, value, changed, reason, besides, left_out)


def _companion(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, changed: Configuration, kept: str
) -> tuple[str, Value] | None:
    """Return the change of one more parameter that makes a configuration valid: the one with the fewest steps in its
    parameter's list of values, of equals the first in the kernel's file; None if there is none."""
    steps: list[tuple[int, str, Value]] = []
    for name, parameter in kernel.variants[changed.variant].parameters.items():
        if name != kept:
            here = next(
                i for i, one in enumerate(parameter.values) if typed(one) == typed(changed.values[name])
            )
            steps += [
                (abs(there - here), name, value)
                for there, value in enumerate(parameter.values)
                if there != here
            ]
    for _, name, value in sorted(steps, key=lambda step: step[0]):
        other = Configuration.of(changed.variant, {**changed.values, name: value})
        if not invalid_reason(kernel, problem, gpu, other):
            return name, value
    return None
