"""Jinja's templates: the sandbox that compiles and renders them within bounds, and what is wrong with one.

Filters are ``c_type`` (the type's name in the common header, ``templates/common/types.cuh.j2``) and ``itemsize``; for
an option that is an element expression ``cuda``, ``cuda_double``, ``cuda_magnitude``, ``uses`` and ``operations``. The
sandbox denies templates access to Python. The memory and time that they take are bounded, also while they are compiled:
Jinja computes constants then. What may come from others is rendered :func:`apart`.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from jinja2 import nodes
from jinja2.filters import do_format, sync_do_join
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tuner.core import paths
from tuner.core.errors import ExpressionError, KernelError, TunerError, suggestion
from tuner.core.processes import bounded_memory, forked
from tuner.core.reading import read_at_most
from tuner.core.signals import OutOfTimeError, time_limit
from tuner.expressions.arithmetic import operations, uses
from tuner.expressions.elementwise_cuda import cuda, cuda_double, cuda_magnitude
from tuner.kernel.line_map import LineMarks
from tuner.runtime.dtypes import DTYPES, ITEMSIZE
from tuner.runtime.expressions import ceil_div, round_up

C_TYPES = {name: dtype.c_type for name, dtype in DTYPES.items()}
ENCODING = "utf-8-sig"
"""Of templates: UTF-8, whose byte order mark, as Visual Studio writes it, no compiler takes."""
MAX_SOURCE_BYTES = 4 << 20
MEMORY_BYTES = 1 << 30
"""What rendering may take in a process that has no limit: many times as much as sources of 4 MiB need."""
RENDER_S = 10.0
"""What rendering may take; built-in kernels take 3 ms, and 20 the first time."""
MAX_DEPTH = 100
"""Of blocks and expressions in each other. Python takes 20 loops in each other, 100 blocks and 200 parentheses."""
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

    intercepted_binops = frozenset(("*", "**", "%"))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Return what an operator gives.

        Raises:
            TemplateRuntimeError: that is too long.
        """
        if operator == "%" and isinstance(left, str):
            right = _printed(right)
        length = 0
        if operator == "**" and isinstance(left, int) and isinstance(right, int):
            length = left.bit_length() * right
        elif operator == "*" and isinstance(left, int) and isinstance(right, int):
            length = left.bit_length() + right.bit_length()
        for many, of in ((left, right), (right, left)):
            if operator == "*" and isinstance(many, int) and isinstance(of, (str, list, tuple)):
                length = many * len(of)
        if length > MAX_SOURCE_BYTES:
            raise jinja2.TemplateRuntimeError(
                f"the limit of {operator} is {MAX_SOURCE_BYTES} characters or bits"
            )
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, function: Any, /, *arguments: Any, **named: Any) -> Any:
        """Return what a call gives; of a method of a text, such as ``format``, as :func:`_printed`."""
        if isinstance(getattr(getattr(function, "__wrapped__", function), "__self__", None), str):
            arguments, named = _printed(arguments), _printed(named)
        return super().call(context, function, *arguments, **named)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Parse a text; beyond :data:`MAX_DEPTH` Python takes minutes to refuse what Jinja makes of it."""
        tree = super()._parse(source, name, filename)
        level: list[nodes.Node] = [tree]
        for _ in range(MAX_DEPTH):
            level = [child for node in level for child in node.iter_child_nodes()]
        if level:
            nested = "blocks" if any(isinstance(node, nodes.Stmt) for node in level) else "parentheses"
            raise SyntaxError(f"too many nested {nested}", (filename, level[0].lineno, None, None))
        for joined in tree.find_all(nodes.Concat):
            joined.nodes = [
                nodes.Filter(one, "string", [], [], None, None, lineno=one.lineno) for one in joined.nodes
            ]
        return tree


class _Boolean(int):
    """A boolean in a text: true and false are those of C++."""

    def __str__(self) -> str:
        return "true" if self else "false"

    __repr__ = __str__


def _printed(value: Any) -> Any:
    """Return what stands for a value in a text, or for those of several."""
    if type(value) in (list, tuple):
        return type(value)(map(_printed, value))
    if isinstance(value, dict):
        return {name: _printed(one) for name, one in value.items()}
    return _Boolean(value) if isinstance(value, bool) else value


@jinja2.pass_eval_context
def _join(context: nodes.EvalContext, values: Iterable[Any], *arguments: Any, **named: Any) -> Any:
    return sync_do_join(context, _printed([*values]), *arguments, **named)


def _format(text: str, *values: Any, **named: Any) -> str:
    return do_format(text, *_printed(values), **_printed(named))


@functools.lru_cache(maxsize=16)
def environment_of(folder: Path, marked: bool = False) -> jinja2.Environment:
    """Return the environment of a folder's templates; ``marked``: they render with the marks of a line map."""
    environment = _Sandbox(
        loader=jinja2.FileSystemLoader([folder, paths.templates()], ENCODING),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        finalize=_printed,
        auto_reload=not _READ_ONCE.is_set(),
        extensions=[LineMarks] if marked else [],
    )
    environment.filters |= {"string": lambda value: str(_printed(value)), "join": _join, "format": _format}
    environment.filters["c_type"] = _lookup(C_TYPES, "c_type")
    environment.filters["itemsize"] = _lookup(ITEMSIZE, "itemsize")
    for function in (cuda, cuda_double, cuda_magnitude, uses, operations):
        environment.filters[function.__name__] = _of_element(function, function.__name__)
    del environment.filters["random"], environment.globals["lipsum"]  # a configuration has one source
    environment.globals.update(ceil_div=ceil_div, round_up=round_up)
    return environment


