"""``tune table``: the winner that several runs agree on, and how far they do."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import Said, said_by
from tests.stored import GPU, PROBLEM, make_run, make_trial, make_winner
from tuner.core.model import Run
from tuner.database.database import Database
from tuner.database.records import WarmTime

Add = Callable[..., None]
Show = Callable[..., Said]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuning.db"


@pytest.fixture
def add(path: Path) -> Add:
    """Return what adds a run whose winner is the configuration of a number, with a race of others."""
    count = 0

    def store(
        winner: int, seed: int, card: str = "GPU-1", race: dict[int, float] | None = None, **changes: object
    ) -> None:
        nonlocal count
        count += 1
        gpu = replace(GPU, uuid=card, name=str(changes.pop("gpu_name", GPU.name)))
        run: Run = make_run(f"{count:032x}", gpu=gpu)
        run = replace(run, options=replace(run.options, seed=seed))
        times = race or {winner: 900.0}
        changed = {name: changes.pop(name) for name in ("kernel_digest", "problem") if name in changes}
        with Database.open(path) as database:
            run = replace(run, **changed)  # type: ignore[arg-type]
            database.start_run(run)
            trial = make_trial(winner)
            row = database.record(run.id, trial)
            medians = [[str(make_trial(number).configuration), time_ns] for number, time_ns in times.items()]
            stored = make_winner(
                replace(trial, id=row),
                times[winner],
                race={
                    "medians_ns": medians,
                    "noise_floor": 0.002,
                    "warm_race": changes.pop("warm_race", None),
                },
                **changes,
            )
            database.record_winner(run.id, stored)
            database.finish_run(run.id, "finished")

    return store


@pytest.fixture
def show(path: Path, capsys: pytest.CaptureFixture[str]) -> Show:
    return lambda *arguments: said_by(capsys, "table", "--db", str(path), *arguments)


def records(show: Show) -> list[dict[str, object]]:
    said = show("--json")
    assert said.code == 0
    return json.loads(said.out)  # type: ignore[no-any-return]


def chosen(record: dict[str, object]) -> int:
    return record["parameters"]["z_block"] - 64  # type: ignore[index,operator,no-any-return]


def test_the_choice_of_most_cards_is_the_winner_and_the_counts_say_so(add: Add, show: Show) -> None:
    add(1, 1, "GPU-1", {1: 900.0, 2: 902.0})
    add(2, 2, "GPU-2", {2: 920.0, 1: 921.0})
    add(2, 2, "GPU-3", {2: 915.0})
    add(1, 3, "GPU-1", {1: 901.0})
    add(1, 4, "GPU-1", {1: 899.0})
    (record,) = records(show)
    assert chosen(record) == 2, "two cards, though fewer runs"
    names = ("runs", "runs_agreeing", "cards", "cards_agreeing", "seeds", "seeds_agreeing")
    assert [record[name] for name in names] == [5, 2, 3, 2, 4, 1]
    assert record["raced_behind"] == pytest.approx((902 / 900 + 920 / 921) / 2)
    assert record["spread"] == pytest.approx(920 / 902 - 1)
    (other,) = record["others"]  # type: ignore[misc]
    assert (other["runs"], other["cards"], other["seeds"]) == (3, 1, 3)  # type: ignore[index]


@pytest.mark.parametrize(("slower", "winner", "agreeing"), [(0.01, 2, 1), (0.005, 1, 3)])
def test_what_a_later_race_found_slower_beyond_the_margin_has_no_vote(
    slower: float, winner: int, agreeing: int, add: Add, show: Show
) -> None:
    """The margin is 0.75 %."""
    for seed in range(3):
        add(1, seed, race={1: 900.0})
    add(2, 9, race={2: 900.0, 1: 900.0 * (1 + slower)})
    (record,) = records(show)
    assert (chosen(record), record["runs_agreeing"]) == (winner, agreeing)


def test_of_winners_each_slower_than_another_the_one_that_is_least_slower_is_chosen(
    add: Add, show: Show
) -> None:
    add(1, 1, "GPU-1", {1: 900.0, 2: 950.0})
    add(2, 2, "GPU-2", {2: 900.0, 3: 930.0})
    add(3, 3, "GPU-3", {3: 900.0, 1: 915.0})
    add(2, 4, "GPU-4", {2: 900.0})
    assert chosen(*records(show)) == 1


def test_winners_that_never_raced_together_are_compared_by_the_default(add: Add, show: Show) -> None:
    """The second card is slower by 5 %, and its winner better by 10 %."""
    add(1, 1, "GPU-1", {1: 900.0}, ratio=1.10)
    add(1, 2, "GPU-1", {1: 900.0}, ratio=1.10)
    add(2, 3, "GPU-2", {2: 860.0}, ratio=1.21)
    (record,) = records(show)
    assert chosen(record) == 2
    assert record["raced_behind"] is None
    assert record["behind"] == pytest.approx(1.10 / 1.21)


def warm(time_ns: float, race: dict[int, float] | None = None, ratio: float = 1.2) -> dict[str, object]:
    """Return what a winner has that was chosen by the mode warm as well."""
    medians = [[str(make_trial(number).configuration), ns] for number, ns in (race or {}).items()]
    return {
        "warm": WarmTime(time_ns, ratio, 0.99 * ratio, 1.01 * ratio, "faster", 1.0, 1.0, counts=True),
        "warm_race": {"medians_ns": medians, "noise_floor": 0.002},
    }


def test_winners_chosen_by_two_modes_are_compared_in_both(add: Add, show: Show) -> None:
    """The second is 2 % faster in the run's mode, and 10 % slower in the other."""
    add(1, 1, "GPU-1", {1: 918.0, 2: 900.0}, **warm(500.0, {1: 500.0, 2: 550.0}))
    add(1, 2, "GPU-2", {1: 918.0}, **warm(500.0))
    add(2, 3, "GPU-3", {2: 900.0, 1: 918.0}, **warm(550.0, {2: 550.0, 1: 500.0}))
    (record,) = records(show)
    assert (chosen(record), record["runs_agreeing"]) == (1, 2)
    assert record["raced_behind"] == pytest.approx(math.sqrt(1.02 / 1.10))
    add(2, 4, "GPU-4", {2: 900.0, 1: 918.0})
    assert chosen(*records(show)) == 2, "one run knows nothing of the other mode"


