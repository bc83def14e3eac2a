"""Compute the launches and buffers of a kernel for a problem and a configuration, as plain data for other processes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from tuner.errors import KernelError, TunerError
from tuner.expressions.arithmetic import Expression
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import ArgumentSpec, LaunchSpec
from tuner.model import Configuration, Gpu, Problem, Value, canonical_json
from tuner.runtime.dtypes import ITEMSIZE
from tuner.runtime.launches import MAX_CLUSTERS, Buffer, Launch, Plan, TensorMap

GRID_LIMITS = (2**31 - 1, 65535, 65535)
BLOCK_LIMITS = (1024, 1024, 64)
CLUSTER_LIMITS = (16, 16, 16)
MAP_DTYPES = ("float32", "float16", "bfloat16")
"""Dtypes of matrices that may have a tensor map."""
ALIGNMENT = 256
"""Bytes of which the address of every tensor and scratch memory is a multiple: cuMemAlloc guarantees it."""
NULL_POINTER = ("scalar", "int64", 0)
INTEGER_RANGES = {
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int8": (-128, 127),
    "uint8": (0, 255),
}


class UnlaunchableError(TunerError):
    """The GPU cannot launch this configuration; raised before compiling."""


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
        scalar.name: (dtype, _rounded(_fits(scalar.value.evaluate(names), dtype, scalar.name), dtype))
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
    grid = _triple(spec.grid, names, "grid", GRID_LIMITS)
    block = _triple(spec.block, names, "block", BLOCK_LIMITS)
    threads = math.prod(block)
    if threads > gpu.max_threads_per_block:
        raise UnlaunchableError(
            f"a block of {threads} threads", f"this GPU allows {gpu.max_threads_per_block}"
        )
    shared = _whole(spec.shared_bytes, names, "shared_bytes")
    if shared > gpu.shared_bytes_optin:
        raise UnlaunchableError(
            f"{shared} bytes of shared memory", f"this GPU allows {gpu.shared_bytes_optin}"
        )
    arguments = _arguments(spec, names, buffers, scalars, gpu, matrices or {})
    cluster = _cluster(spec, names, grid, gpu)
    carveout = None if spec.carveout is None else _whole(spec.carveout, names, "carveout")
    alignment = _alignment(spec, names)
    resident = spec.resident is not None and bool(spec.resident.evaluate(names))
    if spec.programmatic and gpu.cc < 90:
        raise UnlaunchableError("a programmatic launch", "it needs compute capability 9.0")
    launch = Launch(
        grid,
        block,
        shared,
        arguments,
        cluster,
        spec.cooperative,
        carveout,
        alignment,
        resident,
        spec.programmatic,
    )
    if launch.needs_cluster_order and launch.clusters > MAX_CLUSTERS:
        raise UnlaunchableError(
            f"a table of numbers for {launch.clusters} clusters", f"such a table has {MAX_CLUSTERS}"
        )
    return launch


def _cluster(
    spec: LaunchSpec, names: Mapping[str, Any], grid: tuple[int, int, int], gpu: Gpu
) -> tuple[int, int, int] | None:
    """Return the blocks of a cluster; None without clusters, or if each block is one."""
    if not spec.cluster:
        return None
    cluster = _triple(spec.cluster, names, "cluster", CLUSTER_LIMITS)
    if gpu.cc < 90:
        raise UnlaunchableError("a launch in clusters", "clusters need compute capability 9.0")
    if any(g % c for g, c in zip(grid, cluster, strict=True)):
        raise UnlaunchableError(f"grid {grid} is no multiple of cluster {cluster}")
    return None if cluster == (1, 1, 1) else cluster


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
            arguments.append(("map", *_map(argument, names, matrices, gpu)))
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
) -> tuple[str, str]:
    """Return the name of the first matrix that is present, and its tensor map as JSON.

    Raises an error for what cuTensorMapEncodeTiled would reject, or would read wrongly.
    """
    spec = argument.map
    assert spec is not None
    matrix = next((matrices[name] for name in (argument.name, *spec.instead) if name in matrices), None)
    what = f"tensor map of {matrix.name if matrix else argument.name}"
    if gpu.cc < 90:
        raise UnlaunchableError(what, "tensor maps need compute capability 9.0")
    if matrix is None or len(matrix.shape) != 2 or matrix.dtype not in MAP_DTYPES:
        raise KernelError(what, f"maps are of matrices of {', '.join(MAP_DTYPES)}")
    box_rows, box_columns = (_whole(side, names, f"box of the {what}", minimum=1) for side in spec.box)
    swizzle = _whole(spec.swizzle, names, f"swizzle of the {what}")
    promotion = _whole(spec.promotion, names, f"l2_promotion of the {what}")
    if swizzle not in (0, 32, 64, 128) or promotion not in (0, 64, 128, 256):
        raise KernelError(
            f"{what}: swizzle {swizzle}, l2_promotion {promotion}",
            "swizzle is 0, 32, 64 or 128 bytes, l2_promotion 0, 64, 128 or 256",
        )
    width = box_columns * ITEMSIZE[matrix.dtype]
    if max(box_rows, box_columns) > 256 or width % 16 or (swizzle and width > swizzle):
        raise UnlaunchableError(
            f"{what}: a box of {box_rows} x {box_columns}",
            "a side has at most 256 elements; a row is a multiple of 16 bytes, and at most the swizzle",
        )
    if matrix.shape[1] * ITEMSIZE[matrix.dtype] % 16:
        raise UnlaunchableError(
            f"{what}: rows of {matrix.shape[1]} elements", "they must be a multiple of 16 bytes"
        )
    tensor_map = TensorMap(matrix.dtype, *matrix.shape, box_rows, box_columns, swizzle, promotion)
    return matrix.name, canonical_json(asdict(tensor_map))


def _triple(
    items: tuple[Expression, ...], names: Mapping[str, Any], what: str, limits: tuple[int, int, int]
) -> tuple[int, int, int]:
    sizes = [_whole(item, names, what, minimum=1) for item in items] + [1, 1]
    for size, limit in zip(sizes, limits, strict=False):
        if size > limit:
            raise UnlaunchableError(f"{what} of {size}", f"the limit in this dimension is {limit}")
    return sizes[0], sizes[1], sizes[2]


def _whole(expression: Expression, names: Mapping[str, Any], what: str, minimum: int = 0) -> int:
    value = expression.evaluate(names)
    if isinstance(value, str) or not math.isfinite(value) or value != int(value) or value < minimum:
        raise KernelError(
            f"{expression.where or what}: {expression.text} = {value}",
            f"it must be a whole number from {minimum} up",
        )
    return int(value)


def _rounded(value: Value, dtype: str) -> Value:
    """Return a scalar rounded to its dtype: the reference must use the same value as the kernel."""
    if dtype == "bfloat16":
        bits = int(np.float32(value).view(np.uint32))
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return float(np.uint32(bits & 0xFFFFFFFF).view(np.float32))
    return float(np.dtype(dtype).type(value)) if dtype in ("float32", "float16") else value


def _fits(value: Any, dtype: str, what: str) -> Value:
    if isinstance(value, str):
        raise KernelError(f"argument {what} is the text {value!r}", "a kernel takes numbers only")
    if dtype.startswith("float") or dtype == "bfloat16":
        return float(value)
    if not math.isfinite(value) or value != int(value):
        raise KernelError(
            f"argument {what} = {value} is not a whole number", f"give it a dtype other than {dtype}"
        )
    low, high = INTEGER_RANGES.get(dtype, (-(2**63), 2**63 - 1))
    if not low <= value <= high:
        raise UnlaunchableError(
            f"argument {what} = {value} does not fit {dtype}", 'pass { value = "...", dtype = "int64" }'
        )
    return int(value)
