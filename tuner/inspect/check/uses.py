"""What a kernel's file declares and nothing uses: parameters, scratch memory, tensors that no launch gets."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from tuner.core import paths
from tuner.inspect.check.findings import Report
from tuner.inspect.emulator.source import code_of
from tuner.kernel.headers import own_headers, read_source
from tuner.kernel.options import written_options
from tuner.kernel.render import CUDA_HEADER_TYPES, plain_texts, replaced_defines, size_macros
from tuner.kernel.source.preprocessor import preprocessed
from tuner.kernel.spec import KernelSpec
from tuner.kernel.templates import FAILURES
from tuner.kernel.variant_spec import VariantSpec
from tuner.runtime.launches import OUTPUTS

_INCLUDE = re.compile(r"{%-?\s*(?:include|import|from|extends)\s+(?:[\"']([^\"']+)[\"'])?")
_OPENED = re.compile(r'(?:\bnamespace\b[^{};]*|\bextern\s*"C"\s*|\benum\b[^{};]*)\{')
"""Brackets in which names are not those of a function."""
_TEMPLATE_COMMENT = re.compile(r"{#.*?#}|^\s*//[^\n]*", re.DOTALL | re.MULTILINE)


def check_uses(kernel: KernelSpec, report: Report) -> None:
    """Report what no launch uses, but for parameters."""
    read: set[str] = set()
    for variant in kernel.variants.values():
        given = _given(variant)
        read |= given
        _check_variant(kernel, variant, given, report)
        for template in {launch.template for launch in variant.launches if launch.template.suffix != ".j2"}:
            if names := replaced_defines(kernel, template):
                sizes = ", ".join(names)
                report.note(f"{template.name}: the problem's {sizes} takes the place of its own number")
            for name in _fixed_sizes(kernel, template):
                remedy = f"leave it out, or write #ifndef {name} and #define {name}"
                report.note(
                    f"{template.name}: {name} is what it says there, whatever the problem is; {remedy}"
                )
            _check_defines(kernel, variant, template, report)
    for tensor in kernel.tensors.values():
        if tensor.role not in OUTPUTS and tensor.name not in read:
            problem = f"input {tensor.name} is passed to no launch"
            report.add(("tensors", tensor.name), problem, "pass it, or leave it out")


def _fixed_sizes(kernel: KernelSpec, template: Path) -> list[str]:
    """Return the sizes to which a plain source gives numbers of its own that stay: no problem reaches the code.

    Raises:
        KernelError: a text is too large.
    """
    try:
        texts, macros = plain_texts(kernel, template), size_macros(kernel, template)
    except FAILURES:  # rendering says it
        return []
    fixed = []
    for name in kernel.sizes.keys() - {*macros}:
        constant = (
            rf"\b(?:const|constexpr|__constant__)\b[^;(){{}}]*\b{name}\s*[={{]|\benum\b[^;()]*\b{name}\s*="
        )
        found = re.compile(rf"^[ \t]*#[ \t]*define[ \t]+{name}\b(?!\()|{constant}", re.MULTILINE)
        for text in map(code_of, texts):
            before = [_OPENED.sub("", text[: match.start()]) for match in found.finditer(text)]
            if any(one.count("{") <= one.count("}") for one in before):  # of the file, and no function's
                fixed.append(name)
                break
    return sorted(fixed)


def _check_variant(kernel: KernelSpec, variant: VariantSpec, given: set[str], report: Report) -> None:
    key = ("variants", variant.name)
    for tensor in kernel.tensors.values():
        if tensor.role in OUTPUTS and tensor.name not in given:
            problem = f"no launch of {variant.name} gets the output {tensor.name}"
            report.add((*key, "launches"), problem, f'add "{tensor.name}" to arguments')
    for scratch in variant.scratch:
        if scratch.name not in given:
            problem = f"scratch {scratch.name} is passed to no launch"
            report.add((*key, "scratch", scratch.name), problem, "pass it, or leave it out")


def _check_defines(kernel: KernelSpec, variant: VariantSpec, template: Path, report: Report) -> None:
    """Report macros of dtype roles and options that a plain source defines again, but for the only type there is."""
    own = dict.fromkeys(kernel.options, "") | {
        f"{role}_type": CUDA_HEADER_TYPES.get(dtype, "") if isinstance(dtype, str) else ""
        for role, dtype in kernel.dtypes.items()
    }
    for name in filter(partial(by_option, kernel, variant), (*own, *kernel.sizes)):
        report.add(("compile", "options"), f"options define {name}, which the problem does", "leave that out")
    parameters = [name for variant in kernel.variants.values() for name in variant.parameters]
    for file, text in (code_files(kernel, template) or {}).items():
        for name, macro in preprocessed(text, {*own, *parameters}).macros.items():
            if macro.value != own.get(name, macro.value):
                report.at(file, macro.line, *defined_again(name))


def by_option(kernel: KernelSpec, variant: VariantSpec, name: str) -> bool:
    """Return whether the compiler's options define a name, or undefine it."""
    options = " ".join(("", *written_options(kernel, variant.name)))
    return bool(re.search(rf"\s(?:-[DU]|--(?:un)?define-macro[= ])\s*{name}\b", options))


def defined_again(name: str) -> tuple[str, str]:
    """Return what is wrong with a definition of the tuner's own macro, and what to do."""
    return f"{name} is defined again", f"write #ifndef {name} ... #endif around it"


def _given(variant: VariantSpec) -> set[str]:
    """Return the names of the arrays that launches get."""
    arguments = (argument for launch in variant.launches for argument in launch.arguments)
    constants = {tensor for launch in variant.launches for _, tensor in launch.constants}
    return constants.union(*(argument.buffers for argument in arguments))


def code_files(kernel: KernelSpec, *templates: Path) -> dict[Path, str] | None:
    """Return the code of templates and of all that they include, its lines where they are and without comments.

    None where a template is named by an expression.
    """
    pending = [path for path in templates if path.suffix == ".j2"]
    plain = [path for path in templates if path not in pending]
    texts = {path: code_of(read_source(path), lines_stay=True) for path in plain}
    while pending:
        text = read_source(path := pending.pop())
        texts[path] = text = _TEMPLATE_COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
        for name in _INCLUDE.findall(text):
            if not name:
                return None
            included = [folder / name for folder in (kernel.folder, paths.templates())]
            pending += [path for path in included if path.is_file() and path not in texts]
    folders = dict.fromkeys(path.parent for path in templates)
    for path in own_headers(list(texts.values()), [*folders, *kernel.include]):
        texts[path] = code_of(read_source(path), lines_stay=True)
    return texts
