"""Tables on a narrow terminal: nothing is wider than it, and what a table is read for stays in it."""

from __future__ import annotations

import pytest

from tuner.report import layout

HEADS = ("trial", "kernel", "configuration (else default)", "time")


def drawn(monkeypatch: pytest.MonkeyPatch, columns: int, *rows: tuple[str, ...]) -> list[str]:
    monkeypatch.setattr(layout, "columns_of", lambda _: columns)
    return layout.table_lines(HEADS, rows, right=("trial", "time"))


def test_the_head_of_a_narrowed_column_is_narrowed_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = drawn(
        monkeypatch,
        52,
        ("1", "reduce", "bulk block_size=128 stages=4 vector_width=4", "17.6 us"),
        ("2", "gemm", "staged block_size=512", "19.25 us"),
    )
    assert max(map(len, lines)) <= 52
    start = lines[0].index("configuration")
    assert lines[1].startswith("default)", start)
    assert [line[start:].split()[0] for line in lines if "us" in line] == ["bulk", "staged"]


def test_configurations_and_times_stay_in_the_table_even_where_all_are_equal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    same = ("saxpy", "vectorized block_size=256 vector_width=4", "17.6 us")
    lines = drawn(monkeypatch, 60, ("1", *same), ("2", *same))
    assert lines[0] == "in all rows: kernel saxpy"
    assert [line for line in lines if "vectorized" in line and "17.6 us" in line] == lines[-2:]
