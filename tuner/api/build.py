"""A kernel that a function builds: ``build(**params)`` returns what is called with the arrays, as in Triton.

Its file is read, never run here: a measuring process runs it. What it needs goes beside the kernel's file.
"""

from __future__ import annotations

import ast
import inspect
import re
import symtable
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any

from tuner.api.arrays import is_array, number, on_host
from tuner.api.call import Call, require
from tuner.api.description import Described, Reader
from tuner.core.errors import UsageError, suggestion, typed
from tuner.core.trees import parsed
from tuner.kernel.functions import imported_files
from tuner.kernel.headers import named_file, read_source
from tuner.kernel.source.declarations import KernelSignature, Source
from tuner.kernel.source.types import CType, Parameter
from tuner.kernel.toml.table import name_for

TO_WRITE = "write it as a function of a file, and pass that, or 'FILE.py:FUNCTION'"
CHILDREN = "tuner.gpu.", "tuner.children."
"""What processes run that import users' files."""


@dataclass(frozen=True)
class Build:
    """A function that builds others, as its file has it."""

    name: str
    file: Path
    function: Callable[..., Any] | None
    """The caller's own; None where its file was named."""
    files: Mapping[str, bytes]
    """What it needs, by names in a folder; its own file comes first."""
    takes: Mapping[str, bool] | None
    """Its parameters, and whether each may be left out; None where the file does not show them."""
    asks: Mapping[str, bool] | None
    """Those of the function that it returns."""

    def arguments(self, given: Any) -> dict[str, Any]:
        """Return the arrays and numbers of a call by the names that the built function has for them.

        Raises:
            UsageError: they have no names, or are too many or too few.
        """
        if isinstance(given, Mapping):
            return dict(given)
        if self.asks is None:
            problem = f"{self.file.name} does not show what the function takes that {self.name} returns"
            raise UsageError(problem, "pass args by the names of its parameters: args={'x': x, 'y': y}")
        if len(given or ()) != len(self.asks):
            what = f"what {self.name} returns takes {len(self.asks)} arguments, args has {len(given or ())}"
            raise UsageError(what, f"pass [{', '.join(self.asks)}]")
        return dict(zip(self.asks, given, strict=True))


