"""A kernel's file that is yet to be written: what ``tune init`` reads from a source, and what a call from Python gives.

:meth:`Draft.toml` writes it as a person would. What is missing or guessed is marked by :data:`GAP`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

GAP = "TODO"
"""What a comment begins with behind a line that a person should look at."""
ROLES = ("input", "data", "element", "kernel_dtype")
"""Names of a dtype role, of which a file has at least one."""
WIDTH = 112
"""Of a line with a comment behind it; a longer comment stands above."""


@dataclass(frozen=True)
class Given:
    """A value with a comment behind its line.

    Args:
        value: what TOML has: text, a number, a truth value, a list or a mapping.
        note: the comment; empty for none.
        gap: whether a person must change or confirm the value.
    """

    value: Any
    note: str = ""
    gap: bool = False


def plain(given: Any) -> Any:
    """Return a value, without the comment that it may have."""
    return given.value if isinstance(given, Given) else given


@dataclass(frozen=True)
class TensorDraft:
    """A tensor: shape as expressions, a dtype or role of one, and what it is to the kernel."""

    shape: Sequence[str]
    dtype: str
    role: str = "input"
    """``input``, ``output`` or ``inout``."""
    init: Any = None
    """As the file has it; None for the default."""
    note: str = ""
    gap: bool = False


@dataclass(frozen=True)
class ParameterDraft:
    """A parameter to be tuned."""

    values: Sequence[int | float | bool | str]
    default: int | float | bool | str | None = None
    """None for the first value."""
    doc: str = ""
    note: str = ""
    gap: bool = False


@dataclass(frozen=True)
class LaunchDraft:
    """A launch: the source's file, the kernel, what it is passed, and its grid."""

    template: str
    """Name of the file in the folder of the kernel's file."""
    entry: str
    arguments: Sequence[Any]
    """Names, or tables such as ``{ value = "n", dtype = "int64" }``."""
    grid: Sequence[str] | Given
    block: Sequence[str] | Given
    shared_bytes: str | Given = ""
    """Empty for none."""
    constants: Mapping[str, str] = field(default_factory=dict)
    """The tensor with which each ``__constant__`` symbol is filled."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Other keys of a launch."""


@dataclass(frozen=True)
class Draft:
    """A kernel's file; its fields are the tables of ``docs/kernel-files.md``."""

    name: str
    sizes: Mapping[str, int | str | Given]
    tensors: Mapping[str, TensorDraft]
    launches: Sequence[LaunchDraft]
    parameters: Mapping[str, ParameterDraft] = field(default_factory=dict)
    constraints: Mapping[str, str | Given] = field(default_factory=dict)
    """Conditions by their reasons."""
    summary: str = ""
    dtypes: Mapping[str, Any] = field(default_factory=dict)
    """Each role with its dtypes; where there is none, the first tensor's dtype gets a role."""
    options: Mapping[str, Any] = field(default_factory=dict)
    scalars: Mapping[str, tuple[str, Any] | Given] = field(default_factory=dict)
    """Dtype and value of each number that is no size; ``Given`` holds such a pair."""
    reference: str | Mapping[str, Any] | Given | None = "default"
    """``default``, the keys of ``[reference]``, or None for no reference."""
    work: Mapping[str, Any] | None = None
    """None: each tensor once."""
    compile: Mapping[str, Any] = field(default_factory=dict)
    """``options`` and ``include``."""
    variant: str = "main"
    requires: str = ""
    """What a GPU must have; empty for nothing."""
    build: str = ""
    """``FILE.py:FUNCTION`` that builds what is called, in place of launches; empty for none."""
    head: Sequence[str] = ()
    """Comment lines at the beginning."""

    def toml(self) -> str:
        """Return the file's text."""
        return "\n".join(self._lines()).strip() + "\n"

    @property
    def _role(self) -> str:
        return free_role({*self.sizes, *self.options, *self.tensors, *self.scalars, *self.parameters})

    def _lines(self) -> Iterator[str]:
        for line in self.head:
            yield f"# {line}".rstrip()
        if self.head:
            yield ""
        reference = plain(self.reference)
        if isinstance(reference, str):
            yield from _line("reference", self.reference)
            yield ""
        yield from _table("kernel", {"name": self.name, **_filled(summary=self.summary)})
        dtypes = self.dtypes or {self._role: [next(tensor.dtype for tensor in self.tensors.values())]}
        yield "[problem]"
        yield from _nested("sizes", self.sizes)
        yield from _nested("dtypes", dtypes)
        if self.options:
            yield from _nested("options", self.options)
        yield ""
        yield from _table("tensors", {name: _tensor(tensor) for name, tensor in self.tensors.items()})
        yield from _table("scalars", {name: _scalar(scalar) for name, scalar in self.scalars.items()})
        if isinstance(reference, Mapping):
            yield from _table("reference", reference)
        yield from _table("work", self.work or {})
        yield from _table("compile", self.compile)
        variant = f"variants.{key(self.variant)}"
        parameters = {name: _parameter(one) for name, one in self.parameters.items()}
        if (own := _filled(build=self.build, requires=self.requires)) or not parameters:
            yield from _section(f"[{variant}]", own)
        yield from _table(f"{variant}.parameters", parameters)
        yield from _table(f"{variant}.constraints", self.constraints)
        for launch in self.launches:
            shape = {"grid": launch.grid, "block": launch.block, **_filled(shared_bytes=launch.shared_bytes)}
            first = {"template": launch.template, "entry": launch.entry, "arguments": list(launch.arguments)}
            constants = _filled(constants=launch.constants)
            yield from _section(f"[[{variant}.launches]]", {**first, **shape, **launch.more, **constants})


