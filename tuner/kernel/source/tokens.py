"""CUDA source text as tokens, after what can be known of the preprocessor without the compiler."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tuner.core.errors import KernelError

MAX_SOURCE_BYTES = 4 << 20
"""Of a text that is read; larger ones are no kernel."""
_TOKEN = re.compile(
    r"""
    (?P<directive>^[^\S\n]*\#(?:\\\r?\n|/\*.*?\*/|//(?:\\\r?\n|[^\n])*|[^\n])*)
    |(?P<skip>\n|[^\S\n]+|//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z)|\\\r?\n)
    |(?P<text>(?:u8|[uUL])?R"(?P<end>[^()\\\s]{0,16})\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<number>\.?\d(?:[eEpP][+-]|'(?=\w)|[\w.])*)
    |(?P<word>[A-Za-z_$][\w$]*)
    |(?P<mark><<<|>>>|<<=|::|->|\+\+|--|[-+*/%&|^<>=!]=|&&|\|\||<<|\[\[|.)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_COMMENT = re.compile(r"/\*.*?\*/|//(?:\\\n|[^\n])*", re.DOTALL)
_DIRECTIVE = re.compile(r"\s*#\s*(\w*)\s*(.*)", re.DOTALL)
_DEFINE = re.compile(r"(\w+)(\([^)]*\))?\s*(.*)", re.DOTALL)
_DEFINED = re.compile(r"(!?)\s*defined\s*\(?\s*(\w+)\s*\)?\Z")
_OPEN, _CLOSE = {"(": ")", "[": "]", "{": "}", "[[": "]"}, frozenset(")]}")
_HAS = ("__CUDACC__", "__CUDACC_RTC__", "__CUDA_ARCH__", "__cplusplus")
GIVEN = {**dict.fromkeys(_HAS, True), "__NVCC__": False}
"""What NVRTC defines, and does not."""


class Token(NamedTuple):
    """A word, number, text or mark, and where it stands."""

    text: str
    line: int
    at: int
    """Where it begins in the text, from 0."""


@dataclass(frozen=True)
class Macro:
    """A ``#define``."""

    name: str
    value: str
    parameters: tuple[str, ...] | None
    """Names of its arguments; None where it takes none."""
    guarded: bool
    """Whether it stands in ``#ifndef`` of its own name or a neighbour's: the tuner's definition counts."""
    line: int


def scan(text: str) -> tuple[list[Token], dict[str, Macro], set[str]]:
    """Return the tokens of the branches that are taken, the macros, and the names that conditionals and pragmas use.

    Raises:
        KernelError: the text is too large.
    """
    if len(text) > MAX_SOURCE_BYTES:
        raise KernelError("the source is too large", f"the limit is {MAX_SOURCE_BYTES} bytes")
    tokens: list[Token] = []
    branches = _Branches()
    line = at = 1
    at = 0
    while (match := _TOKEN.match(text, at)) is not None:
        kind, whole, at = match.lastgroup, match[0], match.end()
        if match["directive"] is not None:
            branches.take(whole, line)
        elif match["skip"] is None and branches.taken:
            _add(tokens, Token(whole, line, match.start()), kind or "", branches.macros)
        line += whole.count("\n")
    return tokens, branches.macros, branches.asked


def _add(tokens: list[Token], token: Token, kind: str, macros: dict[str, Macro]) -> None:
    """Add a token, or what a macro stands for that makes a function a kernel."""
    macro = macros.get(token.text) if kind == "word" else None
    if macro is not None and ("__global__" in macro.value or macro.value == 'extern "C"'):
        tokens += [token._replace(text=one[0]) for one in _TOKEN.finditer(macro.value) if one["skip"] is None]
    else:
        tokens.append(token)


class _Branches:
    """Which branches of conditionals are taken, and what they define."""

    def __init__(self) -> None:
        self.macros: dict[str, Macro] = {}
        self.asked: set[str] = set()
        self._undefined: set[str] = set()
        self._open: list[tuple[bool, bool, str]] = []
        """Of each conditional: whether the branch is taken, whether one was, and the name whose absence it asks."""

    @property
    def taken(self) -> bool:
        return all(taken for taken, _, _ in self._open)

    def take(self, text: str, line: int) -> None:
        """Take a directive into account."""
        word, rest = _split_directive(text)
        if word in ("if", "ifdef", "ifndef"):
            if word != "if":
                rest = f"{'!' if word == 'ifndef' else ''}defined {rest}"
            holds, absent = self._holds(rest)
            self._open.append((holds, holds, absent))
        elif word in ("elif", "else") and self._open:
            _, done, _ = self._open[-1]
            holds = not done and (word == "else" or self._holds(rest)[0])
            self._open[-1] = holds, done or holds, ""
        elif word == "endif" and self._open:
            self._open.pop()
        elif self.taken:
            self._other(word, rest, line)

    def _other(self, word: str, rest: str, line: int) -> None:
        if word == "define" and (match := _DEFINE.match(rest)):
            name = match[1]
            valued = {one.name for one in self.macros.values() if one.value}  # without: marks of headers
            guarded = any(absent == name or absent in valued for _, _, absent in self._open)
            taken = tuple(re.findall(r"\w+", match[2])) if match[2] else None
            self.macros.setdefault(name, Macro(name, match[3].strip(), taken, guarded, line))
        elif word == "undef":
            self.macros.pop(rest.strip(), None)
        elif word == "pragma":
            first, *words = re.findall(r"[A-Za-z_]\w*", rest) or [""]
            self.asked |= set(words) if first == "unroll" else set()

    def _holds(self, condition: str) -> tuple[bool, str]:
        """Return whether a condition is taken to hold, and the name whose absence it asks for."""
        if self.taken:
            words = set(re.findall(r"[A-Za-z_]\w*", condition)) - {"defined", "__has_include"}
            if "defined" not in condition:
                self.asked |= words
        if match := _DEFINED.match(condition.strip()):
            known = GIVEN.get(match[2], match[2] in self.macros)
            return known != bool(match[1]), match[2] if match[1] else ""
        return condition.strip() not in ("0", "false"), ""


def _split_directive(text: str) -> tuple[str, str]:
    plain = _COMMENT.sub(" ", text.replace("\\\r\n", " ").replace("\\\n", " "))
    match = _DIRECTIVE.match(plain)
    return (match[1], match[2].strip()) if match else ("", "")


def close_of(tokens: Sequence[Token], at: int) -> int:
    """Return where the bracket at a place closes; the end where it does not."""
    depth = 0
    for number in range(at, len(tokens)):
        text = tokens[number].text
        depth += 2 if text == "[[" else 1 if text in _OPEN else -1 if text in _CLOSE else 0
        if depth == 0:
            return number
    return len(tokens)


def end_of(tokens: Sequence[Token], at: int, marks: Collection[str]) -> int:
    """Return where the first of some marks stands that no bracket holds; the end where there is none."""
    while at < len(tokens) and tokens[at].text not in marks:
        at = close_of(tokens, at) + 1 if tokens[at].text in _OPEN else at + 1
    return min(at, len(tokens))


def split(tokens: Sequence[Token]) -> list[Sequence[Token]]:
    """Return the parts between commas that no bracket holds; none of nothing."""
    parts: list[Sequence[Token]] = []
    depth = start = angles = 0
    for at, token in enumerate(tokens):
        text = token.text
        depth += 2 if text == "[[" else 1 if text in _OPEN else -1 if text in _CLOSE else 0
        if text == "<" and at and tokens[at - 1].text.isidentifier() and _is_template(tokens, at):
            angles += 1
        elif text == ">" and angles:
            angles -= 1
        elif text == "," and not depth and not angles:
            parts.append(tokens[start:at])
            start = at + 1
    return [*parts, tokens[start:]] if tokens else []


def _is_template(tokens: Sequence[Token], at: int) -> bool:
    """Return whether a ``<`` opens template arguments: names, numbers and commas up to a ``>``."""
    for token in tokens[at + 1 : at + 40]:
        if token.text == ">":
            return True
        if not re.match(r"[\w,:*<]", token.text):
            return False
    return False


def joined(tokens: Sequence[Token]) -> str:
    """Return tokens as text."""
    text = " ".join(token.text for token in tokens)
    return re.sub(r"\s*(::|\.|->)\s*|\s+([,)\]])|([(\[])\s+", r"\1\2\3", text).replace(" (", "(").strip()
