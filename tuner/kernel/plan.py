"""The plans of a kernel's configurations, references and baselines: ``tuner.runtime.plans`` makes them, as it makes
those of the winners that a program calls. And whether a configuration is valid for a problem, and of all of them, how
many a GPU cannot launch, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.core.errors import ExpressionError, TunerError
from tuner.core.model import Configuration, Gpu, Problem, Value
from tuner.expressions import arithmetic
from tuner.kernel.given import require_fitting
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import LaunchSpec, VariantSpec, first_unmet
from tuner.runtime.dtypes import DTYPES, ITEMSIZE
from tuner.runtime.entries import ScratchEntry
from tuner.runtime.expressions import Expression
from tuner.runtime.launch_limits import BLOCK_LIMITS, CLUSTER_LIMITS, GRID_LIMITS
from tuner.runtime.launches import Buffer, Launch, Plan
from tuner.runtime.plans import MAX_LAUNCHES, PlanMaker

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


# -- what a plan refuses of one configuration (``tuner.runtime.launch_limits``), asked of all of them at once


def unlaunchable(
    kernel: KernelSpec, variant: VariantSpec, problem: Problem, gpu: Gpu, matrix: NDArray[Any]
) -> dict[str, int]:
    """Return how many configurations cannot be launched, by the reason, each once.

    Args:
        kernel: which one.
        variant: one of its variants.
        problem: whose sizes decide grids and arguments.
        gpu: whose limits they are.
        matrix: the variant's valid rows, as in :class:`tuner.kernel.enumeration.Valid`.
    """
    if not len(matrix):
        return {}
    constants, counts = kernel.environment(problem, gpu), dict[str, int]()
    left = np.ones(len(matrix), dtype=bool)
    for reason, refused in _refusals(kernel, variant, gpu):
        try:
            here = left & refused.holds_many({**constants, **variant.columns(matrix, refused.names)})
        except ExpressionError:  # said of the configuration by its plan
            continue
        left &= ~here
        if count := int(np.count_nonzero(here)):
            counts[reason] = counts.get(reason, 0) + count
    return counts


def _refusals(
    kernel: KernelSpec, variant: VariantSpec, gpu: Gpu
) -> Iterator[tuple[str, arithmetic.Expression]]:
    """Return why a launch of a variant is refused, each with the condition that says where."""
    if variant.call is not None:
        return
    whens = [f"not ({launch.when.text})" for launch in variant.launches if launch.when is not None]
    if len(whens) == len(variant.launches) and not any(launch.repeat for launch in variant.launches):
        yield "having no launch", arithmetic.parse(" and ".join(whens))
    for launch in variant.launches:
        for reason, condition in _of_launch(kernel, variant, launch, gpu):
            refused = arithmetic.parse(
                f"{launch.condition} and ({condition})" if launch.condition else condition
            )
            if not refused.names & launch.varying:  # else its plan says it
                yield reason, refused


def _of_launch(
    kernel: KernelSpec, variant: VariantSpec, launch: LaunchSpec, gpu: Gpu
) -> Iterator[tuple[str, str]]:
    for what, unit, extents, limits in (
        ("grid", "blocks", launch.grid, GRID_LIMITS),
        ("block", "threads", launch.block, BLOCK_LIMITS),
        ("cluster", "blocks", launch.cluster, CLUSTER_LIMITS),
    ):
        for axis, extent, limit in zip("xyz", extents, limits, strict=False):
            if _divides(extent.text):
                yield f"a fraction of {unit} in {axis}", f"({extent.text}) % 1 != 0"
            yield f"a {what} of more than {limit} {unit} in {axis}", f"({extent.text}) > {limit}"
            yield f"a {what} of no {unit} in {axis}", f"({extent.text}) < 1"
    counts = [f"max(1, {loop.count.text})" for loop in launch.repeat if not loop.count.names & launch.varying]
    yield f"more than {MAX_LAUNCHES} launches", f"{' * '.join(counts) or 1} > {MAX_LAUNCHES}"
    threads, shared_bytes = gpu.max_threads_per_block, gpu.shared_bytes_optin
    of_a_block = " * ".join(f"({extent.text})" for extent in launch.block)
    yield f"a block of more than {threads} threads", f"{of_a_block} > {threads}"
    yield f"more than {shared_bytes} bytes of shared memory", f"({launch.shared_bytes.text}) > {shared_bytes}"
    if launch.cluster or any(one.map is not None for one in launch.arguments):
        yield "a cluster or a tensor map, which need compute capability 9.0", "cc < 90"
    for grid, cluster in zip(launch.grid, launch.cluster, strict=False):
        yield "a grid that is no multiple of its cluster", f"({grid.text}) % ({cluster.text}) != 0"
    for argument in (leaf for one in launch.arguments for leaf in one.leaves):
        text = argument.value.text if argument.value is not None else argument.name
        whole = text in variant.parameters and all(
            isinstance(v, int) for v in variant.parameters[text].values
        )
        narrow = DTYPES[argument.dtype].whole and ITEMSIZE[argument.dtype] < 8
        if (argument.value is not None or text in kernel.sizes or whole) and narrow:
            low, high = DTYPES[argument.dtype].limits
            if _divides(text):
                yield f"{text}, a fraction for {argument.dtype}", f"({text}) % 1 != 0"
            yield f"{text} beyond {argument.dtype}", f"({text}) > {high} or ({text}) < {low}"


def _divides(text: str) -> bool:
    """Return whether an expression may be a fraction of whole numbers."""
    return "/" in text.replace("//", "")
