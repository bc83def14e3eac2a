"""What identifies a kernel: a digest of what it computes, of its whole text, and of how one configuration does it.

Comments, documentation, the reasons of constraints and the layout of a file count in none of them, nor does the folder
that the files lie in. So an edit of the wording orphans no result, and a copy of a kernel elsewhere is the same kernel.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tuner import paths
from tuner.errors import TunerError
from tuner.expressions.arithmetic import Expression
from tuner.expressions.array import ArrayExpression
from tuner.kernel.headers import own_headers, read_source
from tuner.kernel.render import render, source_digest
from tuner.kernel.spec import KernelSpec
from tuner.model import Run, Trial, digest

WORDING = frozenset(("doc", "summary"))
"""Fields that only readers see."""
_JINJA_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_INCLUDE = re.compile(r"\{%[-+]?\s*(?:include|import|from|extends)\s+(?:\"([^\"]+)\"|'([^']+)'|\S)")


class KernelIdentity:
    """The digests of a kernel; its files are read when one is first asked for."""

    def __init__(self, kernel: KernelSpec) -> None:
        self.kernel = kernel
        self._parts: dict[str, str] = {}

    @cached_property
    def parts(self) -> Mapping[str, str]:
        """The digest of each part of what is computed: ``problem``, ``tensors``, ``reference`` and ``work``.

        The values that a size, dtype or option may take are no part of it: each problem names its own.
        """
        kernel = self.kernel
        elements = {name: sorted(of) for name, of in kernel.elements.items()}
        problem = {
            "sizes": sorted(kernel.sizes),
            "dtypes": sorted(kernel.dtypes),
            "options": sorted(kernel.options),
        }
        parts = {
            "problem": [problem, elements],
            "tensors": [kernel.tensors, kernel.scalars],
            "reference": self._reference(),
            "work": kernel.work,
        }
        return {name: digest(json.dumps(_canonical(part), sort_keys=True)) for name, part in parts.items()}

    @cached_property
    def computation(self) -> str:
        """The digest of what is computed, whatever computes it."""
        return digest(dict(self.parts))

    @cached_property
    def text(self) -> str:
        """The digest of all that decides a configuration's sources, launches and validity.

        Runs with equal ones have comparable times. Baselines, the ladder, initial configurations and pruning rules are
        no part of it: they decide what is tried, not what comes of it.
        """
        kernel = self.kernel
        if any(variant.listed is not None for variant in kernel.variants.values()):
            return kernel.digest  # another tool's space
        choices = {"dtypes": kernel.dtypes, "options": kernel.options}
        variants = {}
        for name, variant in kernel.variants.items():
            parameters = [
                [key, parameter.values, parameter.default] for key, parameter in variant.parameters.items()
            ]
            constraints = [condition for _, condition in variant.constraints]
            templates = [_template(kernel.folder, launch.template) for launch in variant.launches]
            variants[name] = [variant.requires, parameters, constraints, templates, self._statics[name]]
        return digest(
            json.dumps([self.computation, _canonical(choices), _canonical(variants)], sort_keys=True)
        )

    @cached_property
    def legacy(self) -> str:
        """The digest of the text by which the runs of schema 2 went: it counts comments, too."""
        kernel = self.kernel
        templates = {launch.template for variant in kernel.variants.values() for launch in variant.launches}
        folders = {template.parent for template in templates} | {paths.templates() / "common"}
        templates |= {path for folder in folders for path in folder.glob("*.j2")}
        texts = [read_source(path) for path in templates]
        files = sorted({*templates, *own_headers(texts, [*sorted(folders), *kernel.include])})
        return digest([kernel.digest, *(digest(path.read_bytes()) for path in files)])

    @property
    def computations(self) -> tuple[str, ...]:
        """By what the database knows this computation, also in runs of schema 2."""
        return self.computation, self.legacy

    def implementation(self, variant: str, sources: Sequence[str]) -> str:
        """Return the digest of how a configuration computes: its launches, and what it renders to.

        Args:
            variant: the configuration's.
            sources: rendered, one a launch.
        """
        return digest([self._statics[variant], *map(source_digest, sources)])

    def computes_like(self, run: Run) -> bool:
        """Return whether a run computed the same."""
        return run.computation == self.computation if run.computation else self.same_text(run)

    def same_text(self, run: Run) -> bool:
        """Return whether the kernel is still what it was in a run."""
        return run.kernel_digest == (self.text if run.computation else self.legacy)

    def current(self, run: Run, trial: Trial) -> bool:
        """Return whether a trial's configuration still computes the same in the same way."""
        if self.same_text(run):
            return True
        comparable = trial.implementation and trial.configuration.variant in self.kernel.variants
        if not comparable or not self.computes_like(run):
            return False
        try:
            rendered = render(self.kernel, run.problem, run.gpu, trial.configuration)
        except TunerError:
            return False
        sources = [source for source, _ in rendered]
        return self.implementation(trial.configuration.variant, sources) == trial.implementation

    @cached_property
    def _statics(self) -> dict[str, str]:
        """For each variant the digest of what decides its launches beside the rendered sources."""
        kernel, statics = self.kernel, {}
        for name, variant in kernel.variants.items():
            launches = _canonical(variant.launches, WORDING | {"template"})
            whole = [launches, _canonical(variant.scratch), kernel.compile_options, self._headers]
            statics[name] = digest(json.dumps(whole, sort_keys=True))
        return statics

    @cached_property
    def _headers(self) -> list[str]:
        """The digests of the kernel's own headers."""
        launches = [launch for variant in self.kernel.variants.values() for launch in variant.launches]
        folders = sorted({launch.template.parent for launch in launches})
        texts = [text for launch in launches for text in _texts(self.kernel.folder, launch.template)]
        headers = own_headers(texts, [*folders, *self.kernel.include])
        return sorted(source_digest(read_source(path)) for path in headers)

    def _reference(self) -> Any:
        """Return what the reference says, without the CUDA one where another defines the result: that is checked."""
        reference = self.kernel.reference
        data = _canonical(reference, WORDING | {"cuda"})
        if reference.cuda is None or reference.numpy or reference.python or reference.golden:
            return data
        template = _template(self.kernel.folder, reference.cuda.template)
        return {**data, "cuda": [template, _canonical(reference.cuda, WORDING | {"template"})]}


