"""PTX text -> basic blocks: what an instruction reads, writes, moves, and where it may jump.

Only what the analysis needs is understood; the rest of the language counts as "other" and is never refused. The names
follow the PTX ISA reference manual.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tuner.inspect.explain.instructions import MEMORY, Code, Instruction, build
from tuner.inspect.explain.ptx_opcodes import groups_of, kind_of, width_of

_COMMENT = re.compile(r'("[^"\n]*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TOKEN = re.compile(r'"[^"]*"|[{};]|[^{};"]+')
_LABEL = re.compile(r"\s*([\w$%]+)\s*:(?!:)")
_STATEMENT = re.compile(r"(?:@(!?)\s*([%\w$]+)\s+)?([A-Za-z][\w.:]*)\s*(.*)", re.DOTALL)
_REGISTER = re.compile(r"%[A-Za-z_][\w$]*(?:\.[xyzw])?|[A-Za-z_$][\w$]*")

_NO_RESULT = (
    *("st", "stmatrix", "red", "bra", "brx", "ret", "exit", "trap", "bar", "barrier", "membar", "fence"),
    *("prefetch", "prefetchu", "nanosleep", "setmaxnreg", "griddepcontrol", "discard", "applypriority"),
    *("cp", "tensormap", "pmevent", "brkpt", "multimem", "tcgen05"),
)
"""First words of instructions whose first operand is read, if it is a register at all."""
_ENDS = ("ret", "exit", "trap")


@dataclass
class _Scope:
    """A pair of braces: names declared inside hide those outside."""

    number: int
    outer: _Scope | None
    names: set[str] = field(default_factory=set)
    labels: set[str] = field(default_factory=set)

    def register(self, name: str) -> str:
        """Return a name that is the register's alone; the empty text for what is no register."""
        plain = name.split(".")[0]
        scope: _Scope | None = self
        while scope is not None:
            if plain in scope.names:
                return f"{scope.number}:{plain}" if scope.outer else plain
            scope = scope.outer
        return plain if plain.startswith("%") else ""

    def label(self, name: str) -> str:
        """Return a label's unique name, wherever in the scope it stands."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return f"{scope.number}:{name}"
            scope = scope.outer
        return name


def _without_comments(text: str) -> str:
    return _COMMENT.sub(lambda match: match[1] or "", text)


def parse_ptx(text: str, entry: str) -> Code:
    """Read one kernel.

    Args:
        text: of a whole PTX module.
        entry: the kernel's name in it, mangled as it is.

    Raises:
        ValueError: there is no such kernel in the text.
    """
    plain = _without_comments(text)
    start = re.search(rf"\.entry\s+{re.escape(entry)}(?![\w$])", plain)
    if start is None:
        raise ValueError(f"no kernel {entry} in the PTX")
    statements = list(_statements(plain, start.end()))
    tables: dict[str, tuple[str, ...]] = {}
    for scope, kind, statement in statements:  # declared before they are used, wherever they stand
        if kind == "label":
            scope.labels.add(statement)
        elif statement.startswith(".reg"):
            scope.names.update(_declared(statement))
    items: list[str | Instruction] = []
    label = ""
    for scope, kind, statement in statements:
        if kind == "label":
            label = scope.label(statement)
            items.append(label)
        elif statement.startswith(".branchtargets"):
            names = statement.removeprefix(".branchtargets").split(",")
            tables[label] = tuple(scope.label(name.strip()) for name in names)
        elif not statement.startswith("."):
            instruction = _instruction(scope, statement)
            if instruction is not None:
                items.append(instruction)
    return build(
        [item if isinstance(item, str) else _with_table(item, tables) for item in items], ordered=False
    )


def _statements(text: str, start: int) -> Iterator[tuple[_Scope, str, str]]:
    """Return labels and statements of the body that follows, each with the scope that it stands in."""
    scope: _Scope | None = None
    count, operands, buffer = 0, 0, ""
    # Parameters in parentheses and directives such as .maxntid come first; braces begin the body.
    for token in _TOKEN.findall(text, text.index("{", start)):
        if token not in ("{", "}", ";"):
            buffer += token
            while not operands and scope is not None and (match := _LABEL.match(buffer)):
                yield scope, "label", match[1]
                buffer = buffer[match.end() :]
        elif token == "{" and not buffer.strip():
            count += 1
            scope, buffer = _Scope(count, scope), ""
        elif token == "{":
            operands += 1
            buffer += token
        elif token == "}" and operands:
            operands -= 1
            buffer += token
        elif token == "}":
            assert scope is not None
            scope = scope.outer
            if scope is None:
                return
        elif scope is not None:  # a semicolon
            if buffer.strip():
                yield scope, "statement", buffer.strip()
            buffer = ""


def _declared(statement: str) -> Iterator[str]:
    """Return the names of ``.reg .b32 %r<3>, a``; ``%r<3>`` are %r0 to %r2."""
    names = re.sub(r"^\.reg\s+(?:\.\w+\s+)+", "", statement)
    for name in names.split(","):
        match = re.fullmatch(r"\s*([%\w$]+)(?:<(\d+)>)?\s*", name)
        if match and match[2]:
            yield from (f"{match[1]}{i}" for i in range(int(match[2])))
        elif match:
            yield match[1]


def _instruction(scope: _Scope, statement: str) -> Instruction | None:
    match = _STATEMENT.fullmatch(statement)
    if match is None:
        return None
    predicate, opcode, rest = match[2], match[3], match[4]
    operands = _split(rest)
    word = opcode.split(".")[0]
    guard = (scope.register(predicate),) if predicate else ()
    if word in ("bra", "brx"):
        targets = (scope.label(operands[-1]),) if operands else ()
        return Instruction(
            opcode, reads=guard + _registers(scope, operands[:-1]), targets=targets, ends=not guard
        )
    result, others = _result(word, operands)
    kind = kind_of(opcode)
    return Instruction(
        opcode,
        kind,
        width_of(opcode, operands) if kind in MEMORY else 0,
        _registers(scope, result),
        guard + _registers(scope, others),
        ends=word in _ENDS and not guard,
        groups=groups_of(opcode, operands),
    )


def _with_table(instruction: Instruction, tables: Mapping[str, tuple[str, ...]]) -> Instruction:
    """Return an indexed jump the labels of its table."""
    if not instruction.opcode.startswith("brx") or instruction.targets[0] not in tables:
        return instruction
    targets = tables[instruction.targets[0]]
    return Instruction(instruction.opcode, reads=instruction.reads, targets=targets, ends=instruction.ends)


def _split(operands: str) -> list[str]:
    """Split at the commas that are in no brackets."""
    parts, depth, current = [], 0, ""
    for c in operands:
        depth += (c in "([{") - (c in ")]}")
        if c == "," and not depth:
            parts.append(current.strip())
            current = ""
        else:
            current += c
    return [*parts, current.strip()] if current.strip() or parts else []


def _result(word: str, operands: list[str]) -> tuple[list[str], list[str]]:
    """Tell what is written from what is read."""
    if not operands or word in _NO_RESULT or operands[0].startswith("["):
        return [], operands
    if word in ("call", "wgmma"):  # results in parentheses; sums that are read and written
        return operands[:1], operands
    return operands[:1], operands[1:]


def _registers(scope: _Scope, operands: list[str]) -> tuple[str, ...]:
    names = (scope.register(name) for text in operands for name in _REGISTER.findall(text))
    return tuple(dict.fromkeys(name for name in names if name))
