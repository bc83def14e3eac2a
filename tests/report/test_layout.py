"""Tables on a narrow terminal: nothing is wider than it, and what a table is read for stays in it."""

from __future__ import annotations

import pytest

from tuner.report import layout

HEADS = ("trial", "kernel", "configuration (else default)", "time")


def drawn(monkeypatch: pytest.MonkeyPatch, columns: int, *rows: tuple[str, ...]) -> list[str]:
    monkeypatch.setattr(layout, "columns_of", lambda _: columns)
    return layout.table_lines(HEADS, rows, right=("trial", "time"))


def test_what_has_no_room_moves_below_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "bulk block_size=128 stages=4 vector_width=4"
    lines = drawn(monkeypatch, 52, ("1", "reduce", long, "17.6 us"), ("2", "gemm", "staged", "19.25 us"))
    assert max(map(len, lines)) <= 52
    assert [line.split()[1:3] for line in lines if line.endswith("us")] == [
        ["reduce", "17.6"],
        ["gemm", "19.25"],
    ]
    assert [line for line in lines if line.startswith("      ")][1:] == [f"      {long}", "      staged"]


def test_configurations_and_times_stay_in_the_table_even_where_all_are_equal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    same = ("saxpy", "vectorized block_size=256 vector_width=4", "17.6 us")
    lines = drawn(monkeypatch, 60, ("1", *same), ("2", *same))
    assert lines[0] == "in all rows: kernel saxpy"
    assert [line for line in lines if "vectorized" in line and "17.6 us" in line] == lines[-2:]
