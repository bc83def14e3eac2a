"""What identifies a kernel: a digest of what it computes, of its whole text, and of how one configuration does it.

Comments, documentation, the reasons of constraints and the layout of a file count in none of them, nor does the folder
that the files lie in. So an edit of the wording orphans no result, and a copy of a kernel elsewhere is the same kernel.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from tuner.core import paths
from tuner.core.errors import TunerError
from tuner.core.model import Run, Trial, digest
from tuner.core.signals import OutOfTimeError, time_limit
from tuner.core.trees import parsed
from tuner.expressions.arithmetic import Expression
from tuner.expressions.array import ArrayExpression
from tuner.kernel.functions import modules_of
from tuner.kernel.headers import first_file, own_headers, read_source
from tuner.kernel.options import options_of, written_options
from tuner.kernel.render import render, source_digest
from tuner.kernel.spec import KernelSpec
from tuner.kernel.templates import apart

RENDER_S = 2.0
"""For rendering a stored configuration once more; built-in kernels take 3 ms, and are not rendered apart."""
SCHEMA_2_HELPERS = "dbf5202f5a1a28e9cdccf3a7551c9fe1"
"""Of the tuner's own kernels, which are no part of others: the digests of schema 2 counted them, as they were then."""
SCHEMA_2_TEXTS = {
    "5903f25b17ee48342378f35f6ab3a5d4": "f11a7c9b73d9bdcc06bc70e517623822",
    "9df49f372c5e25804ac3064037756164": "70ab99a96fca166e40f0109540ee9c85",
}
"""Of gemm's and reduce's files the digests of schema 2: they have since got a variant, and their templates pieces that
other kernels have, too; what they had gives the same sources."""
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
        if kernel.folder == paths.search_spaces() and kernel.digest in SCHEMA_2_TEXTS:
            return SCHEMA_2_TEXTS[kernel.digest]
        templates = {launch.template for variant in kernel.variants.values() for launch in variant.launches}
        folders = {template.parent for template in templates} | {paths.templates() / "common"}
        templates |= {path for folder in folders for path in folder.glob("*.j2")}
        texts = [read_source(path) for path in templates]
        files = sorted({*templates, *own_headers(texts, [*sorted(folders), *kernel.include])})
        helpers = paths.templates() / "common" / "helpers.cu.j2"
        counted = (SCHEMA_2_HELPERS if path == helpers else digest(path.read_bytes()) for path in files)
        return digest([kernel.digest, *counted])

    def _digests(self) -> tuple[str, str]:
        """Return the digests that are kept, worked out again."""
        fresh = KernelIdentity(self.kernel)
        return fresh.computation, fresh.text

    @property
    def computations(self) -> tuple[str, ...]:
        """By what the database knows this computation, also in runs of schema 2."""
        return self.computation, self.legacy

    def implementation(self, variant: str, sources: Sequence[str], options: Sequence[str] = ()) -> str:
        """Return the digest of how a configuration computes: its launches, and what it renders to.

        Args:
            variant: the configuration's.
            sources: rendered, one a launch.
            options: of the compiler, rendered; they count where they depend on the configuration.
        """
        bare = [source_digest(_LINE.sub("", source)) for source in sources]
        varied = any("{" in option for option in written_options(self.kernel, variant))
        return digest([self._launching(variant, sources), *bare, *(options if varied else ())])

    def computes_like(self, run: Run) -> bool:
        """Return whether a run computed the same."""
        return run.computation == self.computation if run.computation else self.same_text(run)

    def same_text(self, run: Run) -> bool:
        """Return whether the kernel is still what it was in a run."""
        return run.kernel_digest == (self.text if run.computation else self.legacy)

    def current(self, run: Run, trial: Trial) -> bool:
        """Return whether a trial's configuration still computes the same in the same way."""
        configuration = trial.configuration
        ours = self.kernel.folder == paths.search_spaces()  # a database may name any file
        try:
            if not ours and "text" not in vars(self):
                vars(self).update(computation="", text="")  # of a kernel that takes too much
                told = apart(self._digests, self.kernel.file.name, RENDER_S)
                vars(self).update(zip(("computation", "text"), told, strict=True))
            with time_limit(RENDER_S):
                if self.same_text(run):
                    return True
                comparable = trial.implementation and configuration.variant in self.kernel.variants
                if not comparable or not self.computes_like(run):
                    return False
        except (TunerError, OutOfTimeError):
            return False

        def done() -> str:
            rendered = render(self.kernel, run.problem, run.gpu, configuration)
            options = options_of(self.kernel, run.problem, run.gpu, configuration)
            return self.implementation(configuration.variant, [source for source, _ in rendered], options)

        try:
            return (done() if ours else apart(done, self.kernel.file.name, RENDER_S)) == trial.implementation
        except (TunerError, MemoryError):
            return False

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
        return {
            name: [
                _canonical(variant.launches, WORDING | {"template"}), _canonical(variant.scratch),
                written_options(self.kernel, name),
                *([list(variant.state)] if variant.state else []),
                *([_canonical(variant.call)] if variant.call is not None else []),
            ]
            for name, variant in self.kernel.variants.items()
        }  # fmt: skip

    def _reference(self) -> Any:
        """Return what the reference says, without the CUDA one where another defines the result: that is checked."""
        reference = self.kernel.reference
        rules = [_canonical(one) for one in self.kernel.initial if reference.default and one.default]
        data = _canonical(reference, WORDING | {"cuda"}) | ({"rules": rules} if rules else {})
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
    defaults = {
        item.name: item.default if item.default_factory is MISSING else item.default_factory()
        for item in fields(kind)
    }
    return {name: _canonical(value, ignored) for name, value in defaults.items()}


