"""Rules of thumb about block sizes that a user can switch on: pruning rules, or constraints checked after compiling.

They do not always hold: a kernel with enough bytes in flight from few threads, or with its operands in registers, can
break them and be the fastest. They are conditions in the language of kernel files, over the threads of a launch's block
and, for those checked after compiling, its registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.core.errors import UsageError, suggestion
from tuner.core.model import digest
from tuner.expressions.arithmetic import Expression, parse
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import LaunchSpec, VariantSpec

ALL = "all"
PREFIX = "rule of thumb"
"""The first words of the reason of such a condition."""


@dataclass(frozen=True)
class Rule:
    """A rule of thumb."""

    name: str
    doc: str
    """What it requires of a block."""
    why: str
    condition: str
    """An expression, with ``{threads}`` for the number of a block's threads."""
    compiled: bool = False
    """Whether it can be checked only after compiling."""

    def of(self, threads: str) -> Expression:
        """Return the condition for a block.

        Args:
            threads: the number of its threads, as an expression.
        """
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
            "the remainder stays empty if the threads of an SM are no multiple of the block's",
            "max_threads_per_sm % {threads} == 0",
        ),
        Rule(
            "registers",
            "the registers allow as many blocks as the threads do",
            "registers are allocated by warps, and may run out before the threads of the SM do",
            # Warps that the registers of an SM's four parts allow, against blocks that its threads and slots allow.
            "registers_per_sm // 4 // (32 * round_up(max(registers, 1), 8)) * 4 // ceil_div({threads}, 32)"
            " >= min(max_threads_per_sm // (32 * ceil_div({threads}, 32)), max_blocks_per_sm)",
            compiled=True,
        ),
    )
}
"""In the order in which they are applied."""


def parse_rules(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the rules that texts name, each several with commas between, or ``all``.

    Raises:
        UsageError: there is no such rule.
    """
    chosen = [name.strip() for text in texts for name in text.split(",")]
    for name in chosen:
        if name not in (*RULES, ALL):
            raise UsageError(f"there is no rule of thumb {name!r}", suggestion(name, [*RULES, ALL]))
    return tuple(name for name in RULES if name in chosen or ALL in chosen)


def with_rules(kernel: KernelSpec, names: Sequence[str]) -> KernelSpec:
    """Return the kernel with rules added to each variant, one condition for each of its launches.

    A rule becomes a pruning rule, or a constraint if it is checked after compiling. With the latter, configurations
    fail that are valid without it; so the kernel gets another digest, and later runs without the rule ignore them.
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
        if not _varies(launch)
    ]


def _condition(name: str, launch: LaunchSpec) -> Expression:
    """Return a rule's condition on a launch; it is true where the launch is left out."""
    condition = RULES[name].of(threads_of(launch))
    return parse(f"not ({launch.condition}) or ({condition.text})") if launch.condition else condition


def _varies(launch: LaunchSpec) -> bool:
    """Return whether its block differs from pass to pass of a loop, so that no rule holds for all of them."""
    return any(side.names & launch.varying for side in launch.block)


def threads_of(launch: LaunchSpec) -> str:
    """Return the number of a block's threads as an expression."""
    return " * ".join(f"({extent.text})" for extent in launch.block)


@dataclass(frozen=True)
class Excluded:
    """How many of a variant's valid configurations the rules exclude."""

    by: Mapping[str, int | None]
    """By rule, each by itself; None for one that is checked after compiling."""
    left: int
    """Configurations that meet all rules that can be checked before compiling."""


def excluded(
    variant: VariantSpec, matrix: NDArray[Any], constants: Mapping[str, Any], names: Sequence[str]
) -> Excluded:
    """Return how many of a variant's valid configurations rules exclude.

    Args:
        variant: without the rules.
        matrix: its valid rows, as in :class:`tuner.kernel.enumeration.Valid`.
        constants: values of names that are the same for all rows.
        names: of the rules.
    """
    columns = variant.columns(matrix, variant.parameters)
    by: dict[str, int | None] = {}
    kept = np.ones(len(matrix), dtype=bool)
    for name in names:
        if RULES[name].compiled:
            by[name] = None
            continue
        holds = np.ones(len(matrix), dtype=bool)
        for launch in (one for one in variant.launches if not _varies(one)):
            holds &= np.broadcast_to(
                _condition(name, launch).holds_many({**constants, **columns}), holds.shape
            )
        by[name] = int(len(matrix) - np.count_nonzero(holds))
        kept &= holds
    return Excluded(by, int(np.count_nonzero(kept)))
