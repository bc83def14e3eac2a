"""Render the sources of a configuration: Jinja templates, and plain ``.cu`` files with ``#define`` lines before them.

A template sees its parameters, the dtype roles, the options, ``cc`` and ``problem`` (the sizes). Its filters are
``c_type`` (the type's name in the common header, ``templates/common/types.cuh.j2``) and ``itemsize``; for an option
that is an element expression ``cuda``, ``cuda_double``, ``cuda_magnitude``, ``uses`` and ``operations``. The sandbox
denies templates access to Python, but does not bound their output: render untrusted templates in a child process.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tuner import paths
from tuner.errors import ExpressionError, KernelError
from tuner.expressions.dtypes import ITEMSIZE
from tuner.expressions.elementwise_cuda import cuda, cuda_double, cuda_macro, cuda_magnitude
from tuner.expressions.evaluation import ceil_div, operations, round_up, uses
from tuner.kernel.baselines import Baseline, launch_spec
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import LaunchSpec
from tuner.model import Configuration, Gpu, Problem, Value, digest

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
MAX_SOURCE_BYTES = 4 << 20


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


@functools.lru_cache(maxsize=16)
def _environment(folder: Path) -> jinja2.Environment:
    environment = ImmutableSandboxedEnvironment(
        loader=jinja2.FileSystemLoader([folder, paths.templates()]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["c_type"] = _lookup(C_TYPES, "c_type")
    environment.filters["itemsize"] = _lookup(ITEMSIZE, "itemsize")
    for function in (cuda, cuda_double, cuda_magnitude, uses, operations):
        environment.filters[function.__name__] = _of_element(function, function.__name__)
    environment.globals.update(ceil_div=ceil_div, round_up=round_up)
    return environment


@functools.lru_cache(maxsize=256)
def _template(folder: Path, template: Path) -> jinja2.Template:
    return _environment(folder).from_string(template.read_text())


def context(problem: Problem, gpu: Gpu, parameters: Mapping[str, Value]) -> dict[str, Any]:
    """Return the names that a template sees."""
    return {**problem.dtypes, **problem.options, **parameters, "problem": dict(problem.sizes), "cc": gpu.cc}


def undeclared_names(text: str, folder: Path) -> set[str]:
    """Return the names that a template uses and does not define itself.

    Raises:
        KernelError: the text is not a template.
    """
    environment = _environment(folder)
    try:
        environment.from_string(text)  # also finds filters that do not exist
        return meta.find_undeclared_variables(environment.parse(text))
    except jinja2.TemplateError as error:
        raise KernelError(str(error.message)) from None


def render_launch(
    kernel: KernelSpec, launch: LaunchSpec, problem: Problem, gpu: Gpu, configuration: Configuration
) -> tuple[str, str]:
    """Return the source text and the entry's name of one launch.

    Raises:
        KernelError: the template cannot be parsed or rendered.
    """
    names = context(problem, gpu, configuration.values)
    try:
        if launch.template.suffix == ".j2":
            source = _template(kernel.folder, launch.template).render(names)
        else:
            source = _with_defines(kernel, launch.template, problem, configuration)
        entry = _environment(kernel.folder).from_string(launch.entry).render(names)
    except jinja2.TemplateSyntaxError as error:
        line = f"{error.name or launch.template.name} line {error.lineno}"
        raise KernelError(f"{line}: {error.message}", "correct the template") from None
    except jinja2.TemplateNotFound as error:
        raise KernelError(
            f"{launch.template.name} includes {error}",
            "put that file beside the kernel's, or correct the name",
        ) from None
    except jinja2.TemplateError as error:
        line = _template_line(error, launch.template)
        raise KernelError(
            f"{launch.template.name}{line}: {error.message}", "correct the template or its parameters"
        ) from None
    except (TypeError, ValueError, ArithmeticError, OSError, RecursionError) as error:
        raise KernelError(
            f"{launch.template.name}: {error}", "correct the template or its parameters"
        ) from None
    if len(source) > MAX_SOURCE_BYTES:
        raise KernelError(
            f"{launch.template.name} renders to {len(source)} bytes", f"the limit is {MAX_SOURCE_BYTES}"
        )
    return source, entry


def render(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration
) -> list[tuple[str, str]]:
    """Return source and entry of each launch of a configuration, in order."""
    launches = kernel.launches(problem, gpu, configuration)
    return [render_launch(kernel, launch, problem, gpu, configuration) for launch in launches]


def source_of(baseline: Baseline, kernel: KernelSpec, problem: Problem, gpu: Gpu) -> tuple[str, str]:
    """Return source and entry of a user's ``.cu``, with the options and ``<role>_type`` as macros before it.

    Raises:
        KernelError: the file cannot be read.
    """
    return render_launch(kernel, launch_spec(baseline), problem, gpu, Configuration("", ()))


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
    return "\n".join([*lines, f'#line 1 "{template.name}"', template.read_text()])


def _literal(value: Value) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _template_line(error: BaseException, template: Path) -> str:
    line, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in ("<template>", str(template)):
            line = f" line {trace.tb_lineno}"
        trace = trace.tb_next
    return line


_TOKENS = re.compile(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\\n])*')|(?:\s|//[^\n]*|/\*.*?\*/)+""", re.DOTALL)


def source_digest(source: str) -> str:
    """Return a digest of a source without its comments and the amount of its white space."""
    return digest(_TOKENS.sub(lambda m: m.group(1) or " ", source).strip())


def render_helpers() -> str:
    """Return the source of the tuner's own kernels."""
    return _environment(paths.templates()).get_template("common/helpers.cu.j2").render()


def render_ceilings(cc: int) -> str:
    """Return the source of the kernels that measure the ceilings of a GPU of this compute capability."""
    return _environment(paths.templates()).get_template("common/ceilings.cu.j2").render(cc=cc)
