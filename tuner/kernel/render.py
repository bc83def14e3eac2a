"""Render the sources of a configuration: Jinja templates, and plain ``.cu`` files with ``#define`` lines before them.

A template sees its parameters, the dtype roles, the options, the device's limits and ``problem`` (the sizes); its
filters and limits are in :mod:`tuner.kernel.templates`.
"""

from __future__ import annotations

import errno
import functools
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from tuner.core import paths
from tuner.core.errors import KernelError
from tuner.core.model import Configuration, Gpu, Problem, Value, digest
from tuner.expressions.arithmetic import uses
from tuner.expressions.elementwise_cuda import cuda_macro
from tuner.kernel.headers import own_headers, read_source, with_own_headers
from tuner.kernel.line_map import MARKS_FACTOR, LineMap, LineMarks, after_defines
from tuner.kernel.source.device_part import declared_by, device_part
from tuner.kernel.source.undefined import undefined_names
from tuner.kernel.templates import (
    C_TYPES,
    FAILURES,
    MAX_SOURCE_BYTES,
    bounded,
    environment_of,
    failure,
    read_template,
    said_of,
    template_name,
    text_of,
)
from tuner.runtime.dtypes import DTYPES
from tuner.runtime.launch_limits import DEVICE_LIMITS

if TYPE_CHECKING:  # the measuring process renders the tuner's own kernels alone
    from tuner.kernel.spec import KernelSpec
    from tuner.kernel.variant_spec import LaunchSpec

CUDA_HEADER_TYPES = {
    **C_TYPES, "float16": "__half", "bfloat16": "__nv_bfloat16", "float8_e4m3fn": "__nv_fp8_e4m3",
}  # fmt: skip
GRID_DEPENDENCY_WAITS = ("cudaGridDependencySynchronize", "griddepcontrol.wait")
"""What a kernel calls, as a function or in PTX, that may begin before the kernel before it has ended."""
MAX_ENTRY_BYTES = 4 << 10


def context(problem: Problem, gpu: Gpu, parameters: Mapping[str, Value]) -> dict[str, Any]:
    """Return the names that a template sees."""
    limits = {name: getattr(gpu, name) for name in DEVICE_LIMITS}
    return {**problem.dtypes, **problem.options, **parameters, "problem": dict(problem.sizes), **limits}


def render_launch(
    kernel: KernelSpec, launch: LaunchSpec, problem: Problem, gpu: Gpu, configuration: Configuration
) -> tuple[str, str]:
    """Return the source text and the entry's name of one launch.

    Raises:
        KernelError: the template cannot be parsed or rendered.
    """
    name = template_name(kernel.folder, launch.template)
    names = context(problem, gpu, configuration.values)
    entry = render_entry(kernel, launch, names)
    try:
        if launch.template.suffix == ".j2":
            source = _joined(lambda: read_template(kernel.folder, launch.template), names, MAX_SOURCE_BYTES)
        else:
            source = _with_defines(kernel, launch, problem, configuration, entry)
        (source or "").encode()  # half of a surrogate pair is no text for a compiler
    except FAILURES as error:
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            raise MemoryError from None
        raise failure(error, kernel.folder, name, names) from None
    if source is None or len(source) > MAX_SOURCE_BYTES:
        raise KernelError(f"{name} renders to too much", f"the limit is {MAX_SOURCE_BYTES} bytes")
    waits = any(wait in source for wait in GRID_DEPENDENCY_WAITS)
    if launch.programmatic and names["cc"] >= 90 and not waits:
        raise KernelError(
            f"{name} does not wait for the kernel before it, although its launch is programmatic",
            f"call {GRID_DEPENDENCY_WAITS[0]}() before it touches device memory, or leave programmatic out",
        )
    return source, entry


