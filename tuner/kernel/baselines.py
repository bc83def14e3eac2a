"""Baselines of a tuned kernel: a library's call, a user's kernel or Python function."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.core.errors import ExpressionError, KernelError, UsageError, suggestion
from tuner.core.model import Configuration, Gpu, Problem
from tuner.expressions.arithmetic import Expression, parse
from tuner.expressions.library_call import LibraryCall
from tuner.expressions.parsing import parse_tree
from tuner.kernel.functions import BaselineKind
from tuner.kernel.headers import named_file
from tuner.kernel.plan import settle_launch
from tuner.kernel.render import render_launch
from tuner.kernel.spec import CallSpec, KernelSpec
from tuner.kernel.variant_spec import LaunchSpec, own_first
from tuner.runtime.dtypes import ITEMSIZE
from tuner.runtime.entries import ArgumentEntry
from tuner.runtime.launch_limits import DEVICE_LIMITS, ArgumentRangeError, UnlaunchableError
from tuner.runtime.launches import Launch

FORMS = (
    "give mine.cu:KERNEL<<<GRID, BLOCK>>>(ARGUMENTS), the same with a .cubin, mine.cu with a line `// tune: "
    "KERNEL<<<...>>>(...)` in it, file.py:FUNCTION, or package.module:FUNCTION"
)
MAX_FILE_BYTES = 1 << 20

_KERNEL_FILE = re.compile(r"(?P<file>.+?\.(?:cu|cubin))(?::(?P<launch>.*))?", re.DOTALL)
_PYTHON_FILE = re.compile(r"(?P<file>.+\.py):(?P<function>[^:]*)")
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_LAUNCH = re.compile(
    r"\s*(?P<entry>[A-Za-z_][\w:<>, *]*?)\s*<<<(?P<shape>.*?)>>>\s*\((?P<arguments>.*)\)\s*;?\s*", re.DOTALL
)
_COMMENT = re.compile(r"^\s*//\s*tune:\s*(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Baseline:
    """A baseline."""

    name: str
    """As shown in tables: ``torch``, ``mine.cu``."""
    kind: BaselineKind
    text: str
    """The call; the function's name, after its module and a colon if there is no file; or the launch."""
    file: Path | None = None
    calls: tuple[CallSpec, ...] = ()
    """A library's calls, all shown in ``text``; the first that fits a problem is used."""

    @property
    def line(self) -> str:
        """The text on one line."""
        return "; ".join(self.text.splitlines())

    @property
    def library(self) -> str:
        """The Python package that it needs: ``torch``, ``cupy``, or empty."""
        if self.kind is not BaselineKind.CALL:
            return ""
        return LibraryCall(self.calls[0].text if self.calls else self.text).library


def baselines_of(kernel: KernelSpec) -> list[Baseline]:
    """Return the baselines of a kernel's file."""
    return [
        Baseline(name, BaselineKind.CALL, "\n".join(map(_shown, calls)), calls=calls)
        for name, calls in kernel.baselines.items()
    ]


def _shown(call: CallSpec) -> str:
    return f"{call.text} if {call.when.text}" if call.when is not None else call.text


def settle_baseline(baseline: Baseline, kernel: KernelSpec, problem: Problem) -> Baseline:
    """Return a baseline of the kernel's file for one problem: with the call that fits.

    Raises:
        UsageError: no call fits, or the one that does needs a tensor that the problem lacks.
    """
    if not baseline.calls:
        return baseline
    names = {**problem.sizes, **problem.dtypes, **problem.options}
    fitting = (call for call in baseline.calls if call.when is None or call.when.evaluate(names))
    call = next(fitting, None)
    if call is None:
        raise UsageError(
            f"{baseline.name} has no call for {problem}", f"add one to [baselines] of {kernel.name}"
        )
    absent = LibraryCall(call.text).names & (kernel.tensors.keys() - kernel.present(problem).keys())
    if absent:
        raise UsageError(
            f"{baseline.name}: {call.text} needs {min(absent)}, which {problem} does not have",
            "give the call a condition with when",
        )
    return replace(baseline, text=call.text, calls=())


