"""Which configurations a search tries first: those that a kernel's file names, and a library's proposals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.expressions.arithmetic import Expression
from tuner.model import Value


@dataclass(frozen=True)
class InitialSpec:
    """A configuration that is worth trying first, for the problems and GPUs for which it holds."""

    variant: str
    parameters: Mapping[str, Value | Expression | tuple[Value, ...]]
    """Values, several to choose from, or expressions over the problem, the device's limits and the parameters before
    them; the defaults for those that are not named."""
    when: Expression | None = None
    """Over the problem, the limits and all parameters, as the seed sets them."""
    minimize: Expression | None = None
    """Of several choices that is taken which has the least of this, an expression over the same."""
    doc: str = ""


@dataclass(frozen=True)
class ProposalSpec:
    """How a library's proposal for a product becomes a configuration of a variant."""

    variant: str
    parameters: Mapping[str, Value | Expression]
    """Values, or expressions over the problem, the device's limits and the proposal, the most important first; where
    no configuration has all of them, the last ones give way."""
    when: Expression | None = None


@dataclass(frozen=True)
class MatmulSpec:
    """In what way a kernel is a product of matrices, and what becomes of the proposals for one."""

    sizes: Mapping[str, Expression]
    """``m``, ``n`` and ``k`` of C[m, n] = A[m, k] B[k, n], each row-major unless it is transposed."""
    transposed: Mapping[str, Expression]
    """Whether ``a`` and ``b`` are."""
    dtypes: Mapping[str, str]
    """Role or dtype of ``input``, ``accumulate`` and ``output``."""
    into: tuple[ProposalSpec, ...]
    """The first that holds for a proposal takes it."""
    when: Expression | None = None
