"""Compute the launches and buffers of a kernel for a problem and a configuration, as plain data for other processes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tuner.core.errors import KernelError
from tuner.core.model import Configuration, Gpu, Problem, Value
from tuner.expressions.arithmetic import Expression
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import ArgumentSpec, LaunchSpec
from tuner.runtime.launch_limits import (
    ALIGNMENT,
    BLOCK_LIMITS,
    GRID_LIMITS,
    NULL_POINTER,
    check_launch,
    cluster_of,
    fits,
    map_argument,
    rounded,
    triple,
)
from tuner.runtime.launches import Buffer, Launch, Plan


def tensors_of(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> tuple[Buffer, ...]:
    """Return the problem's tensors with shape, dtype and layout.

    Raises:
        KernelError: a dimension is no whole number above 0, or no tensor is an output.
    """
    names = kernel.environment(problem, gpu)
    buffers = []
    for tensor in kernel.present(problem).values():
        shape = tuple(_whole(dim, names, f"shape of {tensor.name}", minimum=1) for dim in tensor.shape)
        transposed = tensor.transposed is not None and bool(tensor.transposed.evaluate(names))
        shape = shape[::-1] if transposed else shape
        dtype = problem.dtypes.get(tensor.dtype, tensor.dtype)
        buffers.append(Buffer(tensor.name, shape, dtype, tensor.role, tensor.init, transposed))
    if all(buffer.role == "input" for buffer in buffers):
        raise KernelError(f"{problem} has no output", "correct the when of the outputs")
    return tuple(buffers)


def scalars_of(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> dict[str, tuple[str, Value]]:
    """Return dtype and value of the kernel's scalars by name, each value rounded to its dtype."""
    names = kernel.environment(problem, gpu)
    return {
        scalar.name: (dtype, rounded(_fits(scalar.value.evaluate(names), dtype, scalar.name), dtype))
        for scalar in kernel.scalars.values()
        for dtype in [problem.dtypes.get(scalar.dtype, scalar.dtype)]
    }


def make_plan(kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration) -> Plan:
    """Return the launches and scratch memory of one configuration.

    Raises:
        UnlaunchableError: a grid, block or amount of shared memory is beyond the GPU's limits.
    """
    variant = kernel.variants[configuration.variant]
    names = {**kernel.environment(problem, gpu), **configuration.values}
    scratch = tuple(
        Buffer(
            item.name,
            tuple(_whole(dim, names, f"shape of {item.name}", minimum=1) for dim in item.shape),
            problem.dtypes.get(item.dtype, item.dtype),
            "scratch",
            zeroed=item.zeroed,
            zeroed_once=item.zeroed_once,
        )
        for item in variant.scratch
        if item.when is None or item.when.evaluate(names)
    )
    scalars = scalars_of(kernel, problem, gpu)
    allocated = {item.name for item in scratch}
    buffers = {
        **_pointers(kernel, problem),
        **{item.name: item.name in allocated for item in variant.scratch},
    }
    matrices = {buffer.name: buffer for buffer in (*tensors_of(kernel, problem, gpu), *scratch)}
    specs = kernel.launches(problem, gpu, configuration)
    launches = tuple(_launch(launch, names, buffers, scalars, gpu, matrices) for launch in specs)
    return Plan(launches, scratch)


def _pointers(kernel: KernelSpec, problem: Problem) -> dict[str, bool]:
    """Return for each of the kernel's tensors by name whether the problem has it."""
    present = kernel.present(problem)
    return {name: name in present for name in kernel.tensors}


