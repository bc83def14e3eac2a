"""Winners -> a C++17 header: constants, and a ``constexpr`` selection that says how well it matched."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import jinja2

from tuner import paths
from tuner.database.records import StoredWinner
from tuner.errors import DatabaseError
from tuner.export import cpp
from tuner.export.needs import KernelFiles, Needs, no_files
from tuner.model import Configuration, Problem, Value, canonical_json, digest
from tuner.report.tables import duration, speedup, warm_text

MARK = "// Written by tune export"
"""The first words of a header; only a file that begins with them is overwritten."""
INT_MAX = (1 << 31) - 1
TEXT = "const char*"
"""The type of an element expression, which is its canonical text."""
_GUARD = "KERNEL_TUNE_GUARD_HPP"


@dataclass(frozen=True)
class Field:
    """A member of a struct: ``int``, ``long long``, ``bool``, an enumeration of its own, or an expression's text."""

    name: str
    type: str
    enumerators: tuple[str, ...] = ()

    @property
    def is_text(self) -> bool:
        """Whether it holds an element expression as text."""
        return self.type == TEXT

    @property
    def zero(self) -> str:
        """The value for a variant without this parameter."""
        if self.enumerators:
            return f"{self.type}::{self.enumerators[0]}"
        if self.is_text:
            return "nullptr"
        return "false" if self.type == "bool" else "0"

    def literal(self, value: Value | None) -> str:
        """Return a value in C++; ``None`` is the zero."""
        if value is None:
            return self.zero
        if self.is_text:
            return f'"{cpp.expression(value, self.name)}"'
        if self.enumerators:
            return f"{self.type}::{cpp.enumerator(value, self.name)}"
        number = cpp.integer(value, self.name)
        return ("true" if number else "false") if self.type == "bool" else str(number)


def _word(field: Field, value: Value | None) -> str:
    """Return what stands for a value in the name of an entry."""
    if field.is_text:
        return digest(str(value))[:8]
    return field.literal(value).rpartition("::")[2]


def make_field(
    name: str, values: Sequence[Value], suffix: str, *, optional: bool, element: bool = False
) -> Field:
    """Return a member whose type holds all values of a parameter or option.

    Args:
        name: of the parameter or option.
        values: all that it has.
        suffix: of the name of its enumeration.
        optional: whether it may be absent.
        element: whether it is an element expression, even if every value could be a name.

    Raises:
        DatabaseError: a number with a fraction, or text together with numbers.
    """
    cpp.identifier(name, "the name")
    if element or any(cpp.is_expression(value) for value in values):
        return Field(name, TEXT)
    if any(isinstance(value, str) for value in values):
        if not all(isinstance(value, str) for value in values):
            raise DatabaseError(
                f"{name} has text and numbers", "give it values of one type, or leave it out with --kernel"
            )
        names = sorted({cpp.enumerator(value, f"the value of {name}") for value in values})
        return Field(
            name,
            f"{name}_{suffix}",
            ("none", *(n for n in names if n != "none")) if optional else tuple(names),
        )
    if values and all(isinstance(value, bool) for value in values):
        return Field(name, "bool")
    largest = max((abs(cpp.integer(value, name)) for value in values), default=0)
    return Field(name, "int" if largest <= INT_MAX else "long long")


def _types_name(problem: Problem) -> str:
    """Return a name for the dtypes: the first role's, then each role that has another one."""
    first, *others = problem.dtypes.items()
    names = [first[1], *(f"{role}_{dtype}" for role, dtype in others if dtype != first[1])]
    for name in (*problem.dtypes, *problem.dtypes.values()):
        cpp.identifier(name, "the dtype or role")
    return "_".join(names)


