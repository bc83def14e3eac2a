"""Optional abilities of a sampler, beyond Optuna's contract; the tuner uses those there are, and works without.

Each protocol is a few methods. A sampler that has them offers them; no registration is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tuner.core.model import Configuration, Resources


@dataclass(frozen=True)
class Nominee:
    """A configuration that was nominated and has been compiled."""

    configuration: Configuration
    resources: Resources | None = None
    """Compiler statistics; None where there are none."""


@runtime_checkable
class Nominating(Protocol):
    """Chooses in two steps: what is worth compiling, and later, with more results, what is tried.

    The default and the initial configurations are proposed all the same, as long as the sampler is ``opening``.
    """

    def nominate(self, count: int) -> list[Configuration]:
        """Return configurations to compile that were not proposed, added or nominated before; fewer if few are left.

        Each may be chosen later, tried without having been chosen, or withdrawn.
        """

    def choose(self, nominees: Sequence[Nominee], count: int = 1) -> Sequence[int]:
        """Rank nominees, the most promising first: the first are tried next, as enqueued trials.

        Args:
            nominees: at least one, each nominated and neither chosen, tried nor withdrawn since.
            count: how many of them are tried next, before there are more results.

        Returns:
            Indices into ``nominees``.
        """

    def withdraw(self, configuration: Configuration) -> None:
        """Take a nomination back: the configuration may be proposed or nominated again."""


@runtime_checkable
class Transferring(Protocol):
    """Learns from other tasks: the same kernel at another size, in another dtype, on another GPU."""

    def learn(self, results: Sequence[tuple[Configuration, float | None]], distance: float) -> None:
        """Learn the results of another task. Its configurations may be proposed like any other.

        Args:
            results: configurations, each with its time there in nanoseconds, or None for a failure.
            distance: how unlike this task is, from 0, as :func:`tuner.search.task_distance.distance` says.
        """


@runtime_checkable
class Expecting(Protocol):
    """Knows the gain that it still expects, so that a stopping criterion can end the search."""

    expected_improvement: float
    """By how much the best candidate for the last proposal was expected to be faster than the best result, in log2 of
    the time; infinite as long as it is not known."""
