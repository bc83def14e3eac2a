"""What CUDA source text says of its kernels: names, parameters, launch bounds, launches, macros, constant memory.

The text is read, not compiled: it may lack definitions, as a source whose parameters are macros does. Of conditionals
the branch is read that NVRTC would take where that is known, else the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tuner.core.errors import KernelError
from tuner.kernel.source.launches import WrittenLaunch, written_launch
from tuner.kernel.source.tokens import Macro, Token, close_of, joined, scan, split
from tuner.kernel.source.types import NO_TYPE, NUMBERS, CType, base_of, is_type, vector_of

_CLASSES = ("struct", "class", "union")
_SPECIFIERS = frozenset(
    (
        "__launch_bounds__", "__cluster_dims__", "__block_size__", "__maxnreg__", "__attribute__", "__declspec",
        "__align__", "alignas", "noexcept", "decltype", "throw",
    )
)  # fmt: skip
"""Words with parentheses behind them that hold no parameters of a function."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel; one without a name has that of its place, ``argument3``."""

    name: str
    type: CType


@dataclass(frozen=True)
class KernelSignature:
    """A ``__global__`` function."""

    name: str
    """With its namespaces, such as ``solver::step``."""
    parameters: tuple[Parameter, ...]
    line: int
    """Where its name stands, from 1."""
    extern_c: bool = False
    template: tuple[tuple[str, str], ...] = ()
    """Kind (``typename``, ``int``, ...) and name of each template parameter."""
    launch_bounds: tuple[str, ...] = ()
    """Arguments of ``__launch_bounds__``."""
    body: tuple[Token, ...] = field(default=(), repr=False, compare=False)
    """Between its braces; empty for a declaration."""

    @property
    def short_name(self) -> str:
        """The name without namespaces."""
        return self.name.rpartition("::")[2]


@dataclass(frozen=True)
class Symbol:
    """A ``__constant__`` or ``__device__`` variable of the module."""

    name: str
    type: CType
    extents: tuple[str, ...]
    """Its dimensions as they are written; none for a single number."""
    constant: bool
    """Whether it is ``__constant__``."""
    initialised: bool
    line: int


@dataclass(frozen=True)
class PlainFunction:
    """A function without ``__global__``, ``__device__`` or ``constexpr``, which NVRTC takes for the device's."""

    name: str
    tokens: tuple[Token, ...] = field(repr=False)
    """All, from its type to its closing brace."""


@dataclass(frozen=True)
class Source:
    """What a source text declares."""

    kernels: tuple[KernelSignature, ...]
    launches: tuple[WrittenLaunch, ...]
    macros: Mapping[str, Macro]
    constants: Mapping[str, str]
    """Numbers that the file names, ``const int TILE = 32;``, with their texts."""
    symbols: tuple[Symbol, ...]
    functions: tuple[PlainFunction, ...]
    """Those that are not said to be a kernel's or a device's."""
    tokens: tuple[Token, ...] = field(repr=False)
    """All but those of branches that are not taken."""
    asked: frozenset[str] = frozenset()
    """Names that conditionals and pragmas of the preprocessor use."""

    def kernel(self, name: str = "") -> KernelSignature:
        """Return the kernel of a name, with or without namespaces; without a name the only one.

        Raises:
            KernelError: there is none of that name, or there are several.
        """
        found = [one for one in self.kernels if not name or name in (one.name, one.short_name)]
        if len(found) == 1:
            return found[0]
        names = ", ".join(dict.fromkeys(one.name for one in found or self.kernels))
        if not self.kernels:
            raise KernelError("the source has no __global__ function", "give the file that has the kernel")
        if not found:
            raise KernelError(f"the source has no kernel {name!r}", f"choose from: {names}")
        if len({one.name for one in found}) == 1:
            raise KernelError(
                f"{found[0].name} is overloaded ({len(found)} kernels have that name)",
                "rename one of them: an entry names one kernel",
            )
        raise KernelError(f"the source has {len(found)} kernels", f"name one: {names}")


def read_signatures(text: str) -> Source:
    """Return what a CUDA source declares.

    Args:
        text: the source, whole or in part.
    """
    tokens, macros, asked = scan(text)
    reader = _Reader(tokens, macros)
    reader.read(0, len(tokens), (), extern_c=False)
    kernels: dict[tuple[str, tuple[CType, ...]], KernelSignature] = {}
    for kernel in reader.kernels:
        key = kernel.name, tuple(parameter.type for parameter in kernel.parameters)
        if key not in kernels or kernel.body:  # a definition rather than its declaration
            kernels[key] = kernel
    return Source(
        tuple(kernels.values()),
        tuple(reader.launches),
        macros,
        reader.constants,
        tuple(reader.symbols),
        tuple(reader.functions),
        tuple(tokens),
        frozenset(asked),
    )


