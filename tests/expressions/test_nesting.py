"""Expressions nested beyond reason are refused in one line, by every door through which they come in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel_files import GOOD, write
from tuner.core.errors import ExpressionError, TunerError
from tuner.expressions.arithmetic import Expression
from tuner.expressions.array import ArrayExpression
from tuner.expressions.elementwise import ElementExpression
from tuner.expressions.library_call import LibraryCall
from tuner.formats.t1 import parse_values, read_t1
from tuner.kernel.baselines import launch_spec, parse_baseline
from tuner.kernel.load import load_kernel
from tuner.runtime.expressions import MAX_DEPTH

DEEP = {
    "parentheses": "(" * 240 + "x" + ")" * 240,
    "minus": "-" * 400 + "x",
    "not": "not " * 400 + "x",
    "sums": "x" + " + x" * 110,
    "conditions": "x if x else " * 110 + "x",
    "calls": "abs(" * 110 + "x" + ")" * 110,
    "lists": "[" * 150 + "x" + "]" * 150,
    "comprehensions": "[i for i in " * 45 + "x" + "]" * 45,
    "strings in strings": "f'{" * 60 + "x" + "}'" * 60,
}


def launch_of_the_command_line(text: str, folder: Path) -> None:
    (folder / "mine.cu").write_text("")
    launch_spec(parse_baseline(f"{folder}/mine.cu:add<<<{text}, 128>>>(x)"))


def definition(text: str, folder: Path) -> None:
    load_kernel(str(write(folder, GOOD + f'[definitions]\ndeep = """{text}"""\n')))


DOORS: dict[str, Callable[[str, Path], object]] = {
    "arithmetic": lambda text, _: Expression(text),
    "element": lambda text, _: ElementExpression(text),
    "array": lambda text, _: ArrayExpression(text),
    "library call": lambda text, _: LibraryCall(f"torch.add({text}, x, out=y)"),
    "values": lambda text, _: parse_values(f"[{text}]"),
    "launch": launch_of_the_command_line,
    "definition": definition,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", DEEP)
def test_deep_nesting_is_refused_in_one_line(kind: str, door: str, tmp_path: Path) -> None:
    with pytest.raises(TunerError) as caught:
        DOORS[door](DEEP[kind], tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 3000


def test_nesting_up_to_the_bound_works_everywhere(tmp_path: Path) -> None:
    """What may be written can be evaluated: the bound leaves Python's own stack enough room."""
    deep = "-" * MAX_DEPTH + "x"
    assert Expression(deep).evaluate({"x": 3}) == 3
    assert ArrayExpression(deep).evaluate({"x": 3.0})[0] == 3.0
    assert ElementExpression(deep).names == {"x"}
    for parse in (Expression, ArrayExpression, ElementExpression):
        with pytest.raises(ExpressionError, match="too deeply; split or simplify it"):
            parse(f"-{deep}")


@pytest.mark.parametrize("levels", [150, 900, 100_000])
def test_nested_json_is_refused(levels: int, tmp_path: Path) -> None:
    nested = "[" * levels + "]" * levels
    for values, condition in ((nested, '"1"'), ('"[1]"', nested)):
        file = tmp_path / "space.json"
        parameters = f'"TuningParameters": [{{"Name": "p", "Values": {values}}}]'
        conditions = f'"Conditions": [{{"Expression": {condition}}}]'
        file.write_text(f'{{"ConfigurationSpace": {{{parameters}, {conditions}}}}}')
        with pytest.raises(TunerError) as caught:
            read_t1(file)
        assert "\n" not in str(caught.value)
