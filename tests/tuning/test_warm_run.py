"""A run of a short problem: its winner is chosen by both modes, in the database and on the command line, too."""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.commands import said_by
from tests.faults.command_line import Fake
from tests.faults.stub_device import StubDevice, Watcher, good, stop_after
from tests.sessions import run
from tuner.children.measuring import Raced, RaceFailed
from tuner.core.conditions import Mode, Regime
from tuner.core.errors import Interrupted
from tuner.core.model import Configuration
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.devices.base import RaceRequest
from tuner.kernel.spec import KernelSpec
from tuner.report.result_record import result_as_json
from tuner.report.summary import summary
from tuner.report.tables import WINNER_COLUMNS, winner_record
from tuner.winners.current import best_winners

# -- in a run


class Short(StubDevice):
    """A device on which the kernel ``scale`` is short: one item a thread is best cold, two are best warm."""

    def __init__(self, unit_us: float = 10.0) -> None:
        super().__init__()
        self.unit_us, self.race_noise = unit_us, 1e-4
        self.modes: list[Mode | None] = []
        self.answer = lambda c: good(self.raced_ns(c, None))
        self.confirmed = lambda c, time_ns: good(self.raced_ns(c, None))

    def raced_ns(self, configuration: Configuration, mode: Mode | None) -> float:
        items, block = (int(configuration.values[name]) for name in ("items", "block_size"))
        cold, warm = {1: (1.0, 1.2), 2: (1.04, 1.0)}.get(items, (1.1, 1.3))
        warm_now = mode is Mode.WARM or self.conditions.mode is Mode.WARM
        return 1e3 * self.unit_us * ((warm if warm_now else cold) + 1e-5 * block)

    def _race(self, request: RaceRequest) -> Raced | RaceFailed:
        self.modes.append(request.mode)
        return super()._race(request)


def items_of(configuration: Configuration) -> object:
    return configuration.values["items"]


def test_a_short_problem_is_won_by_what_holds_in_both_modes(database: Database, kernel: KernelSpec) -> None:
    watcher = Watcher()
    result = run(kernel, database, Short(), watcher)
    assert result.finish is not None and items_of(result.finish.winner.configuration) == 2
    assert any("warm, back to back" in phase for phase in watcher.phases)
    text = summary(result, Path("x.db"))
    said = " ".join(text.split())
    assert "because it is also fast with warm caches: " in said
    assert "% behind the fastest cold, as fast as the fastest warm" in said
    data = json.loads(json.dumps(result_as_json(result)))
    warm = data["winner"]["warm"]
    assert warm["time_ns"] == pytest.approx(10e3, rel=2e-2)
    assert warm["behind_in_mode"] == pytest.approx(1.04, abs=1e-2)
    assert warm["versus_default"]["ratio"] == pytest.approx(1.2, abs=2e-2)
    assert data["race"]["warm"]["passed_over"]["configuration"]["items"] == 1
    assert data["race"]["warm"]["passed_over_behind"] == pytest.approx(1.2, abs=1e-2)
    (stored,) = database.winners(Filters()).rows
    kept = stored.winner.warm
    assert kept is not None and kept.counts and kept.verdict == "faster"
    assert kept.time_ns == pytest.approx(10e3, rel=2e-2)
    assert stored.winner.race["warm_race"]["passed_over"]
    record = winner_record(stored)
    assert record["warm_time_ns"] == kept.time_ns
    assert {name for name in record if name.startswith("warm_")} <= set(WINNER_COLUMNS)


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


def test_data_larger_than_the_l2_are_timed_warm_as_well(database: Database, kernel: KernelSpec) -> None:
    device = Short()
    run(kernel, database, device, problem=kernel.problem({"n": 3 * device.gpu.l2_bytes // 8}))
    assert set(device.modes) == {None, Mode.WARM}


def test_a_resumed_run_keeps_to_its_mode(database: Database, kernel: KernelSpec) -> None:
    watcher, device = Watcher(), Short()
    with pytest.raises(Interrupted):
        run(kernel, database, device, watcher, mode=Mode.COLD, one_mode=True, stop=stop_after(watcher, 5))
    result = run(kernel, database, device, resume=True)
    assert result.finish is not None and result.finish.warm is None


# -- what is kept


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
        def raced_ns(self, configuration: Configuration, mode: Mode | None) -> float:
            return super().raced_ns(configuration, mode) * (1.03 if mode is None else 0.9)

    run(kernel, database, Short(), fixed={"items": (2,)})
    (first,) = (stored.id for stored in database.winners(Filters()).rows)
    assert best_items(database)[1] < 10.6e3
    run(kernel, database, Other(), fixed={"items": (2,)}, from_scratch=False)
    (best,) = best_winners(database, Filters()).rows
    assert best.stored.id != first and best.stored.winner.time_ns > 10.6e3


def test_a_damaged_race_hides_no_other_winner(database: Database, kernel: KernelSpec) -> None:
    for unit_us in (10.0, 11.0):
        run(kernel, database, Short(unit_us))
    for race in ("{", "[]", '{"warm": {"time_ns": "fast", "counts": true}}'):
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
    wanted = ("--kernel", str(kernel.file), "--trials", "24", "--sampler", "random", "-q", "--json")
    (both,) = json.loads(said_by(capsys, *wanted).out)
    assert both["winner"]["configuration"]["items"] == 2
    (alone,) = json.loads(said_by(capsys, *wanted, "--mode", "cold", "--from-scratch").out)
    assert alone["mode"] == both["mode"] == "cold"
    assert alone["winner"]["configuration"]["items"] == 1 and alone["winner"]["warm"] is None
    (best,) = json.loads(said_by(capsys, "best", "--json").out)
    assert best["parameters"]["items"] == 2
    assert best["warm_time_ns"] == both["winner"]["warm"]["time_ns"]
    head, row = said_by(capsys, "best", "--full").out.splitlines()
    assert row[head.index("warm") :].startswith("10")
    (fastest,) = json.loads(said_by(capsys, "best", "--mode", "cold", "--json").out)
    assert fastest["parameters"]["items"] == 1 and fastest["warm_time_ns"] is None


@pytest.mark.usefixtures("any_code")
def test_what_is_killed_while_it_is_timed_warm_goes_on(kernel: KernelSpec, tmp_path: Path) -> None:
    """The finish begins anew, and ends as that of a run that nothing has stopped."""
    arguments = ("--kernel", str(kernel.file), "--trials", "8", "-q", "--json", "--from-scratch")
    log = tmp_path / "log"
    settings = {"FAKE_SCALE": "0.02", "FAKE_LOG": str(log)}
    stopped = Fake(tmp_path, *arguments, **settings, FAKE_RACE="hang", FAKE_PATIENCE_S="0.3")
    deadline = time.monotonic() + 100.0
    while not (log.exists() and "race warm" in log.read_text()):
        assert stopped.process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    stopped.process.kill()
    assert stopped.ends().code == -signal.SIGKILL
    said = Fake(tmp_path, *arguments, "--resume", **settings).ends()
    assert said.code == 0, said.err
    (resumed,) = json.loads(said.out)
    (unbroken,) = json.loads(Fake(tmp_path, *arguments, "--db", "other.db", **settings).ends().out)
    assert resumed["stats"]["trials"] == unbroken["stats"]["trials"] == 8
    assert resumed["winner"]["configuration"] == unbroken["winner"]["configuration"]
    assert resumed["winner"]["warm"]["time_ns"] == unbroken["winner"]["warm"]["time_ns"]
