"""Repeats experiments with the search that were not adopted: other settings, other ways to choose.

scripts/run python scripts/search/tried.py FOLDER --seeds 60 --only margin

Runs end within 5 % of the best recorded time, or after 200 evaluations, which then count as 300. The first
configuration is random. One line for each change, beside "as it is".
"""

# ruff: noqa: E402 - threads are settled before NumPy is loaded
from __future__ import annotations

import argparse
import copy
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
from cases import NEAR, Case, read_cases

from tuner.kernel.space import SearchSpace
from tuner.search.acquisition import log_expected_improvement
from tuner.search.base import Location
from tuner.search.expected_improvement import GPEISampler, GPEISettings
from tuner.search.features import Floats
from tuner.search.gaussian_process import GaussianProcess, Posterior
from tuner.search.observations import Observations, observe
from tuner.search.study import Search

TRIALS = 200
MISSED = 300
REACH = 0.33
"""Distance over all features within which a failure counts against a configuration."""


class Left(GPEISampler):
    """Hyperparameters stay at the medians of their priors."""

    def _fit(self, observations: Observations) -> None:
        pass


class Both(GPEISampler):
    """Adds up the expected improvement of the model and of one whose hyperparameters stay."""

    def _improvement(self, posterior: Posterior, best: float, unit: float) -> Floats:
        other = GaussianProcess(self.features.distances, self.settings.prior)
        objectives = np.array(self._objectives)[self._learnt]
        codes = np.array([self._codes[i] for i in self._learnt])
        observations = observe([], codes, objectives, self.settings.knee)
        other.condition(observations.codes, observations.targets)
        if self._pending:
            other.fantasize(np.stack(list(self._pending.values())))
        seen = other.posterior([posterior.codes])
        more = log_expected_improvement(seen.mean, seen.deviation, best - self.settings.margin / unit)
        return np.logaddexp(super()._improvement(posterior, best, unit), more)


class Vote(GPEISampler):
    """Multiplies by how many of the near results were no failures."""

    def _improvement(self, posterior: Posterior, best: float, unit: float) -> Floats:
        improvement = super()._improvement(posterior, best, unit)
        ok = np.isfinite(np.array(self._objectives))
        if ok.all():
            return improvement
        codes = np.stack(self._codes)
        apart = np.zeros((len(improvement), len(codes)))
        for j, distances in enumerate(self.features.distances):
            apart += np.minimum(1.0, distances[np.ix_(posterior.codes[:, j], codes[:, j])] / REACH)
        near = np.exp(-(apart**2))
        return np.asarray(improvement + np.log((near @ ok + 1.0) / (near.sum(axis=1) + 1.0)))


class Middle(GPEISampler):
    """The second configuration is that of 200 which is nearest to all others."""

    def _spread(self) -> Location:
        if len(self._objectives) + len(self._pending) != 1:
            return super()._spread()
        number = int(np.argmax(self.unseen))
        rows = self._candidates.random(number, 200)
        codes = self.features.encode(number, rows)
        apart = np.zeros(len(rows))
        for j, distances in enumerate(self.features.distances):
            apart += distances[np.ix_(codes[:, j], codes[:, j])].sum(axis=1)
        return number, int(rows[int(np.argmin(apart))])


Make = Callable[[SearchSpace, int], GPEISampler]


def searches() -> dict[str, Make]:
    usual = GPEISettings()
    settings = {"as it is": usual}
    settings |= {f"margin {value:g}": replace(usual, margin=value) for value in (0.02, 0.1, 0.2)}
    settings |= {f"startup {value}": replace(usual, startup=value) for value in (3, 4, 6)}
    settings |= {f"spread {value}": replace(usual, spread=value) for value in (3, 40)}
    settings |= {f"knee {value:g}": replace(usual, knee=value) for value in (0.15, 0.4)}
    settings["more fits"] = replace(usual, refit=0.05, steps=15, pairs=80_000)
    for name, values in {
        "length": (0.7, 1.5),
        "main": (0.05, 0.3),
        "rest": (0.2, 1.0),
        "noise": (1e-2,),
    }.items():
        for value in values:
            settings[f"{name} {value:g}"] = replace(usual, prior=replace(usual.prior, **{name: value}))
    makes: dict[str, Make] = {}
    for name, chosen in settings.items():
        makes[name] = lambda space, seed, chosen=chosen: GPEISampler(space, seed, chosen)  # type: ignore[misc]
    return makes | {"left": Left, "both": Both, "vote": Vote, "middle": Middle}


def trials(case: Case, make: Make, seed: int) -> int:
    """Return how many evaluations a run takes."""
    space, rng = copy.copy(case.space), np.random.default_rng(seed)
    number = int(rng.integers(len(space.variants)))
    space.default = space.variants[number].configuration(int(rng.integers(len(space.variants[number]))))
    search = Search(space, make(space, seed))
    for count in range(1, TRIALS + 1):
        configuration = search.ask()
        if configuration is None:
            break
        time_ns = case.time_ns(configuration)
        if time_ns is not None and time_ns <= NEAR * case.best:
            return count
        search.tell(configuration, time_ns)
    return MISSED


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, help="folders of recordings, or files")
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--only", default="", help="changes with one of these words in their names")
    given = parser.parse_args()
    cases = read_cases(given.paths, [])
    words = [word for word in given.only.split(",") if word]
    for name, make in searches().items():
        if words and not any(word in name for word in words):
            continue
        seeds = range(given.first_seed, given.first_seed + given.seeds)
        counts = np.array([[trials(case, make, seed) for seed in seeds] for case in cases])
        medians, means = np.median(counts, axis=1), np.exp(np.log(counts).mean(axis=1))
        spaces = " ".join(
            f"{case.name}={median:g}/{mean:.3g}"
            for case, median, mean in zip(cases, medians, means, strict=True)
        )
        whole = f"med={np.median(medians):.1f} gm={np.exp(np.log(counts).mean()):.2f}"
        print(f"{name:14} {whole} miss={int((counts == MISSED).sum())} | {spaces}", flush=True)


if __name__ == "__main__":
    main()
