"""Which configurations of an earlier gemm and of today's ``race_versions.py`` compares, and how names have changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shape_notes import Problem, Shape

from tuner.cli.configuration import parse_configuration
from tuner.core.errors import SpaceError, TunerError
from tuner.core.model import Configuration, Gpu, Value
from tuner.core.model import Problem as TunerProblem
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import load_kernel
from tuner.kernel.render import render
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.kernel.validity import invalid_reason

WGMMA = {
    **{"left_side": "swap_ab", "group": "raster_group", "gathered": "gpc_locality", "spare_sms": "sm_margin"},
    **{"kept": "l2_evict_last", "promotion": "l2_promotion", "split_last": "stream_k"},
}
ONE_TILE = {"split_k": "cluster_k", "grid_k": "split_k", "gathered": "gpc_locality"}
RENAMED: dict[str, tuple[str, dict[str, str]]] = {
    "wgmma": ("wgmma", WGMMA),
    "wgmma_padded": ("wgmma_padded", WGMMA),
    "wgmma_split_k": ("wgmma_split_k", ONE_TILE),
    "wgmma_few_rows": ("wgmma_skinny_m", ONE_TILE),
    "register_tiled": ("register_tiled", {"opposed": "separate_banks"}),
}
"""Variants by what they were called before 2026-11-23, with their names of today and those of their parameters."""
NEW_VALUES: dict[tuple[str, Value], Value] = {
    **{("swap_ab", "a"): False, ("swap_ab", "b"): True},
    **{("epilogue", "behind"): "overlapped", ("epilogue", "at_once"): "serial"},
}


def translated(kernel: KernelSpec, variant: str, parameters: Mapping[str, Value]) -> Configuration:
    """Return a configuration of the kernel of today from one with the names of then.

    Parameters that did not exist have their default value. Names of today stay as they are.

    Raises:
        TunerError: today's kernel has no such variant or parameter.
    """
    name, renamed = RENAMED.get(variant, (variant, {}))
    if "cluster_k" in parameters:  # split_k means what it means now
        renamed = {}
    if name not in kernel.variants:
        raise TunerError(f"there is no variant {name} any more")
    known = kernel.variants[name].parameters
    values = dict(kernel.variants[name].defaults)
    for old, value in parameters.items():
        new = renamed.get(old, old)
        if new not in known:
            raise TunerError(f"{name} has no parameter {new} any more")
        values[new] = value if value in known[new].values else NEW_VALUES.get((new, value), value)
    return Configuration.of(name, values)


def loaded_from(checkout: Path, folder: Path) -> KernelSpec:
    """Return a checkout's gemm, from a copy in ``folder`` in which all templates lie beside its file.

    A template is looked up beside the kernel's file first, and so is what it includes: nothing comes from this package.
    """
    for part in ("templates", "search_spaces"):
        shutil.copytree(checkout / part, folder, dirs_exist_ok=True)
    return load_kernel(str(folder / "gemm.toml"))


@dataclass(frozen=True)
class Entry:
    """A configuration of one of the two kernels."""

    name: str
    kernel: KernelSpec
    configuration: Configuration


@dataclass(frozen=True)
class Match:
    """What runs in turn: the old kernel's configuration first, then ours."""

    problem: Problem
    entries: tuple[Entry, ...]
    taken_from: str = ""
    """The problem that was tuned, if it is another."""
    known_ns: float = 0.0
    """What the old one took then: all get as many calls between two events."""
    variant: str = ""
    """Whose default configuration it is; empty for what was tuned."""
    error: str = ""
    """Why there is nothing to run."""

    @property
    def name(self) -> str:
        """What it is called in files and tables."""
        return f"{self.problem.key} {self.variant}".strip()

    def implementations(self, gpu: Gpu) -> dict[str, str]:
        """Return a digest of what each entry runs: once that has changed, its time is another's."""
        found = {}
        for entry in self.entries:
            problem = in_terms_of(entry.kernel, self.problem)
            try:
                sources = [source for source, _ in render(entry.kernel, problem, gpu, entry.configuration)]
            except TunerError as error:
                found[entry.name] = str(error)
                continue
            identity = KernelIdentity(entry.kernel)
            found[entry.name] = identity.implementation(entry.configuration.variant, sources)[:12]
        return found


