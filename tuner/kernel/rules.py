"""Rules of thumb about block sizes, as constraints that a user can switch on: the funnel of the element-wise texts.

None of them is a law: a kernel that keeps enough bytes under way with few threads, or its operands in registers, breaks
them and wins. They are conditions in the language of kernels, over the threads of a launch's block and, where the
compiler must have spoken first, its registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.errors import UsageError, suggestion
from tuner.expressions.arithmetic import Expression, parse
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import LaunchSpec, VariantSpec
from tuner.model import digest

ALL = "all"
PREFIX = "rule of thumb"
"""How the reason of such a constraint begins."""


@dataclass(frozen=True)
class Rule:
    """A rule of thumb."""

    name: str
    doc: str
    """What it demands of a block."""
    why: str
    condition: str
    """With ``{threads}`` where the number of a block's threads belongs."""
    compiled: bool = False
    """Whether it can be judged only after compiling."""

    def of(self, threads: str) -> Expression:
        """Return the condition for a block of so many threads, as an expression or a number."""
        return parse(self.condition.format(threads=f"({threads})"))


RULES = {
    rule.name: rule
    for rule in (
        Rule(
            "warp_multiple",
            "a block is a whole number of warps",
            "the last warp's missing threads cost registers and issue slots all the same",
            "{threads} % 32 == 0",
        ),
        Rule(
            "occupancy",
            "as many blocks as an SM has slots for can fill its threads",
            "smaller blocks leave threads of the SM without work, however few registers they take",
            "{threads} * max_blocks_per_sm >= max_threads_per_sm",
        ),
        Rule(
            "divides_sm",
            "whole blocks fill the threads of an SM",
            "what is left over when the threads of an SM are no multiple of the block's stays empty",
            "max_threads_per_sm % {threads} == 0",
        ),
        Rule(
            "registers",
            "the registers allow as many blocks as the threads do",
            "registers are handed out by warps, and run out before the threads of the SM do",
            # Warps that the registers of an SM's four parts allow, against blocks that its threads and slots allow.
            "registers_per_sm // 4 // (32 * round_up(max(registers, 1), 8)) * 4 // ceil_div({threads}, 32)"
            " >= min(max_threads_per_sm // (32 * ceil_div({threads}, 32)), max_blocks_per_sm)",
            compiled=True,
        ),
    )
}
"""In the order of the funnel."""


def parse_rules(texts: Iterable[str]) -> tuple[str, ...]:
    """Read names of rules: several with commas between, or ``all``.

    Raises:
        UsageError: there is no such rule.
    """
    asked = [name.strip() for text in texts for name in text.split(",")]
    for name in asked:
        if name not in (*RULES, ALL):
            raise UsageError(f"there is no rule of thumb {name!r}", suggestion(name, [*RULES, ALL]))
    return tuple(name for name in RULES if name in asked or ALL in asked)


def with_rules(kernel: KernelSpec, names: Sequence[str]) -> KernelSpec:
    """Return the kernel with some rules as further conditions of each variant, one for each of its launches.

    They say what is worth trying; one that is judged after compiling is a constraint.

    A rule that is judged after compiling makes failures of configurations that are none without it: such a kernel has
    another digest, so that a later run without the rule does not believe them.
    """
    if not names:
        return kernel
    compiled = [name for name in names if RULES[name].compiled]
    at_once = [name for name in names if not RULES[name].compiled]
    variants = {
        variant.name: replace(
            variant,
            constraints=(*variant.constraints, *_conditions(variant, compiled)),
            pruning_rules=(*variant.pruning_rules, *_conditions(variant, at_once)),
        )
        for variant in kernel.variants.values()
    }
    new = digest([kernel.digest, "rules of thumb", compiled]) if compiled else kernel.digest
    return replace(kernel, variants=variants, digest=new)


def _conditions(variant: VariantSpec, names: Sequence[str]) -> list[tuple[str, Expression]]:
    several = len(variant.launches) > 1
    return [
        (
            f"{PREFIX} {name}{f', launch {number}' if several else ''}: {RULES[name].doc}",
            _condition(name, launch),
        )
        for name in names
        for number, launch in enumerate(variant.launches, 1)
    ]


def _condition(name: str, launch: LaunchSpec) -> Expression:
    """Return what a rule demands of a launch: nothing where there is no such launch."""
    condition = RULES[name].of(threads_of(launch))
    if launch.when is None:
        return condition
    return parse(f"not ({launch.when.text}) or ({condition.text})")


def threads_of(launch: LaunchSpec) -> str:
    """Return the number of a block's threads as an expression."""
    return " * ".join(f"({extent.text})" for extent in launch.block)


@dataclass(frozen=True)
class Excluded:
    """What rules exclude of a variant's valid configurations."""

    by: Mapping[str, int | None]
    """Each rule by itself; None for one that is judged after compiling."""
    left: int
    """What all of them together leave, before compiling."""


def excluded(
    variant: VariantSpec, matrix: NDArray[Any], constants: Mapping[str, Any], names: Sequence[str]
) -> Excluded:
    """Count what rules exclude.

    Args:
        variant: without the rules.
        matrix: its valid rows, as :class:`tuner.space.enumeration.Valid` has them.
        constants: the names that are the same for all of them.
        names: of the rules.
    """
    values = {
        name: np.array(parameter.values)[column]
        for (name, parameter), column in zip(variant.parameters.items(), matrix.T, strict=True)
    }
    columns = {
        name: array.astype(np.int64) if array.dtype == bool else array for name, array in values.items()
    }
    by: dict[str, int | None] = {}
    kept = np.ones(len(matrix), dtype=bool)
    for name in names:
        if RULES[name].compiled:
            by[name] = None
            continue
        holds = np.ones(len(matrix), dtype=bool)
        for launch in variant.launches:
            found = _condition(name, launch).holds_many({**constants, **columns})
            holds &= np.broadcast_to(found, holds.shape)
        by[name] = int(len(matrix) - np.count_nonzero(holds))
        kept &= holds
    return Excluded(by, int(np.count_nonzero(kept)))