def require_no_child() -> None:
    """Refuse to tune where a file is imported that has the function which is being tuned.

    Raises:
        UsageError: that.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name.startswith(CHILDREN):
        remedy = "put the call behind `if __name__ == '__main__':`"
        raise UsageError("tuner.tune is called where its function's file is imported", remedy)


def is_build(kernel: Any) -> bool:
    """Return whether a kernel is given as a function that builds it, or as the name of one."""
    text = kernel if isinstance(kernel, str) else ""
    return callable(kernel) or re.search(r"^[^\n]+\.py(:[^\n:]*)?$", text) is not None


def described_build(build: Build, call: Call) -> Described:
    """Return the kernel's file that a call with such a function stands for.

    Raises:
        UsageError: an argument does not fit; the text says which, and what to pass instead.
    """
    call = replace(call, args=(given := build.arguments(call.args)))
    types = [CType("", "", pointers=int(is_array(value))) for value in given.values()]
    title = call.name or name_for(build.file.stem if build.name == "build" else build.name)
    signature = KernelSignature(title, tuple(map(Parameter, given, types)), 0)
    return _Reader(call, build, signature).described()


class _Reader(Reader):
    def __init__(self, call: Call, build: Build, signature: KernelSignature) -> None:
        super().__init__(call, Source(), signature, build.name)
        self._build = build
        if renamed := [name for name, of in self.names.items() if name != of]:
            raise UsageError(f"{renamed[0]} has a meaning of its own", "call that argument otherwise")

    def _take_arguments(self) -> None:
        for name, value in dict(self.call.args or {}).items():
            if self.types[name].pointers:
                self.arrays[name] = on_host(name, value)
            else:
                of = CType("a number", "long long" if isinstance(value, Integral) else "double")
                self.numbers[name] = number(name, value, of)
        require(self.call.shapes, self.arrays, f"shapes names {{!r}}, which is no array of {self.name}")

    def _computed(self) -> dict[str, Any]:
        build, params = self._build, self.parameters
        if build.takes is not None:
            require(params, build.takes, f"params has {{!r}}, which {build.name} does not take")
            if lacks := _needed_of(build.takes, params):
                raise UsageError(f"params has no {lacks[0]}, which {build.name} takes", "give its values")
        known = [*self.sizes, *self.types, "stream"]
        if build.asks is not None and (lacks := _needed_of(build.asks, known)):
            remedy = suggestion(lacks[0], known)
            raise UsageError(f"what {build.name} returns takes {lacks[0]}, and args has none", remedy)
        if not self.call.outputs:
            last = [*self.arrays][1:][-1:] or ["y"]
            raise UsageError(
                "outputs is missing", f"name what it writes or returns, with an array in args: {last}"
            )
        for name, content in build.files.items():
            if self.files.setdefault(name, content) != content:
                raise UsageError(f"{name} is written beside the kernel's file", "call yours otherwise")
        return {"launches": [], "build": f"{next(iter(build.files))}:{build.name}"}


def _needed_of(parameters: Mapping[str, bool], given: Iterable[str]) -> list[str]:
    return [name for name, optional in parameters.items() if not optional and name not in {*given}]


def build_of(given: Callable[..., Any] | str) -> Build:
    """Return the function that is given, or named as ``FILE.py:FUNCTION``.

    Raises:
        UsageError: it is none of a file.
    """
    function = None if isinstance(given, str) else given
    if isinstance(given, str):
        text, name = (given, "") if given.endswith(".py") else given.rsplit(":", 1)
        if (found := named_file(text)) is None:
            raise UsageError(f"there is no file {text}", "give the path of a .py with a function")
        file = found
    else:
        file, name = _place_of(given)
    source = read_source(file)
    try:
        tree = parsed(source)
    except SyntaxError as error:
        raise UsageError(f"{file.name}:{error.lineno}: {error.msg}", "correct it") from None
    bound = {one: node for node in tree.body for one in _bound(node)}
    if name not in bound:
        functions = [one for one, node in bound.items() if isinstance(node, ast.FunctionDef)]
        lacks = f"has no function {name!r}" if name else "is given without a function: 'FILE.py:FUNCTION'"
        raise UsageError(f"{file.name} {lacks}", suggestion(name, functions))
    program = getattr(sys.modules["__main__"], "__file__", None)
    if program is not None and Path(program).resolve() == file:  # to run all of it would tune again
        source = _needed(source, tree, name)
        tree = parsed(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            raise UsageError(f"{file.name}:{node.lineno} imports by a dot", "import by the package's name")
    files = {file.name: source.encode()}
    for one in imported_files(tree, file):
        files[one.relative_to(file.parent).as_posix()] = read_source(one).encode()
    return Build(name, file, function, files, *_shown(bound[name]))


def _place_of(function: Callable[..., Any]) -> tuple[Path, str]:
    """Return the file of a function, and its name there.

    Raises:
        UsageError: another process would not find it.
    """
    own = inspect.unwrap(function)
    name = str(getattr(function, "__qualname__", "")) or typed(function)
    if not (inspect.isfunction(function) or inspect.isclass(function)):  # such as a kernel of Triton itself
        what = f"{name} is {typed(function)}, and no function that gets params and returns what is called"
        raise UsageError(what, TO_WRITE)
    if "<lambda>" in name or "." in name or getattr(own, "__closure__", None):
        raise UsageError(f"{name} is no function of a file that another process can import", TO_WRITE)
    try:
        file = Path(inspect.getsourcefile(own) or "")
    except TypeError:  # a class of a notebook
        file = Path()
    if not file.is_file():
        raise UsageError(
            f"{name} has no file, as in a notebook", "write it into one, and pass 'FILE.py:FUNCTION'"
        )
    return file.resolve(), name


def _bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement of a module binds there."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Import() | ast.ImportFrom():
            yield from ((one.asname or one.name.partition(".")[0]) for one in node.names)
        case ast.Name(ctx=ast.Store()):
            yield node.id
        case ast.Lambda():
            return
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _bound(child)


def _needed(source: str, tree: ast.Module, name: str) -> str:
    """Return the statements of a module that a function needs, each at its line."""

    def used(table: symtable.SymbolTable) -> set[str]:
        own = {
            one.get_name() for one in table.get_symbols() if one.is_global() or table.get_type() == "module"
        }
        return own.union(*map(used, table.get_children()))

    lines, wanted, left = re.split(r"\r\n|\r|\n", source), {name}, list(tree.body)
    kept = [""] * len(lines)
    while more := [node for node in left if _for_all(node) or wanted.intersection(_changed(node))]:
        left = [node for node in left if node not in more]
        for node in more:
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))]) - 1
            kept[first : node.end_lineno] = lines[first : node.end_lineno]
            wanted |= used(symtable.symtable(ast.unparse(node), "", "exec"))
    return "\n".join(kept).rstrip() + "\n"


def _changed(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds, or of which it sets a part."""
    yield from _bound(node)
    for target in node.targets if isinstance(node, ast.Assign) else ():
        while isinstance(target, ast.Subscript | ast.Attribute):
            target = target.value
        yield from (target.id,) if isinstance(target, ast.Name) else ()


def _for_all(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__" or node.names[0].name == "*"
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith("sys.path.")


def _shown(node: ast.AST) -> tuple[Mapping[str, bool] | None, Mapping[str, bool] | None]:
    """Return the parameters of a function, and those of the one that it returns, as far as its file shows them."""
    if not isinstance(node, ast.FunctionDef):
        return None, None
    made: list[ast.Lambda | ast.FunctionDef] = []
    match [one.value for one in node.body if isinstance(one, ast.Return)]:
        case [*_, ast.Lambda() as last]:
            made = [last]
        case [*_, ast.Name(id=name)]:
            made = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == name]
    return _parameters(node.args), _parameters(made[-1].args) if made else None


def _parameters(given: ast.arguments) -> Mapping[str, bool] | None:
    """Return names, and whether each has a default; None where there may be others."""
    if given.vararg is not None or given.kwarg is not None:
        return None
    placed = [one.arg for one in (*given.posonlyargs, *given.args)]
    required = len(placed) - len(given.defaults)
    named = {
        one.arg: default is not None for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    }
    return {**{name: place >= required for place, name in enumerate(placed)}, **named}
