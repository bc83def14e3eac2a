"""Time against error: which trials are points, the front, the winner, and the table of dtypes."""

from __future__ import annotations

import itertools
import json
import math
import random
from dataclasses import replace

import pytest

from tuner.core.conditions import Calibration, Conditions, Mode
from tuner.core.errors import UsageError
from tuner.core.model import Configuration, Problem, Run, Status, Trial, Verification
from tuner.devices.base import DEFAULT_NOISE_FLOOR
from tuner.kernel.load import load_kernel
from tuner.kernel.roofline import ARCHITECTURES
from tuner.report.pareto import front_as_json, show_front
from tuner.tuning.accuracy import (
    ERROR_RESOLUTION,
    Best,
    Comparison,
    Point,
    choose,
    pareto_front,
    points_of,
)

FLOOR = 0.005


def noise(time_ns: float) -> float:
    return FLOOR


GEMM = load_kernel("gemm")
HALF, SINGLE, BRAIN = (GEMM.problem({}, {"": dtype}) for dtype in ("float16", "float32", "bfloat16"))
CONDITIONS = Conditions()


def trial(
    number: int,
    time_ns: float | None = 100.0,
    error: float | None = 1e-3,
    status: Status = Status.OK,
    **more: object,
) -> Trial:
    configuration = Configuration.of("plain", {"block_size": number})
    verification = Verification(True, true_error=error)
    return Trial(number, configuration, status, time_ns, verification=verification, id=number, **more)  # type: ignore[arg-type]


def point(time_ns: float, error: float, problem: Problem = HALF, confirmed_ns: float | None = None) -> Point:
    return Point(problem, trial(0, time_ns, error), time_ns, error, confirmed_ns)


def pairs(points: list[Point]) -> list[tuple[float, float]]:
    return [(point.time_ns, point.error) for point in points]


# -- which trials are points


def test_only_verified_trials_with_a_time_and_an_error_are_points() -> None:
    wrong = replace(trial(5), verification=Verification(False, true_error=1e-3))
    trials = [
        trial(0),
        trial(1, status=Status.SLOW),
        trial(2, status=Status.INACCURATE),
        trial(3, status=Status.WRONG_RESULT),
        trial(4, status=Status.UNSTABLE),
        wrong,
        trial(6, error=None),
        trial(7, time_ns=None),
        trial(8, tags=("suspect",)),
        trial(9, error=math.inf),
        replace(trial(10), verification=None),
        trial(11, tags=("noisy",)),
    ]
    assert [point.trial.number for point in points_of(HALF, trials, None)] == [0, 1, 2, 11]


def best(**changes: object) -> Best:
    usual = {"trial_id": 0, "time_ns": 100.0, "confirmed_ns": 101.0, "error": 1.1e-3, "exportable": True}
    return Best(**{**usual, **changes})  # type: ignore[arg-type]


def test_the_race_has_the_last_word_about_times() -> None:
    trials = [
        trial(0, 99.0),
        trial(1, 98.0),  # faster by luck, but the race was fair
        trial(2, 97.0),  # was in the race, and far behind
        trial(3, 90.0, status=Status.INACCURATE),  # was not allowed to race: nothing speaks against its time
        trial(4, 120.0),
        trial(5, 95.0),  # a fresh process could not reproduce it
    ]
    points = points_of(HALF, trials, best(raced_ns={trials[2].configuration: 130.0}, refused=frozenset([5])))
    assert {p.trial.number: p.time_ns for p in points} == {0: 100.0, 1: 100.0, 2: 130.0, 3: 90.0, 4: 120.0}
    assert [p.confirmed_ns for p in points] == [101.0, None, None, None, None]
    assert [p.error for p in points[:2]] == [1.1e-3, 1e-3], "the worse of the winner's two errors"


def test_unconfirmed_winner_is_no_winner() -> None:
    (point,) = points_of(HALF, [trial(0)], best(exportable=False))
    assert point.confirmed_ns is None
    assert choose([point], 1.0, noise) is None


# -- the front


def test_front_is_what_nothing_beats() -> None:
    fast, middle, exact = point(1.0, 1e-2), point(2.0, 1e-3), point(4.0, 1e-6)
    beaten = [point(2.0, 2e-3), point(3.0, 1e-3), point(5.0, 1e-6), point(1.5, 1e-1)]
    mixed = [*beaten, exact, fast, middle]
    assert pareto_front(mixed, noise) == [fast, middle, exact]
    assert pareto_front([], noise) == []
    assert pareto_front([point(1.0, 0.0), point(2.0, 0.0)], noise) == [point(1.0, 0.0)]