def reference_launch(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> Launch | None:
    """Return the launch of the CUDA reference; None if the kernel has none."""
    spec = kernel.reference.cuda
    if spec is None:
        return None
    buffers = {
        f"{name}{suffix}": present
        for name, present in _pointers(kernel, problem).items()
        for suffix in ("", "_magnitude", "_initial")
    }
    return _launch(spec, kernel.environment(problem, gpu), buffers, scalars_of(kernel, problem, gpu), gpu)


def settle_launch(spec: LaunchSpec, kernel: KernelSpec, problem: Problem, gpu: Gpu) -> Launch:
    """Return a launch that belongs to no variant: its arguments are tensors, scalars and sizes.

    Raises:
        UnlaunchableError: a grid, block or amount of shared memory is beyond the GPU's limits.
    """
    names = kernel.environment(problem, gpu)
    return _launch(spec, names, _pointers(kernel, problem), scalars_of(kernel, problem, gpu), gpu)


def _launch(
    spec: LaunchSpec,
    names: Mapping[str, Any],
    buffers: Mapping[str, bool],
    scalars: Mapping[str, tuple[str, Value]],
    gpu: Gpu,
    matrices: Mapping[str, Buffer] | None = None,
) -> Launch:
    grid = triple(_extents(spec.grid, names, "grid"), "grid", GRID_LIMITS)
    cluster = _extents(spec.cluster, names, "cluster")
    launch = Launch(
        grid,
        triple(_extents(spec.block, names, "block"), "block", BLOCK_LIMITS),
        _whole(spec.shared_bytes, names, "shared_bytes"),
        _arguments(spec, names, buffers, scalars, gpu, matrices or {}),
        cluster_of(cluster, grid, gpu.cc),
        spec.cooperative,
        None if spec.carveout is None else _whole(spec.carveout, names, "carveout"),
        _alignment(spec, names),
        spec.resident is not None and bool(spec.resident.evaluate(names)),
        spec.programmatic,
    )
    check_launch(launch, names)
    return launch


def _alignment(spec: LaunchSpec, names: Mapping[str, Any]) -> int:
    if spec.alignment is None:
        return 1
    alignment = _whole(spec.alignment, names, "alignment", minimum=1)
    if ALIGNMENT % alignment:
        raise KernelError(
            f"{spec.alignment.where or 'alignment'}: {spec.alignment.text} = {alignment}",
            f"it must be a power of two up to {ALIGNMENT}, the alignment of all tensors",
        )
    return alignment


def _arguments(
    spec: LaunchSpec,
    names: Mapping[str, Any],
    buffers: Mapping[str, bool],
    scalars: Mapping[str, tuple[str, Value]],
    gpu: Gpu,
    matrices: Mapping[str, Buffer],
) -> tuple[tuple[str, str, Value], ...]:
    arguments: list[tuple[str, str, Value]] = []
    for argument in spec.arguments:
        if argument.value is not None:
            number = _fits(argument.value.evaluate(names), argument.dtype, argument.value.text)
            arguments.append(("scalar", argument.dtype, number))
        elif argument.cluster_order is not None:
            size = _whole(argument.cluster_order, names, "cluster_order")
            arguments += [("cluster_order", "uint8", size)] if size else []
        elif argument.map is not None:
            arguments.append(_map(argument, names, matrices, gpu))
        elif argument.name in buffers:
            present = buffers[argument.name]
            arguments.append(("buffer", argument.name, 0) if present else NULL_POINTER)
        elif argument.name in scalars:
            arguments.append(("scalar", *scalars[argument.name]))
        else:
            value = names[argument.name]
            dtype = "float32" if isinstance(value, float) else "int32"
            arguments.append(("scalar", dtype, _fits(value, dtype, argument.name)))
    return tuple(arguments)


def _map(
    argument: ArgumentSpec, names: Mapping[str, Any], matrices: Mapping[str, Buffer], gpu: Gpu
) -> tuple[str, str, str]:
    """Return the tensor map of the first matrix that is present, as an argument."""
    spec = argument.map
    assert spec is not None
    matrix = next((matrices[name] for name in (argument.name, *spec.instead) if name in matrices), None)
    what = f"tensor map of {matrix.name if matrix else argument.name}"
    rows, columns = (_whole(side, names, f"box of the {what}", minimum=1) for side in spec.box)
    swizzle = _whole(spec.swizzle, names, f"swizzle of the {what}")
    promotion = _whole(spec.promotion, names, f"l2_promotion of the {what}")
    return map_argument(matrix, what, (rows, columns), swizzle, promotion, gpu.cc)


def _extents(items: tuple[Expression, ...], names: Mapping[str, Any], what: str) -> list[int]:
    return [_whole(item, names, what, minimum=1) for item in items]


def _whole(expression: Expression, names: Mapping[str, Any], what: str, minimum: int = 0) -> int:
    value = expression.evaluate(names)
    if isinstance(value, str) or not math.isfinite(value) or value != int(value) or value < minimum:
        raise KernelError(
            f"{expression.where or what}: {expression.text} = {value}",
            f"it must be a whole number from {minimum} up",
        )
    return int(value)


def _fits(value: Any, dtype: str, what: str) -> float:
    if isinstance(value, str):
        raise KernelError(f"argument {what} is the text {value!r}", "a kernel takes numbers only")
    return fits(value, dtype, what)
