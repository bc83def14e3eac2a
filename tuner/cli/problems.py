"""The problems that the command line names, as :class:`tuner.core.model.Problem`."""

from __future__ import annotations

import csv
import io
import itertools
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from tuner.cli.options import ProblemArguments, ProblemTexts
from tuner.cli.worth import COLUMNS, ProblemWorth, amounts, worths
from tuner.core.errors import TunerError, UsageError, suggestion
from tuner.core.model import Problem, Value
from tuner.core.reading import read_at_most
from tuner.expressions.arithmetic import whole_number
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import index_of_text
from tuner.report.tables import say
from tuner.runtime.dtypes import dtype_named
from tuner.tuning.accuracy import dtypes_to_try

MOST_PROBLEMS = 65_536
"""Of one command line: at a minute each they take six weeks, and to read them takes seconds."""
MOST_BYTES = 16 << 20
"""Of a file of problems."""


def size_of(name: str, text: str) -> int:
    """Return a size from its text, as :func:`tuner.expressions.arithmetic.whole_number` reads it."""
    if (value := whole_number(text)) is None:
        raise UsageError(f"size {name}={text}", "give a whole number up to 2**62, such as 4096 or 2**20")
    return value


def assignments(
    texts: Iterable[str], what: str, example: str = "name=value", only: str = ""
) -> list[tuple[str, str]]:
    """Return the pairs of ``name=value,...`` texts, in which a value alone is that of the name ``only``."""
    pairs, names = [], set()
    for text in texts:
        for part in _parts(text):
            before, equals, after = map(str.strip, part.partition("="))
            alone = bool(only) and not equals and before[:1].isdecimal()
            name, value = (only, before) if alone else (before, after)
            if not (equals or alone) or not name or not value:
                raise UsageError(f"{what} {text!r}", f"write {what} {example}")
            if name in names:
                raise UsageError(f"{what} {text!r} gives {name} twice", "give it once")
            names.add(name)
            pairs.append((name, value))
    return pairs


def _parts(text: str) -> list[str]:
    """Split at the commas outside of parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


SAMPLES = "samples"
"""The column that says how many problems are drawn from a row."""
MOST_OF_A_ROW = 4096
DRAWS = 50
"""For each problem that is asked for: what is drawn twice counts once."""


def expanded(kernel: KernelSpec, row: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the rows that a row stands for.

    ``64|128`` is a choice: all combinations of all choices. With ``samples=20`` so many are drawn, and a size may be a
    range, such as ``16..8192:8``: multiples of 8, as many between 16 and 32 as between 4096 and 8192. The same row
    gives the same problems.

    Args:
        kernel: whose sizes, dtypes and options are meant; element expressions are left as they are.
        row: values by name.

    Raises:
        UsageError: a range without ``samples``, an empty choice or range, or too many problems.
    """
    if SAMPLES in kernel.sizes or SAMPLES in kernel.options:
        return [dict(row)]
    left = {name: text for name, text in row.items() if name != SAMPLES}
    several = {name: text for name, text in left.items() if name not in kernel.elements}
    if SAMPLES not in row:
        if ranges := [name for name, text in several.items() if name in kernel.sizes and ".." in text]:
            name = ranges[0]
            raise UsageError(f"{name}={left[name]} is a range", "say how many are drawn with samples=N")
        choices = [_choices(name, text) if name in several else [text] for name, text in left.items()]
        if (count := math.prod(map(len, choices))) > MOST_OF_A_ROW:
            raise UsageError(
                f"{count} combinations of choices",
                f"give at most {MOST_OF_A_ROW}, or draw some with samples=N",
            )
        return [dict(zip(left, one, strict=True)) for one in itertools.product(*choices)]
    if not 1 <= (count := size_of(SAMPLES, row[SAMPLES])) <= MOST_OF_A_ROW:
        raise UsageError(f"{SAMPLES}={row[SAMPLES]}", f"draw from 1 to {MOST_OF_A_ROW}")
    draw = random.Random(str(sorted(row.items())))
    drawn: dict[tuple[str, ...], dict[str, str]] = {}
    for _ in range(DRAWS * count):
        one = {
            name: _drawn(name, text, draw, ranged=name in kernel.sizes) if name in several else text
            for name, text in left.items()
        }
        drawn[tuple(one.values())] = one
        if len(drawn) == count:
            break
    return list(drawn.values())


