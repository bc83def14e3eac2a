"""One test case for the contract of ``tuner.search.base``, run against every sampler in a study of its own."""

import importlib.util
import math
import random
import warnings

import pytest

from tests.counted import calls_of
from tests.small_spaces import build, cost, single, time_of, union
from tuner.core.errors import UsageError
from tuner.core.model import Configuration
from tuner.search.expected_improvement import GPEISampler
from tuner.search.optuna_samplers import NearestValidSampler
from tuner.search.samplers import NAMES, make_search

PACKAGES = {"cmaes": ("cmaes",), "qmc": ("scipy",), "gp": ("torch", "scipy")}


def installed(name):
    return all(importlib.util.find_spec(package) for package in PACKAGES.get(name, ()))


SAMPLERS = [
    pytest.param(n, marks=pytest.mark.skipif(not installed(n), reason=f"{n} needs {PACKAGES.get(n)}"))
    for n in NAMES
]


@pytest.mark.parametrize("sampler", SAMPLERS)
class TestContract:
    """What every search promises."""

    def test_valid_unique_and_the_default_first(self, sampler):
        space = single()
        search = make_search(sampler, space, seed=3)
        seen = set()
        for i in range(25):
            configuration = search.ask()
            if i == 0:
                assert configuration == space.default
            assert space.contains(configuration)
            assert configuration not in seen
            seen.add(configuration)
            search.tell(configuration, time_of(configuration))

    def test_ends_without_ever_being_told(self, sampler):
        space = union()
        search = make_search(sampler, space, seed=1)
        proposed = {search.ask() for _ in range(len(space))}
        assert proposed == set(space.configurations())
        assert search.ask() is None

    def test_a_seed_gives_the_same_sequence(self, sampler):
        def sequence(seed):
            search, proposed = make_search(sampler, single(), seed), []
            for _ in range(12):
                proposed.append(search.ask())
                search.tell(proposed[-1], time_of(proposed[-1]))
            return proposed

        first = sequence(5)
        assert sequence(5) == first
        if sampler != "brute-force":
            assert sequence(6) != first

    def test_begins_with_what_it_is_given(self, sampler):
        space = single()
        wanted = list(space.configurations())[100:500:40]
        stranger = Configuration.of("v", dict.fromkeys(wanted[0].values, 6))
        search = make_search(sampler, space, seed=4)
        search.add(wanted[3], 2048.0)
        search.sampler.begin_with([wanted[0], stranger, wanted[1], wanted[0]])
        assert [search.ask() for _ in range(3)] == [space.default, wanted[0], wanted[1]]
        search.sampler.begin_with(wanted)
        proposed = [search.ask() for _ in range(15)]
        assert proposed[:7] == [wanted[2], *wanted[4:]]
        assert len({*proposed, wanted[0], wanted[1], wanted[3], space.default}) == 15 + 4
        for configuration in proposed:
            search.tell(configuration, time_of(configuration))
        assert search.ask() not in {*proposed, *wanted}

    def test_failures_do_not_stop_it(self, sampler):
        space = union()
        search = make_search(sampler, space, seed=2)
        for i in range(len(space)):
            objective = [None, math.nan, math.inf, 4096.0][i % 4] if i > 14 else None
            search.tell(search.ask(), objective)
        assert search.ask() is None

    def test_results_may_come_late_and_in_any_order(self, sampler):
        space, waiting, seen = single(4, 4), [], set()
        shuffle = random.Random(4)
        search = make_search(sampler, space, seed=4)
        for _ in range(30):
            configuration = search.ask()
            assert configuration not in seen
            seen.add(configuration)
            waiting.append(configuration)
            if len(waiting) == 8:
                shuffle.shuffle(waiting)
                for _ in range(5):
                    done = waiting.pop()
                    search.tell(done, None if shuffle.random() < 0.2 else time_of(done))

    def test_history_is_not_asked_again(self, sampler):
        space = union()
        everything = list(space.configurations())
        earlier = everything[::2]
        search = make_search(sampler, space, seed=6)
        for i, configuration in enumerate([*earlier, *earlier]):
            search.add(configuration, None if i % 5 == 0 else time_of(configuration))
        search.add(Configuration.of("gone", {"a": 1}), 1.0)
        search.add(Configuration.of("plain", {"a": 99}), 1.0)
        proposed = []
        while (configuration := search.ask()) is not None:
            proposed.append(configuration)
            search.tell(configuration, time_of(configuration))
        assert set(proposed) == set(everything) - set(earlier)
        assert len(proposed) == len(set(proposed))

    def test_says_nothing(self, sampler, capfd):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            search = make_search(sampler, union(), seed=0)
            for _ in range(25):
                configuration = search.ask()
                search.tell(configuration, time_of(configuration))
        assert capfd.readouterr() == ("", "")