_JINJA_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_JINJA_CODE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_INCLUDE = re.compile(r"\{%[-+]?\s*(?:include|import|from|extends)\b(.*?)%\}", re.DOTALL)
_LITERAL = re.compile(r"\"([^\"]+)\"|'([^']+)'")


def file_digest(path: Path) -> str:
    """Return the digest of a file of a reference: of Python its code, with the modules beside it that it imports.

    Of anything else it is that of its bytes. Of a file that cannot be read it is the error's name.
    """
    try:
        if path.suffix == ".py":
            with contextlib.suppress(ValueError, SyntaxError, RecursionError):
                return digest([_plain(tree) for tree in modules_of(parsed(read_source(path)), path).values()])
        stat = path.stat()
        return _bytes_digest(path, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        return type(error).__name__


@functools.lru_cache(maxsize=64)
def _bytes_digest(path: Path, changed_ns: int, size: int) -> str:  # noqa: ARG001 - of the key
    with path.open("rb") as file:  # a golden file may have gigabytes
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


def _plain(node: Any) -> Any:
    """Return a syntax tree as plain data without documentation; what is empty, Python's versions write differently."""
    if isinstance(node, ast.AST):
        told = {name: _plain(value) for name, value in ast.iter_fields(node)}
        return [type(node).__name__, {name: value for name, value in told.items() if value not in (None, [])}]
    if isinstance(node, list):
        return [_plain(item) for item in node if not _documents(item)]
    return None if node is None else repr(node)


def _documents(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def template_digest(template: Path, texts: Iterable[str]) -> str:
    """Return the digest of a template with all that it includes, without comments.

    Args:
        template: of Jinja, or a plain ``.cu``.
        texts: by :func:`template_texts`.
    """
    code = _jinja_digest if template.suffix == ".j2" else source_digest
    return digest([code(text) for text in texts])


@functools.lru_cache(maxsize=512)
def _jinja_digest(text: str) -> str:
    """Return the digest of a template's text; what is Jinja's counts as it is: its ``//`` divides."""
    code = _JINJA_COMMENT.sub("", text)
    return digest([source_digest(_JINJA_CODE.sub("{}", code)), *_JINJA_CODE.findall(code)])


def template_texts(folder: Path, template: Path, read: Callable[[Path], str] = read_source) -> Iterator[str]:
    """Yield the text of a template, and of each template that it includes, directly or not.

    Where an expression names the included file, all templates of the template's folder count as included.

    Args:
        folder: the kernel's.
        template: of Jinja, or a plain ``.cu``.
        read: returns a file's text.
    """
    seen, pending = {template}, [template]
    while pending:
        file = pending.pop(0)
        if file.suffix == ".cubin":
            yield file_digest(file)
            continue
        text = read(file)
        yield text
        for tag in _INCLUDE.findall(_JINJA_COMMENT.sub("", text)):
            for path in _included(folder, template, tag):
                if path not in seen:
                    seen.add(path)
                    pending.append(path)


def _included(folder: Path, template: Path, tag: str) -> list[Path]:
    names = ["".join(quoted) for quoted in _LITERAL.findall(tag)]
    files = [first_file([folder / name, paths.templates() / name]) for name in names]
    named = [path for path in files if path is not None]
    return named if named and len(named) == len(files) else [*named, *sorted(template.parent.glob("*.j2"))]