def _choices(name: str, text: str) -> list[str]:
    choices = [part.strip() for part in text.split("|")]
    if "" in choices:
        raise UsageError(f"{name}={text} has an empty choice", "write it as 64|128")
    return choices


def _drawn(name: str, text: str, draw: random.Random, *, ranged: bool) -> str:
    choice = draw.choice(_choices(name, text))
    if not ranged or ".." not in choice:
        return choice
    low_text, _, rest = choice.partition("..")
    high_text, _, step_text = rest.partition(":")
    low, high = size_of(name, low_text), size_of(name, high_text)
    step = size_of(name, step_text) if step_text else 1
    first, last = -(-low // step) if step > 0 else 0, high // step if step > 0 else 0
    if not 1 <= first <= last:
        raise UsageError(
            f"{name}={choice} holds no size", "write it as 16..8192, or 16..8192:8 for multiples of 8"
        )
    exact = math.exp(draw.uniform(math.log(first), math.log(last + 1)))
    return str(min(last, max(first, int(exact))) * step)


@dataclass(frozen=True)
class _Named:
    """What the command line gives of one problem; the rest are the kernel's defaults."""

    sizes: Mapping[str, int]
    dtypes: Mapping[str, str]
    options: Mapping[str, Value]
    preset: str | None = None
    where: str = ""
    """The line of a file that it comes from."""
    amounts: Mapping[str, float] = field(default_factory=dict)
    """Calls and time, from a file."""

    def of(self, kernel: KernelSpec, dtype: str = "") -> Problem:
        """Return it as a kernel's problem, in this dtype of the first role unless it names its own."""
        dtypes = {"": dtype, **self.dtypes} if dtype else self.dtypes
        if dtype and self.fixes_dtype(kernel, dtype):
            _say_not_all(f"--dtype {dtype}", "dtype")
        with _located(self.where):
            return kernel.problem(self.sizes, dtypes, self.options, self.preset)

    def fixes_dtype(self, kernel: KernelSpec, other: str = "") -> bool:
        """Return whether it names a dtype of the first role itself, or one that is not the other."""
        role = next(iter(kernel.dtypes))
        named = {self.dtypes[name] for name in ("", role) if name in self.dtypes}
        return bool(named - {other}) or (not other and role in kernel.presets.get(self.preset or "", {}))


@contextmanager
def _located(where: str) -> Iterator[None]:
    """Put the line of a file before what is wrong with it."""
    try:
        yield
    except TunerError as error:
        if not where:
            raise
        raise type(error)(f"{where}: {error.problem}", error.remedy) from None


def make_problems(kernel: KernelSpec, given: ProblemTexts) -> list[Problem]:
    """Return the problems that the command line gives of a kernel.

    Presets, ``--problem`` texts and the rows of the file each give one problem; the other options hold for all of them.
    """
    first, others = _dtypes(kernel, given.dtypes)
    if len(first) > 1:
        raise UsageError(
            f"--dtype names several: {', '.join(first)}",
            "name one, or let tune run choose among them with --max-error",
        )
    named = _named(kernel, given, others)
    each = [one.of(kernel, "".join(first)) for one in named]
    for one, problem in zip(named, each, strict=True):
        _say_what_is_replaced(kernel, one.preset, problem)
    return list(dict.fromkeys(each))


def make_problem(kernel: KernelSpec, given: ProblemArguments) -> Problem:
    """Return the only problem that the command line gives of a kernel."""
    presets = [given.preset] if given.preset else []
    return make_problems(kernel, ProblemTexts(given.sizes, given.dtypes, given.options, presets))[0]


def problem_worths(kernel: KernelSpec, given: ProblemTexts) -> dict[str, ProblemWorth]:
    """Return what the problems of a file are worth, by their keys; nothing if it does not say, or there is none."""
    if given.problem_file is None:
        return {}
    first, others = _dtypes(kernel, given.dtypes)
    named = _named(kernel, replace(given, presets=(), problem_texts=()), others)
    return worths(kernel, [(one.of(kernel, first[0] if first else ""), one.amounts) for one in named])


def make_choices(kernel: KernelSpec, given: ProblemTexts) -> list[list[Problem]]:
    """Return the same problems where the dtype of the first role is a choice: each as one problem for each dtype.

    The choice is among the dtypes that ``--dtype`` names; without it, among all floating-point dtypes of the kernel. A
    preset or a row that names its own dtype leaves no choice.
    """
    first, others = _dtypes(kernel, given.dtypes)
    tried = dtypes_to_try(kernel, first)
    groups: dict[tuple[str, ...], list[Problem]] = {}
    for one in _named(kernel, given, others):
        own = not first and one.fixes_dtype(kernel)
        choices = [one.of(kernel)] if own else [one.of(kernel, dtype) for dtype in tried]
        choices = list(dict.fromkeys(choices))
        dtypes_to_try(kernel, [problem.dtype for problem in choices])  # those that rows and presets name
        groups[tuple(problem.key for problem in choices)] = choices
        _say_what_is_replaced(kernel, one.preset, choices[0])
    return list(groups.values())


def _say_what_is_replaced(kernel: KernelSpec, preset: str | None, problem: Problem) -> None:
    """Say which values of a preset others on the command line stand for: that is allowed, and easily overlooked."""
    values = {**problem.sizes, **problem.options, **problem.dtypes}
    named = kernel.presets.get(preset or "", {})
    replaced = [name for name, value in named.items() if values.get(name) != value]
    if replaced:
        those, these = (", ".join(f"{n}={of[n]}" for n in replaced) for of in (named, values))
        say(f"{these} in place of {those} of the preset {preset}")


def _named(kernel: KernelSpec, given: ProblemTexts, dtypes: Mapping[str, str]) -> list[_Named]:
    """Return what is given of each problem, with the dtypes of all roles but the first."""
    example = ",".join(f"{name}={size}" for name, size in kernel.sizes.items())
    pairs = assignments(given.sizes, "--size", example, kernel.only_size)
    sizes = {name: size_of(name, value) for name, value in pairs}
    options = {
        name: option_value(kernel, name, value) for name, value in assignments(given.options, "--option")
    }
    rows: list[tuple[str, Mapping[str, str]]] = [
        ("", dict(assignments([text], "--problem"))) for text in given.problem_texts
    ]
    if given.problem_file is not None:
        rows += _rows(given.problem_file)
    presets: Sequence[str | None] = given.presets or ([] if rows else [None])
    named = [_Named(sizes, dtypes, options, preset) for preset in presets]
    for where, row in rows:
        common = _Named(sizes, dtypes, options, where=where)
        with _located(where):
            named += [_of_row(kernel, one, common) for one in expanded(kernel, row)]
            if len(named) > MOST_PROBLEMS:
                raise UsageError(
                    f"these are more than {MOST_PROBLEMS} problems", "give fewer rows, choices or samples"
                )
    return named


def _of_row(kernel: KernelSpec, row: Mapping[str, str], common: _Named) -> _Named:
    """Return what a row names, over what holds for all rows."""
    sizes, dtypes, options = dict(common.sizes), dict(common.dtypes), dict(common.options)
    for name, value in row.items():
        if name in kernel.sizes:
            sizes[name] = size_of(name, value)
        elif name in kernel.options:
            options[name] = option_value(kernel, name, value)
        elif name == "dtype" or name in kernel.dtypes:
            dtypes["" if name == "dtype" else name] = dtype_named(value)
        elif name not in COLUMNS or not common.where:
            columns = COLUMNS if common.where else ()
            names = [*kernel.sizes, *kernel.options, *kernel.dtypes, "dtype", *columns]
            raise UsageError(f"{kernel.name} has no size, option or dtype {name!r}", suggestion(name, names))
    own_options = ("option", common.options, options)
    for what, of_all, own in (("size", common.sizes, sizes), own_options, ("dtype", common.dtypes, dtypes)):
        for name in (name for name, value in of_all.items() if own[name] != value):
            _say_not_all(f"--{what} {name}={of_all[name]}", name)
    worth = amounts(row, {*kernel.sizes, *kernel.options, *kernel.dtypes}) if common.where else {}
    return _Named(sizes, dtypes, options, where=common.where, amounts=worth)


@cache
def _say_not_all(option: str, name: str) -> None:
    """Say, once, that an option does not hold for all problems."""
    say(f"{option} does not hold for a problem that names its own {name}")


def option_value(kernel: KernelSpec, name: str, text: str) -> Value:
    """Return the option's value that a text means; of an element expression the text itself."""
    values = () if name in kernel.elements else kernel.options.get(name, ())
    index = index_of_text(text, values)
    return text if index is None else values[index]  # KernelSpec.problem says what would have been possible


def _dtypes(kernel: KernelSpec, texts: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Split ``--dtype`` texts: the dtypes of the first role, of which there may be several, and one of each other."""
    if texts and not kernel.dtypes:
        raise UsageError(f"{kernel.name} has no dtypes to choose from", "leave out --dtype")
    first: list[str] = []
    others: dict[str, str] = {}
    for text in texts:
        own: dict[str, str] = {}
        for role, dtype in named_dtypes(text):
            if not dtype:
                raise UsageError(f"--dtype {text!r}", "write --dtype dtype or --dtype role=dtype")
            if role in ("", next(iter(kernel.dtypes))):
                first.append(dtype)
            elif role in own:
                raise UsageError(f"--dtype {text!r} gives {role} twice", "give it once")
            else:
                own[role] = dtype
        others |= own
    return list(dict.fromkeys(first)), others


def named_dtypes(text: str) -> list[tuple[str, str]]:
    """Split a ``--dtype`` text into roles, empty for the first, and dtypes; a role holds until the next is named."""
    role, pairs = "", []
    for part in text.split(","):
        name, equals, dtype = part.rpartition("=")
        role = name.strip() if equals else role
        pairs.append((role, dtype_named(dtype.strip())))
    return pairs


def _rows(file: Path) -> list[tuple[str, Mapping[str, str]]]:
    """Return the rows of a file, each with the line that it ends in."""
    try:
        text = read_at_most(file, MOST_BYTES, pipes=True).decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)
        names = [name.strip() for name in reader.fieldnames or () if name.strip()]
        if len(names) == 1 and (other := next((mark for mark in ";\t" if mark in names[0]), "")):
            raise UsageError(
                f"{file} line 1 has {other!r} between its names", "separate the columns by commas"
            )
        if names and all(whole_number(name) is not None for name in names):
            raise UsageError(
                f"{file} line 1 has numbers and no names", "name the columns there, such as m,n,k"
            )
        if twice := [name for name, times in Counter(names).items() if times > 1]:
            raise UsageError(f"{file} line 1 gives {twice[0]} twice", "leave one of the columns out")
        rows = [
            (f"{file} line {reader.line_num}", _row(file, reader.line_num, row))
            for row in itertools.islice(reader, MOST_PROBLEMS + 1)
        ]
    except (OSError, UnicodeDecodeError, csv.Error, AttributeError) as error:
        raise UsageError(
            f"cannot read {file}: {_reason(error)}", "give a CSV file whose first line names the sizes"
        ) from None
    if not rows:
        raise UsageError(f"{file} has no rows", "the first line names the sizes, each other is a problem")
    if not text.endswith(("\n", "\r")):
        _say_unclosed(file)
    return rows


@cache
def _say_unclosed(file: Path) -> None:
    """Say, once, that a row may lack its last digits."""
    say(f"{file} does not end its last row with a line end: see that it was not cut off")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, csv.Error):
        return f"it is not CSV: {error}"
    return "it is not text" if isinstance(error, UnicodeDecodeError) else "it is not CSV"


def _row(file: Path, line: int, row: Mapping[Any, Any]) -> Mapping[str, str]:
    if row.get(None):
        raise UsageError(f"{file} line {line} has more columns than the first line", "name each column there")
    if None in row.values():
        raise UsageError(
            f"{file} line {line} has fewer columns than the first line", "write all of them; one may be empty"
        )
    cells = {
        str(name).strip(): value.strip() for name, value in row.items() if name and value and value.strip()
    }
    if not cells:
        raise UsageError(f"{file} line {line} has no values", "remove the line, or fill it in")
    return cells
