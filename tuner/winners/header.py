"""Winners -> a C++17 header: constants, and a ``constexpr`` selection that says how well it matched."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import jinja2

from tuner.core import paths
from tuner.core.errors import DatabaseError
from tuner.core.model import Run, digest
from tuner.database.records import StoredWinner
from tuner.report.tables import duration, speedup, warm_text
from tuner.winners import cpp
from tuner.winners.header_conditions import Launchable
from tuner.winners.header_defaults import defaults_of
from tuner.winners.header_needs import KernelFiles, measured_needs, needs_lines, no_files
from tuner.winners.header_portfolios import HeaderPortfolios
from tuner.winners.header_structs import Structs, types_name
from tuner.winners.portfolios import Portfolio

MARK = "// Written by tune export"
"""The first words of a header; only a file that begins with them is overwritten."""


class _Kernel:
    """One kernel for the template; every text in it went through ``cpp``."""

    def __init__(
        self, name: str, winners: list[StoredWinner], files: KernelFiles, portfolios: list[Portfolio]
    ) -> None:
        problems = [stored.run.problem for stored in winners]
        self.kernel = files.kernel_of_all([stored.run for stored in winners])
        configurations = [stored.winner.configuration for stored in winners]
        configurations += [one for portfolio in portfolios for one, _ in portfolio.members]
        self.structs = Structs(name, self.kernel, problems, configurations)
        self._cases: dict[Launchable, int] = {}
        self.entries = self._entries(winners, files)
        self.default_configurations: list[str] = []
        self.defaults = self._defaults([stored.run for stored in winners])
        self.portfolios = HeaderPortfolios(portfolios, self.structs, self._case)

    @property
    def cases(self) -> list[Launchable]:
        """When configurations are valid and what they need, each once; entries give the place in this list."""
        return list(self._cases)

    def _case(self, when: Launchable) -> int:
        return self._cases.setdefault(when, len(self._cases))

    def _entries(self, winners: list[StoredWinner], files: KernelFiles) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = []
        names: set[str] = set()
        for stored in winners:
            run, configuration = stored.run, stored.winner.configuration
            base, count = self._entry_name(run), 1
            name = base
            while name in names:
                count += 1
                name = f"{base}_{count}"
            names.add(name)
            when, plan = files.launchable(stored), files.plan(run, configuration)
            entries.append(
                {
                    "name": name,
                    "cc": cpp.integer(run.gpu.cc, "the compute capability"),
                    "device": cpp.string(run.gpu.name),
                    "problem": self.structs.problem(run.problem),
                    "configuration": self.structs.configuration(configuration),
                    "replayed": "true" if run.replayed else "false",
                    "same_size": "true" if when is None else "false",
                    "same_device": "true" if when is None or when.one_device else "false",
                    "case": self._case(when or measured_needs(plan)),
                    "comments": [cpp.comment(line) for line in (*_origin(stored), *needs_lines(plan))],
                }
            )
        return entries

    def _entry_name(self, run: Run) -> str:
        problem = run.problem
        sizes = [f"{name}{cpp.integer(problem.sizes.get(name, 0), name)}" for name in self.structs.sizes]
        options = [
            f"{field.name}_{field.word(problem.options.get(field.name))}" for field in self.structs.options
        ]
        base = "_".join([f"cc{run.gpu.cc}", *sizes, *options, types_name(problem)]).replace("-", "minus")
        return re.sub("_+", "_", base)

    def _defaults(self, runs: list[Run]) -> list[dict[str, Any]]:
        """Return the configurations that the tuner itself would take without having searched."""
        if self.kernel is None:
            return []
        rows, configurations = [], self.default_configurations
        for default in defaults_of(self.kernel, (run.gpu for run in reversed(runs))):
            if (text := self.structs.configuration(default.configuration)) not in configurations:
                configurations.append(text)
            rows.append(
                {
                    "first": default.first,
                    "last": default.last,
                    "problem": self.structs.problem(default.problem, sizes={}),
                    "configuration": configurations.index(text),
                    "case": self._case(default.launchable),
                }
            )
        return rows


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
        lines.append(f"also chosen by its warm time: {warm}")
    lines.append(_confirmation(stored))
    lines.append(f"trial {winner.trial_id} of run {run.id}")
    return lines


def _confirmation(stored: StoredWinner) -> str:
    if stored.run.replayed:
        return "recorded samples only, not confirmed"
    confirmed_ns = stored.winner.confirmed_ns
    again = f"in a fresh process {duration(confirmed_ns)}" if confirmed_ns else "no fresh process"
    edges = "right" if stored.winner.edges_verified else "not verified"
    return f"confirmed: {again}; {edges} at sizes around its own tile"


@functools.cache
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(paths.templates() / "export"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # C++, and every text went through cpp
    )
    return environment.get_template(f"{name}.hpp.j2")


def render_header(
    winners: Sequence[StoredWinner],
    namespace: str = cpp.NAMESPACE,
    files: KernelFiles | None = None,
    portfolios: Sequence[Portfolio] = (),
) -> str:
    """Return the header's text.

    Args:
        winners: what to export, one for each problem and GPU; comments say how each was timed.
        namespace: around all of it.
        files: the kernels' files, for the names in the header, for which sizes a configuration is valid, what its
            launches need of their caller, and the default configurations. Of a kernel without a file, only the
            winners are there, each for its own size.
        portfolios: of these kernels, with which sizes that were not tuned are run.

    Raises:
        DatabaseError: a name or value that a header cannot hold.
    """
    ordered = sorted(
        winners, key=lambda w: (w.run.problem.kernel, w.run.gpu.cc, w.run.gpu.name, w.run.problem.key)
    )
    files = files or KernelFiles(no_files)
    kernels = [
        _Kernel(name, list(group), files, [one for one in portfolios if one.kernel.name == name])
        for name, group in groupby(ordered, key=lambda stored: stored.run.problem.kernel)
    ]
    within = (f"namespace {cpp.identifier(namespace, 'the namespace')}",)
    head = _template("header").render(kernels=kernels, mark=MARK, namespace=namespace)
    parts = [_part(within, _template("common").render())]
    common = parts[0].name
    for kernel in kernels:
        structs = _template("structs").render(kernel=kernel.structs, common=common)
        parts.append(_part((*parts[0].within, f"namespace {kernel.structs.name}"), structs))
        parts.append(_part(parts[-1].within, _template("winners").render(kernel=kernel, common=common)))
    text = head + "".join(part.text for part in parts)
    if not text.isascii() or "\\" in text or "??" in text:
        raise DatabaseError(
            "the header would hold characters that C++ reads differently", "export fewer kernels"
        )
    return text


@dataclass(frozen=True)
class _Section:
    """A part of the header, and the namespaces in which it is, from the outermost on, as they are opened."""

    within: tuple[str, ...]
    text: str

    @property
    def name(self) -> str:
        """The innermost namespace."""
        return "::".join(opened.split()[-1] for opened in self.within)


def _part(around: tuple[str, ...], body: str) -> _Section:
    """Return a part in an inline namespace that is named after all that it holds.

    So headers that share a part can be included together, and the linker tells versions of it apart.
    """
    mark = digest([list(around), body])[:8]
    guard = f"KERNEL_TUNE_{mark.upper()}_HPP"
    within = (*around, f"inline namespace v{mark}")
    opening = "".join(f"{opened} {{\n" for opened in within)
    closing = "".join(f"}}  // {opened}\n" for opened in reversed(within))
    return _Section(within, f"\n#ifndef {guard}\n#define {guard}\n{opening}{body}\n{closing}#endif\n")