class _Reader:
    """Goes through the declarations of a file, and through the functions for launches."""

    def __init__(self, tokens: Sequence[Token], macros: Mapping[str, Macro]) -> None:
        self.tokens = tokens
        self.aliases = {
            name: one.value
            for name, one in macros.items()
            if one.parameters is None and is_type(one.value) and not (one.guarded and name.endswith("_type"))
        }
        self._macros = macros
        self.structs: dict[str, tuple[str, int]] = {}
        """Those whose members are numbers of one type, with that and how many they are."""
        self.constants: dict[str, str] = {}
        self.kernels: list[KernelSignature] = []
        self.launches: list[WrittenLaunch] = []
        self.symbols: list[Symbol] = []
        self.functions: list[PlainFunction] = []

    def read(self, start: int, end: int, names: tuple[str, ...], *, extern_c: bool) -> None:
        """Read the declarations of a scope: the file, a namespace or ``extern "C"``."""
        begin = at = start
        while at < end:
            text = self.tokens[at].text
            if text in ("(", "["):
                at = close_of(self.tokens, at)
            elif text == ";":
                self._declaration(self.tokens[begin:at], (), names, extern_c)
                begin = at + 1
            elif text == "{":
                close = min(close_of(self.tokens, at), end)
                head = self.tokens[begin:at]
                words = [token.text for token in head]
                if "namespace" in words[:2]:
                    inner = tuple(
                        word for word in words[words.index("namespace") + 1 :] if word[0].isidentifier()
                    )
                    self.read(at + 1, close, (*names, *inner), extern_c=extern_c)
                    begin = close + 1
                elif words == ["extern", '"C"']:
                    self.read(at + 1, close, names, extern_c=True)
                    begin = close + 1
                elif "(" in words and "=" not in _outside(head) and words[0] not in _CLASSES:
                    self._declaration(head, self.tokens[at : close + 1], names, extern_c)
                    begin = close + 1
                elif words and words[0] in ("struct", "class") and (alike := self._members(at + 1, close)):
                    name = next((word for word in reversed(words) if word.isidentifier()), "")
                    self.structs[name] = alike
                at = close  # of a class or an initializer, which end with a semicolon
            at += 1

    def _declaration(
        self, head: Sequence[Token], body: Sequence[Token], names: tuple[str, ...], extern_c: bool
    ) -> None:
        words, outside = [token.text for token in head], _outside(head)
        if "__global__" in words:
            self._kernel(head, body, names, extern_c or ("extern" in words and '"C"' in words))
        elif "__constant__" in outside or ("__device__" in outside and "(" not in outside):
            self._symbol(head, names)
        elif words[:1] == ["using"] and "=" in words:
            self._alias(words[1], head[words.index("=") + 1 :])
        elif words[:1] == ["typedef"] and len(head) > 2:
            self._alias(words[-1], head[1:-1])
        elif "=" in outside and {"const", "constexpr"} & set(outside) and not body:
            place = outside.index("=")
            self.constants[outside[place - 1]] = joined(head[words.index("=") + 1 :])
        elif (body or self._is_prototype(outside)) and not {"__device__", "constexpr"} & set(words):
            name = next((words[at - 1] for at, word in enumerate(words) if word == "(" and at), "")
            self.functions.append(PlainFunction(name, (*head, *body)))
        if body:
            self._launches(body)

    def _is_prototype(self, outside: Sequence[str]) -> bool:
        """Return whether a declaration is a function's, which is no macro's."""
        at = outside.index("(") if "(" in outside else 0
        return at > 1 and outside[at - 1] not in self._macros and not {"=", "using", "typedef"} & set(outside)

    def _members(self, start: int, end: int) -> tuple[str, int] | None:
        """Return the type of a class's members and how many they are; None if they are no numbers of one type."""
        kinds, count, begin = set[str](), 0, start
        for at in range(start, end):
            if self.tokens[at].text == ";":
                words = [token.text for token in self.tokens[begin:at]]
                begin = at + 1
                first = words[: words.index(",")] if "," in words else words
                extents = [int(word) for word in words if word.isdecimal()]
                words_of = [word for word in first[:-1] if word not in ("[", "]")]
                kind = self.type_of(words_of[: -1 if "[" in first else None])
                if kind.pointers or kind.dtype is None or "(" in words:
                    return None
                kinds.add(kind.base)
                count += math.prod(extents) * (1 + words.count(",")) * kind.lanes
        return (kinds.pop(), count) if len(kinds) == 1 else None

    def _alias(self, name: str, tokens: Sequence[Token]) -> None:
        if (text := joined(tokens)) and is_type(text):
            self.aliases[name] = text

    def _kernel(
        self, head: Sequence[Token], body: Sequence[Token], names: tuple[str, ...], extern_c: bool
    ) -> None:
        template: tuple[tuple[str, str], ...] = ()
        at = 0
        if head[0].text == "template":
            close = _angle_close(head, 1)
            template = tuple(map(_template_parameter, split(head[2:close])))
            at = close + 1
        bounds: tuple[str, ...] = ()
        opens: list[int] = []
        while at < len(head):
            if head[at].text in ("(", "["):
                close = close_of(head, at)
                before = head[at - 1].text if at else ""
                if before == "__launch_bounds__":
                    bounds = tuple(map(joined, split(head[at + 1 : close])))
                elif head[at].text == "(" and before not in _SPECIFIERS:
                    opens.append(at)
                at = close
            at += 1
        if not opens or not head[opens[-1] - 1].text.isidentifier():
            return  # an explicit instantiation or specialisation
        place = opens[-1]
        name = head[place - 1]
        parameters = [
            self._parameter(one, f"argument{number}")
            for number, one in enumerate(split(head[place + 1 : close_of(head, place)]), 1)
        ]
        if [one.type.text for one in parameters] == ["void"]:
            parameters = []
        full = "::".join((*names, name.text))
        self.kernels.append(
            KernelSignature(full, tuple(parameters), name.line, extern_c, template, bounds, tuple(body[1:-1]))
        )

    def _parameter(self, tokens: Sequence[Token], otherwise: str) -> Parameter:
        """Return a parameter; its name is the last word, unless that is the type."""
        words = [token.text for token in tokens]
        words = words[: words.index("=")] if "=" in words else words
        arrays = 0
        while words and words[-1] == "]":
            words = words[: len(words) - words[::-1].index("[") - 1]
            arrays = 1
        plain = [word for word in words if word not in NO_TYPE]
        named = len(plain) > 1 and plain[-1].isidentifier() and plain[-1] not in NUMBERS and plain[-2] != "::"
        name = plain[-1] if named else otherwise
        if named:
            last = len(words) - 1 - words[::-1].index(name)
            words = words[:last] + words[last + 1 :]
        return Parameter(name, self.type_of(words, arrays))

    def type_of(self, words: Sequence[str], arrays: int = 0) -> CType:
        """Return the type that words stand for."""
        pointers = words.count("*") + arrays
        before = words[: words.index("*")] if "*" in words else words
        const = pointers > 0 and "const" in before
        base = base_of(words)
        text = base + "*" * pointers
        for _ in range(16):  # an alias of an alias, but not for ever
            if base not in self.aliases:
                break
            alias = self.aliases[base].replace("*", " * ").split()
            pointers += alias.count("*")
            const = const or (alias.count("*") > 0 and "const" in alias)
            base = base_of(alias)
        base, lanes = self.structs.get(base) or vector_of(base)
        return CType(text, base, pointers, const, lanes)

    def _symbol(self, head: Sequence[Token], names: tuple[str, ...]) -> None:
        texts = [token.text for token in head]
        stop = next((number for number, text in enumerate(texts) if text in ("=", "{", ",")), len(texts))
        extents, at = list[str](), stop
        while at and texts[at - 1] == "]":
            start = next((n for n in range(at - 1, -1, -1) if texts[n] == "["), 0)
            extents.insert(0, joined(head[start + 1 : at - 1]))
            at = start
        marks = ("__constant__", "__device__", '"')
        words = [text for text in texts[: max(at - 1, 0)] if not text.startswith(marks)]
        if at < 2 or not texts[at - 1].isidentifier() or "(" in words:
            return
        kind = self.type_of([word for word in words if word not in ("extern", "inline", "__managed__")])
        name = "::".join((*names, texts[at - 1]))
        given = stop < len(texts) and texts[stop] != ","
        constant, line = "__constant__" in texts, head[at - 1].line
        self.symbols.append(Symbol(name, kind, tuple(extents), constant, given, line))

    def _launches(self, body: Sequence[Token]) -> None:
        for at, token in enumerate(body):
            if token.text == "<<<":
                launch = written_launch(body, at)
                if launch is not None:
                    self.launches.append(launch)


def _template_parameter(tokens: Sequence[Token]) -> tuple[str, str]:
    words = [token.text for token in tokens]
    words = words[: words.index("=")] if "=" in words else words
    return (" ".join(words[:-1]), words[-1]) if len(words) > 1 else (" ".join(words), "")


def _angle_close(tokens: Sequence[Token], at: int) -> int:
    depth = 0
    for number in range(at, len(tokens)):
        depth += {"<": 1, ">": -1, ">>>": -3}.get(tokens[number].text, 0)
        if depth <= 0:
            return number
    return len(tokens) - 1


def _outside(head: Sequence[Token]) -> list[str]:
    """Return the words of a declaration outside of brackets, with those that open, behind ``template <...>``."""
    words, at = [], 0
    if head and head[0].text == "template":
        at = _angle_close(head, 1) + 1
    while at < len(head):
        words.append(head[at].text)
        at = close_of(head, at) + 1 if head[at].text in ("(", "[", "{") else at + 1
    return words