def render_entry(kernel: KernelSpec, launch: LaunchSpec, names: Mapping[str, Any]) -> str:
    """Return the name of a launch's kernel.

    Args:
        kernel: whose launch it is.
        launch: its entry may be a template.
        names: that a template sees, by :func:`context`.

    Raises:
        KernelError: it cannot be rendered.
    """
    return render_text(kernel, launch.entry, names, "entry")


def render_text(kernel: KernelSpec, text: str, names: Mapping[str, Any], what: str) -> str:
    """Return a text of a kernel's file, which may be a template.

    Args:
        kernel: whose it is.
        text: as the file has it.
        names: that a template sees, by :func:`context`.
        what: it is, for errors.

    Raises:
        KernelError: it cannot be rendered.
    """
    rendered: str | None = text
    if "{" in text:
        environment = environment_of(kernel.folder)
        try:
            rendered = _joined(lambda: environment.from_string(text), names, MAX_ENTRY_BYTES)
        except FAILURES as error:
            raise KernelError(
                f"{kernel.file.name}: {what} {text!r}: {said_of(error)}", "correct it"
            ) from None
    if rendered is None or len(rendered) > MAX_ENTRY_BYTES:
        raise KernelError(
            f"{kernel.file.name}: the {what} is too long", f"the limit is {MAX_ENTRY_BYTES} bytes"
        )
    return rendered


def _joined(template: Callable[[], jinja2.Template], names: Mapping[str, Any], bound: int) -> str | None:
    """Return what a template renders to, compiled here; None as soon as it is longer than the bound."""
    text, length = io.StringIO(), 0
    with bounded():
        for piece in template().generate(names):
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
        with bounded():
            template = read_template(kernel.folder, launch.template, marked=True)
        marked = _joined(lambda: template, names, MARKS_FACTOR * MAX_SOURCE_BYTES)
    except FAILURES:
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


def _with_defines(
    kernel: KernelSpec, launch: LaunchSpec, problem: Problem, configuration: Configuration, entry: str
) -> str:
    """Return a plain ``.cu`` file with macros before it: parameters, options, ``<role>_type`` for each dtype role, and
    the sizes that it uses as macros.

    An option that is an element expression becomes a macro with parameters, and ``<option>_uses_<name>`` is 1 or 0.
    What the kernel itself declares and gets, as a parameter of its template or as an argument, is no macro.
    """
    lines, sizes = [], size_macros(kernel, launch.template)
    text = _without_defines(kernel, launch.template, sizes)
    given = [f"{argument.name} {argument.value}" for argument in launch.arguments]
    passed = set(re.findall(r"\w+", " ".join([*given, launch.entry])))
    # What the entry prints has its value there; a text beside that is a macro.
    outside = re.sub(r"\{\{.*?\}\}", "", launch.entry)
    declared = declared_by(text, entry, (launch.template.parent, *kernel.include)) & passed
    for name, value in (*problem.options.items(), *configuration.parameters):
        if name in kernel.elements:
            arguments = kernel.elements[name]
            lines.append(cuda_macro(name, str(value), arguments))
            lines += [f"#define {name}_uses_{item} {uses(value, item)}" for item in arguments]
        elif name not in declared or (isinstance(value, str) and re.search(rf"\b{name}\b", outside)):
            lines.append(f"#define {name} {_literal(value)}")
    lines += [f"#define {role}_type {CUDA_HEADER_TYPES[dtype]}" for role, dtype in problem.dtypes.items()]
    if any("__host__" in one for one in plain_texts(kernel, launch.template)):
        lines.append(_NO_HOST)
    lines += [f"#define {name} {problem.sizes[name]}" for name in sizes]
    return "\n".join([*lines, f'#line 1 "{launch.template.name}"', device_part(text, entry)])


_NO_HOST = "#undef __host__\n#define __host__"
"""NVRTC refuses what is of the host alone, such as a member of a struct that the device uses, too."""
_GUARDED = re.compile(r"^[ \t]*#[ \t]*ifndef[ \t]+(\w+)\b[^\n]*\n[ \t]*#[ \t]*define[ \t]+\1\b", re.MULTILINE)


