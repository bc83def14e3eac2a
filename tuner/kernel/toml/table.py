"""A TOML table that checks the types of its values and rejects unknown keys, with errors that locate it in the file;
and what its values are: names, dtypes, lists of values, expressions."""

from __future__ import annotations

import difflib
import functools
import keyword
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from tuner.core.errors import ExpressionError, KernelError, suggestion
from tuner.core.model import Value
from tuner.expressions.arithmetic import FUNCTION_NAMES, Expression, parse
from tuner.expressions.elementwise import NAMES as FUNCTIONS
from tuner.expressions.parsing import parse_tree, unparse, with_names
from tuner.kernel.functions import PythonFunction
from tuner.kernel.headers import first_file
from tuner.kernel.variant_spec import RESOURCE_NAMES, own_first
from tuner.runtime.dtypes import ITEMSIZE
from tuner.runtime.launch_limits import DEVICE_LIMITS

Result = TypeVar("Result")


class Table:
    """A TOML table, with its location in the file and the keys that have not been read.

    Args:
        data: its values.
        where: the file and the keys above it, for errors.
    """

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self.data = data
        self.where = where
        self._unread = dict.fromkeys(data)
        self._allowed: dict[str, None] = {}

    def fail(self, problem: str, remedy: str = "") -> NoReturn:
        """Raise an error that names this table."""
        raise KernelError(" ".join(f"{self.where}: {problem}".split()), " ".join(remedy.split()))

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
        """Return a key's value after checking its type; without a default the key must be present."""
        self._allowed[key] = None
        self._unread.pop(key, None)
        if key not in self.data:
            if default is ...:
                for wrong in difflib.get_close_matches(key, self._unread, n=1):
                    self.fail(f"unknown key {wrong!r}", f"did you mean {key}? see docs/kernel-files.md")
                self.fail(f"key {key!r} is missing", "see docs/kernel-files.md")
            return default
        value = self.data[key]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            names = " or ".join(_TOML_NAMES[k] for k in kinds)
            remedy = (
                f"write [[...{key}]] for a table of it"
                if kinds == (list,) and isinstance(value, dict)
                else ""
            )
            self.fail(f"{key} = {value!r} is not {names}", remedy)
        return value

    def has(self, key: str) -> bool:
        """Return whether an optional key is present; errors about unknown keys then suggest it."""
        self._allowed[key] = None
        return key in self.data

    def table(self, key: str) -> Table:
        """Return a table below this one; an empty one if it is absent."""
        return Table(self.get(key, dict, {}), f"{self.where}: {key}")

    def tables(self, key: str) -> list[Table]:
        """Return an array of tables below this one."""
        items = self.get(key, list, [])
        if not all(isinstance(item, dict) for item in items):
            self.fail(f"{key} must be an array of tables", f"write [[...{key}]]")
        return [Table(item, f"{self.where}: {key}[{i}]") for i, item in enumerate(items)]

    def children(self) -> dict[str, Table]:
        """Return the tables below this one by key, for tables whose keys are names."""
        return {name: self.table(name) for name in list(self.data)}

    def only(self, *keys: str) -> None:
        """Raise an error for the first key that is none of these: before a table that is misspelled seems missing."""
        for key in self.data:
            if key not in keys:
                self.fail(f"unknown key {key!r}", suggestion(key, keys))

    def require(self, value: Any, choices: Collection[Any], problem: str) -> None:
        """Raise an error with this problem and the choices unless the value is one of them."""
        if value not in choices:
            self.fail(problem, suggestion(str(value), map(str, choices)))

    def done(self, result: Result) -> Result:
        """Return what was made of the table; raise an error for the first key that was not read for it."""
        for key in self._unread:
            self.fail(f"unknown key {key!r}", suggestion(key, self._allowed))
        return result


def as_table(value: Any) -> dict[str, Any]:
    """Return a table of a file that nothing has checked yet; an empty one for what is none."""
    return value if isinstance(value, dict) else {}


_TOML_NAMES = {
    dict: "a table",
    list: "an array",
    str: "text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
}


IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
RESERVED = (*DEVICE_LIMITS, *RESOURCE_NAMES, "problem")
"""Names with a meaning in expressions or templates; nothing in a kernel's file may have them."""
CPP_KEYWORDS = frozenset(
    (
        "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break",
        "case", "catch", "char", "char8_t", "char16_t", "char32_t", "class", "compl", "concept",
        "const", "consteval", "constexpr", "constinit", "const_cast", "continue", "contract_assert",
        "co_await", "co_return", "co_yield", "decltype", "default", "delete", "do", "double",
        "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false", "float", "for",
        "friend", "goto", "if", "inline", "int", "long", "mutable", "namespace", "new", "noexcept",
        "not", "not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected", "public",
        "register", "reinterpret_cast", "requires", "restrict", "return", "short", "signed", "sizeof",
        "static", "static_assert", "static_cast", "struct", "switch", "template", "this",
        "thread_local", "throw", "true", "try", "typedef", "typeid", "typename", "typeof", "union",
        "unsigned", "using", "virtual", "void", "volatile", "wchar_t", "while", "xor", "xor_eq",
    )
)  # fmt: skip
INTEGERS = range(-(2**63), 2**63)
"""The integers that a parameter or option may be: NumPy and the database store 64 bits."""


@dataclass(frozen=True)
class Names:
    """The names that a kernel's file has defined so far."""

    sizes: Mapping[str, int]
    dtypes: Mapping[str, tuple[str, ...] | str]
    options: Mapping[str, tuple[Value, ...]]
    elements: Mapping[str, tuple[str, ...]]
    """The options that are element expressions, with the names that each may use."""
    arguments: frozenset[str] = frozenset()
    """Names of kernel arguments: sizes, tensors and scalars; in a variant also its scratch memory and parameters."""
    inputs: frozenset[str] = frozenset()
    """Names of the tensors that no launch writes to."""
    extra: frozenset[str] = frozenset()
    """Further names that expressions may use, such as a variant's parameters."""
    definitions: Mapping[str, str] = field(default_factory=dict)
    """Names of parts of expressions, each with its text, in which other definitions are replaced by theirs."""
    parameters: frozenset[str] = frozenset()
    """Names of all variants' parameters: what is wrong where an expression of the problem has one."""
    macros: Mapping[str, str] = field(default_factory=dict)
    """What macros of a plain source are whose names are made of others."""

    @property
    def of_problem(self) -> frozenset[str]:
        """Names whose values a problem decides, on any GPU."""
        return frozenset({*self.sizes, *self.dtypes, *self.options})

    @property
    def usable(self) -> frozenset[str]:
        """Names that expressions may use, besides the definitions."""
        return frozenset({*self.of_problem, *DEVICE_LIMITS, *self.extra})


def identifier(table: Table, name: str, macros: Mapping[str, str] | None = None) -> str:
    """Return a name if it is valid in expressions, templates and C++, and none of some macros."""
    if not IDENTIFIER.match(name) or name in FUNCTION_NAMES:
        table.fail(
            f"{name!r} cannot be a name",
            "use the letters a to z, digits and _, 64 at most; no function's name",
        )
    what = (macros or {}).get(name)
    if keyword.iskeyword(name) or name in CPP_KEYWORDS:
        what = f"a keyword of {'Python' if keyword.iskeyword(name) else 'C++'}"
    if what:
        table.fail(f"{name!r} cannot be a name", f"it is {what}, so rename it")
    return name


def is_name(name: str) -> bool:
    """Return whether a kernel's file may call something so."""
    taken = name in FUNCTION_NAMES or name in RESERVED or name in CPP_KEYWORDS
    return bool(IDENTIFIER.match(name)) and not keyword.iskeyword(name) and not taken


def name_for(name: str, taken: Collection[str] = ()) -> str:
    """Return what a kernel's file may call something that C calls so: the same, or a name with ``_`` around it."""
    if not is_name(name):
        name = re.sub(r"\W", "_", name[:50], flags=re.ASCII).strip("_") + "_"
        name = "_" * name[0].isdigit() + name
    while not is_name(name) or name in taken:
        name += "_"
    return name