def free_role(taken: Collection[str], words: Collection[str] = ()) -> str:
    """Return a name for a dtype role that nothing has in the file, and no type in the words of the source."""
    return next((role for role in ROLES if role not in taken and f"{role}_type" not in words), "dtype_")


def _filled(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


def _table(name: str, values: Mapping[str, Any]) -> Iterator[str]:
    if values:
        yield from _section(f"[{name}]", values)


def _section(heading: str, values: Mapping[str, Any]) -> Iterator[str]:
    yield heading
    for name, value in values.items():
        yield from _line(name, value)
    yield ""


def _nested(name: str, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table within a table: on one line, or a line for each entry where some have comments."""
    if any(isinstance(value, Given) and (value.note or value.gap) for value in values.values()):
        for one, value in values.items():
            yield from _line(f"{name}.{key(one)}", value, quoted=True)
    else:
        yield from _line(name, values)


def _line(name: str, given: Any, *, quoted: bool = False) -> Iterator[str]:
    line = f"{name if quoted else key(name)} = {toml_value(given)}"
    note, gap = (given.note, given.gap) if isinstance(given, Given) else ("", False)
    comment = " ".join(f"{GAP + ': ' if gap else ''}{note}".split())
    if not comment:
        yield line
    elif len(line) + len(comment) + 4 <= WIDTH:
        yield f"{line}  # {comment}"
    else:
        yield f"# {comment}"
        yield line


def _tensor(tensor: TensorDraft) -> Given:
    role = "" if tensor.role == "input" else tensor.role
    value = {"shape": list(tensor.shape), "dtype": tensor.dtype, **_filled(role=role)}
    if tensor.init is not None:
        value["init"] = tensor.init
    return Given(value, tensor.note, tensor.gap)


def _scalar(scalar: tuple[str, Any] | Given) -> Given:
    given = scalar if isinstance(scalar, Given) else Given(scalar)
    dtype, value = given.value
    return Given({"dtype": dtype, "value": value}, given.note, given.gap)


def _parameter(parameter: ParameterDraft) -> Given:
    value: dict[str, Any] = {"values": list(parameter.values)}
    if parameter.default is not None:
        value["default"] = parameter.default
    return Given({**value, **_filled(doc=parameter.doc)}, parameter.note, parameter.gap)


def key(name: str) -> str:
    """Return a key as TOML has it: bare if it may be."""
    bare = name and all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in name)
    return name if bare else _text(name)


def toml_value(value: Any) -> str:
    """Return a value as TOML on one line.

    Raises:
        TypeError: TOML has no such value.
    """
    match value:
        case Given():
            return toml_value(value.value)
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            return str(value) if math.isfinite(value) else "nan" if math.isnan(value) else f"{value:+}"
        case str():
            return _text(value)
        case Mapping():
            inner = ", ".join(f"{key(str(name))} = {toml_value(one)}" for name, one in value.items())
            return f"{{ {inner} }}" if inner else "{}"
        case list() | tuple():
            return f"[{', '.join(map(toml_value, value))}]"
    raise TypeError(f"{type(value).__name__} is no value of TOML")


def _text(text: str) -> str:
    """Return text in quotes; what JSON escapes TOML escapes alike."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
