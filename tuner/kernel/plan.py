"""The plans of a kernel's configurations, references and baselines: ``tuner.runtime.plans`` makes them, as it makes
those of the winners that a program calls. And whether a configuration is valid for a problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner.core.errors import TunerError
from tuner.core.model import Configuration, Gpu, Problem, Value
from tuner.kernel.given import require_fitting
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import LaunchSpec, first_unmet
from tuner.runtime.entries import ScratchEntry
from tuner.runtime.expressions import Expression
from tuner.runtime.launches import Buffer, Launch, Plan
from tuner.runtime.plans import PlanMaker

REFERENCE_BUFFERS = ("", "_magnitude", "_initial")
"""What a CUDA reference may name of each tensor, by the suffix of its name."""


def tensors_of(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> tuple[Buffer, ...]:
    """Return the problem's tensors with shape, dtype and layout.

    Raises:
        KernelError: a dimension is no whole number above 0, no tensor is an output, or an ``.npy`` file does not fit.
    """
    return require_fitting(_maker(kernel, problem, gpu).tensors, kernel.file.name)


def scalars_of(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> dict[str, tuple[str, Value]]:
    """Return dtype and value of the kernel's scalars by name, each value rounded to its dtype."""
    return dict(_maker(kernel, problem, gpu).scalars)


def numbers_of(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> dict[str, Value]:
    """Return the problem's sizes and the kernel's scalars by name: what calls and references may ask for."""
    scalars = scalars_of(kernel, problem, gpu)
    return {**problem.sizes, **{name: value for name, (_, value) in scalars.items()}}


def make_plan(kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration) -> Plan:
    """Return the launches and scratch memory of one configuration.

    Raises:
        UnlaunchableError: a grid, block or amount of shared memory is beyond the GPU's limits.
    """
    variant = kernel.variants[configuration.variant]
    maker = _maker(kernel, problem, gpu, configuration.values, variant.scratch)
    _, _ = maker.scratch, maker.scalars  # what is wrong with them is said first
    require_fitting(maker.tensors, kernel.file.name)
    if variant.call is not None:
        return Plan((), ())
    return replace(maker.plan(variant.launches), state=variant.state)


def reference_launch(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> Launch | None:
    """Return the launch of the CUDA reference; None if the kernel has none."""
    spec = kernel.reference.cuda
    values = reference_configuration(kernel).values
    maker = _maker(kernel, problem, gpu, values, suffixes=REFERENCE_BUFFERS)
    return None if spec is None else maker.launch(spec)


def reference_configuration(kernel: KernelSpec) -> Configuration:
    """Return what parameters are for the CUDA reference: the first variant's defaults."""
    return Configuration.of("", next(iter(kernel.variants.values())).defaults)


def settle_launch(spec: LaunchSpec, kernel: KernelSpec, problem: Problem, gpu: Gpu) -> Launch:
    """Return a launch that belongs to no variant: its arguments are tensors, scalars and sizes.

    Raises:
        UnlaunchableError: a grid, block or amount of shared memory is beyond the GPU's limits.
    """
    return _maker(kernel, problem, gpu).launch(spec)


def _maker(
    kernel: KernelSpec,
    problem: Problem,
    gpu: Gpu,
    parameters: Mapping[str, Value] = {},
    scratch: Sequence[ScratchEntry] = (),
    suffixes: Sequence[str] = ("",),
) -> PlanMaker:
    return PlanMaker(
        {**kernel.environment(problem, gpu), **parameters},
        kernel.tensors.values(),
        [
            replace(scalar, value=Expression(problem.scalars[name])) if name in problem.scalars else scalar
            for name, scalar in kernel.scalars.items()
        ],
        scratch,
        dtypes=problem.dtypes,
        problem=problem,
        suffixes=suffixes,
    )


def invalid_reason(kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration) -> str:
    """Return why a configuration, perhaps of another version of the kernel, cannot be run; empty if it can."""
    variant = kernel.variants.get(configuration.variant)
    if variant is None:
        return f"{kernel.name} has no variant {configuration.variant} any more"
    values = configuration.values
    if values.keys() != variant.parameters.keys() or any(
        values[name] not in parameter.values for name, parameter in variant.parameters.items()
    ):
        return f"the parameters of {variant.name} have changed"
    names = {**kernel.environment(problem, gpu), **values}
    try:
        if reason := variant.refused(names):
            return f"{variant.name} {reason}"
        if (unmet := first_unmet(variant.constraints_before, names)) is not None:
            return unmet
        make_plan(kernel, problem, gpu, configuration)
    except TunerError as error:
        return str(error)
    return ""


def pruning_reason(kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration) -> str:
    """Return the pruning rule by which no search tries a valid configuration; empty if there is none."""
    names = {**kernel.environment(problem, gpu), **configuration.values}
    rules = kernel.variants[configuration.variant].pruning_rules
    return first_unmet(rules, names) or ""
