"""What identifies a kernel: a digest of what it computes, of its whole text, and of how one configuration does it.

Comments, documentation, the reasons of constraints and the layout of a file count in none of them, nor does the folder
that the files lie in. So an edit of the wording orphans no result, and a copy of a kernel elsewhere is the same kernel.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from tuner.core import paths
from tuner.core.errors import TunerError
from tuner.core.model import Run, Trial, digest
from tuner.core.signals import OutOfTimeError, time_limit
from tuner.expressions.arithmetic import Expression
from tuner.expressions.array import ArrayExpression
from tuner.kernel.contents import file_digest, template_digest, template_texts
from tuner.kernel.headers import own_headers, read_source
from tuner.kernel.render import render, source_digest
from tuner.kernel.spec import KernelSpec

RENDER_S = 2.0
"""For rendering a stored configuration once more; built-in kernels take 3 ms."""
WORDING = frozenset(("doc", "summary"))
"""Fields that only readers see."""
_LINE = re.compile(r"^[ \t]*#[ \t]*line\b.*", re.MULTILINE)
"""What only messages and debuggers read, with a file's name."""


class KernelIdentity:
    """The digests of a kernel; its files are read when one is first asked for."""

    def __init__(self, kernel: KernelSpec) -> None:
        self.kernel = kernel

    @functools.cached_property
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

    @functools.cached_property
    def computation(self) -> str:
        """The digest of what is computed, whatever computes it."""
        return digest(dict(self.parts))

    @functools.cached_property
    def text(self) -> str:
        """The digest of all that decides a configuration's sources, launches and validity.

        Runs with equal ones have comparable times. Baselines, the ladder, initial configurations and pruning rules are
        no part of it: they decide what is tried, not what comes of it.
        """
        kernel = self.kernel
        if any(variant.listed is not None for variant in kernel.variants.values()):
            return kernel.digest  # another tool's space
        choices = {"dtypes": kernel.dtypes, "options": kernel.options}
        variants: dict[str, Any] = {}
        for name, variant in kernel.variants.items():
            parameters = [
                [key, parameter.values, parameter.default] for key, parameter in variant.parameters.items()
            ]
            constraints = [condition for _, condition in variant.constraints]
            done = self._variant_code[name]
            variants[name] = _canonical([variant.requires, parameters, constraints, done])
        return digest(json.dumps([self.computation, _canonical(choices), variants], sort_keys=True))

    @functools.cached_property
    def code(self) -> str:
        """The digest of what is compiled and launched; rules of thumb, which add constraints, do not change it."""
        return digest([self.computation, self._variant_code])

    @functools.cached_property
    def _variant_code(self) -> dict[str, list[Any]]:
        folder, code = self.kernel.folder, {}
        read = functools.cache(read_source)  # variants include the same files
        for name, variant in self.kernel.variants.items():
            files = [launch.template for launch in variant.launches]
            texts = [list(template_texts(folder, file, read)) for file in files]
            templates = [template_digest(file, own) for file, own in zip(files, texts, strict=True)]
            code[name] = [templates, self._launching(name, chain(*texts), templates=True)]
        return code

    @functools.cached_property
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
        bare = [source_digest(_LINE.sub("", source)) for source in sources]
        return digest([self._launching(variant, sources), *bare])

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
            with time_limit(RENDER_S):  # a database may name any file
                rendered = render(self.kernel, run.problem, run.gpu, trial.configuration)
            done = self.implementation(trial.configuration.variant, [source for source, _ in rendered])
        except (TunerError, MemoryError, OutOfTimeError):
            return False
        return done == trial.implementation

    def _launching(self, variant: str, sources: Iterable[str], *, templates: bool = False) -> str:
        """Return the digest of what decides a variant's launches beside its sources, with the headers of these."""
        files = [launch.template for launch in self.kernel.variants[variant].launches]
        headers = self._header_digests(sources, files, templates=templates)
        return digest(json.dumps([*self._statics[variant], headers], sort_keys=True))

    def _header_digests(self, sources: Iterable[str], files: Iterable[Path], *, templates: bool) -> list[str]:
        """Return the digests of the kernel's own headers that sources include, which are rendered from files."""
        folders = [*sorted({file.parent for file in files}), *self.kernel.include]
        headers = own_headers(sources, folders, templates=templates)
        return sorted(source_digest(read_source(path)) for path in headers)

    @functools.cached_property
    def _statics(self) -> dict[str, list[Any]]:
        """For each variant its launches, scratch and compile options."""
        options = self.kernel.compile_options
        return {
            name: [
                _canonical(variant.launches, WORDING | {"template"}), _canonical(variant.scratch), options
            ]
            for name, variant in self.kernel.variants.items()
        }  # fmt: skip

    def _reference(self) -> Any:
        """Return what the reference says, without the CUDA one where another defines the result: that is checked."""
        reference = self.kernel.reference
        data = _canonical(reference, WORDING | {"cuda"})
        if reference.cuda is None or reference.numpy or reference.python or reference.golden:
            return data
        template = reference.cuda.template
        texts = list(template_texts(self.kernel.folder, template))
        headers = self._header_digests(texts, [template], templates=True)
        launch = _canonical(reference.cuda, WORDING | {"template"})
        return {**data, "cuda": [template_digest(template, texts), headers, launch]}


def _canonical(value: Any, ignored: frozenset[str] = WORDING) -> Any:
    """Return plain data that is equal for values that mean the same; a path stands for the file's content.

    What has its default is left out: a field that a later version adds changes no digest of a kernel without it.
    """
    if isinstance(value, (Expression, ArrayExpression)):
        return value.canonical
    if isinstance(value, Path):
        return file_digest(value)
    if isinstance(value, Mapping):
        return {str(key): _canonical(item, ignored) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_canonical(item, ignored) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        told = {
            item.name: _canonical(getattr(value, item.name), ignored)
            for item in fields(value)
            if item.name not in ignored
        }
        usual = _usual(type(value), ignored)
        return {name: data for name, data in told.items() if data != usual[name]}
    return value


@functools.cache
def _usual(kind: type, ignored: frozenset[str]) -> dict[str, Any]:
    """Return the defaults of a dataclass, as plain data."""
    return {item.name: _canonical(_default(item), ignored) for item in fields(kind)}


def _default(item: Field[Any]) -> Any:
    if item.default_factory is not MISSING:
        return item.default_factory()
    return item.default
