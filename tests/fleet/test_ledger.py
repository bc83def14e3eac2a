"""The head's side of the database: rows that are sent twice are written once, and those of a lost task not at all."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests.fleets import problems
from tuner.core.model import Configuration, Run, RunOptions, Status, Trial
from tuner.database.database import Database
from tuner.database.records import Metrics, Winner
from tuner.fleet.ledger import Ledger
from tuner.fleet.messages import Answered, Call, Calls
from tuner.fleet.remote import call_of
from tuner.kernel.roofline import ARCHITECTURES

RUN = "00000000-0000-0000-0000-000000000001"
FIRST = Configuration.of("plain", {"block_size": 64})


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    with Database.open(tmp_path / "tuning.db") as database:
        ledger = Ledger(database)
        ledger.give_out("0.1", ["cuda:0"])
        yield ledger


def started(run: str = RUN) -> Call:
    return call_of(
        "start_run",
        Run(run, problems(1)[0], ARCHITECTURES[90], "cuda:0", RunOptions(sampler="random", trials=8)),
        {},
    )


def trial(number: int, configuration: Configuration = FIRST) -> Call:
    return call_of("record", RUN, Trial(number, configuration, Status.OK, 5.0, samples_ns=(5.0,)), Metrics())


def write(ledger: Ledger, key: int, *calls: Call, task: str = "0.1") -> Answered:
    return ledger.answer([Calls(task, key, calls)])[0]


def count(ledger: Ledger, table: str) -> int:
    return ledger.database.tables[table].count_where("1", [])


def numbers(ledger: Ledger) -> set[int]:
    answer = write(ledger, 4, call_of("rows", RUN))
    assert not answer.error
    return set(msgspec.msgpack.decode(answer.value, type=dict[int, int]))


def test_rows_that_come_twice_are_written_once(ledger: Ledger) -> None:
    write(ledger, 1, started())
    for _ in range(2):
        assert not write(ledger, 2, call_of("attempt", RUN, 0, FIRST)).error
    assert count(ledger, "attempts") == 1
    for _ in range(3):
        assert not write(ledger, 3, trial(0)).error
    assert (count(ledger, "attempts"), count(ledger, "trials")) == (0, 1)
    both = (call_of("attempt", RUN, 1, FIRST), call_of("rows", RUN))  # what writes and reads at once, too
    assert [write(ledger, 4, *both).error for _ in range(2)] == ["", ""]
    assert count(ledger, "attempts") == 1


def test_what_cannot_be_written_leaves_the_others_rows(ledger: Ledger) -> None:
    other = "00000000-0000-0000-0000-000000000002"
    ledger.give_out("1.1", ["cuda:1"])
    write(ledger, 1, started())
    write(ledger, 2, trial(0))
    clash = Configuration.of("plain", {"block_size": 128})
    answers = ledger.answer(
        [Calls("1.1", 1, (started(other),)), Calls("0.1", 3, (trial(1), trial(0, clash)))]
    )
    assert not answers[0].error and answers[1].error
    assert count(ledger, "runs") == 2
    assert count(ledger, "trials") == 1  # not half of what was sent together
    assert numbers(ledger) == {0}
    assert not write(ledger, 3, trial(1, clash)).error
    assert numbers(ledger) == {0, 1}


def test_what_is_no_call_is_refused_and_the_head_goes_on(ledger: Ledger) -> None:
    for call in (
        Call("delete_run", msgspec.Raw(b"\x91\xa1a")),
        Call("attempt", msgspec.Raw(b"\x93\xa1a\xc0\xc0")),
    ):
        assert write(ledger, 1, call).error
    assert not write(ledger, 1, started()).error


def test_a_task_that_was_taken_back_writes_no_more(ledger: Ledger) -> None:
    write(ledger, 1, started())
    write(ledger, 2, trial(0))
    run = ledger.take_back("0.1", innocent=True)
    assert run is not None and run.id == RUN
    assert write(ledger, 3, trial(1)).error
    assert write(ledger, 4, call_of("rows", RUN)).error
    assert ledger.database.latest_unfinished(run.problem, "cuda:0") == run


def test_a_run_outlives_a_searcher_that_had_not_begun_to_go_on(ledger: Ledger) -> None:
    write(ledger, 1, started())
    write(ledger, 2, trial(0))
    run = ledger.take_back("0.1", innocent=True)
    ledger.give_out("0.2", ["cuda:0", "cuda:1"], run)
    assert ledger.take_back("0.2", innocent=False) == run


def test_a_run_that_has_measured_nothing_begins_anew(ledger: Ledger) -> None:
    write(ledger, 1, started())
    assert ledger.take_back("0.1", innocent=True) is None
    assert count(ledger, "runs") == 0


@pytest.mark.parametrize("innocent", [False, True])
def test_what_ended_a_searcher_is_remembered(ledger: Ledger, innocent: bool) -> None:
    write(ledger, 1, started(), call_of("attempt", RUN, 0, FIRST))
    run = ledger.take_back("0.1", innocent=innocent)
    assert (run is None, count(ledger, "attempts")) == (innocent, 0 if innocent else 1)


def test_a_run_that_has_ended_is_not_given_out_again(ledger: Ledger) -> None:
    write(ledger, 1, started())
    write(ledger, 2, trial(0), call_of("finish_run", RUN, "finished", {}, forget_attempts=True))
    result = ledger.finished("0.1")
    assert result is not None and result.run == RUN and result.nothing
    said = json.loads(result.record)
    assert (said["run"], said["device"], said["replayed"], said["winner"]) == (RUN, "cuda:0", False, None)
    assert ledger.take_back("0.1", innocent=False) is None
    assert ledger.database.run_state(RUN)["state"] == "finished"


def test_a_winner_outlives_its_searcher(ledger: Ledger) -> None:
    write(ledger, 1, started())
    row = msgspec.msgpack.decode(write(ledger, 2, trial(0)).value, type=int)
    winner = Winner(row, FIRST, 4.0, exportable=True, reason="why")
    write(ledger, 3, call_of("record_winner", RUN, winner))
    write(ledger, 4, call_of("finish_run", RUN, "finished", {}, forget_attempts=True))
    result = ledger.finished("0.1")
    assert result is not None and (result.run, result.nothing) == (RUN, "")
    assert f"winner     #{row}: {FIRST}" in result.summary
    assert json.loads(result.record)["winner"] == {
        "trial": row, "variant": "plain", "configuration": {"block_size": 64}, "time_ns": 4.0,
        "exportable": True, "reason": "why",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("devices", "named"),
    [(["cuda:0", "cuda:1"], {"devices": ["cuda:0", "cuda:1"]}), (["cuda:0", "cuda:0"], {})],
)
def test_a_run_names_the_devices_that_it_was_on(
    ledger: Ledger, devices: list[str], named: dict[str, list[str]]
) -> None:
    write(ledger, 1, started())
    ledger.give_out("0.1", devices)
    ledger.answer(
        [Calls("0.1", 1, (call_of("finish_run", RUN, "interrupted", {"trials": 0}, forget_attempts=True),))]
    )
    assert ledger.database.run_state(RUN)["stats"] == {"trials": 0, **named}