def read_templates_once() -> None:
    """Render every template as it is when this process reads it next, whatever becomes of its file and includes."""
    _READ_ONCE.set()
    environment_of.cache_clear()
    _parsed.cache_clear()


def read_template(folder: Path, template: Path, marked: bool = False) -> jinja2.Template:
    """Return a compiled template, compiled again if its file has changed.

    Raises:
        Exception: one of :data:`FAILURES`, or MemoryError.
    """
    changed_ns = 0 if _READ_ONCE.is_set() else template.stat().st_mtime_ns
    return _parsed(folder, template, marked, changed_ns)


@functools.lru_cache(maxsize=256)
def _parsed(folder: Path, template: Path, marked: bool, changed_ns: int) -> jinja2.Template:  # noqa: ARG001 - of the key
    environment = environment_of(folder, marked)
    code = environment.compile(text_of(template), template_name(folder, template), str(template))
    return environment.template_class.from_code(environment, code, environment.make_globals(None))


def text_of(template: Path) -> str:
    """Return a template's text; bytes that are not UTF-8, as in comments of older sources, are read as Latin-1.

    A line goes on behind a backslash and spaces, as nvcc has it: for NVRTC the spaces are left out.

    Raises:
        OSError: it cannot be read, or is too large.
        UnicodeDecodeError: it is no text: it has a zero byte, as UTF-16 has.
    """
    data = read_at_most(template, MAX_SOURCE_BYTES)
    data = re.sub(rb"\\[ \t]+(?=\r?$)", rb"\\", data, flags=re.MULTILINE)
    try:
        return data.decode(ENCODING)
    except UnicodeDecodeError:
        if b"\0" in data:
            raise
        return data.decode("latin-1")


def template_name(folder: Path, template: Path) -> str:
    """Return a template's name as an ``include`` would have it."""
    for start in (folder, paths.templates()):
        if template.is_relative_to(start):
            return str(template.relative_to(start))
    return template.name


def undeclared_names(text: str, folder: Path) -> set[str]:
    """Return the names that a template uses and does not define itself.

    The template is parsed, not compiled: Jinja's compiler computes constants, such as ``'a' * 10 ** 10``, and so does
    ``jinja2.meta``.

    Raises:
        KernelError: the text is not a template, or uses a filter or test that there is not.
    """
    environment = environment_of(folder)
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
    tree = _parse(text, environment_of(folder))
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
        with bounded():
            return environment.parse(text)
    except FAILURES as error:
        raise KernelError(said_of(error)) from None