def unique(table: Table, *groups: Iterable[str]) -> None:
    """Raise an error if a name is in two of the groups."""
    seen: set[str] = set()
    for group in groups:
        for name in group:
            if name in seen:
                table.fail(f"{name!r} names two things", "rename one of them")
            seen.add(name)


def value_list(table: Table, key: str) -> tuple[Value, ...]:
    """Return a list of distinct values of one type."""
    values = table.get(key, list)
    kinds = {type(value) for value in values}
    if not values or len(kinds) != 1 or kinds.pop() not in (int, float, bool, str):
        table.fail(
            f"{key} = {values!r}",
            "give at least one value, all of one type: integers, numbers, booleans or text",
        )
    if not all(math.isfinite(value) for value in values if isinstance(value, float)):
        table.fail(f"{key} = {values!r}", "give finite numbers")
    if not all(value in INTEGERS for value in values if isinstance(value, int)):
        table.fail(f"{key} = {values!r}", "give integers of at most 64 bits")
    if len(set(values)) != len(values):
        table.fail(f"{key} = {values!r} names a value twice", "leave one of them out")
    return tuple(values)


def dtype(table: Table, dtypes: Mapping[str, Any], key: str = "dtype") -> str:
    """Return a dtype, or a role that has one."""
    name: str = table.get(key, str)
    table.require(name, [*dtypes, *ITEMSIZE], f"{key} = {name!r}")
    return name


def choice(table: Table, key: str, choices: tuple[str, ...], default: str) -> str:
    """Return one of the choices."""
    value: str = table.get(key, str, default)
    table.require(value, choices, f"{key} = {value!r}")
    return value


def expressions(table: Table, key: str, names: Names) -> tuple[Expression, ...]:
    """Return an expression, or each of a list."""
    items = table.get(key, (list, str, int))
    items = items if isinstance(items, list) else [items]
    if not items:
        table.fail(f"{key} is empty", "give at least one expression")
    return tuple(checked(table, key, str(item), names) for item in items)


def expression(table: Table, key: str, names: Names, default: Any = ...) -> Expression:
    """Return an expression, which may be a number, or true or false."""
    value = table.get(key, (str, int, float, bool), default)
    return checked(table, key, str(int(value) if isinstance(value, bool) else value), names)


def optional(table: Table, key: str, names: Names) -> Expression | None:
    """Return an expression, or None if it is absent."""
    return expression(table, key, names) if table.has(key) else None


def condition(table: Table, key: str, names: Names) -> Expression:
    """Return an expression that is true or false; one without names is evaluated to find out."""
    parsed = expression(table, key, names)
    if not parsed.names and ((value := parsed.evaluate({})) not in (0, 1) or isinstance(value, str)):
        table.fail(f"{key}: {parsed.text!r} is always {value!r}, and no condition", "write a comparison")
    return parsed


def problem_condition(table: Table, names: Names) -> Expression | None:
    """Return the condition ``when``, if there is one, of sizes, dtypes and options alone: no device decides it."""
    return (
        checked(table, "when", table.get("when", str), names, names.of_problem) if table.has("when") else None
    )


def checked(
    table: Table, key: str, text: str, names: Names, usable: frozenset[str] | None = None
) -> Expression:
    """Return an expression that uses only names that it may: all of ``names``, or fewer if they are given."""
    usable = names.usable if usable is None else usable
    parsed = _parsed(table, key, text, names.definitions)
    if unknown := parsed.names - usable:
        name = min(unknown)
        written, defined = parse(text).names, names.definitions
        using = [one for one in sorted(written & defined.keys()) if name in parse(defined[one]).names]
        by = f", by the definition {using[0]!r}" if name not in written else ""
        if name in names.parameters and not names.extra:
            remedy = "what depends on a parameter is scratch of the variant; a second launch makes the output of it"
            if key == "value":  # a scalar's
                remedy = f'pass it as an argument of the launch: {{ value = "{text}", dtype = "..." }}'
            table.fail(f"{key} = {text!r} uses the parameter {name!r}{by}", remedy)
        choices = usable | (set() if by else defined.keys())
        table.fail(f"{key} = {text!r} uses unknown name {name!r}{by}", suggestion(name, own_first(choices)))
    for option, used in parsed.element_queries:
        table.require(option, names.elements, f"{key} = {text!r}: {option!r} is no element expression")
        if used is not None:
            known = *names.elements[option], *FUNCTIONS
            table.require(used, known, f"{key} = {text!r}: {option} has no name {used!r}")
    return parsed


