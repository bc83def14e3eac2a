"""How many of a problem's valid configurations a GPU can launch, and why it cannot launch the others.

What a plan refuses of one configuration (``tuner.runtime.launch_limits``) is asked of all of them at once here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.core.errors import ExpressionError
from tuner.core.model import Gpu, Problem
from tuner.expressions.arithmetic import Expression, parse
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import LaunchSpec, VariantSpec
from tuner.runtime.dtypes import DTYPES, ITEMSIZE
from tuner.runtime.launch_limits import BLOCK_LIMITS, CLUSTER_LIMITS, GRID_LIMITS
from tuner.runtime.repeats import MAX_LAUNCHES


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


def _refusals(kernel: KernelSpec, variant: VariantSpec, gpu: Gpu) -> Iterator[tuple[str, Expression]]:
    """Return why a launch of a variant is refused, each with the condition that says where."""
    if variant.call is not None:
        return
    whens = [f"not ({launch.when.text})" for launch in variant.launches if launch.when is not None]
    if len(whens) == len(variant.launches) and not any(launch.repeat for launch in variant.launches):
        yield "having no launch", parse(" and ".join(whens))
    for launch in variant.launches:
        for reason, condition in _of_launch(kernel, variant, launch, gpu):
            refused = parse(f"{launch.condition} and ({condition})" if launch.condition else condition)
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
