"""The search space of a problem: the configurations that a search may try.

It is the union of the valid sets of a kernel's variants. A configuration of a variant is a row of small integers, each
the index of a value in its parameter's list; a search works on these rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.core import paths
from tuner.core.errors import ExpressionError, SpaceError, UsageError, suggestion
from tuner.core.groups import grouped
from tuner.core.model import Configuration, Gpu, Problem, Value
from tuner.kernel.enumeration import Valid, enumerate_valid
from tuner.kernel.initial import settle, settled_default
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_space import VariantSpace, Vector
from tuner.kernel.variant_spec import (
    VariantSpec,
    first_unmet,
    index_of,
    index_of_text,
)


@dataclass(frozen=True)
class Allowed:
    """What a search may try, one configuration at a time: what meets the conditions, also where a sample lacks it."""

    kernel: KernelSpec
    problem: Problem
    gpu: Gpu
    allowed: Mapping[str, Mapping[str, list[int]] | str]
    """By variant, the indices of the values allowed of each parameter, or why there are none."""

    def contains(self, configuration: Configuration) -> bool:
        """Return whether a search may try a configuration."""
        allowed = self.allowed.get(configuration.variant, "")
        if isinstance(allowed, str) or configuration.values.keys() != allowed.keys():
            return False
        variant = self.kernel.variants[configuration.variant]
        row = [index_of(configuration.values[name], variant.parameters[name].values) for name in allowed]
        if any(index not in indices for index, indices in zip(row, allowed.values(), strict=True)):
            return False
        if variant.listed is not None and row not in [list(one) for one in variant.listed]:
            return False
        names = {**self.kernel.environment(self.problem, self.gpu), **configuration.values}
        try:
            return variant.is_usable(names) and first_unmet(variant.search_conditions, names) is None
        except ExpressionError:
            return False


def valid_configurations(
    kernel: KernelSpec,
    variant: VariantSpec,
    problem: Problem,
    gpu: Gpu,
    rng: np.random.Generator,
    allowed: Mapping[str, list[int]] | None = None,
) -> Valid:
    """Return a variant's valid rows; of a sample, with the default and the initial configurations.

    Args:
        kernel: which one.
        variant: one of its variants, usable for the problem.
        problem: its sizes, dtypes and options are constants in the constraints.
        gpu: its limits are constants, too.
        rng: chooses the sample of a space too large to enumerate.
        allowed: for each parameter, the indices of the values that it may have; all by default.
    """
    allowed = allowed or {name: list(range(len(of.values))) for name, of in variant.parameters.items()}
    valid = enumerate_valid(variant, allowed, kernel.environment(problem, gpu), rng)
    if not valid.sampled:
        return valid
    conditions = Allowed(kernel, problem, gpu, {variant.name: allowed})
    own = replace(kernel, initial=tuple(one for one in kernel.initial if one.variant == variant.name))
    initial = (one.configuration for one in settle(own, problem, gpu, conditions.contains))
    default = Configuration.of(variant.name, variant.defaults)
    rows = [
        [index_of(one.values[name], of.values) for name, of in variant.parameters.items()]
        for one in dict.fromkeys((default, *initial))
        if one is not None and conditions.contains(one)
    ]
    columns = valid.matrix.T
    lacking = [
        row for row in rows if not np.all([c == i for c, i in zip(columns, row, strict=True)], axis=0).any()
    ]
    if not lacking:
        return valid
    matrix = np.vstack([valid.matrix, np.array(lacking, dtype=valid.matrix.dtype)])
    return replace(valid, matrix=matrix, about=max(valid.about, len(matrix)), excluded_by="")


def space_size(count: int, before: int, about: float | None, kind: str = "valid") -> str:
    """Return how many configurations a space has, for people.

    Args:
        count: of those that may be tried.
        before: combinations of values, without the constraints.
        about: how many are valid, where those are a sample of them; None where they are all.
        kind: what they are, in a word.
    """
    if about is None:
        return f"{count} {kind} of {before}"
    return f"about {about:.3g} {kind} of {before}, of which a sample of {count} is searched"


def by_reason(left_out: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the variants that are left out, by the reason why."""
    return grouped(left_out, lambda name: left_out[name])


