"""The enumerations and structs of a kernel in a header: from its file, not from what happens to be exported."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.core.errors import DatabaseError
from tuner.core.model import Configuration, Problem, Value, digest
from tuner.kernel.spec import KernelSpec
from tuner.winners import cpp
from tuner.winners.header_defaults import kinds_of

_OWN_TYPES = {"Match", "Variant", "Types", "Problem", "Configuration", "Entry", "Default", "Selection"}
INT_MAX = (1 << 31) - 1
TEXT = "const char*"
"""The type of an element expression, which is its canonical text."""


@dataclass(frozen=True)
class Field:
    """A member of a struct: a number, ``bool``, an enumeration of its own, or an expression's text."""

    name: str
    type: str
    enumerators: tuple[str, ...] = ()

    @property
    def is_text(self) -> bool:
        """Whether it holds an element expression as text."""
        return self.type == TEXT

    @property
    def zero(self) -> str:
        """The value for a variant without this parameter."""
        if self.enumerators:
            return f"{self.type}::{self.enumerators[0]}"
        return {TEXT: "nullptr", "bool": "false", "double": "0.0"}.get(self.type, "0")

    def literal(self, value: Value | None) -> str:
        """Return a value in C++; ``None`` is the zero."""
        if value is None:
            return self.zero
        if self.is_text:
            return f'"{cpp.expression(value, self.name)}"'
        if self.enumerators:
            return f"{self.type}::{cpp.enumerator(value, self.name)}"
        if self.type == "double":
            return repr(float(value))
        number = cpp.integer(value, self.name)
        return ("true" if number else "false") if self.type == "bool" else str(number)

    def word(self, value: Value | None) -> str:
        """Return what stands for a value in the name of an entry."""
        if self.is_text:
            return digest(str(value))[:8]
        return self.literal(value).rpartition("::")[2].replace(".", "_").replace("+", "")


def make_field(
    name: str, values: Sequence[Value], suffix: str, *, optional: bool, element: bool = False
) -> Field:
    """Return a member whose type holds all values of a parameter or option.

    Args:
        name: of the parameter or option.
        values: all that it has.
        suffix: of the name of its enumeration.
        optional: whether it may be absent.
        element: whether it is an element expression, even if every value could be a name.

    Raises:
        DatabaseError: a number that is not finite, or a text that cannot be a name.
    """
    cpp.identifier(name, "the name")
    if element or any(cpp.is_expression(value) for value in values):
        return Field(name, TEXT)
    if any(isinstance(value, str) for value in values):
        names = _ordered(cpp.enumerator(value, f"the value of {name}") for value in values)
        if len(names) < len({(type(value), value) for value in values}):
            raise DatabaseError(
                f"two values of {name} have one name in C++", "rename one, or leave it out with --kernel"
            )
        return Field(name, f"{name}_{suffix}", tuple(_ordered(["none"] * optional + names)))
    if values and all(isinstance(value, bool) for value in values):
        return Field(name, "bool")
    if any(isinstance(value, float) for value in values):
        if not all(math.isfinite(value) for value in values if isinstance(value, float)):
            raise DatabaseError(f"{name} has a value that is no number", "leave it out with --kernel")
        return Field(name, "double")
    largest = max((abs(cpp.integer(value, name)) for value in values), default=0)
    return Field(name, "int" if largest <= INT_MAX else "long long")


class Structs:
    """The names and members of a kernel's types; every text in them went through ``cpp``.

    Args:
        name: the kernel's.
        kernel: its file; without it, only what is exported has a name.
        problems: which are exported.
        configurations: likewise.

    Raises:
        DatabaseError: a name or value that a header cannot hold.
    """

    def __init__(
        self,
        name: str,
        kernel: KernelSpec | None,
        problems: Sequence[Problem],
        configurations: Sequence[Configuration],
    ) -> None:
        self.name = cpp.identifier(name, "the kernel")
        if name in ("Match", "detail"):
            raise DatabaseError(f"a kernel named {name!r} cannot be exported", "rename it")
        listed = [*(kinds_of(kernel) if kernel else ()), *problems]
        self.sizes = [cpp.identifier(n, "the size") for n in _ordered(n for p in listed for n in p.sizes)]
        self.types = _ordered(types_name(problem) for problem in listed)
        if len(self.types) != len({tuple(sorted(p.dtypes.items())) for p in listed}):
            raise DatabaseError(f"two sets of dtypes of {name} have one name", "export one with --dtype")
        elements = kernel.elements if kernel else ()
        given = [problem.options for problem in listed]
        self.options = [
            make_field(name, values, "option", optional=len(values) < len(given), element=name in elements)
            for name, values in _lists(given).items()
        ]
        variants = list(kernel.variants.values()) if kernel else []
        chosen = (*(v.name for v in variants), *(c.variant for c in configurations))
        self.variants = _ordered(cpp.identifier(variant, "the variant") for variant in chosen)
        in_file = [{p.name: value} for v in variants for p in v.parameters.values() for value in p.values]
        self.parameters = [
            make_field(name, values, "value", optional=True)
            for name, values in _lists([*in_file, *(c.values for c in configurations)]).items()
        ]
        self._distinct(["types", *self.sizes, *(f.name for f in self.options)])
        self._distinct(["variant", *(f.name for f in self.parameters)])

    def configuration(self, configuration: Configuration) -> str:
        """Return the members of a configuration."""
        values = configuration.values
        members = [field.literal(values.get(field.name)) for field in self.parameters]
        return ", ".join([f"Variant::{cpp.identifier(configuration.variant, 'the variant')}", *members])

    def problem(self, problem: Problem, sizes: Mapping[str, int] | None = None) -> str:
        """Return the members of a problem, perhaps with other sizes."""
        sizes = problem.sizes if sizes is None else sizes
        numbers = [str(cpp.integer(sizes.get(size, 0), size)) for size in self.sizes]
        options = [field.literal(problem.options.get(field.name)) for field in self.options]
        return ", ".join([*numbers, *options, f"Types::{types_name(problem)}"])

    def _distinct(self, members: list[str]) -> None:
        types = {field.type for field in (*self.options, *self.parameters) if field.enumerators}
        for name in members:
            if members.count(name) > 1 or name in (types | _OWN_TYPES):
                raise DatabaseError(
                    f"{self.name} has two meanings for {name!r}", "rename one of them in the kernel"
                )


def types_name(problem: Problem) -> str:
    """Return a name for the dtypes: the first role's, then each role that has another one."""
    first, *others = problem.dtypes.items()
    names = [first[1], *(f"{role}_{dtype}" for role, dtype in others if dtype != first[1])]
    for name in (*problem.dtypes, *problem.dtypes.values()):
        cpp.identifier(name, "the dtype or role")
    return "_".join(names)


def _lists(mappings: Iterable[Mapping[str, Value]]) -> dict[str, list[Value]]:
    """Return all values by name, one for each mapping that has the name."""
    values: dict[str, list[Value]] = {}
    for mapping in mappings:
        for name, value in mapping.items():
            values.setdefault(name, []).append(value)
    return values


def _ordered(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
