"""How a baseline is run; and a user's Python function: loading it, what it wants and imports, and where it failed.

Loading runs the user's code: only a process that can be killed does it, never the head.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.machinery
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tuner.core.errors import CompileError, TunerError, UsageError, suggestion, typed
from tuner.core.model import Value
from tuner.core.trees import parsed
from tuner.kernel.headers import read_source

MAX_MESSAGE = 300
NOT_INSTALLED = "is not installed"
"""In the error of a baseline whose library the measuring process does not have."""


class BaselineKind(StrEnum):
    """How a baseline is run."""

    CALL = "call"
    """A library's function on the GPU, from the kernel's file: ``torch.mm(a, b, out=c)``."""
    PYTHON = "python"
    """A user's function on GPU tensors: ``module:function`` or ``file.py:function``."""
    LAUNCH = "launch"
    """A user's kernel: ``name<<<grid, block, shared>>>(arguments)`` of a ``.cu`` or ``.cubin`` file."""


@dataclass(frozen=True)
class PythonFunction:
    """A function in a user's file, which nothing has run yet."""

    file: Path
    name: str
    builds: bool = False
    """Whether it is called with a configuration's parameters, and returns the function that is meant."""

    @property
    def text(self) -> str:
        """As messages name it."""
        return f"{self.file.name}:{self.name}"

    def parameters(self) -> frozenset[str]:
        """Return the names of what it takes, by its file's text, which is not run; none where that lacks it."""
        with suppress(OSError, SyntaxError, ValueError):
            for node in parsed(self.file.read_bytes()).body:
                if isinstance(node, ast.FunctionDef) and node.name == self.name:
                    return frozenset(
                        one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                    )
        return frozenset()


@functools.lru_cache(maxsize=64)
def load_function(text: str, file: Path | None) -> Callable[..., Any]:
    """Import a function; a file is run once, however many copies of the tensors its function is bound to.

    Args:
        text: its name, behind its module and a colon where there is no file.
        file: the Python file that has it; it may import what lies beside it.

    Raises:
        UsageError: there is no such module or function.
        TunerError: importing it fails.
    """
    module_name, _, name = text.rpartition(":")
    where = file.name if file else module_name
    start = str(file.parent if file else Path.cwd())
    if start not in sys.path:
        sys.path.insert(0, start)
    try:
        module = _run_file(file) if file else importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise UsageError(f"no module named {error.name}", f"modules are looked for in {start}") from None
        raise TunerError(
            f"{location(error, file, where)}: {first_line(error)}", "install what it imports"
        ) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's file throws
        raise TunerError(f"{location(error, file, where)}: {first_line(error)}", "correct the file") from None
    function = getattr(module, name, None)
    if not callable(function):
        choices = sorted(n for n, value in vars(module).items() if inspect.isfunction(value))
        raise UsageError(f"{where} has no function {name!r}", suggestion(name, choices))
    return function  # type: ignore[no-any-return]


def built(function: PythonFunction, parameters: Mapping[str, Value]) -> Callable[..., Any]:
    """Return what a function builds for a configuration.

    Raises:
        CompileError: it fails, or returns nothing that can be called.
        TunerError: it cannot be loaded.
    """
    build = load_function(function.name, function.file)
    try:
        made = build(**parameters)
    except Exception as error:  # noqa: BLE001 - whatever a user's function throws
        where = location(error, function.file, function.text)
        raise CompileError(f"{where}: {first_line(error)}") from None
    named = "return a function of the arrays, by their names"
    if not callable(made):
        raise CompileError(f"{function.text} returns {typed(made)}", named)
    with suppress(TypeError, ValueError):  # of another language: said where it is called
        kinds = {one.kind for one in inspect.signature(made).parameters.values()}
        if kinds <= {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
            raise CompileError(f"what {function.text} returns names no parameters", named)
    return made  # type: ignore[no-any-return]


class _Uncached(importlib.machinery.SourceFileLoader):
    """Runs what a file says: a compilation that Python keeps beside it counts for all of its size and second."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _run_file(file: Path) -> ModuleType:
    name = f"baseline_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file, loader=_Uncached(name, str(file)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and Triton look there for what a function's module is
    spec.loader.exec_module(module)
    return module


_UNFINISHED = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def arguments_for(
    function: Callable[..., Any], available: Mapping[str, Any], text: str
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a function: those of the available values that its parameters name.

    Raises:
        UsageError: it wants something else, too, or is async or a generator.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise UsageError(f"{text} does not say what it takes", "wrap it in a Python function") from None
    if any(kind(function) for kind in _UNFINISHED):
        raise UsageError(f"{text} is async or a generator, which gives no values when called", "return them")
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            given = {p.name for p in parameters}
            named |= {name: value for name, value in available.items() if name not in given}
            continue
        if parameter.name not in available:
            if parameter.default is parameter.empty:
                remedy = suggestion(parameter.name, sorted(available))
                raise UsageError(f"{text} wants {parameter.name!r}, which is not available", remedy)
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(parameter.default)
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(available[parameter.name])
        else:
            named[parameter.name] = available[parameter.name]
    return positional, named


def location(error: BaseException, file: Path | None, otherwise: str = "") -> str:
    """Return the line of a file in which an exception came up, such as ``reference.py:12``, or something else."""
    if file is None:
        return otherwise
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{file.name}:{error.lineno}"
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)
    ]
    return f"{file.name}:{lines[-1]}" if lines else otherwise or file.name


def first_line(error: BaseException) -> str:
    """Return an exception in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ": ".join([type(error).__name__, *lines[:1]])[:MAX_MESSAGE]


def imported_files(tree: ast.Module, path: Path) -> list[Path]:
    """Return the files that a Python file imports, directly or not, from its folder.

    Args:
        tree: what counts of the file.
        path: the file.
    """
    return [file for file in modules_of(tree, path) if file != path and file.is_relative_to(path.parent)]


def libraries_built_with(functions: Iterable[PythonFunction | None]) -> set[str]:
    """Return what those of some functions that build others import, directly or by files beside them; and torch, in
    whose tensors they get the arrays, where there are any."""
    files = {function.file for function in functions if function is not None and function.builds}
    names = {"torch"} if files else set()
    for path in files:
        for tree in modules_of(parsed(read_source(path)), path).values():
            for node in ast.walk(tree):
                if isinstance(node, ast.Import):
                    names |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    names.add(node.module)
    return {name.partition(".")[0] for name in names}


def modules_of(tree: ast.Module, path: Path) -> dict[Path, ast.Module]:
    """Return the syntax trees of a Python file and of all that it imports from its folder."""
    trees, pending = {path: tree}, [path]
    while pending:
        file = pending.pop(0)
        for module in sorted(_imported(trees[file], file, path.parent) - trees.keys()):
            trees[module] = parsed(read_source(module))
            pending.append(module)
    return trees


def _imported(tree: ast.Module, file: Path, folder: Path) -> set[Path]:
    """Return the files in a folder that a module of it may import."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [(folder, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = file.parents[min(node.level, len(file.parents)) - 1] if node.level else folder
            names += [(start, f"{node.module or ''}.{alias.name}") for alias in node.names]
    files = set()
    for start, name in names:
        module = start
        for part in filter(None, name.split(".")):
            module /= part
            files |= {module.with_name(f"{part}.py"), module / "__init__.py"}
    return {path for path in files if path.is_file()}
