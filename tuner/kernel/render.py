"""Render the sources of a configuration: Jinja templates, and plain ``.cu`` files with ``#define`` lines before them.

A template sees its parameters, the dtype roles, the options, ``cc`` and ``problem`` (the sizes). Its filters are
``c_type`` (the type's name in the common header, ``templates/common/types.cuh.j2``) and ``itemsize``; for an option
that is an element expression ``cuda``, ``cuda_double``, ``cuda_magnitude``, ``uses`` and ``operations``. The sandbox
denies templates access to Python; their output and the memory that they take are bounded, their time is not.
"""

from __future__ import annotations

import errno
import functools
import io
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2 import nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tuner.core import paths
from tuner.core.errors import ExpressionError, KernelError, suggestion
from tuner.core.model import Configuration, Gpu, Problem, Value, digest
from tuner.core.processes import bounded_memory
from tuner.expressions.arithmetic import ceil_div, operations, round_up, uses
from tuner.expressions.elementwise_cuda import cuda, cuda_double, cuda_macro, cuda_magnitude
from tuner.kernel.line_map import MARKS_FACTOR, LineMap, LineMarks, after_defines
from tuner.runtime.dtypes import ITEMSIZE

if TYPE_CHECKING:  # the measuring process renders the tuner's own kernels alone
    from tuner.kernel.spec import KernelSpec
    from tuner.kernel.variant_spec import LaunchSpec

C_TYPES = {
    "float64": "double",
    "float32": "float",
    "float16": "half_t",
    "bfloat16": "bf16_t",
    "int64": "long long",
    "int32": "int",
    "uint32": "unsigned int",
    "int8": "signed char",
    "uint8": "unsigned char",
}
CUDA_HEADER_TYPES = {**C_TYPES, "float16": "__half", "bfloat16": "__nv_bfloat16"}
GRID_DEPENDENCY_WAITS = ("cudaGridDependencySynchronize", "griddepcontrol.wait")
"""What a kernel calls, as a function or in PTX, that may begin before the kernel before it has ended."""
ENCODING = "utf-8-sig"
"""Of templates: UTF-8, whose byte order mark, as Visual Studio writes it, no compiler takes."""
MAX_SOURCE_BYTES = 4 << 20
MAX_ENTRY_BYTES = 4 << 10
MEMORY_BYTES = 1 << 30
"""What rendering may take in a process that has no limit: many times as much as sources of 4 MiB need."""
_READ_ONCE = threading.Event()


def _lookup(table: Mapping[str, Any], what: str) -> Any:
    def find(dtype: str) -> Any:
        if dtype not in table:
            raise jinja2.TemplateRuntimeError(f"{what}: {dtype!r} is not a dtype")
        return table[dtype]

    return find