def parse_baseline(text: str) -> Baseline:
    """Return the user's kernel or Python function that the command line names.

    Raises:
        UsageError: it is neither, its file is missing, or its launch cannot be parsed.
    """
    text = text.strip()
    if (match := _KERNEL_FILE.fullmatch(text)) is not None:
        file, launch = existing(match["file"]), match["launch"]
        name = file.name
        if launch is None:
            launch, *more = launches_in(file)
            if more:
                remedy = f"write {file.name}:KERNEL<<<GRID, BLOCK>>>(ARGUMENTS)"
                raise UsageError(f"{file.name} has {len(more) + 1} lines `// tune: ...`", remedy)
        else:
            name = f"{name}:{launch.split('<<<')[0].strip()}"
        baseline = Baseline(name, BaselineKind.LAUNCH, " ".join(launch.split()), file)
        launch_spec(baseline)
        return baseline
    if (match := _PYTHON_FILE.fullmatch(text)) is not None:
        file, function = existing(match["file"]), match["function"]
        if not function.isidentifier():
            raise UsageError(f"{text!r}: {function!r} is no function's name", FORMS)
        return Baseline(f"{file.name}:{function}", BaselineKind.PYTHON, function, file)
    if _MODULE.fullmatch(text):
        return Baseline(text, BaselineKind.PYTHON, text)
    raise UsageError(f"cannot compare with {text!r}", FORMS)


def launch_spec(baseline: Baseline) -> LaunchSpec:
    """Return the launch of a user's kernel.

    The syntax is ``NAME<<<GRID, BLOCK, SHARED_BYTES>>>(ARGUMENTS)``. Grid and block are one expression, or up to three
    in parentheses, with ``dim3`` before them or not. An argument is the name of a tensor, scalar or size, or an
    expression, which is an ``int32`` unless a dtype is written around it: ``int64(n)``.

    Raises:
        UsageError: the text is something else.
    """
    assert baseline.file is not None
    match = _LAUNCH.fullmatch(baseline.text)
    if match is None:
        raise UsageError(
            f"{baseline.name}: {baseline.text!r} is no launch", "write KERNEL<<<GRID, BLOCK>>>(ARGUMENTS)"
        )
    try:
        shape = _items(match["shape"])
        if len(shape) not in (2, 3):
            raise UsageError(
                f"{baseline.name}: <<<{match['shape']}>>> has {len(shape)} items",
                "give grid, block, and perhaps bytes of shared memory",
            )
        arguments = tuple(_argument(node) for node in _items(match["arguments"]))
        grid, block = _triple(shape[0]), _triple(shape[1])
        shared_bytes = _expression(shape[2]) if len(shape) == 3 else parse("0")
    except ExpressionError as error:
        raise UsageError(f"{baseline.name}: cannot read {baseline.text!r}: {error}") from None
    entry = match["entry"].strip()
    return LaunchSpec(entry, arguments, grid, block, shared_bytes, template=baseline.file)


def checked_launch(baseline: Baseline, kernel: KernelSpec) -> LaunchSpec:
    """Return the launch of a user's kernel, which uses no other names than a kernel has; errors as of it.

    Raises:
        UsageError: it uses a name that the kernel lacks.
    """
    spec = launch_spec(baseline)
    constants = [*kernel.sizes, *kernel.dtypes, *kernel.options, *DEVICE_LIMITS]
    expressions = (*spec.grid, *spec.block, spec.shared_bytes)
    values = (argument.value for argument in spec.arguments if argument.value is not None)
    for expression in (*expressions, *values):
        _check_names(baseline, expression.names, constants)
    names = {argument.name for argument in spec.arguments if argument.value is None}
    _check_names(baseline, names, [*kernel.tensors, *kernel.scalars, *constants])
    return spec