def _canonical(value: Any, ignored: Collection[str] = WORDING) -> Any:
    """Return plain data that is equal for values that mean the same; a path stands for the file's content.

    What has its default is left out: a field that a later version adds changes no digest of a kernel without it.
    """
    if isinstance(value, (Expression, ArrayExpression)):
        return value.canonical
    if isinstance(value, Path):
        return _content(value)
    if isinstance(value, Mapping):
        return {str(key): _canonical(item, ignored) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_canonical(item, ignored) for item in value]
    if is_dataclass(value):
        told = {
            item.name: _canonical(getattr(value, item.name), ignored)
            for item in fields(value)
            if item.name not in ignored
        }
        usual = {item.name: _canonical(_default(item), ignored) for item in fields(value)}
        return {name: data for name, data in told.items() if data != usual[name]}
    return value


def _default(item: Field[Any]) -> Any:
    if item.default_factory is not MISSING:
        return item.default_factory()
    return item.default


def _content(path: Path) -> str:
    """Return the digest of a file of a reference: of Python its code, of anything else its bytes."""
    try:
        if path.suffix == ".py":
            return digest(ast.unparse(ast.parse(read_source(path))))
        with path.open("rb") as file:  # a tensor may be larger than memory
            return hashlib.file_digest(file, "sha256").hexdigest()[:32]
    except (OSError, ValueError, SyntaxError, RecursionError) as error:
        return type(error).__name__


def _template(folder: Path, template: Path) -> str:
    """Return the digest of a template with all that it includes, without comments."""
    return digest([_code_digest(text) for text in _texts(folder, template)])


@functools.lru_cache(maxsize=512)
def _code_digest(text: str) -> str:
    return source_digest(_JINJA_COMMENT.sub("", text))


def _texts(folder: Path, template: Path) -> Iterator[str]:
    """Yield the text of a template, and of each template that it includes, directly or not.

    Where an expression names the included file, all templates of the kernel's folder count as included.
    """
    seen, pending = {template}, [template]
    while pending:
        text = read_source(pending.pop(0))
        yield text
        for match in _INCLUDE.finditer(_JINJA_COMMENT.sub("", text)):
            name = match[1] or match[2]
            named = (
                [folder / name, paths.templates() / name] if name else sorted(template.parent.glob("*.j2"))
            )
            files = [path for path in named if path.is_file()]
            for path in files[:1] if name else files:
                if path not in seen:
                    seen.add(path)
                    pending.append(path)
