"""Choosing what to try next: :func:`make_search` gives a :class:`Search` by the name of its sampler."""

from __future__ import annotations

from collections.abc import Callable

from tuner.errors import UsageError
from tuner.kernel.spec import suggestion
from tuner.search.base import Search
from tuner.search.enumerate import BruteForce, RandomOrder
from tuner.space.space import SearchSpace

__all__ = ["Search", "find_sampler", "make_search", "sampler_names"]

_ENUMERATING: dict[str, type[Search]] = {
    "random": RandomOrder,
    "bruteforce": BruteForce,
    # Optuna's own grid wants to be told the grid; over the valid set it is the same thing as brute force.
    "grid": BruteForce,
}


def sampler_names() -> list[str]:
    """Return the names to choose from; Optuna's other samplers are found by their class names, too."""
    return ["kriging", "tpe", "random", "brute-force", "gp", "cmaes", "nsgaii", "nsgaiii", "qmc"]


def find_sampler(name: str) -> Callable[[SearchSpace, int], Search]:
    """Return what makes a search of a space and a seed; case, hyphens and "Sampler" in the name do not matter.

    Raises:
        UsageError: there is no such sampler, or it needs a package that is not installed.
    """
    plain = name.lower().replace("-", "").replace("_", "").removesuffix("sampler")
    if plain in _ENUMERATING:
        return _ENUMERATING[plain]
    if plain == "kriging":
        from tuner.search.expected_improvement import Kriging

        return Kriging
    from tuner.search.optuna_search import OptunaSearch, sampler_classes  # Optuna takes 0.2 s to import

    if plain not in sampler_classes():
        raise UsageError(f"no sampler named {name!r}", suggestion(name.lower(), sampler_names()))
    return lambda space, seed: OptunaSearch(space, seed, sampler_classes()[plain])


def make_search(name: str, space: SearchSpace, seed: int) -> Search:
    """Make the search that a sampler's name stands for.

    Raises:
        UsageError: as :func:`find_sampler`.
    """
    return find_sampler(name)(space, seed)