def test_history_teaches():
    space = single(6, 5)
    best = min(space.configurations(), key=cost)
    ranked = sorted(space.configurations(), key=cost)
    taught, proposed = make_search("tpe", space, seed=2), []
    for configuration in ranked[1::4]:  # more than is kept
        taught.add(configuration, time_of(configuration))
    for _ in range(25):
        proposed.append(taught.ask())
        taught.tell(proposed[-1], time_of(proposed[-1]))
    assert best in proposed


def test_start_draws_the_variant_first():
    """One variant has 1296 configurations, the other 6: drawn from the union it would hardly ever appear."""
    space = build(
        ("v", {f"p{i}": [1, 2, 3, 4, 5, 6] for i in range(4)}, []), ("plain", {"a": [1, 2, 3, 4, 5, 6]}, [])
    )
    for sampler in ("tpe", "random"):
        counts = []
        for seed in range(20):
            search = make_search(sampler, space, seed)
            search.ask()
            counts.append(sum(search.ask().variant == "plain" for _ in range(5)))
        assert 30 <= sum(counts) <= 70


@pytest.mark.parametrize("name", ["TPE", "TPESampler", "nsga-ii"])
def test_names_of_optuna(name):
    assert isinstance(make_search(name, single(), 0).sampler, NearestValidSampler)


@pytest.mark.parametrize("name", ["gp_ei", "Kriging"])
def test_the_default_has_a_former_name(name):
    assert isinstance(make_search(name, single(), 0).sampler, GPEISampler)


@pytest.mark.parametrize("name", ["tpx", "", "PartialFixedSampler"])
def test_an_unknown_name(name):
    with pytest.raises(UsageError, match="choose from: gp-ei, tpe, random"):
        make_search(name, single(), 0)


@pytest.mark.parametrize("name", ["cmaes", "gp", "qmc"])
def test_a_missing_package_is_named(name, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    with pytest.raises(UsageError, match="needs .*pip install " + " ".join(PACKAGES[name])):
        make_search(name, single(), 0)


@pytest.mark.parametrize("name", ["tests.users_samplers:Plain", "tests.users_samplers:Last"])
def test_a_users_own_sampler(name):
    space = union()
    search, proposed = make_search(name, space, seed=1), []
    while (configuration := search.ask()) is not None:
        proposed.append(configuration)
        search.tell(configuration, time_of(configuration))
    assert sorted(map(str, proposed)) == sorted(map(str, space.configurations()))
    if name.endswith("Last"):
        assert proposed[:2] == [space.default, list(space.configurations())[-1]]


@pytest.mark.parametrize(
    "name",
    ["tests.users_samplers:Missing", "no_such_module:X", "tests.users_samplers:NOT_A_SAMPLER", ":", "a:"],
)
def test_what_is_no_users_sampler(name):
    with pytest.raises(UsageError, match="--sampler"):
        make_search(name, single(), 0)


def test_an_ask_is_quick():
    """About 5 ms and 16,000 calls at 200 trials, 12,000 at 100: here at half of these."""
    space = single(9, 5)
    search, counts = make_search("tpe", space, 0), []
    for trial in range(100):
        asked = []
        if 45 <= trial < 50 or trial >= 95:  # to count them takes most of the time
            counts.append(calls_of(lambda asked=asked: asked.append(search.ask())))
        else:
            asked.append(search.ask())
        search.tell(asked[0], time_of(asked[0]))
    assert max(counts[5:]) < min(40_000, 2 * max(counts[:5]))