def _ordered(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


class _Kernel:
    """One kernel for the template; every text in it went through ``cpp``."""

    def __init__(
        self,
        name: str,
        winners: list[StoredWinner],
        fallback: Configuration,
        defaults: Mapping[int, Configuration],
        files: KernelFiles,
    ) -> None:
        self.name = cpp.identifier(name, "the kernel")
        self._distinct("Match", [name])
        problems = [stored.run.problem for stored in winners]
        elements = frozenset[str]().union(*(files.elements(stored.run) for stored in winners))
        needs = [files.needs(stored.run, fallback) for stored in winners]
        self.fallback_alignment = max(one.alignment for one in needs)
        self.fallback_zeroed = max(one.zeroed_bytes for one in needs)
        self.defaults = _distinct_defaults(winners, defaults)
        configurations = [
            *(stored.winner.configuration for stored in winners),
            *(configuration for _, configuration in self.defaults),
            fallback,
        ]
        self.sizes = [cpp.identifier(n, "the size") for n in _ordered(n for p in problems for n in p.sizes)]
        self.options = _fields("option", [p.options for p in problems], optional=False, elements=elements)
        self.types = sorted({_types_name(problem) for problem in problems})
        self.variants = _ordered(cpp.identifier(c.variant, "the variant") for c in configurations)
        self.parameters = _fields("value", [c.values for c in configurations], optional=True)
        self._distinct("Problem", ["types", *self.sizes, *(f.name for f in self.options)])
        self._distinct("Configuration", ["variant", *(f.name for f in self.parameters)])
        if len(self.types) != len({tuple(sorted(p.dtypes.items())) for p in problems}):
            raise DatabaseError(f"two sets of dtypes of {name} have one name", "export one with --dtype")
        self.fallback = self.configuration(fallback)
        self.entries = self._entries(winners, files)

    def _distinct(self, struct: str, names: list[str]) -> None:
        for name in names:
            if names.count(name) > 1 or name == struct:
                raise DatabaseError(
                    f"{self.name} has two meanings for {name!r}", "rename one of them in the kernel"
                )

    def configuration(self, configuration: Configuration) -> str:
        values = configuration.values
        members = [field.literal(values.get(field.name)) for field in self.parameters]
        return ", ".join([f"Variant::{cpp.identifier(configuration.variant, 'the variant')}", *members])

    def problem(self, problem: Problem) -> str:
        sizes = [str(cpp.integer(problem.sizes.get(name, 0), name)) for name in self.sizes]
        options = [field.literal(problem.options.get(field.name)) for field in self.options]
        return ", ".join([*sizes, *options, f"Types::{_types_name(problem)}"])

    def _entries(self, winners: list[StoredWinner], files: KernelFiles) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = []
        names: set[str] = set()
        for stored in winners:
            run = stored.run
            problem = run.problem
            sizes = [f"{name}{cpp.integer(problem.sizes.get(name, 0), name)}" for name in self.sizes]
            options = [
                f"{field.name}_{_word(field, problem.options.get(field.name))}" for field in self.options
            ]
            cc = cpp.integer(run.gpu.cc, "the compute capability")
            base = "_".join([f"cc{cc}", *sizes, *options, _types_name(problem)]).replace("-", "minus")
            base = re.sub("_+", "_", base)
            name, count = base, 1
            while name in names:
                count += 1
                name = f"{base}_{count}"
            names.add(name)
            needs = files.needs(run, stored.winner.configuration)
            entries.append(
                {
                    "name": name,
                    "of": f"entries::{name}",
                    "tuned": "true",
                    "conditions": files.conditions(run, stored.winner.configuration),
                    "cc": cc,
                    "device": cpp.string(run.gpu.name),
                    "problem": self.problem(problem),
                    "configuration": self.configuration(stored.winner.configuration),
                    "replayed": "true" if run.replayed else "false",
                    "alignment": needs.alignment,
                    "zeroed": cpp.integer(needs.zeroed_bytes, "the scratch memory"),
                    "comments": [cpp.comment(line) for line in (*_origin(stored), *_needs_lines(needs))],
                }
            )
        return [*entries, *(self._default(stored, default, files) for stored, default in self.defaults)]

    def _default(self, stored: StoredWinner, default: Configuration, files: KernelFiles) -> dict[str, Any]:
        """Return the entry of the configuration that the tuner itself would take without having searched."""
        run, needs = stored.run, files.needs(stored.run, default)
        return {
            "of": f"Configuration{{{self.configuration(default)}}}",
            "tuned": "false",
            "conditions": files.conditions(run, default),
            "cc": cpp.integer(run.gpu.cc, "the compute capability"),
            "device": cpp.string(run.gpu.name),
            "problem": self.problem(run.problem),
            "replayed": "false",
            "alignment": needs.alignment,
            "zeroed": cpp.integer(needs.zeroed_bytes, "the scratch memory"),
        }


def _distinct_defaults(
    winners: Sequence[StoredWinner], defaults: Mapping[int, Configuration]
) -> list[tuple[StoredWinner, Configuration]]:
    """Return each default configuration once for a kind of problem and compute capability, with a winner of it."""
    distinct: dict[str, tuple[StoredWinner, Configuration]] = {}
    for stored in winners:
        if stored.id in defaults:
            problem, default = stored.run.problem, defaults[stored.id]
            kind = canonical_json([stored.run.gpu.cc, problem.dtypes, problem.options, default.key])
            distinct.setdefault(kind, (stored, default))
    return list(distinct.values())


def _fields(
    suffix: str, mappings: list[Mapping[str, Value]], *, optional: bool, elements: Collection[str] = ()
) -> list[Field]:
    fields = []
    for name in _ordered(name for mapping in mappings for name in mapping):
        values = [mapping[name] for mapping in mappings if name in mapping]
        missing = len(values) < len(mappings)
        is_element = name in elements
        fields.append(make_field(name, values, suffix, optional=optional or missing, element=is_element))
    return fields


def _origin(stored: StoredWinner) -> list[str]:
    """Return comments on where an entry's figures come from."""
    winner, run, trial = stored.winner, stored.run, stored.trial
    source = f"replayed from a recording ({run.device}; " if run.replayed else "measured ("
    lines = [
        f"{run.problem} on {run.gpu.name}",
        f"cc {run.gpu.cc}, driver {run.gpu.driver or 'unknown'}, {stored.created_at[:10]}",
        f"{duration(winner.time_ns)}, {source}{run.conditions}); in the search {duration(trial.time_ns)}"
        + (f" ({duration(trial.ci_low_ns)} .. {duration(trial.ci_high_ns)})" if trial.ci_low_ns else ""),
    ]
    if winner.ratio is not None:
        default = f" ({duration(winner.default_time_ns)})" if winner.default_time_ns else ""
        versus = speedup(winner.ratio, winner.ratio_low, winner.ratio_high, "")
        lines.append(f"versus the default configuration{default}: {versus}, {winner.verdict}")
    if warm := warm_text(winner.warm):
        lines.append(f"chosen to hold back to back, too: warm {warm}")
    lines.append(_confirmation(stored))
    lines.append(f"trial {winner.trial_id} of run {run.id}")
    return lines


def _needs_lines(needs: Needs) -> list[str]:
    """Return comments on what a caller must take care of."""
    if not needs.exact:
        return [
            f"its kernel's file is gone: as when it was tuned, tensors start at multiples of {needs.alignment}"
        ]
    lines = []
    if needs.alignment > 1:
        lines.append(f"tensors start at multiples of {needs.alignment} bytes")
    if needs.zeroed_once:
        told = ", ".join(f"{name} ({size} bytes)" for name, size in needs.zeroed_once)
        lines.append(f"zero {told} once, before the first launch; every launch leaves it zero")
    if needs.clusters:
        told = " and ".join(map(str, needs.clusters))
        lines.append(f"launch in clusters of {told} blocks (CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)")
    if needs.ordered_clusters:
        lines.append(
            f"its table of places numbers {needs.ordered_clusters} clusters, each once: 0, 1, 2, ... are right"
        )
    if needs.resident:
        lines.append(
            f"its {needs.resident} blocks wait for each other: launch it where all of them are on the GPU at once"
        )
    return lines


def _confirmation(stored: StoredWinner) -> str:
    if stored.run.replayed:
        return "recorded samples only, not confirmed"
    confirmed_ns = stored.winner.confirmed_ns
    again = f"in a fresh process {duration(confirmed_ns)}" if confirmed_ns else "no fresh process"
    edges = "right" if stored.winner.edges_verified else "not verified"
    return f"confirmed: {again}; {edges} at sizes around its own tile"


@functools.lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(paths.templates() / "export"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # C++, and every text went through cpp
    )
    return environment.get_template("header.hpp.j2")


def render_header(
    winners: Sequence[StoredWinner],
    fallbacks: Mapping[str, Configuration],
    namespace: str = cpp.NAMESPACE,
    files: KernelFiles | None = None,
    defaults: Mapping[int, Configuration] | None = None,
) -> str:
    """Return the header's text.

    Args:
        winners: what to export, one for each problem and GPU; comments say how each was timed.
        fallbacks: the configuration of each kernel for a compute capability without a winner.
        namespace: around all of it.
        files: the kernels' files, for what the launches need of their caller, and what sizes they are valid for.
        defaults: by a winner's number the configuration that the tuner takes for its problem without a search.

    Raises:
        DatabaseError: a name or value that a header cannot hold.
    """
    ordered = sorted(
        winners, key=lambda w: (w.run.problem.kernel, w.run.gpu.cc, w.run.gpu.name, w.run.problem.key)
    )
    files = files or KernelFiles(no_files)
    kernels = [
        _Kernel(name, list(group), fallbacks[name], defaults or {}, files)
        for name, group in groupby(ordered, key=lambda stored: stored.run.problem.kernel)
    ]
    cpp.identifier(namespace, "the namespace")
    text = _template().render(kernels=kernels, mark=MARK, guard=_GUARD, namespace=namespace)
    text = text.replace(_GUARD, f"KERNEL_TUNE_{digest(text)[:16].upper()}_HPP")
    if not text.isascii() or "\\" in text or "??" in text:
        raise DatabaseError(
            "the header would hold characters that C++ reads differently", "export fewer kernels"
        )
    return text