@contextmanager
def bounded() -> Iterator[None]:
    """Bound what a block that compiles or renders templates may take.

    Raises:
        MemoryError: it takes more than :data:`MEMORY_BYTES`, or than the process may have.
        OutOfTimeError: it takes more than :data:`RENDER_S`, in a main thread.
    """
    with bounded_memory(MEMORY_BYTES), time_limit(RENDER_S):
        yield


def apart(work: Callable[[], Any], what: str, limit_s: float = RENDER_S + 1.0) -> Any:
    """Return the plain data that a function makes of templates, in a fork that is killed when it takes longer.

    Args:
        work: the function.
        what: it renders, for errors.
        limit_s: of all that it renders; by default longer than :data:`RENDER_S`, of which an error names the line.

    Raises:
        KernelError: as of the function; or it takes too much time or memory.
    """

    def told() -> bytes:
        try:
            return msgspec.msgpack.encode((work(),))
        except TunerError as error:
            return msgspec.msgpack.encode((error.problem, error.remedy))
        except MemoryError:
            return msgspec.msgpack.encode((f"{what}: {NO_MEMORY}", "shorten what the template collects"))

    answer = forked(told, limit_s, MEMORY_BYTES)
    if answer is None:
        raise KernelError(f"{what}: not rendered after {limit_s:g} s", ENDLESS)
    if not answer:
        raise KernelError(
            f"{what}: the process that renders it died", "see `ulimit -a`, and what else runs here"
        )
    result = msgspec.msgpack.decode(answer)
    if len(result) == 2:
        raise KernelError(*result)
    return result[0]


FAILURES = (
    jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RuntimeError,
    SyntaxError, OSError, OutOfTimeError,
)  # fmt: skip
"""What a template's text can raise, besides MemoryError, which says nothing about its line."""
_UNDEFINED, _NO_MEMBER = (
    re.compile(r"'(\w+)' is undefined"),
    re.compile(r"'dict object' has no attribute '(\w+)'"),
)
"""What Jinja says of a name that there is not, and of a member of a dictionary, such as ``problem``."""


def failure(error: BaseException, folder: Path, name: str, names: Mapping[str, Any]) -> KernelError:
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
    if isinstance(error, SyntaxError) and error.filename:
        location = template_name(folder, Path(error.filename))
    if isinstance(error, UnicodeDecodeError):
        return KernelError(f"{location}: byte {error.start} is not UTF-8", "save the file as UTF-8")
    if isinstance(error, jinja2.TemplateNotFound):
        missing = f"{location}: there is no {error.name!r} to include"
        return KernelError(missing, "put that file beside the kernel's, or correct the name")
    what, remedy = said_of(error), "correct the template or its parameters"
    if isinstance(error, OutOfTimeError):
        remedy = ENDLESS
    if undefined := _UNDEFINED.fullmatch(what):
        remedy = suggestion(undefined[1], names)
    elif member := _NO_MEMBER.fullmatch(what):
        remedy = f"correct the template; of problem: {suggestion(member[1], names['problem'])}"
    return KernelError(f"{location}: {what}", remedy)


ENDLESS, NO_MEMORY = "look in the template for a loop without end", "out of memory while rendering"


def said_of(error: BaseException) -> str:
    """Return what an error of :data:`FAILURES` says, in words of templates: Jinja makes Python of them."""
    if isinstance(error, OutOfTimeError):
        return f"not rendered after {RENDER_S:g} s"
    if isinstance(error, RecursionError):
        return "includes, macros, expressions or blocks are nested too deeply"
    if isinstance(error, SyntaxError):
        nested = "expressions" if "parentheses" in error.msg else "blocks"
        deep = isinstance(error, IndentationError) or "nested" in error.msg
        return f"{nested} are nested too deeply" if deep else error.msg
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, KeyError):
        return f"there is no {error}"
    said = str(error.message if isinstance(error, jinja2.TemplateError) else error)
    return said.partition("; use sys.")[0]  # which a template has not