def nothing_valid(
    kernel: KernelSpec,
    variants: Iterable[VariantSpec],
    problem: Problem,
    gpu: Gpu,
    why: str = "",
    *,
    narrowed: bool,
    sampled: bool,
) -> SpaceError:
    """Return the error of a space without configurations.

    Args:
        kernel: of the space.
        variants: that were asked for.
        problem: of the space.
        gpu: likewise.
        why: what excluded each variant.
        narrowed: whether the command line allows less than the kernel's file.
        sampled: whether not all combinations were tried, so that there may be a valid one.
    """
    demanded = "valid" + " and passes the pruning rules" * any(one.pruning_rules for one in variants)
    place = f"for {problem} on {gpu.name}" + (f" ({why})" if why else "")
    if sampled:
        remedy = "fix parameters (--fix), or write a default or an [[initial]] configuration that is valid"
        return SpaceError(f"no configuration that is {demanded} was found {place}; there may be one", remedy)
    remedy = "change the problem's sizes, dtypes or options"
    if narrowed:
        remedy = "allow more values or variants"
    elif kernel.folder != paths.search_spaces():
        remedy += ", or the constraints"
    return SpaceError(f"no configuration is {demanded} {place}", remedy)


class SearchSpace:
    """The configurations that a search may try: the union of its variants' valid sets.

    Args:
        variants: at least one, none of them empty.
        size_before: combinations of values, without the constraints.
        left_out: the reasons why variants are not part of it, by variant.
        kind: which configurations they are, in a word: all valid ones, or the recorded ones of them.
        about: an estimate of how many are valid; None if these are all.
        beyond: what else may be tried, where it is an even sample of a set that is too large.
        default: the default configuration, if it is one of them.
    """

    def __init__(
        self,
        variants: Sequence[VariantSpace],
        size_before: int,
        left_out: Mapping[str, str] | None = None,
        kind: str = "valid",
        about: float | None = None,
        beyond: Allowed | None = None,
        default: Configuration | None = None,
    ) -> None:
        self.variants = tuple(variants)
        self.size_before = size_before
        self.sampled, self.about, self.beyond = beyond is not None, about, beyond
        self.left_out = dict(left_out or {})
        self.kind = kind
        self._numbers = {variant.name: number for number, variant in enumerate(self.variants)}
        kept = default if default is not None and self.contains(default) else None
        self.default: Configuration = kept or self.variants[0].plain
        """That of the file's initial configurations, else the first variant's plain one."""

    @classmethod
    def from_kernel(
        cls,
        kernel: KernelSpec,
        problem: Problem,
        gpu: Gpu,
        variants: Iterable[str] = (),
        fixed: Mapping[str, Iterable[Value]] | None = None,
        seed: int = 0,
    ) -> SearchSpace:
        """Return the search space of a problem on a GPU.

        Args:
            kernel: with the variants, parameters and constraints.
            problem: its sizes, dtypes and options are constants in the constraints.
            gpu: its limits are constants, too.
            variants: names of the variants to search; all if empty.
            fixed: the allowed values of parameters by name, typed or as text. A variant that lacks the parameter, or
                all of the values, is left out.
            seed: chooses the sample of a space too large to enumerate.

        Raises:
            UsageError: no such variant, parameter or value.
            SpaceError: no configuration is left; the message says what excluded each variant.
        """
        narrowed = narrow(kernel, variants := tuple(variants), fixed or {})
        chosen = [kernel.variants[name] for name in narrowed]
        usable, left_out = kernel.usable_variants(problem, gpu)
        left_out = {name: reason for name, reason in left_out.items() if name in narrowed}
        spaces, size_before, sampled, about, rng = [], 0, False, 0.0, np.random.default_rng(seed)
        for variant in chosen:
            allowed = narrowed[variant.name]
            if variant not in usable:
                continue
            if isinstance(allowed, str):
                left_out[variant.name] = allowed
                continue
            size_before += math.prod(map(len, allowed.values()))
            valid = valid_configurations(kernel, variant, problem, gpu, rng, allowed)
            sampled |= valid.sampled
            about += valid.about
            if len(valid.matrix):
                spaces.append(VariantSpace(variant.name, tuple(variant.parameters.values()), valid.matrix))
            else:
                left_out[variant.name] = valid.excluded_by
        if not spaces:
            reasons = "; ".join(
                f"{', '.join(names)}: {reason}" for reason, names in by_reason(left_out).items()
            )
            raise nothing_valid(
                kernel, chosen, problem, gpu, reasons, narrowed=bool(fixed or variants), sampled=sampled
            )
        conditions = Allowed(kernel, problem, gpu, narrowed)
        default = settled_default(kernel, problem, gpu, conditions.contains)
        if not sampled:
            return cls(spaces, size_before, left_out, default=default)
        return cls(spaces, size_before, left_out, about=about, beyond=conditions, default=default)

    def __len__(self) -> int:
        return sum(len(variant) for variant in self.variants)

    def configurations(self) -> Iterator[Configuration]:
        """Return every configuration, variant after variant, each in the order of its parameters' values."""
        for variant in self.variants:
            for row in range(len(variant)):
                yield variant.configuration(row)

    def encode(self, configuration: Configuration) -> tuple[int, Vector] | None:
        """Return the variant's number and the indices of the values; None for an unknown name or value."""
        number = self._numbers.get(configuration.variant)
        vector = None if number is None else self.variants[number].encode(configuration.values)
        return None if number is None or vector is None else (number, vector)

    def locate(self, configuration: Configuration) -> tuple[int, int] | None:
        """Return the variant's number and the row in it; None if the configuration is not in the space."""
        if (code := self.encode(configuration)) is None:
            return None
        row = self.variants[code[0]].find(code[1])
        return None if row is None else (code[0], row)

    def contains(self, configuration: Configuration) -> bool:
        """Return whether a search may try this configuration."""
        return self.locate(configuration) is not None

    def including(self, configurations: Iterable[Configuration]) -> SearchSpace:
        """Return the space with those configurations that may be tried, too, but that a sample lacks."""
        if self.beyond is None:
            return self
        more = list(filter(self.beyond.contains, configurations))
        variants = tuple(variant.including(more) for variant in self.variants)
        return self if variants == self.variants else self._of(variants, self.kind)

    def _of(self, variants: Sequence[VariantSpace], kind: str) -> SearchSpace:
        return SearchSpace(
            variants, self.size_before, self.left_out, kind, self.about, self.beyond, self.default
        )

    def restricted(self, configurations: Iterable[Configuration]) -> SearchSpace:
        """Return the part of the space that is in a recording.

        Raises:
            SpaceError: none of the recorded configurations is in the space.
        """
        rows: dict[int, list[int]] = {}
        whole = self.including(configurations := list(configurations))
        for number, row in filter(None, map(whole.locate, configurations)):
            rows.setdefault(number, []).append(row)
        if not rows:
            raise SpaceError(
                "the recording has no configuration of this space", "narrow it less, or record again"
            )
        kept = [whole.variants[number].subset(np.array(chosen)) for number, chosen in sorted(rows.items())]
        return self._of(kept, "recorded")


