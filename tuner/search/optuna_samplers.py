"""Any Optuna sampler, over the valid set only.

A sampler proposes within the full product of the parameters, most of which is often not valid. The proposal is moved to
the nearest valid configuration that has not been tried, and the sampler learns that one. (Teaching it invalid ones, by
a penalty or by pruning, searches clearly worse.)

The variant is chosen first, by TPE over the variants alone, then a configuration of it by a study of its own. One study
with a conditional space (TPE's ``group=True``) would mean the same, but goes through all trials for every variant at
every proposal, and most samplers cannot do it at all.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import TrialState, create_trial

from tuner.core.errors import UsageError
from tuner.kernel.space import SearchSpace
from tuner.kernel.variant_space import Vector
from tuner.search.base import Location, SpaceSampler

N_STARTUP = 10
"""Configurations drawn at random, and results seen, before a model is worth fitting (TPE's own default)."""
MAX_HISTORY = 1000
"""Earlier results that are taught: more make TPE slow, 80 ms a proposal with 10,000 of them."""
FITTED = ("TPESampler", "GPSampler")
"""Samplers that fit a model to all results, so that they can learn from what they did not propose."""
ORDINAL = ("CmaEsSampler", "GPSampler", "QMCSampler")
"""Samplers that cannot treat categories, or (GP) do better on the order of the values."""
NEEDS = {"CmaEsSampler": ("cmaes",), "GPSampler": ("torch", "scipy"), "QMCSampler": ("scipy",)}
"""Packages that samplers import only when they first propose."""


@functools.cache
def sampler_classes() -> dict[str, type[BaseSampler]]:
    """Return Optuna's samplers by name, in lower case and without "Sampler"."""
    classes: dict[str, type[BaseSampler]] = {}
    for name in optuna.samplers.__all__:
        sampler = getattr(optuna.samplers, name)
        # A partial-fixed sampler needs another one to work on, and the space fixes parameters.
        if not inspect.isclass(sampler) or inspect.isabstract(sampler) or name == "PartialFixedSampler":
            continue
        if issubclass(sampler, BaseSampler):
            classes[name.lower().removesuffix("sampler")] = sampler
    return classes


class NearestValidSampler(SpaceSampler):
    """Wraps samplers that know nothing of the valid set: moves each proposal to the nearest valid configuration.

    Args:
        space: what may be proposed.
        seed: of the samplers, and of every other choice.
        sampler_class: makes a sampler; a class of ``optuna.samplers``, or one like these.

    Raises:
        UsageError: the sampler needs a package that is not installed.
    """

    def __init__(self, space: SearchSpace, seed: int, sampler_class: type[BaseSampler]) -> None:
        super().__init__(space, seed)
        name = sampler_class.__name__
        missing = [package for package in NEEDS.get(name, ()) if importlib.util.find_spec(package) is None]
        if missing:
            raise UsageError(
                f"sampler {name} needs {' and '.join(missing)}", f"pip install {' '.join(missing)}"
            )
        count = len(space.variants)
        fitted = N_STARTUP if name in FITTED else 0
        self._studies = [
            _Study(sampler_class, seed + 1 + number, variant.choices, -(-fitted // count))
            for number, variant in enumerate(space.variants)
        ]
        self._variant_study = (
            _Study(TPESampler, seed, [tuple(range(count))], N_STARTUP) if count > 1 else None
        )
        self._startup = N_STARTUP if count > 1 else fitted
        self._worst: float | None = None
        self._ends: dict[Location, Callable[[float], None]] = {}
        self._unranked: list[Callable[[float], None]] = []
        self._history: list[tuple[Location, float | None]] = []
        self._attributes: Mapping[str, Any] = {}

    def _propose(self) -> Location:
        if self._history:
            self._teach_history()
        if self._startup > 0:
            self._startup -= 1
            return self.draw(self.draw_variant())
        number = 0
        if self._variant_study is not None:
            number = (
                int(self._variant_study.propose()[0][0]) if self._variant_study.ready else self.draw_variant()
            )
        if not self.unseen[number]:
            number = self.draw_variant()
        if not self._studies[number].ready:
            return self.draw(number)
        proposal, self._attributes = self._studies[number].propose()
        row = self.space.variants[number].nearest(proposal, self.seen[number], self.rng)
        assert row is not None
        return number, row

    def _proposed(self, location: Location) -> None:
        ends = [study.start(vector, self._attributes) for study, vector in self._parts(location)]
        self._attributes = {}

        def end(objective: float) -> None:
            for end_part in ends:
                end_part(objective)

        self._ends[location] = end

    def _told(self, location: Location, objective: float | None) -> None:
        if (end := self._ends.pop(location, None)) is not None:
            self._learn(end, objective)

    def _added(self, location: Location, objective: float | None) -> None:
        self._history.append((location, objective))

    def _teach_history(self) -> None:
        """Teach the results that were added; of very many the best half, and as many of the others at random."""
        history, self._history = self._history, []
        if len(history) > MAX_HISTORY:
            order = np.argsort([np.inf if time is None else time for _, time in history], kind="stable")
            history = [history[i] for i in self.best_and_random(order, MAX_HISTORY)]
        self._startup -= len(history)
        for location, objective in history:
            self._learn(functools.partial(self._teach, location), objective)

    def _teach(self, location: Location, objective: float) -> None:
        for study, vector in self._parts(location):
            study.add(vector, objective)

    def _learn(self, end: Callable[[float], None], objective: float | None) -> None:
        """End a trial; a failure counts as twice as slow as the worst seen, and waits until there is one."""
        if objective is None:
            self._unranked.append(end)
        else:
            self._worst = objective if self._worst is None else max(self._worst, objective)
            end(objective)
        if self._worst is not None:
            unranked, self._unranked = self._unranked, []
            for fail in unranked:
                fail(self._worst + 1)

    def _parts(self, location: Location) -> list[tuple[_Study, Vector]]:
        """Return the studies that a configuration belongs to, each with its vector there."""
        number, row = location
        within = self._studies[number], self.space.variants[number].matrix[row].astype(np.int64)
        return (
            [within] if self._variant_study is None else [(self._variant_study, np.array([number])), within]
        )


class _Study:
    """An Optuna study in memory, over lists of indices, in which a list of one is left out.

    A vector that was started is a running trial until it ends, and TPE's constant liar keeps away from it.

    Args:
        sampler_class: a class of ``optuna.samplers``.
        seed: of the sampler.
        choices: for each parameter the indices of values to choose from.
        startup: results needed before the sampler is worth asking.
    """

    def __init__(
        self, sampler_class: type[BaseSampler], seed: int, choices: Sequence[Sequence[int]], startup: int
    ) -> None:
        self._choices = choices
        self._startup = startup
        self._learnt = 0
        ordinal = sampler_class.__name__ in ORDINAL
        self._distributions: dict[str, BaseDistribution] = {
            str(j): IntDistribution(0, len(c) - 1) if ordinal else CategoricalDistribution(range(len(c)))
            for j, c in enumerate(choices)
            if len(c) > 1
        }
        options = {
            "seed": seed % 2**32,
            "n_startup_trials": startup or None,
            "multivariate": True,
            "constant_liar": True,
            "scramble": True,  # without it QMC ignores the seed
            "warn_asynchronous_seeding": False,
        }
        accepted = inspect.signature(sampler_class).parameters
        with _quiet():
            sampler = sampler_class(**{k: v for k, v in options.items() if k in accepted and v is not None})
            self._study = optuna.create_study(sampler=sampler)

    @property
    def ready(self) -> bool:
        """Whether the sampler has seen enough to be asked."""
        return self._learnt >= self._startup

    def propose(self) -> tuple[Vector, Mapping[str, Any]]:
        """Return a vector, and the attributes that the sampler needs with it."""
        with _quiet():
            probe = self._study.ask(self._distributions)
            # The trial that counts is that of the repaired vector.
            trial = self._study.tell(probe, state=TrialState.FAIL)
        indices = [c[trial.params.get(str(j), 0)] for j, c in enumerate(self._choices)]
        # Population-based samplers keep a trial's generation there; TPE and GP the proposal itself.
        attributes = {k: v for k, v in trial.system_attrs.items() if "relative_params" not in k}
        return np.array(indices, dtype=np.int64), attributes

    def start(self, vector: Vector, attributes: Mapping[str, Any]) -> Callable[[float], None]:
        """Begin a trial, and return the function that ends it with its objective."""
        number = len(self._study.get_trials(deepcopy=False))
        self._insert(vector, TrialState.RUNNING, None, attributes)

        def end(objective: float) -> None:
            with _quiet():
                self._study.tell(number, objective)
            self._learnt += 1

        return end

    def add(self, vector: Vector, objective: float) -> None:
        """Insert a trial that has ended."""
        self._insert(vector, TrialState.COMPLETE, objective, {})
        self._learnt += 1

    def _insert(
        self, vector: Vector, state: TrialState, objective: float | None, attributes: Mapping[str, Any]
    ) -> None:
        indices = {
            str(j): c.index(int(index))
            for j, (c, index) in enumerate(zip(self._choices, vector, strict=True))
        }
        self._study.add_trial(
            create_trial(
                state=state,
                value=objective,
                params={name: indices[name] for name in self._distributions},
                distributions=self._distributions,
                system_attrs=dict(attributes),
            )
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide Optuna's warnings, which are about its own settings and not for a user of this tuner."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