def test_without_a_warm_race_of_both_their_speedups_there_count(add: Add, show: Show) -> None:
    add(1, 1, "GPU-1", {1: 918.0, 2: 900.0}, **warm(500.0, ratio=1.32))
    add(2, 2, "GPU-2", {2: 900.0, 1: 918.0}, **warm(550.0, ratio=1.20))
    (record,) = records(show)
    assert chosen(record) == 1
    assert record["raced_behind"] is None
    assert record["behind"] == pytest.approx(math.sqrt(1.02 / 1.10))


def test_another_text_of_the_kernel_is_left_out_and_counted(add: Add, show: Show) -> None:
    add(1, 1, kernel_digest="old" * 10)
    add(2, 2)
    (record,) = records(show)
    assert (chosen(record), record["runs"], record["runs_of_other_texts"]) == (2, 1, 1)


def test_a_winner_that_was_not_confirmed_counts_only_alone(add: Add, show: Show) -> None:
    add(1, 1, exportable=False)
    assert chosen(*records(show)) == 1
    add(2, 2)
    assert (chosen(*records(show)), records(show)[0]["runs"]) == (2, 1)


def test_formats(add: Add, show: Show) -> None:
    other = replace(PROBLEM, sizes={**PROBLEM.sizes, "m": 128})
    add(1, 1)
    add(1, 2, "GPU-2")
    add(2, 1, problem=other)
    text = show()
    assert "2 of 2" in text.out and "1 of 1" in text.out
    assert "2 problems; all runs agree on 1 of 1 tuned more than once (100 %)" in text.err
    rows = list(csv.DictReader(show("--csv").out.splitlines()))
    assert sorted(row["runs"] for row in rows) == ["1", "2"]
    assert show("--csv", "--json").code == 2
    assert show("--kernel", "reduce").code == 1


def test_a_winner_whose_default_has_no_time_is_compared_with_nothing(add: Add, show: Show) -> None:
    add(1, seed=0, ratio=None, ratio_low=None, ratio_high=None, verdict="ambiguous")
    said = show()
    assert "not compared" in said.out and "ambiguous" not in said.out