def _of_element(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def apply(text: Any, *arguments: Any) -> Any:
        try:
            return function(str(text), *arguments)
        except ExpressionError as error:
            raise jinja2.TemplateRuntimeError(f"{name}: {error}") from None

    return apply


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, in which repeating and powers stay within the length of a source, also in constants."""

    intercepted_binops = frozenset(("*", "**"))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Return what an operator gives.

        Raises:
            TemplateRuntimeError: that is too long.
        """
        length = 0
        if operator == "**" and isinstance(left, int) and isinstance(right, int):
            length = left.bit_length() * right
        for many, of in ((left, right), (right, left)):
            if operator == "*" and isinstance(many, int) and isinstance(of, (str, list, tuple)):
                length = many * len(of)
        if length > MAX_SOURCE_BYTES:
            raise jinja2.TemplateRuntimeError(
                f"the limit of {operator} is {MAX_SOURCE_BYTES} characters or bits"
            )
        return super().call_binop(context, operator, left, right)


@functools.lru_cache(maxsize=16)
def _environment(folder: Path, marked: bool = False) -> jinja2.Environment:
    environment = _Sandbox(
        loader=jinja2.FileSystemLoader([folder, paths.templates()], ENCODING),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        auto_reload=not _READ_ONCE.is_set(),
        extensions=[LineMarks] if marked else [],
    )
    environment.filters["c_type"] = _lookup(C_TYPES, "c_type")
    environment.filters["itemsize"] = _lookup(ITEMSIZE, "itemsize")
    for function in (cuda, cuda_double, cuda_magnitude, uses, operations):
        environment.filters[function.__name__] = _of_element(function, function.__name__)
    environment.globals.update(ceil_div=ceil_div, round_up=round_up)
    return environment


def read_templates_once() -> None:
    """From now on render every template as it is when this process first reads it, whatever becomes of its file."""
    _READ_ONCE.set()


def _template(folder: Path, template: Path, marked: bool = False) -> jinja2.Template:
    changed_ns = 0 if _READ_ONCE.is_set() else template.stat().st_mtime_ns
    return _parsed(folder, template, marked, changed_ns)


@functools.lru_cache(maxsize=256)
def _parsed(folder: Path, template: Path, marked: bool, changed_ns: int) -> jinja2.Template:  # noqa: ARG001 - of the key
    environment = _environment(folder, marked)
    code = environment.compile(template.read_text(ENCODING), template_name(folder, template), str(template))
    return environment.template_class.from_code(environment, code, environment.make_globals(None))


def template_name(folder: Path, template: Path) -> str:
    """Return a template's name as an ``include`` would have it."""
    for start in (folder, paths.templates()):
        if template.is_relative_to(start):
            return str(template.relative_to(start))
    return template.name


def context(problem: Problem, gpu: Gpu, parameters: Mapping[str, Value]) -> dict[str, Any]:
    """Return the names that a template sees."""
    return {**problem.dtypes, **problem.options, **parameters, "problem": dict(problem.sizes), "cc": gpu.cc}


def undeclared_names(text: str, folder: Path) -> set[str]:
    """Return the names that a template uses and does not define itself.

    The template is parsed, not compiled: Jinja's compiler computes constants, such as ``'a' * 10 ** 10``, and so does
    ``jinja2.meta``.

    Raises:
        KernelError: the text is not a template, or uses a filter or test that there is not.
    """
    environment = _environment(folder)
    tree = _parse(text, environment)
    for kind, there in ((nodes.Filter, environment.filters), (nodes.Test, environment.tests)):
        for node in tree.find_all(kind):
            if node.name not in there:
                raise KernelError(f"there is no {kind.__name__.lower()} {node.name!r}")
    names = list(tree.find_all(nodes.Name))
    defined = {name.name for name in names if name.ctx != "load"}
    defined |= {macro.name for macro in tree.find_all(nodes.Macro)}
    return {name.name for name in names} - defined - environment.globals.keys()


def problem_names(text: str, folder: Path) -> set[str] | None:
    """Return the sizes that a template takes from ``problem``; None where it takes more than single ones by name.

    Raises:
        KernelError: the text is not a template.
    """
    tree = _parse(text, _environment(folder))
    uses = sum(name.name == "problem" for name in tree.find_all(nodes.Name))
    names = [node.attr for node in tree.find_all(nodes.Getattr) if _is_problem(node.node)] + [
        str(node.arg.value)
        for node in tree.find_all(nodes.Getitem)
        if _is_problem(node.node) and isinstance(node.arg, nodes.Const)
    ]
    return set(names) if len(names) == uses else None


def _is_problem(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Name) and node.name == "problem"


def _parse(text: str, environment: jinja2.Environment) -> nodes.Template:
    try:
        return environment.parse(text)
    except jinja2.TemplateError as error:
        raise KernelError(str(error.message)) from None


def render_launch(
    kernel: KernelSpec, launch: LaunchSpec, problem: Problem, gpu: Gpu, configuration: Configuration
) -> tuple[str, str]:
    """Return the source text and the entry's name of one launch.

    Raises:
        KernelError: the template cannot be parsed or rendered.
    """
    name = template_name(kernel.folder, launch.template)
    names = context(problem, gpu, configuration.values)
    try:
        if launch.template.suffix == ".j2":
            source = _joined(_template(kernel.folder, launch.template).generate(names), MAX_SOURCE_BYTES)
        else:
            source = _with_defines(kernel, launch.template, problem, configuration)
    except (*_FAILURES, OSError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            raise MemoryError from None
        raise _failure(error, kernel.folder, name, names) from None
    if source is None or len(source) > MAX_SOURCE_BYTES:
        raise KernelError(f"{name} renders to too much", f"the limit is {MAX_SOURCE_BYTES} bytes")
    if launch.programmatic and not any(wait in source for wait in GRID_DEPENDENCY_WAITS):
        raise KernelError(
            f"{name} does not wait for the kernel before it, although its launch is programmatic",
            f"call {GRID_DEPENDENCY_WAITS[0]}() before it touches device memory, or leave programmatic out",
        )
    return source, render_entry(kernel, launch, names)


def render_entry(kernel: KernelSpec, launch: LaunchSpec, names: Mapping[str, Any]) -> str:
    """Return the name of a launch's kernel.

    Args:
        kernel: whose launch it is.
        launch: its entry may be a template.
        names: that a template sees, by :func:`context`.

    Raises:
        KernelError: it cannot be rendered.
    """
    try:
        template = _environment(kernel.folder).from_string(launch.entry)
        entry = _joined(template.generate(names), MAX_ENTRY_BYTES)
    except _FAILURES as error:
        what = error.message if isinstance(error, jinja2.TemplateError) else error
        raise KernelError(f"{kernel.file.name}: entry {launch.entry!r}: {what}", "correct it") from None
    if entry is None:
        raise KernelError(
            f"{kernel.file.name}: the entry is too long", f"the limit is {MAX_ENTRY_BYTES} bytes"
        )
    return entry


def _joined(pieces: Iterable[str], bound: int) -> str | None:
    """Return the text of all pieces; None as soon as it is longer than the bound, without asking for the rest."""
    text, length = io.StringIO(), 0
    with bounded_memory(MEMORY_BYTES):
        for piece in pieces:
            length += len(piece)
            if length > bound:
                return None
            text.write(piece)
    return text.getvalue()


def line_map(
    kernel: KernelSpec, launch: LaunchSpec, problem: Problem, gpu: Gpu, configuration: Configuration
) -> LineMap | None:
    """Return where the lines of a launch's source come from, by rendering it once more with marks.

    None where the marks change more than they mark: in a template that measures or filters what a macro returns.

    Raises:
        KernelError: the template cannot be parsed or rendered.
    """
    source, _ = render_launch(kernel, launch, problem, gpu, configuration)
    if launch.template.suffix != ".j2":
        return after_defines(source, launch.template)
    names = context(problem, gpu, configuration.values)
    try:
        template = _template(kernel.folder, launch.template, marked=True)
        marked = _joined(template.generate(names), MARKS_FACTOR * MAX_SOURCE_BYTES)
    except _FAILURES:
        return None
    marks = template.environment.extensions[LineMarks.identifier]
    assert isinstance(marks, LineMarks)
    text, lines = marks.read(marked or "")
    return lines if _stripped(text) == _stripped(source) else None


def _stripped(text: str) -> list[str]:
    """Return a text's lines without the white space around them: the indent filter takes marks for more than that."""
    return [line.strip() for line in text.split("\n")]


def render(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration
) -> list[tuple[str, str]]:
    """Return source and entry of each launch of a configuration, in order."""
    launches = kernel.launches(problem, gpu, configuration)
    return [render_launch(kernel, launch, problem, gpu, configuration) for launch in launches]


def _with_defines(kernel: KernelSpec, template: Path, problem: Problem, configuration: Configuration) -> str:
    """Return a plain ``.cu`` file with macros before it: parameters, options, and ``<role>_type`` for each dtype role.

    An option that is an element expression becomes a macro with parameters, and ``<option>_uses_<name>`` is 1 or 0.
    """
    lines = []
    for name, value in (*problem.options.items(), *configuration.parameters):
        if name in kernel.elements:
            arguments = kernel.elements[name]
            lines.append(cuda_macro(name, str(value), arguments))
            lines += [f"#define {name}_uses_{item} {uses(value, item)}" for item in arguments]
        else:
            lines.append(f"#define {name} {_literal(value)}")
    lines += [f"#define {role}_type {CUDA_HEADER_TYPES[dtype]}" for role, dtype in problem.dtypes.items()]
    return "\n".join([*lines, f'#line 1 "{template.name}"', template.read_text(ENCODING)])


def _literal(value: Value) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


_FAILURES = (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, RecursionError)
"""What a template's text can raise, besides MemoryError, which says nothing about its line."""
_UNDEFINED, _NO_MEMBER = (
    re.compile(r"'(\w+)' is undefined"),
    re.compile(r"'dict object' has no attribute '(\w+)'"),
)
"""What Jinja says of a name that there is not, and of a member of a dictionary, such as ``problem``."""


def _failure(error: Exception, folder: Path, name: str, names: Mapping[str, Any]) -> KernelError:
    """Return what is wrong with a template, with the file and the line of the innermost include or macro.

    Args:
        error: that rendering it raised.
        folder: of the kernel's file.
        name: of the template.
        names: that the template sees.
    """
    if isinstance(error, jinja2.TemplateSyntaxError):
        what = str(error.message).rstrip(".")
        return KernelError(f"{error.name or name}:{error.lineno}: {what}", "correct the template")
    location, trace = name, error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if "__jinja_exception__" in frame.f_globals:  # Jinja shows the template instead of its code
            location = f"{template_name(folder, Path(frame.f_code.co_filename))}:{trace.tb_lineno}"
        trace = trace.tb_next
    if isinstance(error, UnicodeDecodeError):
        return KernelError(f"{location}: byte {error.start} is not UTF-8", "save the file as UTF-8")
    if isinstance(error, jinja2.TemplateNotFound):
        missing = f"{location}: there is no {error.name!r} to include"
        return KernelError(missing, "put that file beside the kernel's, or correct the name")
    what = str(error.message if isinstance(error, jinja2.TemplateError) else error)
    remedy = "correct the template or its parameters"
    if undefined := _UNDEFINED.fullmatch(what):
        remedy = suggestion(undefined[1], names)
    elif member := _NO_MEMBER.fullmatch(what):
        remedy = f"correct the template; of problem: {suggestion(member[1], names['problem'])}"
    return KernelError(f"{location}: {what}", remedy)


_TOKENS = re.compile(
    r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\\n])*')|(?![ ][^\s/])(?:\s|//[^\n]*|/\*.*?\*/)+""", re.DOTALL
)
"""Texts, comments and white space; not most single spaces, which stay as they are: there are many."""


@functools.lru_cache(maxsize=64)
def source_digest(source: str) -> str:
    """Return a digest of a source without its comments and the amount of its white space."""
    return digest(_TOKENS.sub(lambda m: m.group(1) or " ", source).strip())


def render_helpers() -> str:
    """Return the source of the tuner's own kernels."""
    return _environment(paths.templates()).get_template("common/helpers.cu.j2").render()


def render_ceilings(cc: int) -> str:
    """Return the source of the kernels that measure the ceilings of a GPU of this compute capability."""
    return _environment(paths.templates()).get_template("common/ceilings.cu.j2").render(cc=cc)