def test_ties_do_not_extend_the_front() -> None:
    # In time: the more accurate of two that are equally fast.
    assert pairs(pareto_front([point(100.0, 2e-3), point(100.4, 1e-3)], noise)) == [(100.4, 1e-3)]
    assert len(pareto_front([point(100.0, 2e-3), point(100.6, 1e-3)], noise)) == 2
    # In error: the faster of two that are equally accurate.
    assert pairs(pareto_front([point(100.0, 1.009e-3), point(200.0, 1e-3)], noise)) == [(100.0, 1.009e-3)]
    assert len(pareto_front([point(100.0, 1.011e-3), point(200.0, 1e-3)], noise)) == 2


@pytest.mark.parametrize("seed", range(10))
def test_front_represents_all_and_holds_no_ties(seed: int) -> None:
    draw = random.Random(seed)
    spread = draw.choice([0.01, 0.1, 3.0])
    points = [
        point(1e5 * math.exp(draw.gauss(0, spread)), 1e-3 * math.exp(draw.gauss(0, spread)))
        for _ in range(300)
    ]
    front = pareto_front(points, noise)
    assert all(a.time_ns * (1 + FLOOR) < b.time_ns for a, b in itertools.pairwise(front))
    assert all(a.error > b.error for a, b in itertools.pairwise(front))
    for other in points:
        assert any(
            kept.time_ns <= other.time_ns * (1 + FLOOR) and kept.error <= other.error * (1 + ERROR_RESOLUTION)
            for kept in front
        )
    draw.shuffle(points)
    assert pareto_front(points, noise) == front


# -- the winner


def winner(time_ns: float, error: float, problem: Problem, confirmed_ns: float | None = None) -> Point:
    return point(time_ns, error, problem, time_ns if confirmed_ns is None else confirmed_ns)


def test_fastest_within_the_bound_wins() -> None:
    half, brain, single = winner(100.0, 3e-4, HALF), winner(90.0, 3e-3, BRAIN), winner(400.0, 1e-7, SINGLE)
    all_three = [half, brain, single, point(50.0, 1e-9)]  # the last was not confirmed
    for bound, expected in ((1e-2, brain), (3e-3, brain), (1e-3, half), (1e-5, single)):
        choice = choose(all_three, bound, noise)
        assert choice is not None
        assert choice.winner is expected
        assert choice.tied == ()
    assert choose(all_three, 1e-8, noise) is None


def test_of_equally_fast_dtypes_the_most_accurate_wins() -> None:
    half, brain = winner(100.4, 3e-4, HALF), winner(100.0, 3e-3, BRAIN)
    choice = choose([brain, half], 1e-2, noise)
    assert choice is not None
    assert (choice.winner, choice.tied, choice.noise) == (half, (brain,), FLOOR)
    apart = choose([brain, winner(100.6, 3e-4, HALF)], 1e-2, noise)
    assert apart is not None
    assert apart.winner is brain


def test_a_time_that_did_not_come_back_well_is_a_wider_tie() -> None:
    """Its fresh process was 2 % off: a lead of 1 % says nothing."""
    half, brain = winner(101.0, 3e-4, HALF), winner(102.0, 3e-3, BRAIN, confirmed_ns=100.0)
    choice = choose([half, brain], 1e-2, noise)
    assert choice is not None
    assert choice.winner is half
    assert choice.noise == pytest.approx(0.0196, abs=1e-4)


# -- dtypes together


def calibrated(floor: float) -> Calibration:
    return Calibration({str(CONDITIONS): floor})


def run_of(problem: Problem, floor: float | None = FLOOR, conditions: Conditions = CONDITIONS) -> Run:
    calibration = None if floor is None else calibrated(floor)
    gpu = ARCHITECTURES[90]
    return Run("r", problem, gpu, "cuda:0", conditions=conditions, calibration=calibration)


def comparison(max_error: float = 1e-3) -> Comparison:
    made = Comparison(SINGLE, max_error)
    half = [trial(1, 101.0, 3e-4), trial(2, 150.0, 3e-4)]
    made.add(run_of(HALF, 0.001), half, best(trial_id=1, error=3e-4))
    exact = best(trial_id=3, time_ns=400.0, confirmed_ns=402.0, error=None)
    made.add(run_of(SINGLE), [trial(3, 410.0, 1e-7)], exact)
    made.add(run_of(BRAIN, 0.001), [trial(4, 90.0, 3e-3, Status.INACCURATE)], None)
    return made


