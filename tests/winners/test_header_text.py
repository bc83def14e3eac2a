"""What kernels' files and databases may hold cannot break out of an exported header."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.winners.exported_winners import (
    COMPILERS,
    DTYPES,
    H200,
    WINNERS,
    assert_harmless,
    compile_cpp,
    cube,
    make,
    needs_compiler,
)
from tuner.core.errors import DatabaseError
from tuner.core.model import Value
from tuner.winners.header import comment, identifier, render_header

pytestmark = pytest.mark.usefixtures("forked_children")


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("x * y", "x * y"), ("a */ b", "a _ b"), ("a /* b", "a _ b"), ("**//", "*_/"), ("\\", "_"),
        ("??/", "__/"),
    ],
)  # fmt: skip
def test_comments_cannot_begin_or_end_another(text: str, safe: str) -> None:
    assert comment(text) == safe


HOSTILE = [
    *(
        "*/",
        "/*",
        "\\",
        "\\\n",
        "??/",
        "??/\n",
        "\n",
        "\r",
        "\0",
        '"',
        "'",
        "//",
        "#include </etc/passwd>",
        "}",
        ";",
    ),
    *(
        "🙂", "é", "\u202e", "\u2028", 'R"(', ')"', "%:define x", "int x", "{{ 7 * 7 }}", "{% raw %}",
        "__LINE__",
    ),
    *(
        "class", "linux", "_X", "a__b", "Winner", "std", "\x1b[31m", "int", "x" * 300, "", " ", "1", "-1",
        "a-b", "NULL",
    ),
    *(
        "variant", "Problem", "Configuration", "Winner", "winners", "winner", "find", "gpu", "operator",
        "string_view",
    ),
]  # fmt: skip


def hostile_text(chance: random.Random) -> str:
    if chance.random() < 0.4:
        return chance.choice(HOSTILE)
    return "".join(chance.choice([*HOSTILE, "a", "b", "_", "9"]) for _ in range(chance.randrange(1, 6)))


def hostile_value(chance: random.Random) -> Any:
    return chance.choice(
        [
            hostile_text(chance), True, 0, -5, 2**31, -(2**31), 2**63 - 1, 2**63, -(2**63), 10**30, 1.5,
            float("nan"),
        ]
    )  # fmt: skip


def hostile_option(chance: random.Random) -> Any:
    value = hostile_value(chance)
    return 2.5 if value != value else value  # the database cannot hold a NaN in a problem


def test_hostile_strings_cannot_break_out(tmp_path: Path) -> None:
    chance, headers = random.Random(11), []
    refused = 0
    for _ in range(100):
        text = [hostile_text(chance) for _ in range(8)]
        what = {name for name in ("gpu", "driver", "run", "device", "verdict") if chance.random() < 0.8}
        gpu = replace(
            H200, name=text[0] if "gpu" in what else "x", driver=text[1] if "driver" in what else ""
        )
        deep = chance.random() < 0.5
        winner = make(
            {text[2]: chance.choice([4096, 10**30, -1])} if deep and chance.random() < 0.4 else cube(64),
            hostile_value(chance) if deep and chance.random() < 0.5 else 64,
            gpu=gpu,
            dtypes={"input": text[3]} if deep and chance.random() < 0.3 else DTYPES,
            options={text[4]: hostile_option(chance)} if deep and chance.random() < 0.3 else None,
            kernel=text[5] if deep and chance.random() < 0.2 else "gemm",
            variant=text[6] if deep and chance.random() < 0.3 else "tiled",
            more={text[7]: hostile_value(chance)} if deep and chance.random() < 0.5 else None,
            device=text[4] if "device" in what else "cuda:0",
            verdict=text[5] if "verdict" in what else "",
            run_id=text[6] if "run" in what else "a",
        )
        try:
            header = render_header([winner, WINNERS[0]])
        except DatabaseError as error:
            assert str(error).isprintable()
            refused += 1
            continue
        assert_harmless(header)
        headers.append(header)
    assert refused > 10
    assert len(headers) > 60
    if not COMPILERS:
        pytest.skip("nothing to compile them with")
    unusual = [h for h in headers if '{"tiled", 64, ' not in h]
    batch = [*chance.sample(headers, 10), *chance.sample(unusual, min(20, len(unusual)))]
    for number, header in enumerate(batch):  # each in a namespace of its own: one compiler run for all
        body = re.sub(r"^#.*$", "", header, flags=re.MULTILINE)
        (tmp_path / f"h{number}.inc").write_text(body)
    lines = ["#include <optional>", "#include <string_view>"]
    lines += [f'namespace h{number} {{\n#include "h{number}.inc"\n}}' for number in range(len(batch))]
    compile_cpp(tmp_path, *lines)
    for header in chance.sample(batch, 2):  # and some just as they are
        (tmp_path / "tuned.hpp").write_text(header)
        compile_cpp(tmp_path, '#include "tuned.hpp"')


@pytest.mark.parametrize(
    "name", ["class", "co_await", "and", "1x", "a-b", "", "a" * 65, "é", "a\n", "_X", "a__b", "linux", 7]
)
def test_what_is_not_a_name_is_refused(name: object) -> None:
    with pytest.raises(DatabaseError, match="cannot be a name"):
        identifier(name, "the kernel")


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63), float("inf"), float("nan"), 'x"', "a\\b", "?" * 2])
def test_what_is_no_literal_is_refused(value: Value) -> None:
    with pytest.raises(DatabaseError, match=r"block_m.*cannot be exported"):
        render_header([make(cube(1), value)])


@needs_compiler
def test_values_of_several_types_have_one(tmp_path: Path) -> None:
    winners = [make(cube(1), "x", more={"share": 1}), make(cube(2), -3, more={"share": 0.25})]
    (tmp_path / "tuned.hpp").write_text(text := render_header(winners))
    assert_harmless(text)
    lines = ["using namespace kernel_tune::gemm;"]
    for size, block, share in ((1, "x", "1.0"), (2, "-3", "0.25")):
        found = f'find("NVIDIA H200", {{{size}, {size}, {size}, "float16", "float32", "float16", "nn"}})'
        lines.append(f'static_assert({found}->configuration.block_m == "{block}");')
        lines.append(f"static_assert({found}->configuration.share - {share} == 0);")
    compile_cpp(tmp_path, '#include "tuned.hpp"', *lines)


def test_two_values_of_one_text_are_refused() -> None:
    with pytest.raises(DatabaseError, match="are one"):
        render_header([make(cube(1), 3), make(cube(2), "3")])
