"""What CUDA source text declares: kernels with their parameters, launches, macros, constants, constant memory.

The text is read, not compiled: it may lack definitions, as a source whose parameters are macros does. Of conditionals
the branch is read that NVRTC would take where that is known, else the first.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tuner.core.errors import KernelError
from tuner.kernel.source.classes import Enumeration, enumerated, members_of
from tuner.kernel.source.expressions import python_of
from tuner.kernel.source.launches import WrittenLaunch, launches_in
from tuner.kernel.source.preprocessor import Macro, expanded, preprocessed
from tuner.kernel.source.tree import (
    NAMES,
    code,
    extents_of,
    function_of,
    head_of,
    name_node,
    names_in,
    pointers_of,
    stars,
    template_parameter,
    text_of,
    tree_of,
    walk,
)
from tuner.kernel.source.types import CType, Parameter, base_of, is_type, vector_of

if TYPE_CHECKING:
    from tree_sitter import Node

_CLASSES = ("struct_specifier", "class_specifier", "union_specifier")
_SCOPES = ("namespace_definition", "linkage_specification", "declaration_list", "ERROR")
_NO_DECLARATIONS = ("string_literal", "comment", "namespace_identifier", "nested_namespace_specifier")
_OF_DEVICE = {"__global__", "__device__", "constexpr"}
_PLACES = ("__constant__", "__device__", "__managed__", "extern", "inline")


@dataclass(frozen=True)
class KernelSignature:
    """A ``__global__`` function."""

    name: str
    """With its namespaces, such as ``solver::step``."""
    parameters: tuple[Parameter, ...]
    line: int
    """Where its name stands, from 1."""
    extern_c: bool = False
    template: tuple[tuple[str, str, str], ...] = ()
    """Kind (``typename``, ``int``, ...), name and default of each template parameter."""
    launch_bounds: tuple[str, ...] = ()
    """Arguments of ``__launch_bounds__``."""
    body: Node | None = field(default=None, repr=False, compare=False)
    """None for a declaration."""

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


@dataclass(frozen=True, eq=False)
class Item:
    """A declaration outside of functions and classes."""

    node: Node = field(repr=False)
    names: frozenset[str]
    """What it declares; none for what has no name, such as ``using namespace``."""
    kernel: bool
    plain_function: bool
    """Whether it is a function that nvcc compiles for the CPU alone."""
    parameters: frozenset[str] = frozenset()
    """Of a function: in it they hide what else has their names."""

    @functools.cached_property
    def needs(self) -> frozenset[str]:
        """The names in it of what other declarations may declare."""
        return self.uses - self.parameters

    @functools.cached_property
    def uses(self) -> frozenset[str]:
        """The names in it, without its own."""
        return frozenset(names_in(self.node)) - self.names


@dataclass(frozen=True)
class Source:
    """What a source text declares."""

    text: str = field(default="", repr=False)
    """What all this was read from."""
    macros: Mapping[str, Macro] = field(default_factory=dict)
    asked: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Names that conditionals and pragmas of the preprocessor use, with the values that choose a branch, if any do."""
    skipped: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """Words of branches that are not taken, by the line of the directive before them."""
    kernels: Sequence[KernelSignature] = ()
    launches: list[WrittenLaunch] = field(default_factory=list)
    constants: dict[str, str] = field(default_factory=dict)
    """Numbers that the file names, ``const int TILE = 32;``, with their texts."""
    symbols: list[Symbol] = field(default_factory=list)
    structs: dict[str, tuple[Parameter, ...] | None] = field(default_factory=dict)
    """The members of each class that has numbers alone, those of an array one by one; None for another class."""
    enumerations: dict[str, Enumeration] = field(default_factory=dict)
    """By their names without namespaces."""
    items: list[Item] = field(default_factory=list)
    """All declarations, in order."""

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
            what = "OpenCL, which is not served," if "__kernel " in self.text else "the source"
            raise KernelError(f"{what} has no __global__ function", "give the file that has the kernel")
        if not found:
            raise KernelError(f"the source has no kernel {name!r}", f"choose from: {names}")
        if len({one.name for one in found}) == 1:
            raise KernelError(
                f"{found[0].name} is overloaded ({len(found)} kernels have that name)",
                "rename one of them: an entry names one kernel",
            )
        raise KernelError(f"the source has {len(found)} kernels", f"name one by entry: {names}")

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """All names in the code."""
        return frozenset().union(*(one.uses | one.names for one in self.items))

    @functools.cached_property
    def functions(self) -> Mapping[str, ast.expr]:
        """Those that return an expression of their arguments, as Python's lambdas, such as ``index(i, j, width)``."""
        trees = (
            (one.names, python_of(next(walk(one.node, "function_definition"), None))) for one in self.items
        )
        return {name: tree for names, tree in trees if tree is not None for name in names}

    def reached(self, kernel: str = "", also: Collection[str] = ()) -> tuple[set[Item], set[str]]:
        """Return the declarations that a kernel's code needs, and all names in them; of no name what any kernel needs.

        Among them are those without a name, and the device's operators: nothing names them.

        Args:
            kernel: its name, with or without namespaces.
            also: other names that are taken to be needed, but for those of plain functions.
        """
        kernels = [one for one in self.items if one.kernel]
        always = {*also, "operator"}
        kept = {one for one in kernels if kernel.rpartition("::")[2] in one.names} or set(kernels)
        kept |= {
            one for one in self.items if not one.names or (one.names & always and not one.plain_function)
        }
        of_name: dict[str, list[Item]] = {}
        for one in self.items:
            for name in one.names:
                of_name.setdefault(name, []).append(one)
        names, pending = set[str](), [name for one in kept for name in one.needs]
        while pending:
            if (name := pending.pop()) in names:
                continue
            names.add(name)
            pending += re.findall(r"[A-Za-z_]\w*", self.macros[name].value) if name in self.macros else ()
            for one in of_name.get(name, ()):
                pending += one.needs if one not in kept else ()
                kept.add(one)
        return kept, names


