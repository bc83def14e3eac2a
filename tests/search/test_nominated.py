"""What a sampler nominates: not asked for again, chosen by the latest results, withdrawn."""

from __future__ import annotations

from tests.small_spaces import cost, single, time_of, union
from tuner.search.samplers import make_search


def test_what_is_nominated_is_not_asked_for_again_until_it_is_withdrawn() -> None:
    space = single(2, 5)
    search = make_search("gp-ei", space, 1)
    first = search.ask()
    assert first == space.default
    search.tell(first, time_of(first))
    nominated = [*search.sampler.nominate(5), *search.sampler.nominate(1000)]
    assert len({first, *nominated}) == len(space)
    assert search.ask() is None
    search.sampler.withdraw(nominated[5])
    assert search.sampler.nominate(2) == [nominated[5]]
    assert search.sampler.nominate(1) == []
    assert search.expected_improvement is not None


def test_the_choice_goes_by_the_latest_results() -> None:
    """Nominated blindly, chosen with results: what is like the good ones goes first."""
    space = single(4, 4)
    search = make_search("gp-ei", space, 4)
    first = search.ask()
    assert first is not None
    nominees = search.sampler.nominate(80)
    tried = []
    for _ in range(30):
        ranked = [nominees[index] for index in search.sampler.choose(nominees)]
        assert set(ranked) == set(nominees)
        chosen = ranked[0]
        assert search.ask(chosen) == chosen
        nominees = [nominee for nominee in nominees if nominee != chosen]
        search.tell(chosen, time_of(chosen))
        tried.append(cost(chosen))
    passed_over = [cost(nominee) for nominee in nominees]
    assert min(tried) <= min(passed_over)
    assert sum(tried[10:]) / 20 < sum(passed_over) / len(passed_over) - 0.3


def test_a_nominee_may_fail_without_having_been_chosen() -> None:
    search = make_search("gp-ei", single(3, 4), 1)
    for configuration in search.sampler.nominate(6):
        assert search.ask(configuration) == configuration
        search.tell(configuration, None)
    assert search.sampler.nominate(1)


def test_nominations_go_on_where_a_variant_has_no_more() -> None:
    space = union()  # its first variant has one configuration
    search = make_search("gp-ei", space, 0)
    assert len(search.sampler.nominate(12)) == 12
    assert len(search.sampler.nominate(1000)) == len(space) - 12