def read_definitions(top: Table, names: Names) -> Names:
    """Return the names with those of ``[definitions]``: parts of expressions, each of which may use those before it.

    Whether a definition's other names are known is checked where it is used: several variants' parameters may occur.

    Args:
        top: the whole file.
        names: those of the problem's tables, and definitions that the file may use without having them.
    """
    table = top.table("definitions")
    unique(table, table.data, names.definitions, names.usable | names.arguments | set(RESERVED))
    definitions = dict(names.definitions)
    for name in table.data:
        text = str(table.get(identifier(table, name), (str, int, float)))
        parsed = _parsed(table, name, text, definitions)
        if later := parsed.names & (table.data.keys() - definitions.keys()):
            table.fail(
                f"{name} = {text!r} uses {min(later)!r}",
                "a definition uses those before it; change their order",
            )
        definitions[name] = parsed.text
    return replace(names, definitions=definitions)


def check_definitions(top: Table, names: Names, parameters: Iterable[str]) -> None:
    """Raise an error for a definition that uses a name unknown to all variants.

    Args:
        top: the whole file.
        names: with the definitions.
        parameters: of all variants, and names of loops.
    """
    usable = {*names.usable, *parameters, *RESOURCE_NAMES}
    table = top.table("definitions")
    for name in table.data:
        if unknown := parse(names.definitions[name]).names - usable:
            missing = min(unknown)
            table.fail(f"{name} uses unknown name {missing!r}", suggestion(missing, own_first(usable)))


def _parsed(table: Table, key: str, text: str, definitions: Mapping[str, str]) -> Expression:
    """Return an expression in which the names of definitions are replaced by their texts."""
    where = f"{table.where}: {key}"
    try:
        parsed = parse(text, where)
        if used := parsed.names & definitions.keys():
            whole = _with_definitions(parsed.text, tuple((name, definitions[name]) for name in sorted(used)))
            parsed = parse(whole, where, " ".join(text.split()))
    except ExpressionError as error:
        table.fail(f"{key}: {error}")
    return parsed


@functools.lru_cache(maxsize=4096)
def _with_definitions(text: str, definitions: tuple[tuple[str, str], ...]) -> str:
    """Return an expression with the texts of definitions in it: put in as trees, so that they need no parentheses."""
    return unparse(with_names(parse_tree(text), {name: parse(own).syntax for name, own in definitions}))


def exists(path: Path) -> bool:
    """Return whether there is such a file or folder; False for a name that no file can have."""
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or with a zero byte
        return False


def constant(value: Expression) -> float | None:
    """Return the value of an expression without names; None if it has names."""
    return None if value.names else value.number({})


def named_function(table: Table, key: str, text: str, folder: Path) -> PythonFunction:
    """Return the Python function that a key names; its file is not run."""
    file, _, name = text.rpartition(":")
    if not (file.endswith(".py") and name.isidentifier()):
        table.fail(f"{key} = {text!r}", f"name a file and its function: {key} = 'reference.py:softmax'")
    return PythonFunction(plain_file(table, f"{key} = {text!r}", file, folder), name)


def plain_file(table: Table, what: str, file: str, folder: Path) -> Path:
    """Return the path of a file that is there; no pipe and no device, whose reading would not end."""
    if (path := first_file([folder / file])) is None:
        table.fail(f"{what}: no file {file}", f"paths start at {folder}")
    return path
