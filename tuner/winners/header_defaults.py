"""Which configuration the tuner takes by default, for every compute capability and size, as a list to try in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from tuner.core.model import Configuration, Gpu, Problem
from tuner.kernel.default import default_configurations
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.spec import KernelSpec
from tuner.winners.header_conditions import Launchable, launchable

LAST = 999
"""Beyond every compute capability."""


@dataclass(frozen=True)
class Default:
    """A configuration to take by default where it is valid, and no default before it is.

    Attributes:
        first: compute capability from which on it may be taken.
        last: the last for which it may.
        problem: whose dtypes and options it is for, whatever the sizes and element expressions.
        configuration: of the kernel.
        launchable: when it is valid.
    """

    first: int
    last: int
    problem: Problem
    configuration: Configuration
    launchable: Launchable


def defaults_of(kernel: KernelSpec, gpus: Iterable[Gpu]) -> list[Default]:
    """Return the defaults for all dtypes and options of a kernel, the first that is valid being the tuner's own.

    With element expressions, those count whose conditions are the same for all of several expressions.

    Args:
        kernel: has the variants.
        gpus: whose limits hold for their compute capability; a typical card's for others. A compute capability that
            is not known is taken for the next lower one.
    """
    of_cc = {**ARCHITECTURES, **{gpu.cc: gpu for gpu in gpus}}
    rows: list[Default] = []
    for kind in kinds_of(kernel):
        changes: list[tuple[int, list[tuple[Configuration, Launchable]]]] = []
        for cc, gpu in sorted(of_cc.items()):
            now = list(_in_order(kernel, kind, gpu))
            if not changes or changes[-1][1] != now:
                changes.append((cc, now))
        ends = [cc - 1 for cc, _ in changes[1:]] + [LAST]
        rows += [
            Default(cc, end, _open(kernel, kind), configuration, when)
            for (cc, several), end in zip(changes, ends, strict=True)
            for configuration, when in several
        ]
    return rows


def _open(kernel: KernelSpec, kind: Problem) -> Problem:
    """Return a problem without its element expressions."""
    options = {name: value for name, value in kind.options.items() if name not in kernel.elements}
    return replace(kind, options=options)


def kinds_of(kernel: KernelSpec) -> list[Problem]:
    """Return a problem for each combination of dtypes and options; element expressions keep their default."""
    roles = {role: choices for role, choices in kernel.dtypes.items() if not isinstance(choices, str)}
    options = {name: values for name, values in kernel.options.items() if name not in kernel.elements}
    return [
        kernel.problem(
            dtypes=dict(zip(roles, dtypes, strict=True)), options=dict(zip(options, values, strict=True))
        )
        for dtypes in product(*roles.values())
        for values in product(*options.values())
    ]


def _in_order(kernel: KernelSpec, kind: Problem, gpu: Gpu) -> Iterator[tuple[Configuration, Launchable]]:
    """Yield the default configurations of problems of one kind, the preferred first, each with its conditions."""
    for _, default in default_configurations(kernel, kind, gpu):
        cases = {launchable(kernel, each, gpu, default, searched=True) for each in _expressions(kernel, kind)}
        when = cases.pop()
        if when is not None and not cases:
            yield default, when


def _expressions(kernel: KernelSpec, kind: Problem) -> Iterator[Problem]:
    """Yield the problem with each name alone in its element expressions, and with all in short and in long ones."""
    yield kind
    for option, names in kernel.elements.items():
        every = " + ".join(names)
        for text in (*names, every, " + ".join([every] * 20)):
            yield replace(kind, options={**kind.options, option: kernel.element(option, text)})