def launch_of(baseline: Baseline, kernel: KernelSpec, problem: Problem, gpu: Gpu) -> Launch:
    """Return the launch of a user's kernel for a problem.

    Raises:
        UsageError: it uses a name that the kernel lacks, or its grid is no whole number.
        UnlaunchableError: its grid, block or shared memory is beyond the device.
    """
    spec = checked_launch(baseline, kernel)
    expressions = (*spec.grid, *spec.block, spec.shared_bytes)
    try:
        return settle_launch(spec, kernel, problem, gpu)
    except UnlaunchableError as error:
        remedy = "write int64(...) around it" if isinstance(error, ArgumentRangeError) else error.remedy
        raise UnlaunchableError(f"{baseline.name}: {error.problem}", remedy) from None
    except KernelError as error:
        remedy = error.remedy
        if any(re.search(r"[^/]/[^/]", expression.text) for expression in expressions):
            remedy = "/ does not round here: write ceil_div(a, b), or // to round down"
        raise UsageError(f"{baseline.name}: {error.problem}", remedy) from None


def source_of(baseline: Baseline, kernel: KernelSpec, problem: Problem, gpu: Gpu) -> tuple[str, str]:
    """Return source and entry of a user's ``.cu``, with the options and ``<role>_type`` as macros before it.

    Raises:
        KernelError: the file cannot be read.
    """
    return render_launch(kernel, launch_spec(baseline), problem, gpu, Configuration("", ()))


def existing(name: str, remedy: str = FORMS) -> Path:
    """Return the path of a file that the command line names.

    Raises:
        UsageError: there is none.
    """
    if (path := named_file(name)) is None:
        raise UsageError(f"no file {name}", remedy)
    return path


def launches_in(file: Path) -> list[str]:
    """Return the launches that a source's ``// tune:`` comments name; those of a cubin stand in ``FILE.launch``.

    Raises:
        UsageError: there is none.
    """
    lines: list[str] = []
    place = file
    if file.suffix == ".cubin":
        place = file.with_name(f"{file.name}.launch")
    if place.is_file():
        with place.open(errors="replace") as source:
            text = source.read(MAX_FILE_BYTES)
        lines = _COMMENT.findall(text) if place is file else [one for one in text.splitlines() if one.strip()]
    if not lines:
        remedy = f"write {file.name}:KERNEL<<<GRID, BLOCK>>>(ARGUMENTS)"
        if place is not file:
            raise UsageError(
                f"{file.name} does not say how to launch it", f"{remedy}, or that into {place.name}"
            )
        line = "// tune: KERNEL<<<GRID, BLOCK>>>(ARGUMENTS)"
        raise UsageError(f"{file.name} has no line `{line}`", f"add it, or {remedy}")
    return lines


def _items(text: str) -> list[ast.expr]:
    if not text.strip():
        return []
    body = parse_tree(f"({text.strip()}\n,)")
    if not isinstance(body, ast.Tuple):
        raise ExpressionError(f"{text!r} is no list")
    return body.elts


def _triple(node: ast.expr) -> tuple[Expression, ...]:
    match node:
        case ast.Call(func=ast.Name(id="dim3"), args=items, keywords=[]) | ast.Tuple(elts=items):
            if not 1 <= len(items) <= 3:
                raise ExpressionError(f"{ast.unparse(node)} has {len(items)} dimensions", "give one to three")
            return tuple(_expression(item) for item in items)
    return (_expression(node),)


def _argument(node: ast.expr) -> ArgumentEntry:
    match node:
        case ast.Name(id=name):
            return ArgumentEntry(name=name)
        case ast.Call(func=ast.Name(id=dtype), args=[value], keywords=[]) if dtype in ITEMSIZE:
            return ArgumentEntry(value=_expression(value), dtype=dtype)
    return ArgumentEntry(value=_expression(node))


def _expression(node: ast.expr) -> Expression:
    return parse(ast.unparse(node))


def _check_names(baseline: Baseline, names: Iterable[str], allowed: Iterable[str]) -> None:
    choices = own_first(allowed)
    for name in sorted(set(names) - set(choices)):
        raise UsageError(
            f"{baseline.name}: {baseline.text!r} uses unknown name {name!r}", suggestion(name, choices)
        )
