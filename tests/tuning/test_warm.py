"""Winners of short problems hold in the run's mode and warm, back to back."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.commands import said_by
from tests.faults.command_line import Fake
from tests.faults.stub_device import StubDevice, Watcher, good, stop_after
from tests.sessions import run
from tuner.conditions import Conditions, Mode, Regime
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.devices.base import RaceRequest, RaceRound
from tuner.errors import Interrupted
from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration, Problem, Resources, Status, Trial
from tuner.report.summary import result_as_json, summary
from tuner.report.tables import WINNER_COLUMNS, winner_record
from tuner.stats import Verdict
from tuner.tuning.finalists import FINALISTS, LEADERS, TIMED_WARM
from tuner.tuning.finish import Finish
from tuner.tuning.race import FinalRace
from tuner.winners.current import best_winners

PROBLEM = Problem("scale", {"n": 1000}, {"input": "float32"})


def trial(number: int, us: float, variant: str = "plain") -> Trial:
    configuration = Configuration.of(variant, {"number": number})
    return Trial(number, configuration, Status.OK, us * 1e3, resources=Resources(32 + number))


class TwoModes(StubDevice):
    """A device on which configurations take given times, in us, in its own mode and warm.

    Args:
        times: by number, in its mode and warm.
        noise: standard deviation of a sample, relative.
    """

    def __init__(self, times: dict[int, tuple[float, float]], noise: float = 1e-4) -> None:
        super().__init__()
        self.times, self.noise = times, noise
        self.modes: list[Mode | None] = []
        self.warm_races: list[list[int]] = []
        self.conditions = Conditions(Mode.ROTATING)
        self.confirmed = lambda c, time_ns: good(self.times[number_of(c)][0] * 1e3)

    def race(self, request: RaceRequest) -> RaceRound:
        self.modes.append(request.mode)
        numbers = [number_of(one) for one in request.configurations]
        if request.mode is Mode.WARM:
            self.warm_races.append(numbers)
        answer = super().race(request)
        if answer.failed is not None:
            return answer
        draw = random.Random(request.seed + (request.mode is Mode.WARM))
        times_ns = [self.times[number][request.mode is Mode.WARM] * 1e3 for number in numbers]
        return RaceRound(
            [
                [[t * (1 + draw.gauss(0, self.noise)) for _ in range(request.samples)] for t in times_ns]
                for _ in range(request.rounds)
            ]
        )


def number_of(configuration: Configuration) -> int:
    return int(configuration.values["number"])


def finish(
    device: TwoModes, trials: list[Trial] | None = None, rejected: list[str] | None = None, **changes: Any
) -> Finish:
    if trials is None:
        trials = [trial(number, times[0]) for number, times in device.times.items()]

    def reject(trial: Trial, reason: str) -> None:
        if rejected is not None:
            rejected.append(f"{trial.number}: {reason}")

    changes = {"warm": True, **changes}
    ended = FinalRace(
        device, PROBLEM, changes.pop("default", None), lambda what: None, reject, **changes
    ).run(trials)
    assert ended is not None
    return ended


# -- the choice


def test_the_fastest_in_the_runs_mode_stays_where_it_is_as_fast_warm() -> None:
    ended = finish(TwoModes({0: (10.0, 8.0), 1: (10.5, 8.0), 2: (10.2, 8.3)}))
    assert ended.winner.number == 0
    assert ended.race_verdict is Verdict.FASTER
    assert ended.warm is not None and ended.warm.passed_over is None
    assert ended.warm.time_ns == pytest.approx(8e3, rel=1e-3)
    assert ended.warm.behind == pytest.approx(1.0, abs=2e-3)


def test_tied_are_those_that_are_as_fast_in_both_modes() -> None:
    ended = finish(TwoModes({0: (10.0, 8.0), 1: (10.0, 8.5), 2: (10.0, 8.0)}))
    assert ended.tied == 2


def test_the_winner_is_the_one_whose_worse_mode_is_best() -> None:
    """0 loses 12 % warm, 1 is the best warm and loses 9 % otherwise; 2 loses 3 % in each."""
    ended = finish(TwoModes({0: (10.0, 9.0), 1: (10.9, 8.0), 2: (10.3, 8.24), 3: (10.4, 9.5)}))
    assert ended.winner.number == 2
    assert ended.time_ns == pytest.approx(10.3e3, rel=1e-3)
    assert ended.race_verdict is Verdict.SLOWER  # than the fastest in that mode, which is said
    assert ended.warm is not None and ended.warm.passed_over is not None
    assert ended.warm.passed_over.number == 0
    assert ended.warm.passed_over_behind == pytest.approx(1.125, rel=1e-2)
    assert (ended.warm.behind, ended.warm.behind_in_mode) == pytest.approx((1.03, 1.03), rel=1e-2)
    assert ended.tied == 1


def test_worse_modes_within_the_noise_are_decided_by_the_runs_mode() -> None:
    assert finish(TwoModes({0: (10.0, 9.0), 1: (10.3, 8.0), 2: (10.2, 8.24)})).winner.number == 2
    assert finish(TwoModes({0: (10.0, 8.2), 1: (10.25, 8.0)})).winner.number == 0


def test_the_best_of_the_worse_modes_races_where_it_leads_in_neither() -> None:
    extremes = {i: (10.0 + i / 100, 12.4) for i in range(4)} | {
        i: (12.4, 10.0 + i / 100) for i in range(4, 8)
    }
    assert finish(TwoModes({**extremes, 8: (11.2, 11.2)})).winner.number == 8


def test_a_preferred_one_has_to_be_equally_fast_in_both_modes() -> None:
    def prefer(configuration: Configuration) -> bool:
        return number_of(configuration) != 1

    assert finish(TwoModes({0: (10.0, 8.0), 1: (10.2, 8.0)}), prefer=prefer).winner.number == 0
    assert finish(TwoModes({0: (10.0, 8.0), 1: (10.0, 8.2)}), prefer=prefer).winner.number == 0
    assert finish(TwoModes({0: (10.0, 8.0), 1: (10.05, 8.04)}), prefer=prefer).winner.number == 1


def test_what_warm_samples_leave_open_changes_nothing() -> None:
    class NoisyWarm(TwoModes):
        def race(self, request: RaceRequest) -> RaceRound:
            self.noise = 0.3 if request.mode is Mode.WARM else 1e-4
            return super().race(request)

    ended = finish(NoisyWarm({0: (10.0, 8.6), 1: (10.1, 8.0)}))
    assert ended.warm is not None and ended.warm.behind > 1.02
    assert (ended.winner.number, ended.warm.race_verdict) == (0, Verdict.AMBIGUOUS)


def test_a_loss_warm_is_kept_where_every_other_loses_more() -> None:
    ended = finish(TwoModes({0: (10.0, 8.2), 1: (10.9, 8.0)}))
    assert ended.winner.number == 0
    assert ended.warm is not None and ended.warm.passed_over is None
    assert ended.warm.behind == pytest.approx(1.025, rel=1e-2)


def test_a_difference_within_the_noise_of_the_samples_changes_nothing() -> None:
    ended = finish(TwoModes({0: (10.0, 8.04), 1: (10.3, 8.0)}, noise=0.03))
    assert ended.winner.number == 0


def test_one_that_is_no_finalist_by_the_search_alone_can_win() -> None:
    """Beyond the ten percent within which candidates race, and with eight others before it."""
    times = {number: (10.0 + 0.05 * number, 9.6) for number in range(12)}
    ended = finish(TwoModes({**times, 20: (11.2, 8.0)}))
    assert ended.winner.number == 20


def test_the_default_is_compared_in_both_modes() -> None:
    device = TwoModes({0: (20.0, 24.0), 1: (10.0, 8.0)})
    ended = finish(device, default=trial(0, 20.0))
    assert ended.ratio is not None and ended.ratio.median == pytest.approx(2.0, rel=1e-2)
    assert ended.warm is not None and ended.warm.ratio is not None
    assert ended.warm.ratio.median == pytest.approx(3.0, rel=1e-2)
    assert ended.warm.verdict is Verdict.FASTER
    assert 0 not in device.warm_races[0]  # so slow that it need not be timed to choose finalists


# -- what is timed warm


def test_few_are_timed_warm_and_fewer_race() -> None:
    """The fastest, the best of each variant, and what was tried first; the leaders of both modes are among the last."""
    device = TwoModes({number: (10.0 + 0.02 * number, 9.0 - 0.001 * number) for number in range(60)})
    trials = [trial(number, times[0]) for number, times in device.times.items()]
    trials[40] = trial(40, device.times[40][0], "other")
    finish(device, trials, initial={trials[50].configuration})
    assert sorted(device.warm_races[0]) == [*range(TIMED_WARM), 40, 50]
    raced = set(numbers(device.races[1]))
    assert {*range(LEADERS), 50, 40, TIMED_WARM - 1} <= raced
    assert len(raced) <= FINALISTS + 2 * LEADERS
    assert device.modes[:3] == [Mode.WARM, None, None] or device.modes[:3] == [Mode.WARM, None, Mode.WARM]


def test_of_a_hundred_the_winner_is_nearly_the_best_in_its_worse_mode() -> None:
    """The search is off by a percent, samples by half a percent, and the ratio of both modes varies by 7 %."""
    behind = []
    for seed in range(8):
        draw = random.Random(seed)
        times = {}
        for number in range(100):
            us = 10 * (1 + abs(draw.gauss(0, 0.25)))
            times[number] = us, us * draw.gauss(0.85, 0.07)
        trials = [trial(number, us * (1 + draw.gauss(0, 0.01))) for number, (us, _) in times.items()]
        best = [min(both[mode] for both in times.values()) for mode in (0, 1)]
        worst = {number: max(us / best[0], warm / best[1]) for number, (us, warm) in times.items()}
        winner = finish(TwoModes(times, noise=5e-3), trials).winner
        behind.append(worst[winner.number] / min(worst.values()))
    assert max(behind) < 1.02 and sum(behind) / len(behind) < 1.005, behind


def numbers(configurations: Sequence[Configuration]) -> list[int]:
    return [number_of(configuration) for configuration in configurations]


def test_one_that_fails_warm_is_rejected_if_it_is_a_finalist() -> None:
    """What cannot be called again and again is no winner, whatever its time with cold data."""
    device = TwoModes({0: (10.0, 8.0), 1: (10.2, 8.1)})
    device.fail_in_race = lambda contestants: next(
        (
            i
            for i, c in enumerate(device.races[-1])
            if number_of(c) == 0 and device.modes[-1] is Mode.WARM and len(device.modes) > 1
        ),
        None,
    )
    rejected: list[str] = []
    ended = finish(device, rejected=rejected)
    assert ended.winner.number == 1
    assert ended.warm is not None
    assert rejected == ["0: warm, back to back: it failed in the race"]


def test_one_that_fails_while_finalists_are_chosen_is_no_finalist_but_not_rejected() -> None:
    device = TwoModes({0: (10.0, 9.0), 1: (10.3, 8.0), 2: (10.1, 8.5)})
    device.fail_in_race = lambda contestants: (
        next((i for i, c in enumerate(device.races[-1]) if number_of(c) == 1), None)
        if device.modes[-1] is Mode.WARM and len(device.races) < 3
        else None
    )
    rejected: list[str] = []
    ended = finish(device, rejected=rejected)
    assert rejected == []
    assert ended.winner.number == 2
    assert all(1 not in numbers(race) for race in device.races[1:])


def test_where_nothing_can_be_timed_warm_the_runs_mode_decides() -> None:
    device = TwoModes({0: (10.0, 9.0), 1: (10.3, 8.0)})
    device.fail_in_race = lambda contestants: 0 if device.modes[-1] is Mode.WARM else None
    ended = finish(device)
    assert ended.winner.number == 0
    assert ended.warm is None


# -- in a run


class Short(StubDevice):
    """A device on which the kernel ``scale`` is short: one item a thread is best cold, two are best warm."""

    def __init__(self, unit_us: float = 10.0) -> None:
        super().__init__()
        self.unit_us = unit_us
        self.modes: list[Mode | None] = []
        self.answer = lambda c: good(self.time_ns(c, None))
        self.confirmed = lambda c, time_ns: good(self.time_ns(c, None))

    def time_ns(self, configuration: Configuration, mode: Mode | None) -> float:
        items, block = (int(configuration.values[name]) for name in ("items", "block_size"))
        cold, warm = {1: (1.0, 1.2), 2: (1.04, 1.0)}.get(items, (1.1, 1.3))
        warm_now = mode is Mode.WARM or self.conditions.mode is Mode.WARM
        return 1e3 * self.unit_us * ((warm if warm_now else cold) + 1e-5 * block)

    def race(self, request: RaceRequest) -> RaceRound:
        self.modes.append(request.mode)
        draw = random.Random(request.seed)
        times_ns = [self.time_ns(one, request.mode) for one in request.configurations]
        return RaceRound(
            [
                [[t * (1 + draw.gauss(0, 1e-4)) for _ in range(request.samples)] for t in times_ns]
                for _ in range(request.rounds)
            ]
        )


def items_of(configuration: Configuration) -> object:
    return configuration.values["items"]


def test_a_short_problem_is_won_by_what_holds_in_both_modes(database: Database, kernel: KernelSpec) -> None:
    watcher = Watcher()
    result = run(kernel, database, Short(), watcher)
    assert result.finish is not None and items_of(result.finish.winner.configuration) == 2
    assert any("warm, back to back" in phase for phase in watcher.phases)
    text = summary(result, Path("x.db"))
    said = " ".join(text.split())
    assert "because it holds back to back: " in said
    assert "% behind the fastest cold, as fast as the fastest warm" in said
    data = json.loads(json.dumps(result_as_json(result)))
    warm = data["winner"]["warm"]
    assert warm["time_ns"] == pytest.approx(10e3, rel=2e-2)
    assert warm["behind_in_mode"] == pytest.approx(1.04, abs=1e-2)
    assert warm["versus_default"]["ratio"] == pytest.approx(1.2, abs=2e-2)
    assert data["race"]["warm"]["passed_over"]["configuration"]["items"] == 1
    assert data["race"]["warm"]["passed_over_behind"] == pytest.approx(1.2, abs=1e-2)


@pytest.mark.parametrize(
    ("unit_us", "changes"),
    [
        (100.0, {}),  # long: both modes say the same
        (10.0, {"mode": Mode.COLD, "one_mode": True}),
        (10.0, {"regime": Regime.SUSTAINED}),
    ],
)
def test_one_mode_decides_where_the_other_cannot_or_should_not(
    database: Database, kernel: KernelSpec, unit_us: float, changes: dict[str, Any]
) -> None:
    device = Short(unit_us)
    result = run(kernel, database, device, **changes)
    assert result.finish is not None and items_of(result.finish.winner.configuration) == 1
    assert set(device.modes) == {None}
    assert result_as_json(result)["winner"]["warm"] is None


def test_data_that_evict_each_other_from_the_l2_are_not_timed_warm(
    database: Database, kernel: KernelSpec
) -> None:
    device = Short()
    gpu = device.gpu
    for factor, modes in ((1.1, {None}), (0.9, {None, Mode.WARM})):
        n = int(factor * 2.5 * gpu.l2_bytes / 8)
        run(kernel, database, device, problem=kernel.problem({"n": n}))
        assert set(device.modes) == modes
        device.modes.clear()


def test_a_resumed_run_keeps_to_its_mode(database: Database, kernel: KernelSpec) -> None:
    watcher, device = Watcher(), Short()
    with pytest.raises(Interrupted):
        run(kernel, database, device, watcher, mode=Mode.COLD, one_mode=True, stop=stop_after(watcher, 5))
    result = run(kernel, database, device, resume=True)
    assert result.finish is not None and result.finish.warm is None


# -- what is kept


def test_the_database_keeps_the_warm_time_of_the_winner(database: Database, kernel: KernelSpec) -> None:
    run(kernel, database, Short())
    (stored,) = database.winners(Filters()).rows
    warm = stored.winner.warm
    assert warm is not None and warm.counts
    assert warm.time_ns == pytest.approx(10e3, rel=2e-2)
    assert warm.verdict == "faster"
    assert stored.winner.race["warm_race"]["passed_over"]
    record = winner_record(stored)
    assert record["warm_time_ns"] == warm.time_ns
    assert {name for name in record if name.startswith("warm_")} <= set(WINNER_COLUMNS)


def best_items(database: Database, mode: str = "") -> list[object]:
    filters = Filters(mode=mode, exportable=True)
    (best,) = best_winners(database, filters).rows
    (first, *_) = database.winners(filters).rows
    assert first.id == best.stored.id  # `tune export` and `tune best` agree
    return [items_of(best.stored.winner.configuration), best.stored.winner.time_ns]


def test_what_holds_in_both_modes_goes_before_what_is_faster_in_one(
    database: Database, kernel: KernelSpec
) -> None:
    run(kernel, database, Short(), mode=Mode.COLD, one_mode=True)
    assert best_items(database)[0] == 1
    result = run(kernel, database, Short(), from_scratch=False)
    assert result.finish is not None and result.finish.incumbent is not None
    assert best_items(database)[0] == 2
    assert best_items(database, "cold")[0] == 1, "of one mode the fastest"
    run(kernel, database, Short(0.99e1), mode=Mode.COLD, one_mode=True)
    assert best_items(database)[0] == 2


def test_a_run_that_did_not_race_the_best_known_does_not_take_its_place(
    database: Database, kernel: KernelSpec
) -> None:
    run(kernel, database, Short(), mode=Mode.COLD, one_mode=True)
    run(kernel, database, Short(), seed=1, variants=("plain",), fixed={"items": (2,)})
    assert best_items(database)[0] == 1


def test_of_two_that_hold_the_better_in_its_worse_mode_is_best(
    database: Database, kernel: KernelSpec
) -> None:
    """The first is faster cold by 3 %, the second warm by 10 %."""

    class Other(Short):
        def time_ns(self, configuration: Configuration, mode: Mode | None) -> float:
            return super().time_ns(configuration, mode) * (1.03 if mode is None else 0.9)

    run(kernel, database, Short(), fixed={"items": (2,)})
    (first,) = (stored.id for stored in database.winners(Filters()).rows)
    assert best_items(database)[1] < 10.6e3
    run(kernel, database, Other(), fixed={"items": (2,)}, from_scratch=False)
    (best,) = best_winners(database, Filters()).rows
    assert best.stored.id != first and best.stored.winner.time_ns > 10.6e3


@pytest.mark.parametrize("race", ["{", "[]", '{"warm": {"time_ns": "fast", "counts": true}}'])
def test_a_damaged_race_hides_no_other_winner(database: Database, kernel: KernelSpec, race: str) -> None:
    for unit_us in (10.0, 11.0):
        run(kernel, database, Short(unit_us))
    with closing(sqlite3.connect(database.path)) as connection, connection:
        connection.execute("UPDATE winners SET race = ? WHERE id = 1", (race,))
    assert best_items(database)[1] == pytest.approx(11.4e3, rel=2e-2)
    assert len(database.winners(Filters()).damaged) == 1


# -- on the command line


def test_commands_show_the_warm_time_of_the_winner(
    kernel: KernelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tuner.cli.run.open_device", lambda *_: Short())
    wanted = ("--kernel", str(kernel.file), "--trials", "40", "--sampler", "random", "-q", "--json")
    (both,) = json.loads(said_by(capsys, *wanted).out)
    assert both["winner"]["configuration"]["items"] == 2
    (alone,) = json.loads(said_by(capsys, *wanted, "--mode", "cold", "--from-scratch").out)
    assert alone["mode"] == both["mode"] == "cold"
    assert alone["winner"]["configuration"]["items"] == 1 and alone["winner"]["warm"] is None
    (best,) = json.loads(said_by(capsys, "best", "--json").out)
    assert best["parameters"]["items"] == 2
    assert best["warm_time_ns"] == both["winner"]["warm"]["time_ns"]
    head, row = said_by(capsys, "best").out.splitlines()
    assert row[head.index("warm") :].startswith("10.")
    (fastest,) = json.loads(said_by(capsys, "best", "--mode", "cold", "--json").out)
    assert fastest["parameters"]["items"] == 1 and fastest["warm_time_ns"] is None


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_what_is_stopped_while_it_is_timed_warm_goes_on(
    kernel: KernelSpec, tmp_path: Path, sent: int
) -> None:
    """The finish begins anew, and ends as that of a run that nothing has stopped."""
    arguments = ("--kernel", str(kernel.file), "--trials", "8", "-q", "--json", "--from-scratch")
    log = tmp_path / "log"
    settings = {"FAKE_SCALE": "0.02", "FAKE_LOG": str(log)}
    stopped = Fake(tmp_path, *arguments, **settings)
    deadline = time.monotonic() + 60.0
    while not (log.exists() and "race warm" in log.read_text()):
        assert stopped.process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    stopped.process.send_signal(sent)
    assert stopped.ends().code in (-signal.SIGKILL, 130)
    said = Fake(tmp_path, *arguments, "--resume", **settings).ends()
    assert said.code == 0, said.err
    (resumed,) = json.loads(said.out)
    (unbroken,) = json.loads(Fake(tmp_path, *arguments, "--db", "other.db", **settings).ends().out)
    assert resumed["stats"]["trials"] == unbroken["stats"]["trials"] == 8
    assert resumed["winner"]["configuration"] == unbroken["winner"]["configuration"]
    assert resumed["winner"]["warm"]["time_ns"] == unbroken["winner"]["warm"]["time_ns"]
