"""Whether the expressions of a kernel's file have values, and constraints are conditions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping

import numpy as np

from tuner.core.errors import DivisionByZeroError, TunerError
from tuner.core.model import Gpu, Problem
from tuner.expressions.arithmetic import Expression
from tuner.inspect.check.findings import Report
from tuner.inspect.check.subjects import Sampling, Subject, problems, report_launch, usable_places
from tuner.kernel.plan import make_plan, scalars_of, tensors_of
from tuner.kernel.reference import settle_reference
from tuner.kernel.spec import KernelSpec
from tuner.kernel.tolerance import tolerance
from tuner.kernel.variant_spec import VariantSpec
from tuner.runtime.launch_limits import UnlaunchableError

COMBINATIONS = 64
"""Combinations of parameter values, valid or not, for which constraints are evaluated."""


def check_values(kernel: KernelSpec, sampling: Sampling, report: Report) -> None:
    """Report shapes, scalars, work and tolerances without a value, for the default problem and all presets."""
    gpu = sampling.gpus[0]
    for key, problem in problems(kernel).items():
        for check in (tensors_of, scalars_of, _check_work, _check_reference):
            try:
                check(kernel, problem, gpu)
            except TunerError as error:
                report.error(error, ("reference", "reduction") if check is _check_reference else key)


def _check_work(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> None:
    names = kernel.environment(problem, gpu)
    for expression, minimum in ((kernel.work.flops, 0.0), (kernel.work.bytes, 1.0)):
        if (value := expression.number(names)) < minimum:
            raise TunerError(
                f"{expression.where}: {expression.text} = {value:g}", f"it is at least {minimum:g}"
            )


def _check_reference(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> None:
    settled = settle_reference(kernel, problem, gpu)
    for tensor in tensors_of(kernel, problem, gpu):
        if tensor.role != "input":
            tolerance(settled.reduction, settled.accumulate, tensor.dtype, settled.tolerance)


def check_conditions(kernel: KernelSpec, sampling: Sampling, report: Report) -> set[str]:
    """Report conditions whose value is no truth value, or that fail for another reason than a division.

    Returns:
        Names of the variants that have one: which of their configurations are valid means nothing.
    """
    wrong = set()
    for variant in kernel.variants.values():
        conditions = [
            *((("constraints", reason), condition) for reason, condition in variant.constraints_before),
            *((("pruning", reason), condition) for reason, condition in variant.pruning_rules),
        ]
        for place, gpus in itertools.islice(usable_places(kernel, variant, sampling), 1):
            environment = kernel.environment(place, gpus[0])
            for key, condition in conditions:
                problems_of_it = (
                    _wrong_condition(condition, {**environment, **values})
                    for values in _combinations(variant)
                )
                if problem := next(filter(None, problems_of_it), ""):
                    report.add(("variants", variant.name, *key), problem, "write a comparison")
                    wrong.add(variant.name)
    return wrong


def _combinations(variant: VariantSpec) -> Iterable[Mapping[str, object]]:
    draw = random.Random(0)
    yield variant.defaults
    for _ in range(COMBINATIONS):
        yield {name: draw.choice(parameter.values) for name, parameter in variant.parameters.items()}


def _wrong_condition(condition: Expression, names: Mapping[str, object]) -> str:
    """Return what is wrong with a condition's value; empty if it is true or false."""
    try:
        value = condition.evaluate(names)
    except DivisionByZeroError:
        return ""
    except TunerError as error:
        return error.problem.removeprefix(f"{condition.where}: ")
    if not isinstance(value, bool | np.bool_):
        return f"{condition.text!r} is no condition: its value is {value!r}"
    return ""


def check_plans(kernel: KernelSpec, subject: Subject, report: Report) -> None:
    """Report launches that have no plan: a grid of 0, an argument that is text. Beyond the GPU's limits is no fault."""
    gpu = subject.gpus[0]
    unlaunchable = 0
    for configuration in subject.configurations:
        try:
            make_plan(kernel, subject.problem, gpu, configuration)
        except UnlaunchableError:
            unlaunchable += 1
        except TunerError:
            report_launch(kernel, subject.problem, gpu, configuration, report)
    if unlaunchable and unlaunchable == len(subject.configurations):
        what = f"none of {unlaunchable} configurations can be launched: "
        report_launch(kernel, subject.problem, gpu, subject.configurations[-1], report, what)