def test_comparison_takes_the_larger_noise_and_is_counted_anew() -> None:
    made = comparison()
    assert made.noise_of(100.0) == FLOOR
    assert [p.trial.number for p in made.front] == [4, 1, 3]
    assert made.choice is not None
    assert made.choice.winner.trial.number == 1
    better = best(trial_id=5, time_ns=70.0, confirmed_ns=70.0, error=None)
    made.add(run_of(BRAIN, None), [trial(5, 70.0, 1e-9)], better)
    assert [p.trial.number for p in made.front] == [5]
    assert made.choice.winner.trial.number == 5
    assert [p.trial.number for p in made.others] == [1, 3]


def test_without_a_calibration_the_noise_is_what_is_usual() -> None:
    made = Comparison(SINGLE, 1.0)
    made.add(run_of(HALF, None), [trial(1)], None)
    assert made.noise_of(100.0) == DEFAULT_NOISE_FLOOR


def test_the_noise_of_short_kernels_is_theirs() -> None:
    """100 ns of a cold event are 10 % of a microsecond, and nothing of a millisecond."""
    made = Comparison(SINGLE, 1.0)
    short = replace(run_of(HALF), calibration=replace(calibrated(0.001), short_noise_ns={"cold": 100.0}))
    made.add(short, [trial(1, 1000.0, 1e-3), trial(2, 1090.0, 1e-4)], None)
    made.add(short, [trial(3, 1e6, 1e-5), trial(4, 1.01e6, 1e-6)], None)
    assert [p.trial.number for p in made.front] == [2, 3, 4]


def test_times_under_other_conditions_are_not_compared() -> None:
    made = comparison()
    with pytest.raises(UsageError, match=r"timed warm, rested.*cold, rested.*cannot be compared"):
        made.add(run_of(BRAIN, conditions=Conditions(Mode.WARM)), [trial(6)], None)
    assert [p.trial.number for p in made.points] == [1, 2, 3, 4]


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    made = comparison()
    made.skipped.append((GEMM.problem({}, {"": "bfloat16"}), "its least error is 2e-3\x1b[31m"))
    show_front(made)
    empty, *lines = capsys.readouterr().out.splitlines()
    assert empty == ""
    assert "gemm m=4096 n=4096 k=4096 layout=nn" in lines[0]
    assert "0.001 allowed" in lines[0]
    assert "cold, rested" in lines[0]
    assert "float" not in lines[0]
    assert [line.split()[0] for line in lines[2:5]] == ["bfloat16", "float16", "float32"]
    assert "too inaccurate" in lines[2]
    assert "winner" in lines[3]
    assert "101 ns" in lines[3]
    assert "3.00e-04" in lines[3]
    assert lines[5] == "  bfloat16: its least error is 2e-3\\x1b[31m"
    assert lines[6] == "  winner: float16, 101 ns in a fresh process, error 3.00e-04"
    assert len(lines) == 7


def test_table_says_when_there_is_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    show_front(comparison(max_error=1e-9))
    none = "  no confirmed winner is within an error of 1e-09"
    assert capsys.readouterr().out.splitlines()[-1] == f"{none}; the least error was 1.00e-07 (float32)"
    show_front(Comparison(SINGLE, 1e-9))
    assert capsys.readouterr().out.splitlines()[-1] == none


def test_table_says_ties(capsys: pytest.CaptureFixture[str]) -> None:
    made = comparison(max_error=1e-2)
    near = best(trial_id=7, time_ns=101.2, confirmed_ns=101.2, error=None)
    made.add(run_of(BRAIN), [trial(7, 101.2, 3e-3)], near)
    show_front(made)
    out = capsys.readouterr().out
    said = " ".join(out.split())
    assert "as fast as bfloat16 within the noise (1.0 %), and more accurate" in said
    row = next(line for line in out.splitlines() if line.startswith("bfloat16") and "101.2 ns" in line)
    assert "tied" in row
    assert "not on the front" in row


def test_json() -> None:
    data = json.loads(json.dumps(front_as_json(comparison(), complete=True), allow_nan=False))
    assert data["truth"]["dtypes"]["input"] == "float32"
    assert (data["mode"], data["regime"], data["max_error"]) == ("cold", "rested", 1e-3)
    assert data["winner"]["dtype"] == "float16"
    assert data["winner"]["configuration"] == {"block_size": 1}
    assert [(p["dtype"], p["allowed"]) for p in data["front"]] == [
        ("bfloat16", False),
        ("float16", True),
        ("float32", True),
    ]
    assert front_as_json(comparison(), complete=False)["winner"] is None