def narrow(
    kernel: KernelSpec, names: Iterable[str], fixed: Mapping[str, Iterable[Value]]
) -> dict[str, dict[str, list[int]] | str]:
    """Return, by variant, the indices of the values allowed of each parameter, or the reason why there are none.

    Args:
        kernel: with the variants.
        names: of variants; all if empty.
        fixed: the allowed values of parameters by name, typed or as text.

    Raises:
        UsageError: no such variant, parameter or value.
    """
    names, choices = tuple(names), {name: tuple(values) for name, values in fixed.items()}
    for name in names:
        if name not in kernel.variants:
            raise UsageError(f"{kernel.name} has no variant {name!r}", suggestion(name, kernel.variants))
    variants = [variant for variant in kernel.variants.values() if not names or variant.name in names]
    for name, values in choices.items():
        parameters = [variant.parameters[name] for variant in variants if name in variant.parameters]
        if not parameters:
            existing = dict.fromkeys(name for variant in variants for name in variant.parameters)
            of = f"variant {names[0]} of {kernel.name}" if len(names) == 1 else kernel.name
            raise UsageError(f"{of} has no parameter {name!r}", suggestion(name, existing))
        for value in values:
            if all(index_of_text(value, parameter.values) is None for parameter in parameters):
                values_of_any = {value for parameter in parameters for value in parameter.values}
                ordered = sorted(values_of_any, key=lambda item: (isinstance(item, str), item))
                remedy = suggestion(str(value), dict.fromkeys(map(str, ordered)))
                raise UsageError(f"{name} is never {value!r} in {kernel.name}", remedy)
    return {variant.name: _narrowed(variant, choices) for variant in variants}


def _narrowed(variant: VariantSpec, fixed: Mapping[str, tuple[Value, ...]]) -> dict[str, list[int]] | str:
    allowed = {name: list(range(len(parameter.values))) for name, parameter in variant.parameters.items()}
    reason = ""
    for name, values in fixed.items():
        if name not in allowed:
            reason = f"has no parameter {name}"
            continue
        indices = {index_of_text(value, variant.parameters[name].values) for value in values}
        allowed[name] = sorted(index for index in indices if index is not None)
        if not allowed[name]:
            reason = f"{name} has none of the values asked for"
    return reason or allowed
