"""Benchmarks in the database: read back, filtered, damaged, outliving what they measured."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stored import HOT, PROBLEM, WARM, filled, make_benchmark, make_run, make_winner
from tuner.core.errors import DatabaseError
from tuner.database import cells
from tuner.database.database import Database
from tuner.database.records import Filters

pytestmark = pytest.mark.usefixtures("forked_children")


def test_benchmarks_come_back_newest_first(path: Path) -> None:
    trials = filled(path)
    with Database.open(path) as database:
        winner = database.winners().rows[0]
        assert winner.trial.id == trials[0].id
        first = [make_benchmark(winner_id=winner.id), make_benchmark("torch", ratio_high=None)]
        numbers = database.record_benchmark(first)
        later = make_benchmark("default", bench="f" * 32, conditions=WARM, ratio=None, verdict="")
        numbers += database.record_benchmark([later])
        assert database.record_benchmark([]) == []
    with Database.open(path, write=False) as database:
        selection = database.benchmarks()
        assert selection.damaged == []
        stamps = [benchmark.created_at for benchmark in selection.rows]
        assert stamps[1] == stamps[2] < stamps[0]
        assert [replace(b, created_at="") for b in selection.rows] == [
            replace(benchmark, id=number)
            for benchmark, number in zip((later, *first), (numbers[2], *numbers[:2]), strict=True)
        ]
        assert database.check().problems == []
        assert database.check().rows["benchmarks"] == 3


def test_a_benchmark_is_written_as_a_whole(path: Path) -> None:
    filled(path)
    with Database.open(path) as database:
        with pytest.raises(DatabaseError, match="there is no winner 99"):
            database.record_benchmark([make_benchmark(), make_benchmark("default", winner_id=99)])
        assert database.benchmarks().rows == []
    with Database.open(path, write=False) as database, pytest.raises(DatabaseError, match="for reading"):
        database.record_benchmark([make_benchmark()])


@pytest.mark.parametrize("name", ["time_ns", "ci_low_ns", "ci_high_ns"])
def test_a_time_that_none_can_be_is_a_finding(path: Path, name: str) -> None:
    with Database.open(path) as database:
        database.record_benchmark([make_benchmark(), make_benchmark("torch", **{name: 0.0})])
        selection = database.benchmarks()
        assert [one.contestant for one in selection.rows] == ["best"]
        assert f"cannot be read: its {name} is 0" in str(selection.damaged)


def test_infinite_bounds_of_a_ratio_are_none(path: Path) -> None:
    with Database.open(path) as database:
        database.record_benchmark([make_benchmark(ratio_low=0.0, ratio_high=math.inf)])
        (stored,) = database.benchmarks().rows
        assert (stored.ratio_low, stored.ratio_high) == (0.0, None)


def test_benchmarks_are_filtered(path: Path) -> None:
    filled(path)
    small = replace(PROBLEM, sizes={"m": 1, "n": 1, "k": 1})
    with Database.open(path) as database:
        winner = database.winners().rows[0].id
        database.record_benchmark([make_benchmark(winner_id=winner), make_benchmark("torch")])
        database.record_benchmark([make_benchmark(problem=small, conditions=HOT)])
        for filters, count in (
            (Filters(kernel="gemm"), 3),
            (Filters(kernel="saxpy"), 0),
            (Filters(problem_key=small.key), 1),
            (Filters(sizes={"m": 4096}), 2),
            (Filters(dtype="float16", gpu="h200"), 3),
            (Filters(variant="tiled"), 2),
            (Filters(mode="cold"), 3),
            (Filters(regime="sustained"), 1),
            (Filters(since="2999"), 0),
            (Filters(run="aaaa"), 1),
            (Filters(replayed=False), 3),
            (Filters(replayed=True), 0),
        ):
            assert len(database.benchmarks(filters).rows) == count, filters
        for filters in (Filters(statuses=("ok",)), Filters(exportable=True)):
            with pytest.raises(ValueError, match="no status"):
                database.benchmarks(filters)


def test_a_damaged_benchmark_is_left_out_and_not_merged(path: Path, tmp_path: Path) -> None:
    with Database.open(path) as database:
        first, _ = database.record_benchmark([make_benchmark(), make_benchmark("torch")])
        database.connection.execute("UPDATE benchmarks SET time_ns = 1 WHERE id = ?", (first,))
        selection = database.benchmarks()
        assert [benchmark.contestant for benchmark in selection.rows] == ["torch"]
        assert selection.damaged == database.check().problems
        assert f"benchmark {first} is damaged" in selection.damaged[0]
    with Database.open(tmp_path / "other.db") as other:
        merged = other.merge(path)
        assert (merged.benchmarks, len(merged.refused)) == (1, 1)


def test_hostile_benchmarks_are_damage_not_a_crash(path: Path) -> None:
    chance = random.Random(6)
    texts = ("[]", "{", '{"a": [1]}', "null", "[" * 5000, '"x"', "{}", "7", "hot")
    columns = ("problem", "gpu", "mode", "regime", "configuration", "tags", "versions", "variant")
    with Database.open(path) as database:
        database.record_benchmark([make_benchmark()])
        sound = database.select("SELECT * FROM benchmarks")[0]
        for _ in range(60):
            row = cells.sealed("benchmarks", **{**sound, chance.choice(columns): chance.choice(texts)})
            names = ", ".join(f"{name} = ?" for name in row)
            database.connection.execute(f"UPDATE benchmarks SET {names}", list(row.values()))
            selection = database.benchmarks()
            assert len(selection.rows) + len(selection.damaged) == 1
            assert isinstance(database.check().problems, list)


def test_benchmarks_outlive_what_they_measured_and_move_with_it(path: Path, tmp_path: Path) -> None:
    filled(path)
    with Database.open(path) as database:
        database.record_benchmark([make_benchmark(winner_id=database.winners().rows[0].id)])
    other = tmp_path / "other.db"
    filled(other, make_run("b" * 32))
    with Database.open(other) as database:
        merged = database.merge(path)
        assert (merged.winners, merged.benchmarks, merged.refused) == (1, 1, [])
        assert database.merge(path).benchmarks == 0
        (moved,) = database.benchmarks().rows
        (ours,) = (stored.id for stored in database.winners().rows if stored.run.id[0] == "a")
        assert moved.winner_id == ours
        trial = database.trials("a" * 32)[0]
        again = database.record_winner("a" * 32, make_winner(trial, 880.0))
        assert database.benchmarks().rows == [replace(moved, winner_id=again)]
        database.delete_run("aaaa")
        assert database.benchmarks().rows == [replace(moved, winner_id=None)]
        assert database.check().problems == []
