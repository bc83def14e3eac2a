"""At which other sizes, and on which contents, a winner is verified before it is confirmed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.faults.kernels import scale_kernel
from tests.faults.stub_device import good
from tests.tuning.finishes import KERNEL, PROBLEM, Track, finish, finish_and_rejected, trial
from tuner.core.model import Configuration, Measurement, Problem, Status, Verification
from tuner.devices import base
from tuner.kernel.edge_sizes import VERIFIED_PROBLEMS
from tuner.kernel.load import load_kernel
from tuner.tuning import confirmation
from tuner.tuning.race import FinalRace


def test_a_size_at_which_a_winner_is_wrong_is_the_last() -> None:
    device, seen = Track(), list[int]()

    def edge_case(problem: Problem, configuration: Configuration) -> Measurement:
        seen.append(problem.sizes["n"])
        return Measurement(Status.WRONG_RESULT, error="no") if len(seen) == 3 else good(1.0)

    device.edge_case = edge_case
    wrong = confirmation.confirm(
        device, KERNEL, PROBLEM, trial(0, 1000.0).configuration, 1e6, lambda what: None
    )
    assert len(seen) == 3 and f"n={seen[-1]}" in wrong.reason


@pytest.mark.parametrize("answered", [True, False])
def test_every_second_size_has_other_scalars_as_long_as_the_reference_has_an_answer(answered: bool) -> None:
    device, kernel, seen = Track(), load_kernel("saxpy"), list[Mapping[str, float]]()

    def edge_case(problem: Problem, configuration: Configuration) -> Measurement:
        seen.append(problem.scalars)
        return good(1.0) if answered or not problem.scalars else NOTHING_SAID

    device.edge_case = edge_case
    device.fits = lambda problem, configuration: True  # type: ignore[method-assign]
    problem = kernel.problem({"n": 1000})
    winner = Configuration.of("vectorized", {"number": 0, "time": 1e6})
    found = confirmation.confirm(device, kernel, problem, winner, 1e6, lambda what: None)
    assert len(found.edge_cases) == VERIFIED_PROBLEMS and not found.edge_note
    assert len(seen) == VERIFIED_PROBLEMS + (not answered)
    assert list(map(bool, seen)) == [not turn % 2 and (answered or not turn) for turn in range(len(seen))]


@pytest.mark.parametrize(("n", "sizes"), [(2**24, [2**24]), (2**24 + 1, [])])
def test_where_no_other_size_suits_a_winner_is_verified_at_its_own_unless_that_is_large(
    n: int, sizes: list[int]
) -> None:
    class Alone(Track):
        def fits(self, problem: Problem, configuration: Configuration) -> bool:
            return False

    device, seen = Alone(), list[int]()
    device.edge_case = lambda p, c: seen.append(p.sizes["n"]) or good(1000.0)  # type: ignore[func-returns-value]
    one = trial(0, 1000.0).configuration
    confirmation.confirm(device, KERNEL, replace(PROBLEM, sizes={"n": n}), one, 1e6, lambda what: None)
    assert seen == sizes


def test_contents_that_cannot_be_judged_at_one_size_are_tried_at_another(tmp_path: Path) -> None:
    tried = list[int]()

    class Undecided(Track):
        def verify_at(
            self, problem: Problem, configuration: Configuration, limit_s: float, *, contents: bool
        ) -> Measurement:
            tried.extend([problem.sizes["n"]] * contents)
            return NOTHING_SAID if len(tried) == 1 and contents else good(1000.0)

    one = trial(0, 1000.0).configuration
    confirmed = confirmation.confirm(
        Undecided(), scale_kernel(tmp_path), PROBLEM, one, 1e6, lambda what: None
    )
    assert len(tried) == len(set(tried)) == 2 and not confirmed.reason


def test_a_winner_is_verified_around_its_tile_below_its_size_and_beside_it() -> None:
    class Even(Track):
        def fits(self, problem: Problem, configuration: Configuration) -> bool:
            return problem.sizes["n"] % 2 == 0

    device, seen = Even(), list[int]()
    device.edge_case = lambda p, c: seen.append(p.sizes["n"]) or good(1000.0)  # type: ignore[func-returns-value]
    ended = finish(device, [trial(0, 100.0)])
    assert ended.exportable
    assert len(set(seen)) == len(seen) == VERIFIED_PROBLEMS and not any(n % 2 for n in seen)
    assert {992, 1992} <= set(seen), "a vector off the own size, and twice that"
    assert sum(125 <= n < 992 for n in seen) >= 2


NOTHING_SAID = Measurement(Status.UNVERIFIED, (), "it is not a number", Verification(False, checked=False))


@pytest.mark.parametrize(("odd", "verified"), [(True, VERIFIED_PROBLEMS), (False, 0)])
def test_a_size_without_a_right_answer_makes_room_for_another(odd: bool, verified: int) -> None:
    """If no size has one, that is no fault of the winner, and is said."""
    device = Track()
    device.edge_case = lambda p, c: good(1.0) if odd and p.sizes["n"] % 2 else NOTHING_SAID
    ended = finish(device, [trial(0, 1000.0)])
    assert ended.exportable
    assert len(ended.edge_cases) == verified
    assert ("it is not a number" in ended.edge_note) is not odd


def test_after_fifty_sizes_without_a_right_answer_no_more_are_tried() -> None:
    device, seen = Track(), list[int]()
    device.edge_case = lambda p, c: seen.append(p.sizes["n"]) or NOTHING_SAID  # type: ignore[func-returns-value]
    finish(device, [trial(0, 1000.0)])
    assert len(seen) == 51 and seen[-1] == 1000, "its own is the last"


def test_sizes_are_small_where_a_reference_on_the_host_is_slow() -> None:
    device, seen = Track(), list[int]()
    device.host_s = 5.0
    device.edge_case = lambda p, c: seen.append(p.sizes["n"]) or good(1000.0)  # type: ignore[func-returns-value]
    problem, one = replace(PROBLEM, sizes={"n": 2**24}), trial(0, 100.0).configuration
    assert not confirmation.confirm(device, KERNEL, problem, one, 1e5, lambda what: None).reason
    assert len(set(seen)) == len(seen) == VERIFIED_PROBLEMS
    assert {2**20 - 8, 2**21 - 8} <= set(seen) and max(seen) < 2**21, "a vector off 2^20, and twice that"


def test_edge_case_sizes_take_a_limited_time_and_a_slow_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "LATE_S", 0.02)
    said, limits, now = list[str](), list[float](), [0.0]
    monkeypatch.setattr(confirmation, "time", SimpleNamespace(monotonic=lambda: now[0]))

    class Slow(Track):
        def verify_at(
            self, problem: Problem, configuration: Configuration, limit_s: float, *, contents: bool
        ) -> Measurement:
            limits.append(limit_s)
            now[0] += 18.0
            deadline = time.monotonic() + 100
            while sum("still at" in line for line in said) < len(limits) and time.monotonic() < deadline:
                time.sleep(0.01)
            return super().verify_at(problem, configuration, limit_s, contents=contents)

    device = Slow()
    ended = FinalRace(device, KERNEL, PROBLEM, None, said.append, lambda trial, reason: None).run(
        [trial(0, 1000.0)]
    )
    assert ended is not None and ended.exportable
    assert len(ended.edge_cases) == 4 and "limit" in ended.edge_note
    assert limits == [60.0, 42.0, 24.0, 6.0]
    assert any("1 of 12 edge-case sizes are verified; still at n=" in line for line in said)


def test_without_a_process_for_other_sizes_no_trial_is_rejected() -> None:
    device = Track()
    device.edge_case = lambda p, c: (
        good(1.0) if p.sizes["n"] == 1 else Measurement(Status.UNVERIFIED, error="the device is busy")
    )
    ended, rejected = finish_and_rejected(device, [trial(0, 1000.0), trial(1, 1020.0)])
    assert rejected == []
    assert len(device.races) == 1
    assert ended is not None
    assert (ended.winner.number, ended.exportable) == (0, False)
    assert "unverified: the device is busy" in ended.reason


def test_a_wrong_result_at_one_size_rejects_although_another_size_could_not_be_verified() -> None:
    device = Track()

    def edge_case(problem: Problem, configuration: Configuration) -> Measurement:
        if configuration.values["number"] == 1:
            return good(1.0)
        alone = problem.sizes["n"] == 1
        return Measurement(Status.UNVERIFIED if alone else Status.WRONG_RESULT, error="oh")

    device.edge_case = edge_case
    ended, rejected = finish_and_rejected(device, [trial(0, 1000.0), trial(1, 1020.0)])
    assert ended is not None
    assert (ended.winner.number, ended.exportable) == (1, True)
    ((_, reason),) = rejected
    assert "wrong_result: oh" in reason
