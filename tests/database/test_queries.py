"""Filters and orders of queries."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.stored import file_hash, filled
from tuner.core.errors import UsageError
from tuner.database.database import Database
from tuner.database.records import Filters

pytestmark = pytest.mark.usefixtures("forked_children")


def test_filters_and_sorting(path: Path) -> None:
    filled(path)
    with Database.open(path, write=False) as database:
        assert [s.trial.number for s in database.query(Filters(), "-time").rows] == [2, 1, 0]
        assert [s.trial.number for s in database.query(Filters(), "time", 1).rows] == [0]
        for filters, count in (
            (Filters(kernel="gemm"), 3),
            (Filters(kernel="gem"), 0),
            (Filters(gpu="h200"), 3),
            (Filters(gpu="%"), 0),
            (Filters(dtype="float16"), 3),
            (Filters(dtype="float32"), 0),
            (Filters(sizes={"m": 4096, "n": 2048}), 3),
            (Filters(sizes={"m": 4096, "n": 2049}), 0),
            (Filters(variant="tiled"), 3),
            (Filters(statuses=("hang", "ok")), 3),
            (Filters(statuses=("hang",)), 0),
            (Filters(since="2999"), 0),
            (Filters(run="aaa"), 3),
            (Filters(run="ab"), 0),
            (Filters(replayed=True), 0),
        ):
            assert len(database.query(filters).rows) == count, filters
        for sort in ("time; DROP TABLE trials", "", "--time", "t.id"):
            with pytest.raises(UsageError, match="cannot sort"):
                database.query(Filters(), sort)


def test_hostile_filters_change_and_find_nothing(path: Path) -> None:
    filled(path)
    before, chance = file_hash(path), random.Random(2)
    parts = [
        "'", '"', ";", "--", " OR 1=1", "/*", "\\", "%", "_", "\0", "$", "é", "😀", "DROP TABLE trials",
        "\n", ")",
    ]  # fmt: skip
    with Database.open(path, write=False) as database:
        for _ in range(60):
            text = "x" + "".join(chance.choices(parts, k=chance.randrange(1, 6)))
            for name in ("kernel", "gpu", "dtype", "variant", "run", "problem_key"):
                assert database.query(Filters(**{name: text})).rows == []
            assert database.query(Filters(statuses=(text,))).rows == []
            if text.strip("_x"):
                with pytest.raises(UsageError):
                    database.query(Filters(sizes={text: 1}))
    assert file_hash(path) == before