def size_macros(kernel: KernelSpec, template: Path) -> list[str]:
    """Return the sizes that are macros in a plain source, which uses them.

    At most a ``#define`` of a number has them there, or one of anything behind ``#ifndef``.

    Raises:
        KernelError: a text is too large.
    """
    texts = plain_texts(kernel, template)
    used = [name for name in kernel.sizes if any(re.search(rf"\b{name}\b", text) for text in texts)]
    if not used:
        return []
    text, *headers = (number_defines(used).sub("", text) for text in texts)
    undefined = undefined_names(text, headers=tuple(headers))
    guarded = _GUARDED.findall("\n".join([text, *headers]))
    return [name for name in used if name in undefined or name in guarded]


def replaced_defines(kernel: KernelSpec, template: Path) -> list[str]:
    """Return the sizes that are macros in a plain source, and take the place of its own definitions.

    None of a source that cannot be read: rendering it says why.

    Raises:
        KernelError: a text is too large.
    """
    try:
        texts, names = plain_texts(kernel, template), size_macros(kernel, template)
    except FAILURES:
        return []
    return [name for name in names if any(number_defines([name]).search(text) for text in texts)]


def plain_texts(kernel: KernelSpec, template: Path) -> list[str]:
    """Return a plain source and its own headers.

    Raises:
        KernelError: a text is too large.
    """
    text = text_of(template)
    return [text, *map(read_source, own_headers([text], (template.parent, *kernel.include)))]


def _without_defines(kernel: KernelSpec, template: Path, names: Sequence[str]) -> str:
    """Return a plain source in which no size has a number; where a header gives one, with the headers' texts."""
    text, *headers = plain_texts(kernel, template) if names else [text_of(template)]
    if any(number_defines(names).search(header) for header in headers):
        text = with_own_headers(text, (template.parent, *kernel.include), template.name)
    return number_defines(names).sub("", text) if names else text


def number_defines(names: Sequence[str]) -> re.Pattern[str]:
    """Return what finds the ``#define`` or the constant of a number, which may be a product or a shift: name and value.

    Args:
        names: that it may have, as regular expressions.
    """
    number = r"(?=[(\d])(?:\d[\w'.]*(?![\w'.])|[()*+< \t-])+"
    return re.compile(
        r"^(?:[ \t]*#[ \t]*define[ \t]+|(?=[\w: \t]*\bconst(?:expr)?\b)(?:[\w:]+[ \t]+)+)"
        rf"({'|'.join(names)})(?:[ \t]+|[ \t]*[={{][ \t]*)({number})\}}?(?=[ \t]*(?:;|//|/\*|\r?$))",
        re.MULTILINE,
    )


def _literal(value: Value) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


_TOKENS = re.compile(
    r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\\n])*')|(?![ ][^\s/])(?:\s|//[^\n]*|/\*.*?\*/)+""", re.DOTALL
)
"""Texts, comments and white space; not most single spaces, which stay as they are: there are many."""


@functools.lru_cache(maxsize=64)
def source_digest(source: str) -> str:
    """Return a digest of a source without its comments and the amount of its white space."""
    return digest(_TOKENS.sub(lambda m: m.group(1) or " ", source).strip())


def render_helpers(dtypes: Iterable[str] = ()) -> str:
    """Return the source of the tuner's own kernels: those for tensors of some dtypes, or all others."""
    template = environment_of(paths.templates()).get_template("common/helpers.cu.j2")
    return template.render(dtypes={name: DTYPES[name].whole for name in dtypes})


def render_ceilings(cc: int) -> str:
    """Return the source of the kernels that measure the ceilings of a GPU of this compute capability."""
    return environment_of(paths.templates()).get_template("common/ceilings.cu.j2").render(cc=cc)
