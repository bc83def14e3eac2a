"""Everything that is checked of a kernel's file, in order: each step needs what the ones before have chosen right."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np

from tuner.children.nvrtc import nvrtc_version
from tuner.core.errors import CompileError, DivisionByZeroError, KernelError, TunerError
from tuner.core.files import temporary_folder
from tuner.core.model import Gpu, Problem
from tuner.core.signals import OutOfTimeError, time_limit
from tuner.expressions.arithmetic import Expression
from tuner.inspect.check.compiling import check_compiling
from tuner.inspect.check.emulation import OnHost, check_references
from tuner.inspect.check.findings import Report, load
from tuner.inspect.check.host_children import HostChildren, unavailable
from tuner.inspect.check.subjects import (
    Checks,
    Subject,
    check_problems,
    problems,
    report_launch,
    subjects,
    usable_places,
)
from tuner.inspect.check.uses import check_uses
from tuner.kernel.batching import footprint
from tuner.kernel.given import GivenError
from tuner.kernel.golden import from_files
from tuner.kernel.plan import make_plan, scalars_of, tensors_of
from tuner.kernel.reference import ROUNDED, expected_dtype, settle_reference
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.spec import KernelSpec
from tuner.report.tables import si
from tuner.runtime.dtypes import ITEMSIZE
from tuner.runtime.launch_limits import UnlaunchableError
from tuner.runtime.launches import OUTPUTS


def check_kernel(file: Path, checks: Checks) -> Report:
    """Return what is wrong with a kernel's file; stopped by a signal or out of time, what was found until then.

    Args:
        file: the TOML file.
        checks: what is checked.
    """
    kernel, report = load(file)
    report.observer = checks.observer
    if kernel is None:
        report.note("nothing was compiled: correct the file first")
        return report
    limit = nullcontext() if checks.time_s is None else time_limit(checks.time_s)
    try:
        with limit, closing(HostChildren(checks.jobs)) as children:
            _check(kernel, checks, children, report)
    except (KeyboardInterrupt, OutOfTimeError) as stop:
        report.stopped = stop
    return report


def _check(kernel: KernelSpec, checks: Checks, children: HostChildren, report: Report) -> None:
    if not check_values(kernel, checks, report):
        report.note("nothing was compiled: correct the tensors first")
        return
    check_reference(kernel, checks.gpus[0], report)
    before = len(report.findings)
    check_references(kernel, checks.gpus[0], children, report)
    comparable = len(report.findings) == before and not report.no_answer
    if calls := [variant.name for variant in kernel.variants.values() if variant.call is not None]:
        report.note(f"not looked at, because only a GPU runs it: the function of {', '.join(calls)}")
        kernel = _without(kernel, calls)
        if not kernel.variants:
            return
    check_uses(kernel, report)
    sound = _without(kernel, check_conditions(kernel, checks, report))
    chosen = subjects(sound, checks, report)
    check_problems(sound, checks, chosen, report)
    for subject in chosen:
        check_plans(kernel, subject, report)
    _run(kernel, chosen, checks, children, report, on_host=checks.on_host and comparable)


def _without(kernel: KernelSpec, names: Collection[str]) -> KernelSpec:
    """Return a kernel without some variants, and without their initial configurations."""
    variants = {name: variant for name, variant in kernel.variants.items() if name not in names}
    return replace(
        kernel, variants=variants, initial=tuple(one for one in kernel.initial if one.variant in variants)
    )


def _run(
    kernel: KernelSpec,
    chosen: Sequence[Subject],
    checks: Checks,
    children: HostChildren,
    report: Report,
    *,
    on_host: bool,
) -> None:
    """Compile, and run on the CPU: the first configurations before anything else, for compiling takes minutes."""
    if on_host and (why := unavailable()):
        report.note(f"nothing was run on the CPU: {why}")
        on_host = False
    with temporary_folder() as folder:
        runs = OnHost(kernel, chosen if on_host else (), folder, children, report)
        broken: set[str] = set()
        try:
            wrong = runs.begin() if on_host else set()
            chosen = [replace(one, wrong=one.variant.name in wrong) for one in chosen]
            try:
                nvrtc_version()
            except CompileError as error:
                report.note(f"nothing was compiled: {error}")
            else:
                before = len(report.findings)
                broken = check_compiling(kernel, chosen, checks, report)
                if len(report.findings) == before:  # what is wrong on the CPU is all that is known of these
                    broken -= wrong
                for one in chosen:
                    if one.wrong and len(one.configurations) > 1:
                        what = f"of {one.variant.name} only the first configuration was compiled"
                        report.note(f"{what}: correct that first")
            if on_host:
                runs.finish(checks.gpus[0], broken)
        finally:  # what was found is said, whatever ends this
            if on_host:
                runs.tell(broken)


# -- values and conditions


def check_values(kernel: KernelSpec, checks: Checks, report: Report) -> bool:
    """Report shapes, scalars, work and tolerances without a value, for the default problem and all presets.

    Returns:
        Whether the default problem's tensors have a shape and values.
    """
    fit = True
    gpu = checks.gpus[0]
    for key, problem in problems(kernel).items():
        for check in (tensors_of, _check_scalars, _check_work, _check_reference, _check_memory):
            try:
                check(kernel, problem, gpu)
            except GivenError as error:
                report.error(error)
                fit = fit and problem != kernel.problem()
            except TunerError as error:
                report.error(error, ("reference", "reduction") if check is _check_reference else key)
                fit = fit and not (check is tensors_of and problem == kernel.problem())
    return fit


def _check_scalars(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> None:
    for name, (dtype, value) in scalars_of(kernel, problem, gpu).items():
        if value in (math.inf, -math.inf):
            where = kernel.scalars[name].value.where
            raise TunerError(f"{where}: {name} is infinite as {dtype}", "give it a dtype that holds it")


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
        if tensor.role in OUTPUTS:
            settled.tolerance_of(tensor.dtype)


def _check_memory(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> None:
    """Refuse tensors that no GPU holds beside what outputs are compared with: a value, and a magnitude in float32."""
    tensors = tensors_of(kernel, problem, gpu)
    own = footprint(tensors)
    outputs = [tensor for tensor in tensors if tensor.role in OUTPUTS]
    compared = sum(tensor.count * (ITEMSIZE[expected_dtype(tensor)] + 4) for tensor in outputs)
    most = max(one.memory_bytes for one in (gpu, *ARCHITECTURES.values()))
    if own + compared > most:
        raise TunerError(
            f"the tensors of {problem} take {si(own, 'B')}, and what outputs are compared with {si(compared, 'B')} "
            f"more; the largest known GPU has {si(most, 'B')}",
            "make the sizes smaller",
        )


def check_conditions(kernel: KernelSpec, checks: Checks, report: Report) -> set[str]:
    """Report conditions whose value is no truth value by the defaults, or that fail for another reason than a division.

    Returns:
        Names of the variants that have one: which of their configurations are valid means nothing.
    """
    wrong = set()
    for variant in kernel.variants.values():
        conditions = [
            *((("constraints", reason), condition) for reason, condition in variant.constraints_before),
            *((("pruning", reason), condition) for reason, condition in variant.pruning_rules),
        ]
        for place, gpus in itertools.islice(usable_places(kernel, variant, checks), 1):
            environment = kernel.environment(place, gpus[0])
            for key, condition in conditions:
                if problem := _wrong_condition(condition, {**environment, **variant.defaults}):
                    report.add(("variants", variant.name, *key), problem, "write a comparison")
                    wrong.add(variant.name)
    return wrong


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


# -- the reference


def check_reference(kernel: KernelSpec, gpu: Gpu, report: Report) -> None:
    """Report outputs without a reference, golden files that do not fit, and a NumPy reference that has no value."""
    reference = kernel.reference
    for tensor in kernel.tensors.values():
        everything = reference.cuda is not None or reference.python is not None or reference.default
        covered = everything or tensor.name in {*reference.numpy, *reference.golden}
        if tensor.role in OUTPUTS and not covered:
            problem = f"nothing says what {tensor.name} must be"
            report.add(
                ("reference",), problem, "add [reference] with numpy, cuda or golden: results are not checked"
            )
    if (rounded := ROUNDED.get(reference.checked_against)) is not None:
        report.note(f"results are compared with those of {rounded} alone: a fault of both stays unseen")
    _check_golden(kernel, gpu, report)


def _check_golden(kernel: KernelSpec, gpu: Gpu, report: Report) -> None:
    """Report golden files that are of neither the default problem nor any preset."""
    for name, file in kernel.reference.golden.items():
        errors = []
        for problem in problems(kernel).values():
            outputs = {tensor.name: tensor for tensor in tensors_of(kernel, problem, gpu)}
            try:
                from_files({name: file} if name in outputs else {}, outputs)
                break
            except KernelError as error:
                errors.append(error)
        else:
            report.error(errors[0], ("reference", "golden", name))