@functools.lru_cache(maxsize=8)
def read_declarations(text: str, *, in_place: bool = False) -> Source:
    """Return what a CUDA source declares.

    Args:
        text: the source, whole or in part.
        in_place: nodes stand where the text has them, so that macros stay calls.

    Raises:
        KernelError: it is too large.
    """
    plain = preprocessed(text)
    reader = _Reader(Source(text, plain.macros, plain.asked, plain.skipped))
    reader.read(tree_of(plain.text if in_place else expanded(plain)), (), ())
    return replace(reader.found, kernels=tuple(reader.kernels.values()))


class _Reader:
    """Goes through the declarations of a file, and through the functions for launches."""

    def __init__(self, found: Source) -> None:
        self.found = found
        self.kernels: dict[tuple[str, tuple[CType, ...]], KernelSignature] = {}
        """Of a kernel that is also declared the definition."""
        self._called = frozenset(name for name, macro in found.macros.items() if macro.parameters)
        self._aliases = {
            name: one.value
            for name, one in found.macros.items()
            if one.parameters is None and is_type(one.value) and not (one.guarded and name.endswith("_type"))
        }

    def read(self, scope: Node, names: tuple[str, ...], before: tuple[str, ...]) -> None:
        """Read the declarations of a scope: the file, a namespace or ``extern "C"``.

        Args:
            scope: has them.
            names: of the namespaces.
            before: words that hold for all, ``extern`` and ``"C"``.
        """
        for node in scope.named_children:
            body = node.child_by_field_name("body")
            if node.type in _SCOPES and (body is None or body.type == "declaration_list"):
                inner = names_in(node.child_by_field_name("name"))
                linkage = head_of(node) if node.type == "linkage_specification" else ()
                self.read(node, (*names, *inner), (*before, *linkage))
            elif node.type not in _NO_DECLARATIONS:
                self._declaration(node, names, before)

    def _declaration(self, whole: Node, names: tuple[str, ...], before: tuple[str, ...]) -> None:
        node = whole
        while node.type in ("template_declaration", "linkage_specification"):
            before = (*before, *(head_of(node) if node.type == "linkage_specification" else ()))
            node = node.named_children[-1]
        declarators, function = node.children_by_field_name("declarator"), function_of(node)
        head = head_of(node)
        marks = {*before, *head, *(part for word in head for part in self._expanded(word))}
        if "__global__" in marks and function is not None:
            self._kernel(whole, node, function, names, {"extern", '"C"'} <= marks)
        elif function is None:
            self._named(node, declarators, names, head, marks)
        for one in walk(node, *_CLASSES):
            if (name := one.child_by_field_name("name")) is not None:
                self._class(text_of(name), one)
        for one in walk(node, "enum_specifier"):
            kind = code(one.child_by_field_name("base")) or "int"
            named = [one.child_by_field_name("name")] + declarators * (node.type == "type_definition")
            own = [*map(text_of, filter(None, named))]
            self._aliases |= dict.fromkeys(own, kind)
            self.found.enumerations.update(
                {of: Enumeration("::".join((*names, of)), enumerated(one)) for of in own}
            )
        for one in walk(node, "enumerator"):
            if (value := one.child_by_field_name("value")) is not None:
                self.found.constants[names_in(one)[0]] = code(value)
        by_symbol = {"extern", '"C"', "__device__"} <= marks  # a program may look for it
        kept = function is None and (by_symbol or getattr(whole.parent, "type", "") == "ERROR")
        plain = function is not None and not marks & _OF_DEVICE
        typed = plain and head and head[0] not in self._called  # a function of a macro's name, no call of it
        declared = frozenset() if kept else _declared(node) - (frozenset() if typed else self._called)
        given = function.child_by_field_name("parameters") if function is not None else None
        taken = given.named_children if given is not None else ()
        hidden = {
            *map(text_of, filter(None, (name_node(one.child_by_field_name("declarator")) for one in taken)))
        }
        hidden -= {text_of(one) for one in walk(node, "type_identifier")}
        self.found.items.append(Item(whole, declared, "__global__" in marks, plain, frozenset(hidden)))
        self.found.launches.extend(launches_in(node) if function is not None else ())

    def _expanded(self, word: str) -> list[str]:
        return re.findall(r'"C"|\w+', self.found.macros[word].value) if word in self.found.macros else []

    def _named(
        self,
        node: Node,
        declarators: Sequence[Node],
        names: tuple[str, ...],
        head: Sequence[str],
        marks: set[str],
    ) -> None:
        """Keep types by their names, numbers that are constant, and variables of the module."""
        kind = node.child_by_field_name("type")
        if node.type == "alias_declaration" and kind is not None:
            self._alias(names_in(node)[0], code(kind))
        for one in declarators:
            name, value = name_node(one), one.child_by_field_name("value")
            if name is None:
                continue
            if node.type == "type_definition" and kind is not None:
                self._class(text_of(name), kind)
                self._alias(text_of(name), code(head[1:]) + "*" * stars(one))
            elif marks & {"__constant__", "__device__"}:
                of = self.type_of([*(word for word in head if word not in _PLACES), *["*"] * stars(one)])
                full, extents = "::".join((*names, text_of(name))), tuple(map(code, extents_of(one)))
                self.found.symbols.append(
                    Symbol(full, of, extents, "__constant__" in marks, value is not None)
                )
            elif value is not None and marks & {"const", "constexpr"} and not extents_of(one):
                inner = value.named_children if value.type == "initializer_list" else [value]
                self.found.constants[text_of(name)] = code(inner[0]) if inner else "0"

    def _class(self, name: str, node: Node) -> None:
        if node.child_by_field_name("body") is not None:
            fixed = {of: one.value for of, one in self.found.macros.items() if not one.guarded}
            self.found.structs[name] = members_of(node, self.type_of, {**fixed, **self.found.constants})

    def _alias(self, name: str, text: str) -> None:
        if is_type(text):
            self._aliases[name] = text
        if members := self.found.structs.get(base_of(text.split())):
            self.found.structs[name] = members

    def _kernel(
        self, whole: Node, node: Node, function: Node, names: tuple[str, ...], extern_c: bool
    ) -> None:
        name, given = (function.child_by_field_name(one) for one in ("declarator", "parameters"))
        if name is None or given is None or not re.fullmatch(r"[\w:]+", code(name)):
            return  # an explicit instantiation or specialisation
        template = whole.child_by_field_name("parameters")
        bounds = next(walk(node, "launch_bounds"), None)
        parameters = [self._parameter(one, f"argument{n}") for n, one in enumerate(given.named_children, 1)]
        if [one.type.text for one in parameters] == ["void"]:
            parameters = []
        kernel = KernelSignature(
            "::".join((*names, code(name))),
            tuple(parameters),
            name.start_point[0] + 1,
            extern_c,
            tuple(map(template_parameter, template.named_children if template is not None else ())),
            tuple(map(code, bounds.named_children if bounds is not None else ())),
            node.child_by_field_name("body"),
        )
        key = kernel.name, tuple(parameter.type for parameter in parameters)
        if key not in self.kernels or kernel.body:  # a definition rather than its declaration
            self.kernels[key] = kernel

    def _parameter(self, node: Node, otherwise: str) -> Parameter:
        declarator = node.child_by_field_name("declarator")
        name = name_node(declarator)
        pointers, rows = pointers_of(declarator)
        kind = self.type_of([*head_of(node), *["*"] * pointers])
        default = code(node.child_by_field_name("default_value"))
        return Parameter(text_of(name) if name is not None else otherwise, kind, rows, default)

    def type_of(self, words: Sequence[str]) -> CType:
        """Return the type that words stand for."""
        pointers = words.count("*")
        const = pointers > 0 and "const" in words
        base, own = base_of(words), base_of(words).rpartition("::")[2]
        base = own if own in self.found.structs or own in self._aliases else base
        text = base + "*" * pointers
        for _ in range(16):  # an alias of an alias, but not for ever
            if base not in self._aliases:
                break
            alias = self._aliases[base].replace("*", " * ").split()
            pointers += alias.count("*")
            const = const or (alias.count("*") > 0 and "const" in alias)
            base = base_of(alias)
        members = self.found.structs.get(base) or ()
        kinds = {one.type.base for one in members}
        base, lanes = (kinds.pop(), len(members)) if len(kinds) == 1 else vector_of(base)
        return CType(text, base, pointers, const, lanes)


def _declared(node: Node) -> frozenset[str]:
    """Return the names that a declaration declares."""
    if node.type == "using_declaration":
        return frozenset() if text_of(node).split()[1:2] == ["namespace"] else frozenset(names_in(node)[-1:])
    named = [*node.children_by_field_name("declarator"), *node.children_by_field_name("name")]
    for one in (node, *node.children_by_field_name("type")):
        if one.type in (*_CLASSES, "enum_specifier"):
            named += [*one.children_by_field_name("name"), *walk(one, "enumerator")]
    names = set[str]()
    for one in filter(None, map(name_node, named)):
        if one.type == "qualified_identifier":
            names |= set(names_in(one)[:1])  # a member of a class that is needed
        else:
            names |= {text_of(one) if one.type in NAMES else "operator"}
    return frozenset(names - {""})
