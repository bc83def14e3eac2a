"""What the names in a CUDA source are to a kernel's file: sizes, dtype roles, parameters to tune, other numbers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tuner.core.errors import KernelError
from tuner.kernel.draft import Given, free_role
from tuner.kernel.source.classes import Enumeration, enumeration_of, is_number, passed_type, words_of
from tuner.kernel.source.declarations import KernelSignature, Source
from tuner.kernel.source.device_part import in_all_branches
from tuner.kernel.source.expressions import number_of, numbers_of, python_of, replaced
from tuner.kernel.source.launches import real_of, template_of
from tuner.kernel.source.parameters import NO_SIZE, SMALL, is_choice, is_size, is_stride
from tuner.kernel.source.tree import code, expression, head_of, name_node, names_in, text_of, walk
from tuner.kernel.source.types import DTYPE_OF, PASSED_AS, CType, Parameter, remedy_for
from tuner.kernel.source.use import LEAST_SIZE
from tuner.kernel.toml.table import is_name, name_for
from tuner.runtime.dtypes import DTYPES, ITEMSIZE

if TYPE_CHECKING:
    from tree_sitter import Node


class SourceNames:
    """The names in a source, each with what it becomes.

    Args:
        source: what the source declares.
        kernel: one of its kernels.
        file: the source's name.
        undefined: the names that nothing defines, and whether each is a type.

    Raises:
        KernelError: a parameter of the kernel cannot be passed, or of its template not be chosen.
    """

    def __init__(
        self, source: Source, kernel: KernelSignature, file: str, undefined: Mapping[str, bool]
    ) -> None:
        self.source, self.kernel, self.file = source, kernel, file
        self.words = source.names.union(undefined)
        self.called = next((one for one in source.launches if one.kernel == kernel.short_name), None)
        """The first launch of the kernel that the source has."""
        self.renamed: dict[str, str] = {}
        """Names of the source that have another one in the file."""
        self.sizes: dict[str, Any] = {}
        """None for a value that the source does not say."""
        self.options: dict[str, Any] = {}
        self.dtypes: dict[str, Any] = {}
        self.scalars: dict[str, Any] = {}
        self.numbers: list[Parameter] = []
        """What is passed by value, members of structs one by one."""
        self.members: dict[str, list[Parameter]] = {}
        """The members of each struct by value, in order."""
        self.short: dict[str, str] = {}
        """What a struct calls its members."""
        self.in_call: dict[str, Node] = {}
        """What a launch of the source passes, by parameter."""
        self.assumed: list[str] = []
        """Numbers of which the source says nothing."""
        self.looped: set[str] = set()
        """Those of them that a loop around the launch changes."""
        self.found: dict[str, int | None] = {}
        """Parameters with their defaults in the source."""
        self.empty: set[str] = set()  # classes of a template without data, which are passed
        self.doubtful: set[str] = set()
        """Those that may be none."""
        self._take_template()
        self._take_macros(undefined)
        parameters = tuple(
            replace(one, type=self.as_passed(passed_type(one, kernel.body))) for one in kernel.parameters
        )
        self.structs = {one.name: one.type.base for one in kernel.parameters if self.of_words(one.type)}
        """Arrays of structs that are tensors of words, with the struct."""
        self.kernel = replace(kernel, parameters=parameters)
        self._take_call()
        self._take_numbers()
        self._refuse()

    @property
    def of_problem(self) -> set[str]:
        """The source's names of sizes, also of those that are fixed."""
        renamed = {name for name, new in self.renamed.items() if new in self.sizes or new.isdecimal()}
        macros = {name for name, one in self.options.items() if not isinstance(one.value[0], str)}
        return {*self.sizes, *macros, *renamed}

    @property
    def of_grid(self) -> set[str]:
        """The parameters of which the launch's grid is made."""
        shape = self.called.shape[:1] if self.called else ()
        grid = [self.called.variables.get(text_of(one), one) for one in shape] if self.called else []
        written = {name for one in (*shape, *grid) for name in names_in(one)}
        return {name for name, given in self.in_call.items() if text_of(given) in written}

    def named(self, name: str) -> str:
        """Return what a name of the source is called in the file, where keywords and functions mean something else."""
        if name not in self.renamed and not is_name(name):
            self.renamed[name] = name_for(name, {*self.words, *self.renamed.values()})
        return self.renamed.get(name, name)

    def text(self, text: str) -> str:
        """Return an expression with the names that the file has."""
        return re.sub(r"[A-Za-z_]\w*", lambda word: self.renamed.get(word[0], word[0]), text)

    def free(self, *names: str) -> str:
        """Return the first name that nothing has."""
        taken = {*self.words, *self.renamed.values(), *self.found, *self.sizes, *self.options}
        return next(
            name for name in (*names, *(f"{names[0]}_{n}" for n in range(2, 1000))) if name not in taken
        )

    def role(self, *others: str) -> str:
        """Return a free name of a dtype role, which is none of some others either."""
        taken = {*others, *self.sizes, *self.scalars, *self.options, *self.found, *self.renamed.values()}
        taken |= {one.name for one in self.kernel.parameters}
        return free_role(taken, self.words)

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Return names in the order of the kernel's parameters, others first."""
        order = [one.name for one in self.numbers]
        return sorted(names, key=lambda name: (order.index(name) if name in order else -1, name))

    # -- what the code is compiled with

    def _take_template(self) -> None:
        """Make parameters of a template's numbers, and dtype roles of its types."""
        declared = (one.node for one in self.source.items)
        given, variables = template_of(self.kernel.short_name, self.called, declared)
        self.entry_arguments: list[str] = []
        self.switches: set[str] = set()  # numbers that are true or false
        self.enumerations: dict[str, Enumeration] = {}
        self.unsure: set[str] = set()  # roles of types that the code tells apart
        self.indices: dict[str, str] = {}  # the integer types that a template's types are
        for number, (kind, name, default) in enumerate(self.kernel.template):
            value = given[number] if number < len(given) else default
            is_type = kind in ("typename", "class") and name and not self._is_class(name, value)
            if is_type and self._is_index(name, value):
                self.indices[name] = value if value in PASSED_AS else "int"
                self.entry_arguments.append(self.indices[name])
            elif is_type:
                role = self.role() if not self.dtypes else self.free(name.lower(), "other")
                whole = re.search(
                    r"\b(is_(same|integral|(un)?signed)\w*|make_(un)?signed\w*) ?<", code(self.kernel.body)
                )
                dtype = CType("", value, 1).dtype
                self.unsure |= {role} if whole and not dtype else set()
                self.dtypes[role] = [dtype or ("int32" if whole else "float32")]
                self.renamed[name] = role
                self.entry_arguments.append(f"{role}_type")
            elif name and is_number(kind, self.source.text):
                parameter = self.named(name)
                self.enumerations[parameter] = of = enumeration_of(kind, self.source.enumerations)
                known = [self.number(of.value(one), variables) for one in (value, default) if one]
                if of.name and not of.values and "::" in value and known == [None] * len(known):
                    self.entry_arguments.append(value)  # a name of an enumeration of others
                    continue
                self.found[parameter] = next((one for one in known if one is not None), None)
                self.switches |= {parameter} if "bool" in kind.split() else set()
                self.entry_arguments.append(f"{of.cast}{{{{ {parameter} }}}}")
            elif value in self.source.structs and (not self._is_passed(name) or self.is_empty(value)):
                self.empty |= {name} if self._is_passed(name) else set()
                self.entry_arguments.append(value)  # a class of functions that the source chooses
            elif default and number >= len(given):
                break  # it stays what it is, as do those behind it, which have defaults, too
            else:
                raise KernelError(
                    f"{self.file}:{self.kernel.line}: template parameter {kind} {name} of {self.kernel.name} cannot"
                    " be chosen by itself",
                    "write a kernel that calls it with the types that you use",
                )

    def _is_class(self, name: str, value: str) -> bool:
        """Return whether a template's type is a class, such as a functor: of the source, or as the code calls it."""
        passed = self._is_passed(name)
        text = code(self.kernel.body)
        called = [*passed, *re.findall(rf"\b{name} (\w+) ?[;{{]", text), rf"{name}(?:\(\)| ?{{ ?}}|::\w+)"]
        of_source = value.partition("<")[0].strip() in self.source.structs
        return of_source or re.search(rf"\b(?:{'|'.join(called)})\(", text) is not None

    def is_empty(self, kind: str) -> bool:
        """Return whether a type is a class without data, as functors are."""
        return kind in self.empty or self.source.structs.get(kind) == ()

    def _is_passed(self, kind: str) -> list[str]:
        """Return the parameters of a type by value."""
        return [one.name for one in self.kernel.parameters if one.type.text == kind]

    def _is_index(self, name: str, value: str) -> bool:
        """Return whether a template's type is that of places, passed by value: no dtype of the problem."""
        return (
            bool(self._is_passed(name)) and DTYPES[PASSED_AS.get(value, "int32")].whole and self._counts(name)
        )

    def _take_macros(self, undefined: Mapping[str, bool]) -> None:
        """Tell apart what nothing defines, or what may be defined before: parameters, sizes, types."""
        types = {one.type.base for one in self.kernel.parameters}
        _, of_kernel = self.source.reached(self.kernel.name)
        used_here = self.words.union(self.source.asked, in_all_branches(self.source, self.kernel.name))
        for name, is_type in undefined.items():
            if name.endswith("_type"):
                self.dtypes[name.removesuffix("_type")] = ["float32"]
            elif is_type or name in types:
                guess = "int" if self._counts(name) else "float"
                self.options[name] = Given([guess], "the type that the source calls so", gap=True)
            else:
                self._take_macro(name, None)
        for name, macro in self.source.macros.items():
            used = name in used_here
            if macro.guarded and used and name.endswith("_type"):
                self.dtypes[name.removesuffix("_type")] = [CType("", macro.value, 1).dtype or "float32"]
            written = macro.value if re.fullmatch(r"[\d()uUlL<*+ -]+", macro.value) else ""  # 256, (1 << 20)
            value = number_of(written, {}) if used and macro.parameters is None and written else None
            if value is None:
                continue
            if macro.guarded or (value >= LEAST_SIZE and is_size(name) and name in of_kernel):
                self._take_macro(name, value)
            elif value >= LEAST_SIZE and not is_choice(name) and name in of_kernel:
                self.renamed[name] = str(value)

    def _take_macro(self, name: str, value: int | None) -> None:
        if not is_name(name):
            raise KernelError(
                f"{self.file}: {name!r} is defined nowhere, and cannot be a parameter's name",
                "define or rename it",
            )
        if is_size(name):
            self.options[name] = Given(
                [1024 if value is None else value], "a size that is a macro", gap=value is None
            )
        else:
            self.found[name] = value

    def make_parameter(self, name: str, *, certain: bool) -> None:
        """Take a macro with the name of a size for a choice of the code."""
        given = self.options.pop(name)
        self.found[name] = None if given.gap else given.value[0]
        self.doubtful |= set() if certain else {name}

    def make_size(self, name: str) -> None:
        """Take a macro, or a number of the template, that elements are compared with for a size."""
        of_template = f"{{{{ {name} }}}}"
        what = "a size of the template" if of_template in self.entry_arguments else "a size that is a macro"
        self.options[name] = Given([self.found.pop(name) or LEAST_SIZE], what, gap=True)
        self.doubtful.discard(name)
        sizes = {of_template: f"{{{{ problem.{name} }}}}"}
        self.entry_arguments = [sizes.get(one, one) for one in self.entry_arguments]

    def as_passed(self, kind: CType) -> CType:
        """Return a type as a launch passes it: words of structs, and the number that a missing type is taken for."""
        if kind.base in self.indices:
            return replace(kind, base=self.indices[kind.base])
        if kind.base in self.options:
            return replace(kind, base=self.options[kind.base].value[0])
        base, lanes = (
            words_of(self.source.structs[kind.base] or ()) if self.of_words(kind) else (kind.base, kind.lanes)
        )
        return replace(kind, base=base, lanes=lanes)

    def of_words(self, kind: CType) -> bool:
        """Return whether a pointer's elements are structs of several types, of which a tensor has the words."""
        return kind.pointers == 1 and kind.lanes == 1 and bool(self.source.structs.get(kind.base))

    def _counts(self, name: str) -> bool:
        """Return whether the code takes numbers of a type that is missing for places: for indices, or of a thread."""
        of_type = {one.name for one in self.kernel.parameters if one.type.base == name}
        for one in walk(self.kernel.body, "declaration"):
            declared = map(
                name_node, one.children_by_field_name("declarator") if name in head_of(one) else ()
            )
            of_type |= {text_of(of) for of in declared if of is not None}
        found = re.findall(r"\[([^\]]*)", code(self.kernel.body))
        return not of_type.isdisjoint(re.findall(r"\w+", " ".join(found)))

    # -- what a launch passes

    def _take_call(self) -> None:
        """Keep the numbers that are passed by value, members of structs one by one, and what a launch passes."""
        passed = dict(
            enumerate(zip(self.called.arguments, self.called.looped, strict=True) if self.called else ())
        )
        for place, one in enumerate(self.kernel.parameters):
            members = [] if one.type.pointers or one.type.dtype else self._members_of(one)
            if members:
                self.members[self.named(one.name)] = members
            self.numbers += members or ([one] if one.type.dtype and not one.type.pointers else [])
            if place not in passed:
                default = expression(one.default) if one.default else None
                self.in_call |= {one.name: default} if default is not None else {}
                continue
            self.in_call[one.name], looped = passed[place]
            self.looped |= {member.name for member in members or [one] if looped}

    def _members_of(self, one: Parameter) -> list[Parameter]:
        """Return the numbers of a struct or a vector by value, as the code calls them with ``_`` for the point."""
        declared = self.source.structs.get(one.type.text) or ()
        if not declared and one.type.lanes > 1 and one.type.base in DTYPE_OF:
            part = replace(one.type, lanes=1)
            declared = tuple(Parameter("xyzw"[i : i + 1] or str(i), part) for i in range(one.type.lanes))
        members = [replace(member, name=f"{one.name}_{member.name}") for member in declared]
        self.short |= {member.name: of.name for member, of in zip(members, declared, strict=True)}
        if (new := self.renamed.get(one.name)) is not None:
            self.renamed |= {member.name: f"{new}_{self.short[member.name]}" for member in members}
        return members

    def _take_numbers(self) -> None:
        """Tell sizes from other numbers among those that are passed by value."""
        whole = [one for one in self.numbers if DTYPES[str(one.type.dtype)].whole]
        wide = (one for one in whole if ITEMSIZE[str(one.type.dtype)] > 1)
        sizes = [one for one in wide if not NO_SIZE.fullmatch(self.short.get(one.name, one.name))]
        large = [one for one in sizes if not SMALL.fullmatch(one.name)]
        self.sizes = {self.named(one.name): self._called_with(one) for one in sizes}
        for one in self.numbers:
            name, value = self.named(one.name), self._value(one)
            if one in sizes:
                continue
            if value is not None and one.name not in self.looped:
                self.scalars[name] = (one.type.dtype, value)
            elif one in whole:
                guess = next((self.named(size.name) for size in reversed(large)), "1")
                guess = guess if is_stride(one.name) else "1"
                self.scalars[name] = Given((one.type.dtype, guess), self._unknown(one.name), gap=True)
            else:
                self.scalars[name] = (one.type.dtype, 0.5)
                self.assumed.append(name)
        for one in self.kernel.parameters:
            role = self.renamed.get(one.type.base, one.type.role)
            if not one.type.pointers and role in self.dtypes:
                self.scalars[self.named(one.name)] = (role, 1 if DTYPES[self.dtypes[role][0]].whole else 0.5)
                self.assumed += [self.named(one.name)] * (self.scalars[self.named(one.name)][1] == 0.5)

    def _unknown(self, name: str) -> str:
        looped = "a loop around the launch changes it: describe the loop by repeat"
        return looped if name in self.looped else "the value that you use"

    def _value(self, one: Parameter) -> int | float | None:
        """Return the number that the source passes for a parameter or a member, if it says one."""
        if (given := self.in_call.get(one.name)) is None:
            return None
        variables = self.called.variables if self.called is not None else {}
        if DTYPES[str(one.type.dtype)].whole:
            return self.number(given, variables)
        number = real_of(replaced(python_of(given), {}, self._known(variables)))
        if number is not None and number.is_integer() and abs(number) < 2**53:
            return int(number)
        return number

    def _called_with(self, parameter: Parameter) -> int | None:
        """Return the size with which the source calls the kernel, if it says one."""
        value = self._value(parameter)
        return value if isinstance(value, int) and 1 <= value < 2**40 else None

    def make_scalar(self, name: str) -> None:
        """Take an integer that is no size for another number."""
        one = next(one for one in self.numbers if self.named(one.name) == name)
        value, looped = self.sizes.pop(name), one.name in self.looped
        note = self._unknown(one.name)
        self.scalars[name] = Given((one.type.dtype, str(value or 1)), note, looped or value is None)
        for other, given in self.scalars.items():
            if isinstance(given, Given) and given.value[1] == name:
                left = next(reversed(self.sizes), "1")
                self.scalars[other] = replace(given, value=(given.value[0], left))

    def number(self, written: Node | str, variables: Mapping[str, Node] = MappingProxyType({})) -> int | None:
        """Return the number that a C expression is by the file's constants and by variables; None if it is none."""
        return number_of(written, self._known(variables))

    def _known(self, variables: Mapping[str, Node]) -> dict[str, ast.expr | None]:
        called = {name: python_of(one) for name, one in variables.items()}
        return numbers_of(self.source, self.found) | called

    def dtype(self, kind: CType) -> str | None:
        """Return the dtype or role of an array's elements or of a number; None for what cannot be passed."""
        if kind.pointers > 1:
            return None
        role = self.renamed.get(kind.base, kind.role)
        if role in self.dtypes:
            return role
        return kind.dtype or PASSED_AS.get(kind.base)

    def _refuse(self) -> None:
        """Raise an error for a parameter that no launch can pass, and where no array can be compared."""
        where, name = f"{self.file}:{self.kernel.line}", self.kernel.name
        numbers = {*self.sizes, *self.scalars, *self.members}
        for one in self.kernel.parameters:
            passed = self.is_empty(one.type.text) or self.named(one.name) in numbers
            if not (self.dtype(one.type) if one.type.pointers else passed):
                problem = f"{where}: {one.name} of {name} is {one.type.text}, which the tuner cannot pass"
                raise KernelError(problem, remedy_for(one.type))
        if not any(one.type.pointers for one in self.kernel.parameters):
            problem = f"{where}: {name} takes no array, so it has no result to compare"
            raise KernelError(problem, "let it write into an array that it is given")
