"""Our searches as samplers in studies of a user's own."""

import time

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from tests.small_spaces import cost, single, union
from tuner.search.expected_improvement import GPEISampler
from tuner.search.parameters import suggest
from tuner.search.samplers import RandomOrderSampler


def run(space, sampler, trials, storage=None, name="study", seen=None):
    def objective(trial):
        configuration = suggest(trial, space)
        assert space.contains(configuration)
        if seen is not None:
            assert configuration not in seen
            seen.append(configuration)
        if len(seen or ()) % 9 == 5:
            raise optuna.TrialPruned
        return 2 ** cost(configuration)

    study = optuna.create_study(sampler=sampler, storage=storage, study_name=name, load_if_exists=True)
    study.optimize(objective, n_trials=trials)
    return study


def test_proposes_valid_configurations_once():
    space, seen = single(), []
    study = run(space, GPEISampler(space, seed=2), 20, seen=seen)
    assert seen[0] == space.default
    assert len(set(seen)) == len(study.trials) == 20


def test_stops_when_all_are_tried():
    space, seen = union(), []
    study = run(space, RandomOrderSampler(space), len(space) + 10, seen=seen)
    assert set(seen) == set(space.configurations())
    assert len(study.trials) == len(space)


def test_may_be_asked_from_several_threads():
    space, seen, inside = single(3, 4), [], []

    class Slow(GPEISampler):
        def _propose(self):
            inside.append("one")
            time.sleep(0.01)
            assert inside == ["one"]
            inside.clear()
            return super()._propose()

    sampler = Slow(space, seed=2)

    def objective(trial):
        configuration = suggest(trial, space)
        seen.append(configuration)
        return 2 ** cost(configuration)

    optuna.create_study(sampler=sampler).optimize(objective, n_trials=20, n_jobs=4)
    assert len(set(seen)) == len(seen) == 20


def test_learns_what_the_storage_holds(tmp_path):
    file = JournalFileBackend(str(tmp_path / "study.log"))  # SQLAlchemy's import takes seconds
    storage, space, seen = JournalStorage(file), single(4, 4), []
    run(space, GPEISampler(space, seed=1), 12, storage, seen=seen)
    again = run(space, GPEISampler(space, seed=1), 12, storage, seen=seen)
    assert len(again.trials) == len(set(seen)) == 24


def test_maximises_rates():
    space = single(3, 4)
    study = optuna.create_study(sampler=GPEISampler(space, seed=1), direction="maximize")
    study.optimize(lambda trial: 2 ** -cost(suggest(trial, space)), n_trials=40)
    best = min(map(cost, space.configurations()))
    assert study.best_value == pytest.approx(2**-best)
