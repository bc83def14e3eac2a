"""Groups of samples on a scripted GPU: what is waited for, what is taken again, what is tagged, what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.gpu_process.scripted_card import FOREVER, Card, Group, Take
from tuner.core.conditions import Conditions, Mode, Regime
from tuner.gpu import timing
from tuner.gpu.clocks import SLOWDOWNS
from tuner.gpu.problem import ProblemSession
from tuner.gpu.timing import (
    COLD_AFTER_S,
    GROUP_NS,
    HOT_GROUP_NS,
    MAX_GROUP,
    REST_FACTOR,
    SETTLE_S,
    TRIES,
    WAIT_S,
    WARM_UP_S,
    ClockMismatchError,
    Samples,
    Timer,
    group_size,
)
from tuner.kernel.batching import HEAVY_SHARE, Batch, Limits

RESTED, SUSTAINED = Regime.RESTED, Regime.SUSTAINED


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    card = Card()
    monkeypatch.setattr(timing, "time", card)
    return card


@pytest.fixture
def timer(card: Any) -> Timer:
    return Timer(card, card)


def take(
    timer: Timer, group: Any, regime: Regime = RESTED, gap_ns: float = 0.0, *, heavy: bool = False
) -> Samples:
    return timer.group(group, regime, gap_ns, heavy=heavy)


def test_quiet_group_is_taken_once(card: Card, timer: Timer) -> None:
    group = Group(card)
    found = take(timer, group)
    assert found == Samples([1e6] * 10, set(), 0, [1.9e9])
    assert (group.launches, card.poisoned, card.slept) == (1, 1, [])


# -- what holds the clocks down


def test_power_cap_is_tagged_and_counted_not_taken_again(card: Card, timer: Timer) -> None:
    card.spells = [(0.0, FOREVER, "power_cap")]
    group = Group(card)
    found = take(timer, group)
    assert (found.tags, found.capped, group.launches, card.slept) == ({"power_cap"}, 10, 1, [])
    card.spells = []
    found.add(take(timer, group))
    assert (len(found.times_ns), found.tags, found.capped) == (20, {"power_cap"}, 10)


@pytest.mark.parametrize("why", sorted(SLOWDOWNS))
def test_slow_hardware_is_waited_out(card: Card, timer: Timer, why: str) -> None:
    card.spells = [(0.0, 0.5, why)]
    group = Group(card)
    found = take(timer, group)
    assert 0.5 <= sum(card.slept) < 0.5 + 2 * WAIT_S[0]
    assert (found.tags, group.launches) == (set(), 1)


def test_group_in_which_the_hardware_slowed_down_is_taken_again(card: Card, timer: Timer) -> None:
    card.spells = [(0.005, 0.05, "hw_thermal")]  # the group lasts 10 ms
    group = Group(card, takes=(Take(events=1.01), Take()))
    found = take(timer, group)
    assert found == Samples([1e6] * 10, set(), 0, [1.9e9])
    assert (group.launches, card.poisoned, card.slept) == (2, 2, [WAIT_S[0]])


def test_slow_hardware_that_stays_so_is_kept_and_tagged(card: Card, timer: Timer) -> None:
    card.spells = [(0.0, FOREVER, "sw_thermal"), (0.0, FOREVER, "power_cap")]
    group = Group(card)
    found = take(timer, group)
    assert card.slept == list(WAIT_S)
    assert (found.tags, found.capped, group.launches) == ({"sw_thermal", "power_cap"}, 10, 1)


def test_slow_hardware_that_comes_back_under_load_is_kept_and_tagged(card: Card, timer: Timer) -> None:
    """It recovers as soon as it is left alone; then the last of the takes is all there is."""
    card.spells = [(start, start + 0.05, "hw_slowdown") for start in (0.005, 0.065, 0.125, 0.185)]
    card.spells.append((0.0, FOREVER, "power_cap"))
    group = Group(card)
    found = take(timer, group)
    assert (group.launches, card.slept) == (TRIES, [WAIT_S[0]] * (TRIES - 1))
    assert found == Samples([1e6] * 10, {"hw_slowdown", "power_cap"}, 10, [1.9e9])


def test_sm_clock_is_a_mean_over_the_groups_that_counted_one(card: Card, timer: Timer) -> None:
    found = Samples()
    assert found.sm_clock_hz == 0.0
    for clock_hz in (1.8e9, 1.6e9):
        card.sm_clock_hz = clock_hz
        found.add(take(timer, Group(card)))
    silent = Group(card, takes=(Take(stamps=0.0),))  # stamps that were never written
    found.add(take(timer, silent))
    assert found.sm_clock_hz == pytest.approx(1.7e9)
    assert len(found.times_ns) == 30


# -- clocks that contradict each other


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        # 10 ms of samples; 2 % and 0.1 ms are allowed.
        (Take(events=1.025, stamps=1.025), ""),
        (Take(events=1.04, stamps=1.04), "of wall time"),
        # 2 % and 10 us are allowed.
        (Take(stamps=0.985), ""),
        (Take(stamps=0.97), "on the GPU's clock"),
        # 2 %, 30 us a sample and 0.2 ms are allowed.
        (Take(other_ns=0.6e6), ""),
        (Take(other_ns=0.8e6), "busy with something else"),
        (Take(stamps=0.0, other_ns=1e9), ""),  # no stamps, no witness
    ],
)
def test_contradiction_is_taken_again_and_then_refused(
    card: Card, timer: Timer, odd: Take, said: str
) -> None:
    group = Group(card, takes=(odd,))
    if not said:
        assert take(timer, group).times_ns == [1e6 * odd.events] * 10
        assert group.launches == 1
        return
    with pytest.raises(ClockMismatchError, match=said):
        take(timer, group)
    assert group.launches == TRIES
    for bad in range(1, TRIES):
        group = Group(card, takes=(*([odd] * bad), Take()))
        assert take(timer, group).times_ns == [1e6] * 10
        assert group.launches == bad + 1


def test_call_ahead_of_each_warm_sample_is_allowed_for(card: Card, timer: Timer) -> None:
    group = Group(card, time_ns=1e5, samples=16, calls=8, lead=1)
    assert take(timer, group).times_ns == [1e5] * 16
    # The same time with nothing to explain it.
    hidden = Group(card, time_ns=1e5, samples=16, calls=8, takes=(Take(other_ns=16 * 1e5),))
    with pytest.raises(ClockMismatchError, match="something else"):
        take(timer, hidden)


def test_flush_between_samples_is_measured_and_then_allowed(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    timer = Timer(card, card)  # type: ignore[arg-type]
    noisy = Take(other_ns=5e7), Take(), Take()
    empty = Group(card, time_ns=1000.0, samples=4, gap_ns=2e5, takes=noisy)
    monkeypatch.setattr(timing, "SampleGraph", lambda *_: empty)
    gap_ns = timer.measure_gap(card, card, Mode.COLD)  # type: ignore[arg-type]
    assert gap_ns == pytest.approx(2e5)
    assert empty.closed
    assert take(timer, Group(card, gap_ns=2.2e5), gap_ns=gap_ns).times_ns == [1e6] * 10
    with pytest.raises(ClockMismatchError, match="something else"):
        take(timer, Group(card, gap_ns=5e5), gap_ns=gap_ns)


# -- rest


def test_heavy_groups_rest_as_long_as_they_deserve(card: Card, timer: Timer) -> None:
    group = Group(card)
    take(timer, group, heavy=True)
    assert sum(card.slept) == 0.0
    take(timer, group, heavy=True)
    assert sum(card.slept) == pytest.approx(REST_FACTOR * group.busy_s)
    card.now += 0.25 * REST_FACTOR * group.busy_s  # the next was not ready yet
    take(timer, group, heavy=True)
    assert sum(card.slept) == pytest.approx(1.75 * REST_FACTOR * group.busy_s)


def test_a_group_taken_again_rests_in_between(card: Card, timer: Timer) -> None:
    group = Group(card, takes=(Take(stamps=0.5), Take()))
    take(timer, group, heavy=True)
    assert sum(card.slept) == pytest.approx(REST_FACTOR * group.busy_s)


# -- load


def test_sustained_load_warms_the_card_up(card: Card, timer: Timer) -> None:
    group, other = Group(card, samples=100), Group(card, samples=100)  # 0.1 s

    def launches(group: Group) -> int:
        group.launches = 0
        found = take(timer, group, SUSTAINED, heavy=True)
        assert found.times_ns == [1e6] * 100
        return group.launches

    # The load, of which the first shows how long it takes, and the one that counts.
    warm_up, settle = round(WARM_UP_S / 0.1) + 1, math.ceil(SETTLE_S / 0.1) + 1
    assert launches(group) == warm_up
    assert launches(group) == 1  # it has just run
    assert launches(other) == settle  # hot, but by another kernel
    card.now += COLD_AFTER_S - 0.01
    assert launches(other) == 1
    assert launches(group) == settle
    card.now += COLD_AFTER_S
    assert launches(group) == warm_up
    assert card.slept == []


def test_nothing_is_waited_for_between_load_and_group(card: Card, timer: Timer) -> None:
    group = Group(card)
    busy: list[bool] = []
    launch = group.launch

    def watched() -> None:
        busy.append(card.queued_s > 0)
        launch()

    group.launch = watched  # type: ignore[method-assign]
    take(timer, group, SUSTAINED, heavy=True)
    assert busy == [False, False, *([True] * (len(busy) - 2))]


@pytest.mark.parametrize("regime", list(Regime))
def test_waiting_for_the_hardware_is_no_hang(card: Card, timer: Timer, regime: Regime) -> None:
    """A card that overheats whenever it works: the guard must not kill a process that is only waiting."""
    allowed: list[float] = []
    limits = Limits(0.0, 1.0, 1e-30)
    group: Any = Group(card)
    any_card: Any = card
    session = ProblemSession(
        any_card,
        any_card,
        any_card,
        timer,
        limits,
        Conditions(Mode.COLD, regime),
        Batch(1, 1),
        0.0,
        allowed.append,
    )

    def reasons() -> frozenset[str]:
        rested_s = sum(card.slept[heats[-1] :]) if heats else FOREVER
        return frozenset(["hw_thermal"] if rested_s < 3.05 else [])

    heats: list[int] = []
    launch = group.launch

    def heating() -> None:
        heats.append(len(card.slept))
        launch()

    card.reasons, group.launch = reasons, heating  # type: ignore[method-assign]
    began = card.now
    assert session.take(group, 1e6).tags == {"hw_thermal"}
    assert len(card.slept) >= len(WAIT_S) * (TRIES - 1)
    assert card.now - began < allowed[0]


# -- sizes and limits


@pytest.mark.parametrize(
    ("estimate_ns", "mode", "calls", "size"),
    [
        (0.0, Mode.COLD, 1, MAX_GROUP),
        (1e4, Mode.COLD, 1, MAX_GROUP),
        (1e6, Mode.COLD, 1, 8),
        (1e6, Mode.COLD, 100, 8),  # calls are for the other modes
        (GROUP_NS, Mode.COLD, 1, 1),
        (1e9, Mode.COLD, 1, 1),
        (1e4, Mode.ROTATING, 100, 8),
        (1e4, Mode.WARM, 100, 8),
        (1e6, Mode.ROTATING, 100, 8),  # so slow that one call makes a batch
    ],
)
def test_size_of_a_group(estimate_ns: float, mode: Mode, calls: int, size: int) -> None:
    for heavy in (False, True):
        assert group_size(estimate_ns, Conditions(mode, RESTED), Batch(calls, 1), heavy=heavy) == size
    assert group_size(estimate_ns, Conditions(mode, SUSTAINED), Batch(calls, 1), heavy=False) == size


def test_heavy_is_a_share_of_the_peak() -> None:
    limits = Limits(0.0, flops=1e9, peak_flops=1e15)
    edge_ns = 1e9 / (HEAVY_SHARE * 1e15) * 1e9
    assert limits.heavy(0.99 * edge_ns)
    assert not limits.heavy(1.01 * edge_ns)
    assert limits.heavy(0.0)  # two events can be at the same moment
    assert not Limits(0.0, 1e9, 0.0).heavy(1.0)
    assert not Limits(0.0, 1e9, math.inf).heavy(1.0)


def test_light_groups_do_not_rest(card: Card, timer: Timer) -> None:
    light, heavy = Group(card), Group(card)
    take(timer, heavy, heavy=True)
    for _ in range(3):
        take(timer, light)
    assert sum(card.slept) == 0.0


def test_light_kernels_need_no_load_and_no_warm_up(card: Card, timer: Timer) -> None:
    light, heavy = Group(card), Group(card, samples=100)
    take(timer, light, SUSTAINED)
    assert light.launches == 1
    take(timer, heavy, SUSTAINED, heavy=True)
    assert heavy.launches == round(WARM_UP_S / 0.1) + 1


def test_clocks_that_the_owner_has_set_are_no_tag(card: Card, timer: Timer) -> None:
    card.spells = [(0.0, FOREVER, "clocks_setting")]
    assert take(timer, Group(card)).tags == set()


def test_last_take_decides_between_slow_hardware_and_a_contradiction(card: Card, timer: Timer) -> None:
    card.spells = [(start, start + 0.05, "hw_slowdown") for start in (0.005, 0.065, 0.125)]
    group = Group(card, takes=(*([Take()] * (TRIES - 1)), Take(stamps=0.5)))
    with pytest.raises(ClockMismatchError, match="on the GPU's clock"):
        take(timer, group)


def test_call_ahead_does_not_hide_another_process(card: Card, timer: Timer) -> None:
    group = Group(card, time_ns=1e5, samples=16, calls=8, lead=1, takes=(Take(other_ns=5e6),))
    with pytest.raises(ClockMismatchError, match="something else"):
        take(timer, group)


def test_load_before_a_group_does_not_hide_a_contradiction(card: Card, timer: Timer) -> None:
    group = Group(card, takes=(Take(stamps=0.5),))
    with pytest.raises(ClockMismatchError, match="on the GPU's clock"):
        take(timer, group, SUSTAINED, heavy=True)


def test_size_of_a_group_under_sustained_load() -> None:
    conditions = Conditions(Mode.ROTATING, SUSTAINED)
    sizes = {ns: group_size(ns, conditions, Batch(10, 1), heavy=True) for ns in (1.0, 1e5, 1e6, 1e8)}
    assert sizes == {1.0: 8 * MAX_GROUP, 1e5: int(HOT_GROUP_NS / 1e6), 1e6: int(HOT_GROUP_NS / 1e6), 1e8: 1}


def test_slow_hardware_that_recovers_within_the_group_is_tagged(card: Card, timer: Timer) -> None:
    card.spells = [(0.0, sum(WAIT_S) + 0.005, "sw_thermal")]
    group = Group(card)
    assert take(timer, group).tags == {"sw_thermal"}
    assert group.launches == 1
