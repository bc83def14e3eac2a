"""A kernel's reference for one problem: the correct outputs, and how far a kernel's may be off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.core.errors import KernelError
from tuner.core.model import Gpu, Problem
from tuner.expressions.array import Array, ArrayExpression
from tuner.kernel.functions import PythonFunction
from tuner.kernel.spec import KernelSpec


@dataclass(frozen=True)
class Expected:
    """The expected values of one output, in the shape that the kernel means."""

    value: Array
    magnitude: Array
    """What rounding errors are proportional to: see :func:`tuner.kernel.tolerance.tolerance`."""


@dataclass(frozen=True)
class SettledReference:
    """The reference for one problem."""

    numpy: Mapping[str, ArrayExpression]
    """Expression for each output that the problem has."""
    golden: Mapping[str, Path]
    reduction: int
    accumulate: str
    tolerance: float
    operand_rounding: float
    python: PythonFunction | None = None
    """For the outputs without an expression."""


def numpy_of(kernel: KernelSpec, problem: Problem) -> dict[str, ArrayExpression]:
    """Return the NumPy expression of each output, with options and element expressions replaced by the problem's.

    Raises:
        KernelError: an expression uses a tensor that the problem lacks.
    """
    present = kernel.present(problem)
    texts = {name: str(problem.options[name]) for name in kernel.elements}
    expressions = {}
    for output, expression in kernel.reference.numpy.items():
        if output not in present:
            continue
        settled = expression.settled({**problem.dtypes, **problem.options}, texts)
        for name in sorted(settled.names & (kernel.tensors.keys() - present.keys())):
            raise KernelError(
                f"the numpy reference of {output} uses {name}, which is absent for {problem}",
                f"correct {name}'s when, or the reference",
            )
        expressions[output] = settled
    return expressions


def settle_reference(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> SettledReference:
    """Return a kernel's reference for a problem.

    Raises:
        KernelError: the tolerance or the rounding is out of range.
    """
    reference = kernel.reference
    names = kernel.environment(problem, gpu)
    tolerance = reference.tolerance.number(names)
    if tolerance <= 0.0:
        raise KernelError(
            f"{reference.tolerance.where}: {reference.tolerance.text} = {tolerance}", "it is a factor above 0"
        )
    rounding = reference.operand_rounding.number(names)
    if not 0.0 <= rounding < 1.0:
        raise KernelError(
            f"{reference.operand_rounding.where}: {reference.operand_rounding.text} = {rounding}",
            "it is a relative error, such as 2**-10",
        )
    return SettledReference(
        numpy_of(kernel, problem),
        {name: path for name, path in reference.golden.items() if name in kernel.present(problem)},
        int(reference.reduction.number(names)) if reference.reduction else 1,
        problem.dtypes.get(reference.accumulate, reference.accumulate),
        tolerance,
        rounding,
        reference.python,
    )
