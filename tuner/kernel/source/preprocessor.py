"""What can be known of the preprocessor without the compiler: which branches are taken, and what macros there are."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tuner.core.errors import KernelError
from tuner.expressions.parsing import BINARY_SIGNS, COMPARE_SIGNS
from tuner.kernel.source.expressions import python_of
from tuner.runtime.expressions import Expression

MAX_SOURCE_BYTES = 4 << 20
"""Of a text that is read; larger ones are no kernel."""
_NESTED = 8
"""Macros within each other that are replaced."""
_CALL = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_PIECE = re.compile(
    r"""
    (?P<directive>^[^\S\n]*\#(?:\\\r?\n|/\*.*?\*/|//(?:\\\r?\n|[^\n])*|[^\n])*)
    |(?P<left_out>//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z)
        |\b__(?:cluster_dims|block_size|maxnreg|align|attribute|declspec)\w*\s*"""
    + _CALL
    + r""")
    |(?P<text>(?:u8|[uUL])?R"(?P<end>[^()\\\s]{0,16})\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?:\.?\d(?:'(?=\w)|[\w.])*+|[A-Za-z_$][\w$]*+(?!["']|\s*\())++|.
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
"""A directive, what says nothing of a kernel, a literal, or a part of the code."""
_ATTRIBUTE = re.compile(rf"\b__attribute__\s*{_CALL}")
_NO_WORD = re.compile(r"(?:(?:inline|__inline__|__forceinline__|__restrict__|__restrict)\s*)*")
"""What macros may be that change nothing here: nothing, and words that say nothing of a kernel."""
_COMMENT = re.compile(r"/\*.*?\*/|//(?:\\\n|[^\n])*", re.DOTALL)
_DIRECTIVE = re.compile(r"\s*#\s*(\w*)\s*(.*)", re.DOTALL)
_DEFINE = re.compile(r"(\w+)(\([^)]*\))?\s*(.*)", re.DOTALL)
_DEFINED = re.compile(r"\bdefined\b\s*(?:\(\s*(\w+)\s*\)|(\w+))")
_HAS = ("__CUDACC__", "__CUDACC_RTC__", "__CUDA_ARCH__", "__cplusplus")
GIVEN = {**dict.fromkeys(_HAS, True), "__NVCC__": False}
"""What NVRTC defines, and does not."""


@dataclass(frozen=True)
class Macro:
    """A ``#define``."""

    name: str
    value: str
    parameters: tuple[str, ...] | None
    """Names of its arguments; None where it takes none."""
    line: int
    """Where it stands, from 1."""
    unless: frozenset[str]
    """Names of which each leaves it out where it is defined before, as ``#ifndef`` does."""
    guarded: bool = False
    """Whether its own name is one of these, or a neighbour that is and has a use: the tuner's definition counts."""


@dataclass(frozen=True)
class Preprocessed:
    """A source as the compiler proper sees it, but for macros."""

    text: str
    """The branches that are taken, without directives and comments: as long as the source, with spaces instead."""
    macros: dict[str, Macro]
    asked: Mapping[str, frozenset[int]]
    """Names that conditionals and ``#pragma unroll`` use, with the values that choose a branch, if they are known."""
    skipped: Mapping[int, frozenset[str]]
    """Words of branches that are not taken, by the line of the directive before them."""


def preprocessed(text: str, defined: Collection[str] = ()) -> Preprocessed:
    """Return a source's branches that NVRTC takes where that is known, else the first of each conditional.

    Args:
        text: the source.
        defined: names that are macros before it; those that it defines again are among its own, but for one that it
            limits, as by ``#if BLOCK > 512``.

    Raises:
        KernelError: the text is too large.
    """
    if len(text) > MAX_SOURCE_BYTES:
        raise KernelError("the source is too large", f"the limit is {MAX_SOURCE_BYTES} bytes")
    branches, skipped, at = _Branches(defined), dict[int, list[str]](), [0, 1]

    def piece(match: re.Match[str]) -> str:
        if match["directive"] is not None:
            at[:] = match.start(), at[1] + text.count("\n", at[0], match.start())
            branches.take(match[0], at[1])
        elif match["left_out"] is None:
            if branches.taken:
                return match[0]
            skipped.setdefault(at[1], []).append(match[0])
        return blank(match[0])

    plain = _PIECE.sub(piece, text)
    macros = branches.macros
    words = re.compile(r"[A-Za-z_$][\w$]*")  # a called name is a piece a letter
    by_line = {line: frozenset(words.findall("".join(pieces))) for line, pieces in skipped.items()}
    used = {word for text in (plain, *(one.value for one in macros.values())) for word in words.findall(text)}
    marks = {
        name
        for one in macros.values()
        for name in one.unless
        if name in macros and name in macros[name].unless
    }
    defaults = marks & {*used, *branches.asked}  # not those of headers
    for name, macro in macros.items():
        macros[name] = replace(macro, guarded=name in macro.unless or not defaults.isdisjoint(macro.unless))
    plain = without_launches(plain, macros)
    empty = [one.name for one in macros.values() if one.parameters is None and _NO_WORD.fullmatch(one.value)]
    empty += ["__restrict", "__restrict__"]  # a parser may take them for types or names
    plain = re.sub(rf"\b(?:{'|'.join(empty)})\b", lambda match: blank(match[0]), plain)
    return Preprocessed(plain, macros, branches.chosen_by(used.union(*by_line.values())), by_line)


def without_launches(text: str, macros: Mapping[str, Macro]) -> str:
    """Return a text with spaces instead of calls of macros that launch: they make code of the host, often functions."""
    names = [one.name for one in macros.values() if one.parameters is not None and "<<<" in one.value]
    if not names:
        return text
    calls = rf"(?<!define )\b(?:{'|'.join(names)})\s*{_CALL}"
    return re.sub(calls, lambda match: blank(match[0]), text)


def expanded(source: Preprocessed) -> str:
    """Return the text with what macros of arguments stand for, such as ``#define AT(i, j) ((i) * n + (j))``.

    Others stay: those that check calls of the host, that make texts, and minima, which expressions have.
    """
    host = r"(?<!#)#(?!#)|<<<"
    used = {
        name: one
        for name, one in source.macros.items()
        if one.parameters is not None
        and name.lower() not in ("min", "max")
        and not re.search(rf"{host}|\b{name} *\(", one.value)
        and re.search(r"\b__(?:global|device)__\b|\A(?!.*\b(?:do\b|return\b|cuda[A-Z]))", one.value)
    }
    text, left = source.text, MAX_SOURCE_BYTES

    def value(match: re.Match[str]) -> str:
        nonlocal left
        macro, given = used[match[1]], re.findall(rf"(?:[^,()]|{_CALL})+", match[2][1:-1])
        left -= len(macro.value) + len(match[2])
        of = macro.parameters or ()
        if of[-1:] == ("__VA_ARGS__",):
            given = [*given[: len(of) - 1], ", ".join(map(str.strip, given[len(of) - 1 :]))]
        values = dict(zip(of, map(str.strip, given), strict=False))
        if left < 0 or len(values) < len(of):
            return match[0]
        text = re.sub(r",\s*##\s*(?=__VA_ARGS__)", ", " if values.get("__VA_ARGS__") else "", macro.value)
        # (i) + n * j reads like a cast where i is a name
        text = re.sub(
            r"(?<!\w)\(\s*(\w+)\s*\)(?=\s*[+-][^+=-])",
            lambda one: one[1] if values.get(one[1], "").isidentifier() else one[0],
            text,
        )
        inner = re.sub(r"[A-Za-z_]\w*", lambda word: values.get(word[0], word[0]), text)
        inner = re.sub(r"\s*##\s*", "", inner)
        return inner + "\n" * (match[0].count("\n") - inner.count("\n"))

    for _ in range(_NESTED if used else 0):
        before, text = text, re.sub(rf"\b({'|'.join(used)})\s*({_CALL})", value, text)
        if text == before:
            break
    return text


def uncommented(text: str) -> str:
    """Return a source's code of all branches, without comments, attributes and literals."""

    def piece(match: re.Match[str]) -> str:
        if match["directive"]:
            return _COMMENT.sub("", match[0])
        return "" if match["left_out"] or match["text"] else match[0]

    return _PIECE.sub(piece, text)


def blank(text: str, *, directives: bool = True) -> str:
    """Return spaces instead of a text, in as many lines; perhaps directives stay."""
    if not directives:
        return _PIECE.sub(lambda match: match[0] if match["directive"] else blank(match[0]), text)
    return re.sub(r"[^\n]", " ", text)


class _Branches:
    """Which branches of conditionals are taken, and what they define."""

    def __init__(self, defined: Collection[str]) -> None:
        self.macros: dict[str, Macro] = {}
        self.asked: dict[str, set[int]] = {}
        """Names with the numbers that conditionals compare them with."""
        self._tested: set[str] = set()
        """Those that are conditions by themselves."""
        self._used: set[str] = set()
        """Those that pragmas use, and definitions of branches that are not taken."""
        self._before = set(defined)
        self._values: dict[str, float | None] = {}
        """Of names that conditionals use, until one of them is defined or undefined."""
        self._open: list[tuple[bool, list[str], frozenset[str]]] = []
        """Of each conditional: whether the branch is taken, the conditions so far, and names that would prevent it."""

    @property
    def taken(self) -> bool:
        return not self._open or self._open[-1][0]

    def take(self, text: str, line: int) -> None:
        """Take a directive into account."""
        plain = _COMMENT.sub(" ", text.replace("\\\r\n", " ").replace("\\\n", " "))
        match = _DIRECTIVE.match(plain)
        word, rest = (match[1], match[2].strip()) if match else ("", "")
        if word in ("if", "ifdef", "ifndef"):
            if word != "if":
                rest = f"{'!' if word == 'ifndef' else ''}defined({rest})"
            self._branch([rest])
        elif word in ("elif", "else") and self._open:
            self._branch([*self._open.pop()[1], rest if word == "elif" else "1"])
        elif word == "endif" and self._open:
            self._open.pop()
        elif word == "define" and self.taken and (define := _DEFINE.match(rest)):
            name = define[1]
            self._forget(name)
            taken = tuple(re.findall(r"\w+", define[2].replace("...", " __VA_ARGS__"))) if define[2] else None
            value = _ATTRIBUTE.sub("", define[3]).strip()
            unless = frozenset[str]().union(*(names for _, _, names in self._open))
            if not self._limits(name):
                self.macros.setdefault(name, Macro(name, value, taken, line, unless))
        elif word == "undef" and self.taken and not self._limits(rest):
            self._forget(rest)
            self.macros.pop(rest, None)
            self._before.discard(rest)
        elif word == "define" or (word == "pragma" and rest.startswith("unroll")):
            names = set(re.findall(r"[A-Za-z_]\w*", rest)[1:])
            self._used |= names
            self.asked |= {name: set() for name in names - self.asked.keys() if self.taken}

    def chosen_by(self, used: Collection[str]) -> dict[str, frozenset[int]]:
        """Return the names that are asked for, with the values that choose a branch.

        A name that the code uses, too, may have other values, unless it is compared with several.
        """
        chosen = dict[str, frozenset[int]]()
        for name, compared in self.asked.items():
            values = compared if len(compared) > 1 and name not in self._used else set()
            if name not in used and name not in self._used:
                values = compared | ({0, 1} if name in self._tested else set())
                values |= {int(0 in values)} if len(values) == 1 else set()  # for the other branch
            chosen[name] = frozenset(values)
        return chosen

    def _forget(self, name: str) -> None:
        """Let values be looked up again that may depend on a name."""
        if name in self._values:
            self._values.clear()

    def _limits(self, name: str) -> bool:
        """Return whether a macro is defined again because of its value."""
        asked = " ".join(_DEFINED.sub("", one) for _, conditions, _ in self._open for one in conditions)
        return name in {*self._before, *self.macros} and name in re.findall(r"\w+", asked)

    def _branch(self, conditions: list[str]) -> None:
        """Open the branch whose condition is the last, after those that the others had."""
        if self.taken and "defined" not in conditions[-1]:
            names = set(re.findall(r"[A-Za-z_]\w*", conditions[-1])) - {"__has_include"}
            self.asked |= {name: set() for name in names - self.asked.keys()}
            self._compare(python_of(conditions[-1]))
        asked = {one or other for one, other in _DEFINED.findall(" ".join(conditions))}
        taken = self._holds(conditions, "")
        unless = frozenset(name for name in asked if taken and not self._holds(conditions, name))
        self._open.append((self.taken and taken, conditions, unless))

    def _compare(self, condition: ast.expr | None) -> None:
        """Keep what a condition compares names with."""
        left = [condition]
        while left:
            match left.pop():
                case ast.Name(id=name):
                    self._tested.add(name)
                case ast.BoolOp(values=parts):
                    left += parts
                case ast.UnaryOp(op=ast.Not(), operand=operand):
                    left.append(operand)
                case ast.Compare(left=one, ops=[ast.Eq() | ast.NotEq()], comparators=[other]):
                    for side, number in ((one, other), (other, one)):
                        if isinstance(side, ast.Name) and isinstance(value := self._value(number), int):
                            self.asked.setdefault(side.id, set()).add(value)

    def _holds(self, conditions: list[str], also: str) -> bool:
        """Return whether the last condition is taken to hold and none before, where one more name is defined."""

        def known(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            if name == also or name in self.macros or name in self._before:
                return " 1 "
            of_cuda = re.fullmatch(r"__\w+_H__", name)  # or of the source: its own headers come first
            return f" {name} " if of_cuda else f" {int(GIVEN.get(name, False))} "

        *others, last = (self._value(python_of(_DEFINED.sub(known, one))) for one in conditions)
        return last != 0 and all(one == 0 for one in others)

    def _value(self, tree: ast.expr | None) -> float | None:
        """Return the value of a condition, or of a part; None where it depends on names that have none here."""
        match tree:
            case ast.Constant(value=int() | float() as value):
                return value
            case ast.Name(id=name):
                if name not in self._values:
                    self._values[name] = None  # while it is looked up: it may stand for itself
                    macro = self.macros.get(name) if name not in self._before else None
                    if macro is not None and macro.parameters is None:
                        self._values[name] = self._value(python_of(macro.value))
                return self._values[name]
            case ast.UnaryOp(op=ast.Not() | ast.USub() as op, operand=operand):
                sign, parts = "not" if isinstance(op, ast.Not) else "neg", [operand]
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                sign, parts = COMPARE_SIGNS[type(op)], [left, right]
            case ast.BinOp(left=left, op=op, right=right):
                sign, parts = BINARY_SIGNS[type(op)], [left, right]
            case ast.BoolOp(op=op, values=parts):
                sign = "and" if isinstance(op, ast.And) else "or"
            case ast.Call(func=ast.Name(id=sign), args=parts):
                pass
            case _:
                return None
        try:
            values = [self._value(part) for part in parts]
            if sign in ("and", "or"):  # one part may be enough
                ends, known = sign == "or", {None if one is None else bool(one) for one in values}
                return ends if ends in known else None if None in known else not ends
            return None if None in values else Expression.arithmetic.apply(sign, *values)
        except (ArithmeticError, LookupError, TypeError, RecursionError):
            return None
