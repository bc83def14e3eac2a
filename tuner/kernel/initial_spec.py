"""Which configurations a search tries first: those that a kernel's file names, and a library's proposals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.core.model import Value
from tuner.expressions.arithmetic import Expression


@dataclass(frozen=True)
class InitialSpec:
    """A configuration to try first, for the problems and GPUs for which ``when`` is true."""

    variant: str
    parameters: Mapping[str, Value | Expression | tuple[Value, ...]]
    """A value, several to choose from, or an expression over the problem, the device's limits and the parameters
    before it; a parameter that is not named has its default."""
    when: Expression | None = None
    """Condition over the problem, the limits and all parameters, as set here; None for always."""
    minimize: Expression | None = None
    """Among several choices, the combination that minimizes this expression over the same names is taken."""
    doc: str = ""
    file: str = ""
    """Name of the file that it stands in."""


@dataclass(frozen=True)
class ProposalSpec:
    """How a library's proposal for a matrix product becomes a configuration of a variant."""

    variant: str
    parameters: Mapping[str, Value | Expression]
    """Values, or expressions over the problem, the device's limits and the proposal, the most important first: the
    nearest valid configuration gives up the last ones first."""
    when: Expression | None = None


@dataclass(frozen=True)
class MatmulSpec:
    """How a kernel is a matrix product, and how proposals for one become its configurations."""

    sizes: Mapping[str, Expression]
    """``m``, ``n`` and ``k`` of C[m, n] = A[m, k] B[k, n], each row-major unless it is transposed."""
    transposed: Mapping[str, Expression]
    """Whether ``a`` and ``b`` are."""
    dtypes: Mapping[str, str]
    """Role or dtype of ``input``, ``accumulate`` and ``output``."""
    into: tuple[ProposalSpec, ...]
    """The first whose ``when`` is true for a proposal takes it."""
    when: Expression | None = None


def evaluated(given: Value | Expression, names: Mapping[str, Any]) -> Any:
    """Return what a parameter is set to.

    Raises:
        ExpressionError: the expression has no value here.
    """
    return given.evaluate(names) if isinstance(given, Expression) else given
