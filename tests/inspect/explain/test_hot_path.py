"""Blocks and loops of code, and which way through it a kernel mostly takes."""

from __future__ import annotations

import random
from itertools import pairwise

from tests.inspect.explain.small_code import by_hand
from tuner.inspect.explain.hot_path import walk
from tuner.inspect.explain.sass import Code, Instruction, Kind, build, loops


def code_of(*edges: tuple[int, ...]) -> Code:
    """Make a kernel of blocks that lead to others, the first of which follows."""
    items: list[str | Instruction] = []
    for number, targets in enumerate(edges):
        items += [str(number), Instruction(f"i{number}")]
        items.append(Instruction("jump", targets=tuple(map(str, targets)), ends=True))
    return build(items)


def test_nested_loops() -> None:
    # 0 -> 1 -> 2 -> 2, 2 -> 3 -> 1, 3 -> 4
    found = loops(code_of((1,), (2,), (2, 3), (1, 4), ()))
    assert [(loop.header, sorted(loop.blocks), loop.depth) for loop in found] == [
        (1, [1, 2, 3], 1),
        (2, [2], 2),
    ]


def test_two_ways_back_are_one_loop() -> None:
    found = loops(code_of((1,), (2, 3), (1, 4), (1, 4), ()))
    assert [(loop.header, sorted(loop.blocks)) for loop in found] == [(1, [1, 2, 3])]


def test_loops_without_an_end_and_without_a_header() -> None:
    forever = code_of((1,), (1,))
    assert [loop.header for loop in loops(forever)] == [1]
    assert walk(forever, loops(forever))[0] == (0, 1)
    irreducible = code_of((1, 2), (2, 3), (1, 3), ())
    assert loops(irreducible) == ()
    assert walk(irreducible, ())[0][-1] == 3


def test_what_nothing_leads_to_is_left_out() -> None:
    assert len(code_of((2,), (2,), ()).blocks) == 2


def test_any_graph_can_be_walked() -> None:
    rng = random.Random(0)
    for _ in range(300):
        count = rng.randint(1, 12)
        edges = [tuple(rng.sample(range(count), rng.randint(0, min(2, count)))) for _ in range(count)]
        code = code_of(*edges)
        found = loops(code)
        way, _ = walk(code, found)
        assert way[0] == 0
        assert len(set(way)) == len(way)
        for here, there in pairwise(way):
            gone_round = [loop for loop in found if here in loop.blocks and there not in loop.blocks]
            assert there in code.blocks[here].successors or any(
                loop.header in code.blocks[here].successors
                and any(there in code.blocks[number].successors for number in loop.blocks)
                for loop in gone_round
            )
        for loop in found:
            assert loop.header in loop.blocks


def test_a_way_that_ends_in_a_trap_is_not_the_main_path() -> None:
    found = by_hand(
        "LDG.E R4, [R2.64]",
        "ISETP.EQ.AND P1, PT, R4, RZ, PT",
        "@P1 BRA `(.L_bad)",
        *["STG.E [R6.64], R4"] * 3,
        "EXIT",
        ".L_bad:",
        "BPT.TRAP 0x1",
    )
    assert found.walk.count(Kind.GLOBAL_STORE) == 3
