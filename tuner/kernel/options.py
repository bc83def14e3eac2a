"""The compiler's options: which are allowed, and those of a configuration, which may name its parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.core.errors import KernelError
from tuner.core.model import Configuration, Gpu, Problem
from tuner.kernel.render import context, render_text
from tuner.kernel.templates import undeclared_names
from tuner.kernel.toml.table import Names, Table

if TYPE_CHECKING:
    from tuner.kernel.spec import KernelSpec

ALLOWED = (
    "std", "use_fast_math", "ftz", "prec-sqrt", "prec-div", "fmad", "maxrregcount",
    "extra-device-vectorization", "restrict", "generate-line-info", "lineinfo", "device-debug", "G",
    "dopt", "disable-warnings", "w", "diag-suppress", "diag-error", "diag-warn", "modify-stack-limit",
    "Ofast-compile", "split-compile", "define-macro", "undefine-macro",
)  # fmt: skip
"""NVRTC's options that change only the code; others write files, or change the target."""
REMEDY = (
    f"allowed, each as a text of its own, are -DNAME=VALUE, -UNAME, {', '.join(ALLOWED)}; "
    "folders of headers are in [compile] include; others are not needed"
)


def read_options(table: Table) -> tuple[str, ...]:
    """Return the options of a ``compile`` table, in which ``{{ NAME }}`` stands for a value."""
    options = tuple(str(option) for option in table.get("options", list, []))
    for option in options:
        if not option.startswith("{{") and not is_allowed(option):
            table.fail(f"options has {option!r}", REMEDY)
    return options


def check_names(table: Table, options: Iterable[str], folder: Path, names: Names) -> None:
    """Refuse options with a name that a template has not."""
    for option in options:
        check_template(
            table, f"options has {option!r}", option, "-maxrregcount={{ parameter }}", folder, names
        )


def check_template(table: Table, where: str, text: str, example: str, folder: Path, names: Names) -> None:
    """Refuse a text that is no template of Jinja, or uses a name that a kernel's template has not."""
    if "{" not in text:
        return
    usable = (names.usable - set(names.sizes)) | {"problem"}
    try:
        unknown = undeclared_names(text, folder)
    except KernelError as error:
        table.fail(f"{where}: {error}", f"write {example}")
    for name in sorted(unknown):
        if name in names.sizes:
            table.fail(f"{where} uses the size {name!r}", f"write problem.{name}")
        table.require(name, sorted(usable), f"{where} uses unknown name {name!r}")


def written_options(kernel: KernelSpec, variant: str) -> tuple[str, ...]:
    """Return the options of a variant as the file has them, those for all variants first."""
    own = kernel.variants[variant].compile_options if variant in kernel.variants else ()
    return (*kernel.compile_options, *own)


def options_of(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration | None
) -> tuple[str, ...]:
    """Return the compiler's options of a configuration; what comes to nothing is left out.

    Args:
        kernel: with the options.
        problem: its dtypes and options have values there.
        gpu: so have its limits.
        configuration: None for the reference, which has those alone that name no parameter.

    Raises:
        KernelError: one cannot be rendered, or is not allowed.
    """
    names = context(problem, gpu, configuration.values if configuration else {})
    options = []
    for option in written_options(kernel, configuration.variant if configuration else ""):
        if "{" not in option:
            options.append(option)
        elif configuration is not None or undeclared_names(option, kernel.folder) <= names.keys():
            options.append(_rendered(kernel, option, names))
    return tuple(filter(None, options))


def _rendered(kernel: KernelSpec, option: str, names: Mapping[str, Any]) -> str:
    text = render_text(kernel, option, names, "option").strip()
    if text and not is_allowed(text):
        raise KernelError(f"{kernel.file.name}: option {option!r} is {text!r} here", REMEDY)
    return text


def is_allowed(option: str) -> bool:
    """Return whether an option of NVRTC's changes only the code."""
    name = re.match(r"-{1,2}([A-Za-z][A-Za-z_-]*)", option)
    return (
        name is not None
        and (name[1] in ALLOWED or option.startswith(("-D", "-U")))
        and not re.search(r"\s-[DU]\w", option)
    )