def tuned(files: Iterable[Path]) -> dict[Problem, dict[str, Any]]:
    """Return what won, by problem, of files of ``gemm_shapes.py``."""
    found = {}
    for file in files:
        for one in json.loads(file.read_text())["problems"]:
            if one["search"].get("variant"):
                found[Problem(Shape(one["m"], one["n"], one["k"]), one["dtype"], one["layout"])] = one
    return found


def nearest(problem: Problem, won: Mapping[Problem, Any]) -> Problem | None:
    """Return the problem of the same shape that was tuned: of this layout rather than of this dtype."""
    alike = [one for one in won if one.shape == problem.shape]
    return max(
        alike, key=lambda one: (one.layout == problem.layout, one.dtype == problem.dtype), default=None
    )


def in_terms_of(kernel: KernelSpec, problem: Problem) -> TunerProblem:
    """Return the problem as a version of the kernel knows it."""
    return kernel.problem(vars(problem.shape), {"": problem.dtype}, {"layout": problem.layout})


class Matches:
    """Pairs up configurations of two versions.

    Args:
        old, new: the versions.
        gpu: where they run.
        won, found: winners of then and of now, by problem.
        by_hand: texts of the old and the new configuration, for all problems; empty for none.
    """

    def __init__(
        self,
        old: KernelSpec,
        new: KernelSpec,
        gpu: Gpu,
        won: Mapping[Problem, Any],
        found: Mapping[Problem, Any],
        by_hand: tuple[str, str] = ("", ""),
    ) -> None:
        self._old, self._new, self._gpu = old, new, gpu
        self._won, self._found, self._by_hand = won, found, by_hand

    def of(self, problem: Problem) -> Match:
        """Return what is run for a problem, or why nothing is."""
        tuned_for = nearest(problem, self._won)
        one = self._won[tuned_for] if tuned_for is not None else {}
        known_ns = (one.get("race", {}).get("ours") or {}).get("time_ns", 0.0)
        other = "" if self._by_hand[0] or tuned_for in (None, problem) else str(tuned_for and tuned_for.key)
        return self._checked(Match(problem, (), other, known_ns), self._entries(problem, one))

    def of_variants(self, problem: Problem, names: Sequence[str]) -> Iterator[Match]:
        """Return the default configurations of variants of then, of those that can compute the problem."""
        for name in names or self._old.variants:
            try:
                space = SearchSpace.from_kernel(self._old, in_terms_of(self._old, problem), self._gpu, [name])
            except SpaceError:
                continue
            yield self._checked(Match(problem, (), variant=name), self._default_and_ours(space.default))

    def _checked(self, match: Match, entries: Iterator[Entry]) -> Match:
        """Return a match with its entries, or with what is wrong with one of them."""
        try:
            match = replace(match, entries=tuple(entries))
            for entry in match.entries:
                valid_for = in_terms_of(entry.kernel, match.problem)
                if reason := invalid_reason(entry.kernel, valid_for, self._gpu, entry.configuration):
                    error = f"{entry.name}: {entry.configuration}: {reason}"
                    return replace(match, entries=(), error=error)
        except TunerError as error:
            return replace(match, entries=(), error=str(error))
        return match

    def _default_and_ours(self, before: Configuration) -> Iterator[Entry]:
        yield Entry("old", self._old, before)
        yield Entry("new", self._new, translated(self._new, before.variant, before.values))

    def _entries(self, problem: Problem, one: Mapping[str, Any]) -> Iterator[Entry]:
        old_text, new_text = self._by_hand
        if old_text:
            before = parse_configuration(self._old, old_text)
        elif one:
            before = _whole(self._old, one["search"])
        else:
            raise TunerError("nothing of this shape was tuned", "give --winners, or --old-config")
        yield Entry("old", self._old, before)
        if new_text:
            yield Entry("new", self._new, parse_configuration(self._new, new_text))
        else:
            yield Entry("new", self._new, translated(self._new, before.variant, before.values))
        if problem in self._found:
            yield Entry("found", self._new, _whole(self._new, self._found[problem]["search"]))


def _whole(kernel: KernelSpec, search: Mapping[str, Any]) -> Configuration:
    """Return a winner with the default values of parameters that its space had not yet."""
    variant = kernel.variants.get(search["variant"])
    if variant is None:
        raise TunerError(f"{kernel.file} has no variant {search['variant']}")
    return Configuration.of(variant.name, {**variant.defaults, **search["parameters"]})
