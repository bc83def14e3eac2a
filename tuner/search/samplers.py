"""Samplers by name: every run gets its sampler here. Those that learn nothing are here, too."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial

from optuna.samplers import BaseSampler

from tuner.core.errors import UsageError, suggestion
from tuner.core.model import RENAMED_SAMPLERS
from tuner.kernel.space import SearchSpace
from tuner.search.base import Location, SpaceSampler
from tuner.search.expected_improvement import GPEISampler
from tuner.search.optuna_samplers import NearestValidSampler, sampler_classes
from tuner.search.study import Search


class BruteForceSampler(SpaceSampler):
    """Proposes every configuration after the default, in the fixed order of the space."""

    def _propose(self) -> Location:
        number = next(number for number, left in enumerate(self.unseen) if left)
        return number, int(self.seen[number].argmin())


class RandomOrderSampler(SpaceSampler):
    """Proposes every configuration after the default, once, at random: the variant first, then one of its own."""

    def _propose(self) -> Location:
        return self.draw(self.draw_variant())


DEFAULT = "gp-ei"
NAMES = (DEFAULT, "tpe", "random", "brute-force", "gp", "cmaes", "nsgaii", "nsgaiii", "qmc")
"""What to choose from; Optuna's other samplers are found by their class names, too."""

MakeSampler = Callable[[SearchSpace, int], SpaceSampler]

_OWN: dict[str, MakeSampler] = {
    "gpei": GPEISampler,
    "random": RandomOrderSampler,
    "bruteforce": BruteForceSampler,
    # Optuna's own needs the grid as an argument; over the valid set it is the same as brute force.
    "grid": BruteForceSampler,
}


def canonical_name(name: str) -> str:
    """Return the present name of a sampler that may be called by a former one."""
    return RENAMED_SAMPLERS.get(name.lower(), name)


def find_sampler(name: str) -> MakeSampler:
    """Return what makes a sampler of a space and a seed.

    Args:
        name: one of :data:`NAMES`, another sampler of Optuna's, or ``module:Class`` for a sampler of the user's own.
            Case, hyphens and "Sampler" in a name do not matter.

    Raises:
        UsageError: there is no such sampler.
    """
    if ":" in name:
        return _users(name)
    plain = canonical_name(name).lower().replace("-", "").replace("_", "").removesuffix("sampler")
    if plain in _OWN:
        return _OWN[plain]
    if plain in sampler_classes():
        return partial(NearestValidSampler, sampler_class=sampler_classes()[plain])
    raise UsageError(f"no sampler named {name!r}", suggestion(name.lower(), NAMES))


def make_search(name: str, space: SearchSpace, seed: int) -> Search:
    """Return a study with the sampler that a name stands for.

    Raises:
        UsageError: as :func:`find_sampler`, or the sampler needs a package that is not installed.
    """
    return Search(space, find_sampler(name)(space, seed))


def _users(name: str) -> MakeSampler:
    """Return what makes a user's sampler: one over the space, or any Optuna sampler over its valid set."""
    module, _, attribute = name.partition(":")
    try:
        sampler_class = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # noqa: BLE001 - a user's module can raise anything
        raise UsageError(
            f"--sampler {name}: {error or type(error).__name__}",
            "write module:Class, with the module on PYTHONPATH",
        ) from None
    if not (isinstance(sampler_class, type) and issubclass(sampler_class, BaseSampler)):
        raise UsageError(
            f"--sampler {name} is no class of Optuna samplers", "subclass optuna.samplers.BaseSampler"
        )

    def make(space: SearchSpace, seed: int) -> SpaceSampler:
        try:
            if issubclass(sampler_class, SpaceSampler):
                return sampler_class(space, seed)
            return NearestValidSampler(space, seed, sampler_class)
        except TypeError as error:
            raise UsageError(
                f"--sampler {name}: {error}",
                "a SpaceSampler takes a space and a seed, any other sampler needs no arguments",
            ) from None

    return make
