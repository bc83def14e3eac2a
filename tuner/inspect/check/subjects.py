"""What is checked of each variant: a problem and GPUs for which it has valid configurations, and a sample of those."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tuner.core.errors import TunerError
from tuner.core.model import Configuration, Gpu, Problem
from tuner.core.observer import Observer
from tuner.inspect.check.findings import Report
from tuner.kernel.default import default_configuration
from tuner.kernel.plan import invalid_reason, make_plan
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import valid_configurations
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_space import VariantSpace
from tuner.kernel.variant_spec import VariantSpec
from tuner.runtime.launch_limits import UnlaunchableError

MOST_CHOICES = 64
"""Combinations of dtypes and options that are tried for each set of sizes."""
LEAST_ON_HOST, MOST_ON_HOST = 3, 8
"""Configurations of each variant that are run on the CPU: the latter if values of parameters are missing in fewer."""


@dataclass(frozen=True)
class Subject:
    """A variant where it can run."""

    variant: VariantSpec
    problem: Problem
    gpus: tuple[Gpu, ...]
    configurations: tuple[Configuration, ...]
    """Valid ones: the default first if it is valid, then those of :attr:`on_host`, then a sample."""
    on_host: tuple[Configuration, ...]
    """Of these, those that are run on the CPU, among them each value of each parameter, as far as so many can have."""
    space: VariantSpace
    """All valid ones."""
    wrong: bool = False
    """Whether its first configuration is wrong on the CPU: the others are looked at when that is corrected."""


@dataclass(frozen=True)
class Checks:
    """What is checked, and with how many processes."""

    gpus: tuple[Gpu, ...]
    configurations: int | None = 20
    """Of each variant; None for all."""
    seed: int = 0
    """Of their sample."""
    jobs: int | None = None
    """Processes; None for one a core."""
    on_host: bool = True
    """Whether plain kernels are run on the CPU, too."""
    observer: Observer[str] = field(default_factory=Observer)
    """Told how far it is."""
    time_s: float | None = None
    """After which it ends; None for when it is done."""


def problems(kernel: KernelSpec) -> dict[tuple[str, ...], Problem]:
    """Return the default problem and the presets, by the keys of the file that say them."""
    named: dict[tuple[str, ...], Problem] = {("problem", "sizes"): kernel.problem()}
    for name in kernel.presets:
        named["problem", "presets", name] = kernel.problem(preset=name)
    return named


def alternatives(kernel: KernelSpec, problem: Problem) -> Iterator[Problem]:
    """Return a problem with each other dtype of a role, and with each other value of an option."""
    dtypes = kernel.chosen_dtypes(problem)
    for role, chosen in dtypes.items():
        for dtype in kernel.dtypes[role]:
            if dtype != chosen:
                yield kernel.problem(problem.sizes, {**dtypes, role: dtype}, problem.options)
    for option, values in kernel.options.items():
        for value in values:
            if value != problem.options[option]:
                yield kernel.problem(problem.sizes, dtypes, {**problem.options, option: value})


def subjects(kernel: KernelSpec, checks: Checks, report: Report) -> list[Subject]:
    """Return a subject for each variant that has one, and report the others."""
    chosen = []
    report.observer.phase("variants: valid configurations", len(kernel.variants))
    for variant in kernel.variants.values():
        report.observer.step("")
        try:
            subject = _subject(kernel, variant, checks, report)
        except TunerError as error:
            report.error(error, ("variants", variant.name))
            continue
        if subject is not None:
            chosen.append(subject)
            _check_default(kernel, subject, report)
    return chosen


def _subject(kernel: KernelSpec, variant: VariantSpec, checks: Checks, report: Report) -> Subject | None:
    """Return the first problem with valid configurations, on the GPUs asked for or, where there is none, on any."""
    key = ("variants", variant.name)
    usable, excluded = False, ""
    for problem, gpus in usable_places(kernel, variant, checks):
        usable = True
        valid = valid_configurations(kernel, variant, problem, gpus[0], np.random.default_rng(0))
        if len(valid.matrix):
            space = VariantSpace(variant.name, tuple(variant.parameters.values()), valid.matrix)
            if excluded and problem.sizes not in [known.sizes for known in problems(kernel).values()]:
                report.note(
                    f"variant {variant.name} is checked at {problem.sizes_text}, as it has no valid configuration for"
                    f" the default sizes or any preset: {excluded}"
                )
            return Subject(variant, problem, gpus, *_sample(kernel, space, problem, gpus[0], checks), space)
        if valid.sampled:  # elsewhere it would take as long, and prove as little
            what = f"no valid configuration of variant {variant.name} was found: {valid.excluded_by}"
            report.add(key, what, "write a default or an [[initial]] configuration that is valid")
            return None
        excluded = excluded or valid.excluded_by
    if not usable:
        assert variant.requires is not None
        report.add(
            (*key, "requires"),
            f"no known GPU and problem fulfil requires = {variant.requires.written!r}",
            "correct it, or leave the variant out",
        )
    else:
        culprit = next((reason for reason, _ in variant.search_conditions if repr(reason) in excluded), "")
        table = "constraints" if culprit in dict(variant.constraints) else "pruning"
        report.add(
            (*key, table, culprit),
            f"variant {variant.name} has no valid configuration, for any preset: {excluded}",
            "correct the constraint, or add values",
        )
    return None


def usable_places(
    kernel: KernelSpec, variant: VariantSpec, checks: Checks
) -> Iterator[tuple[Problem, tuple[Gpu, ...]]]:
    """Return problems with GPUs on which a variant is usable: those asked for, then one other for each problem."""
    others = tuple(gpu for gpu in ARCHITECTURES.values() if gpu not in checks.gpus)
    for gpus in (checks.gpus, others):
        for problem in _candidates(kernel):
            fitting = tuple(gpu for gpu in gpus if variant.is_usable(kernel.environment(problem, gpu)))
            if fitting:
                yield problem, fitting if gpus == checks.gpus else fitting[:1]


def _candidates(kernel: KernelSpec) -> Iterator[Problem]:
    """Return problems that may suit a variant: the default and the presets, other dtypes and options, a size of 1."""
    yield from problems(kernel).values()
    roles = {role: choices for role, choices in kernel.dtypes.items() if isinstance(choices, tuple)}
    options = {name: values for name, values in kernel.options.items() if name not in kernel.elements}
    combinations = itertools.product(*roles.values(), *options.values())
    choices = list(itertools.islice(combinations, MOST_CHOICES))
    sizes = [problem.sizes for problem in problems(kernel).values()]
    sizes += [{**kernel.sizes, name: 1} for name in kernel.sizes]
    for size, choice in itertools.product(sizes, choices):
        dtypes = {role: str(dtype) for role, dtype in zip(roles, choice, strict=False)}
        yield kernel.problem(size, dtypes, dict(zip(options, choice[len(roles) :], strict=True)))


def _sample(
    kernel: KernelSpec, space: VariantSpace, problem: Problem, gpu: Gpu, checks: Checks
) -> tuple[tuple[Configuration, ...], tuple[Configuration, ...]]:
    """Return the configurations of a variant that are looked at, and those of them that are run on the CPU."""
    default = Configuration.of(space.name, kernel.variants[space.name].defaults)
    wanted = checks.configurations
    count = len(space) if wanted is None else min(len(space), wanted)
    draw = np.random.default_rng(checks.seed)
    rows = np.sort(draw.choice(len(space), count, replace=False))
    first = () if invalid_reason(kernel, problem, gpu, default) else (default,)
    some = covering(space, LEAST_ON_HOST, MOST_ON_HOST, space.find(space.default) if first else None, draw)
    on_host = tuple(dict.fromkeys((*first, *map(space.configuration, some))))[: min(count, MOST_ON_HOST)]
    drawn = (space.configuration(int(row)) for row in rows)
    return tuple(dict.fromkeys((*on_host, *drawn)))[:count], on_host


def covering(
    space: VariantSpace, least: int, most: int, row: int | None, draw: np.random.Generator
) -> Iterator[int]:
    """Yield rows that have each value of each parameter between them: each time one with most that are still missing.

    Args:
        space: whose rows, at least as many as the least.
        least: how many, also where no value is missing.
        most: how many, also where some are.
        row: the first, if it is given.
        draw: chooses among equals.
    """
    columns = space.matrix.T
    missing = [np.bincount(column) > 0 for column in columns]
    left = np.ones(len(space), dtype=bool)
    for number in range(most):
        if row is None:
            gains = np.where(left, 0, -1)
            for column, values in zip(columns, missing, strict=True):
                gains += values[column]
            if gains.max() < (number >= least):
                return
            row = int(draw.choice(np.flatnonzero(gains == gains.max())))
        yield row
        left[row] = False
        for column, values in zip(columns, missing, strict=True):
            values[column[row]] = False
        row = None


def _check_default(kernel: KernelSpec, subject: Subject, report: Report) -> None:
    """Report a default that is not valid, or cannot be launched, where the variant is first of use."""
    variant = subject.variant
    default = Configuration.of(variant.name, variant.defaults)
    reasons = [invalid_reason(kernel, subject.problem, gpu, default) for gpu in subject.gpus]
    if not all(reasons):
        return
    reason = reasons[0]
    broken = dict(variant.constraints).get(reason)
    if broken is not None:
        what = f"the default of {variant.name} breaks its constraint {reason!r}, {broken.written}"
        report.add(("variants", variant.name, "constraints", reason), what, "choose defaults that are valid")
    else:
        what = f"the default of {variant.name} cannot be launched"
        report_launch(kernel, subject.problem, subject.gpus[0], default, report, f"{what}: ")


def report_launch(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration, report: Report, of: str = ""
) -> None:
    """Report why a configuration has no plan, at the launch that is the reason."""
    variant = kernel.variants[configuration.variant]
    for number, launch in enumerate(variant.launches):
        alone = replace(kernel, variants={variant.name: replace(variant, launches=(launch,))})
        try:
            make_plan(alone, problem, gpu, configuration)
        except TunerError as error:
            limited = error.key if isinstance(error, UnlaunchableError) else ""
            key = ("variants", variant.name, "launches", number, limited)
            line, text = report.lines.locate(error.problem)
            line = line or report.lines.line(key)
            remedy = error.remedy or "correct the launch, or choose other values"
            report.at(report.file, line, text, remedy, of)
            return


def _why_not_one(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> list[str]:
    """Return why each variant has no valid configuration; empty if one has."""
    with contextlib.suppress(TunerError):  # the default is mostly found without enumerating any space
        if default_configuration(kernel, problem, gpu) is not None:
            return []
    usable, refused = kernel.usable_variants(problem, gpu)
    reasons = [f"{name}: {reason}" for name, reason in refused.items()]
    for variant in usable:
        valid = valid_configurations(kernel, variant, problem, gpu, np.random.default_rng(0))
        if valid.sampled or len(valid.matrix):  # of a sample without one it is not known
            return []
        reasons.append(f"{variant.name}: {valid.excluded_by}")
    return reasons


def check_problems(kernel: KernelSpec, checks: Checks, chosen: Sequence[Subject], report: Report) -> None:
    """Report presets for which no variant has a valid configuration."""
    for key, problem in problems(kernel).items() if chosen else ():
        for gpu in (*checks.gpus, *ARCHITECTURES.values()):
            reasons = _why_not_one(kernel, problem, gpu)
            if not reasons:
                break
        else:
            what = f"preset {key[-1]}" if key[-1] != "sizes" else "the default problem"
            why = f"{what} has no valid configuration ({'; '.join(reasons)})"
            report.add(key, why, "change its sizes")
