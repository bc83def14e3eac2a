"""When a search stops: what is still to be gained."""

import numpy as np
import pytest

from tests.small_spaces import single, time_of
from tuner.search.expected_improvement import GPEISampler, GPEISettings
from tuner.search.stopping import CALM_S, LEAST, PATIENCE, StoppingCriterion
from tuner.search.study import Search


def study(space, seed, *settings):
    return Search(space, GPEISampler(space, seed, *settings))


def test_the_expected_improvement_is_infinite_before_the_model_and_falls():
    search = study(single(6, 5), 1)
    improvements = []
    for _ in range(80):
        configuration = search.ask()
        improvements.append(search.expected_improvement)
        search.tell(configuration, time_of(configuration))
    startup = search.sampler.settings.startup
    assert np.isinf(improvements[:startup]).all()
    assert np.isfinite(improvements[startup:]).all()
    assert max(improvements[-10:]) < 0.2 * max(improvements[startup : startup + 10])


def test_the_expected_improvement_is_without_the_margin():
    improvements = []
    for margin in (0.0, 0.5):
        search = study(single(6, 5), 1, GPEISettings(margin=margin))
        for _ in range(search.sampler.settings.startup):  # which no margin changes
            configuration = search.ask()
            search.tell(configuration, time_of(configuration))
        search.ask()
        improvements.append(search.expected_improvement)
    assert improvements[0] == improvements[1] > 0


def test_the_search_stops_after_so_many_small_improvements_in_a_row():
    criterion = StoppingCriterion(lambda time_ns: 0.005, patience=3)
    criterion.proposed(np.inf)
    criterion.proposed(0.0)  # there is no result to be better than
    criterion.told(None)
    criterion.told(1024.0)
    for improvement in (0.001, 0.001, 0.1, 0.001, None, 0.001, 0.001):
        criterion.proposed(improvement)
        assert criterion.reached is None
    criterion.proposed(0.007)
    stopped = criterion.reached
    assert stopped is not None
    assert (stopped.noise_floor, stopped.patience) == (0.005, 3)
    assert stopped.expected == pytest.approx(1 - 2**-0.007)
    criterion.proposed(0.008)
    assert criterion.reached is None


def test_a_surprise_begins_the_count_anew():
    criterion = StoppingCriterion(lambda time_ns: 0.005, patience=2)
    criterion.told(1024.0)
    criterion.proposed(0.0)
    criterion.proposed(0.0)
    criterion.told(2**9.999)
    assert criterion.reached is not None
    criterion.told(2**9.9)
    assert criterion.reached is None


def test_fewer_are_enough_where_they_take_long():
    now = 0.0
    criterion = StoppingCriterion(lambda time_ns: 0.005, clock=lambda: now)
    criterion.told(1024.0)
    for count in range(1, LEAST + 1):
        assert criterion.reached is None
        criterion.proposed(0.0)
        now = count * CALM_S / LEAST
    assert criterion.reached is not None and criterion.reached.patience == LEAST < PATIENCE
    criterion.proposed(1.0)
    criterion.proposed(0.0)
    now += 10 * CALM_S
    assert criterion.reached is None


def test_noise_floor_is_that_of_the_best():
    criterion = StoppingCriterion(lambda time_ns: 0.1 if time_ns < 1000 else 0.0, patience=1)
    criterion.told(1024.0)
    criterion.proposed(0.01)
    assert criterion.reached is None
    criterion.told(512.0)
    criterion.proposed(0.01)
    assert criterion.reached is not None
