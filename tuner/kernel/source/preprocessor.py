"""What can be known of the preprocessor without the compiler: which branches are taken, and what macros there are."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tuner.core.errors import KernelError

MAX_SOURCE_BYTES = 4 << 20
"""Of a text that is read; larger ones are no kernel."""
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
_COMMENT = re.compile(r"/\*.*?\*/|//(?:\\\n|[^\n])*", re.DOTALL)
_DIRECTIVE = re.compile(r"\s*#\s*(\w*)\s*(.*)", re.DOTALL)
_DEFINE = re.compile(r"(\w+)(\([^)]*\))?\s*(.*)", re.DOTALL)
_DEFINED = re.compile(r"(!?)\s*defined\s*\(?\s*(\w+)\s*\)?\Z")
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
    guarded: bool
    """Whether it stands in ``#ifndef`` of its own name or a neighbour's: the tuner's definition counts."""


@dataclass(frozen=True)
class Preprocessed:
    """A source as the compiler proper sees it, but for macros."""

    text: str
    """The branches that are taken, without directives and comments: as long as the source, with spaces instead."""
    macros: dict[str, Macro]
    asked: frozenset[str]
    """Names that conditionals and ``#pragma unroll`` use."""
    skipped: frozenset[str]
    """Words of branches that are not taken."""


def preprocessed(text: str) -> Preprocessed:
    """Return a source's branches that NVRTC takes where that is known, else the first of each conditional.

    Raises:
        KernelError: the text is too large.
    """
    if len(text) > MAX_SOURCE_BYTES:
        raise KernelError("the source is too large", f"the limit is {MAX_SOURCE_BYTES} bytes")
    branches, skipped = _Branches(), list[str]()

    def piece(match: re.Match[str]) -> str:
        if match["directive"] is not None:
            branches.take(match[0])
        elif match["left_out"] is None:
            if branches.taken:
                return match[0]
            skipped.append(match[0])
        return blank(match[0])

    plain = _PIECE.sub(piece, text)
    words = re.findall(r"[A-Za-z_$][\w$]*", "".join(skipped))  # a called name is a piece a letter
    return Preprocessed(plain, branches.macros, frozenset(branches.asked), frozenset(words))


def uncommented(text: str) -> str:
    """Return a source's code of all branches, without comments and attributes."""

    def piece(match: re.Match[str]) -> str:
        return _COMMENT.sub("", match[0]) if match["directive"] else "" if match["left_out"] else match[0]

    return _PIECE.sub(piece, text)


def blank(text: str, *, directives: bool = True) -> str:
    """Return spaces instead of a text, in as many lines; perhaps directives stay."""
    if not directives:
        return _PIECE.sub(lambda match: match[0] if match["directive"] else blank(match[0]), text)
    return re.sub(r"[^\n]", " ", text)


class _Branches:
    """Which branches of conditionals are taken, and what they define."""

    def __init__(self) -> None:
        self.macros: dict[str, Macro] = {}
        self.asked: set[str] = set()
        self._valued: set[str] = set()
        """Macros that stand for something: others are marks of headers."""
        self._open: list[tuple[bool, bool, str]] = []
        """Of each conditional: whether the branch is taken, whether one was, and the name whose absence it asks."""

    @property
    def taken(self) -> bool:
        return not self._open or self._open[-1][0]

    def take(self, text: str) -> None:
        """Take a directive into account."""
        plain = _COMMENT.sub(" ", text.replace("\\\r\n", " ").replace("\\\n", " "))
        match = _DIRECTIVE.match(plain)
        word, rest = (match[1], match[2].strip()) if match else ("", "")
        if word in ("if", "ifdef", "ifndef"):
            if word != "if":
                rest = f"{'!' if word == 'ifndef' else ''}defined {rest}"
            holds, absent = self._holds(rest)
            self._open.append((self.taken and holds, holds, absent))
        elif word in ("elif", "else") and self._open:
            _, done, _ = self._open.pop()
            holds = not done and (word == "else" or self._holds(rest)[0])
            self._open.append((self.taken and holds, done or holds, ""))
        elif word == "endif" and self._open:
            self._open.pop()
        elif word == "define" and self.taken and (define := _DEFINE.match(rest)):
            name = define[1]
            guarded = any(absent == name or absent in self._valued for _, _, absent in self._open)
            taken = tuple(re.findall(r"\w+", define[2])) if define[2] else None
            self.macros.setdefault(name, Macro(name, define[3].strip(), taken, guarded))
            self._valued |= {name} if define[3].strip() else set()
        elif word == "undef" and self.taken:
            self.macros.pop(rest, None)
        elif word == "pragma" and self.taken and rest.startswith("unroll"):
            self.asked |= set(re.findall(r"[A-Za-z_]\w*", rest)[1:])

    def _holds(self, condition: str) -> tuple[bool, str]:
        """Return whether a condition is taken to hold, and the name whose absence it asks for."""
        if self.taken and "defined" not in condition:
            self.asked |= set(re.findall(r"[A-Za-z_]\w*", condition)) - {"__has_include"}
        for mark, together in (("||", any), ("&&", all)):
            if mark in condition:
                return together(self._holds(part)[0] for part in condition.split(mark)), ""
        if match := _DEFINED.match(condition.strip()):
            of_cuda = not match[1] and re.fullmatch(
                r"__\w+_H__", match[2]
            )  # its headers come before the source
            known = GIVEN.get(match[2], match[2] in self.macros or bool(of_cuda))
            return known != bool(match[1]), match[2] if match[1] else ""
        return condition.strip() not in ("0", "false"), ""
