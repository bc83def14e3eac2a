"""A configuration's launches on the CPU, by the emulator, at any sizes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.core.model import Configuration, Gpu, Problem
from tuner.inspect.emulator.host import HostArray, HostKernel, KernelFault, Schedule, launch_arguments
from tuner.kernel.plan import invalid_reason, make_plan, tensors_of
from tuner.kernel.reference import numpy_of
from tuner.kernel.render import render
from tuner.kernel.spec import KernelSpec
from tuner.runtime.entries import Manifest
from tuner.runtime.interpret import interpret
from tuner.runtime.launch_limits import DEVICE_LIMITS
from tuner.runtime.launches import Argument, Buffer, Plan
from tuner.runtime.structs import struct_argument
from tuner.winners.records import BundledConfiguration, CompiledLaunch, computation_of, configuration_of


def of_slices(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration, pitches: Mapping[str, int]
) -> tuple[list[tuple[str, str]], Plan]:
    """Return sources and launches of a configuration that writes a slice, and reads others like it.

    Args:
        pitches: elements from row to row of those that are slices, by name.
    """
    bundled = BundledConfiguration(kernel, problem, gpu, configuration)
    sliced = bundled.of_slices
    assert sliced is not None
    compiled = {number: CompiledLaunch("", "", "") for number in bundled.launches}
    entry = configuration_of(bundled, 0, compiled, None, compiled)
    computations = (computation_of(kernel, problem),)
    manifest = Manifest("", kernel.name, "", "", 0, tuple(kernel.sizes), {}, computations, (entry,), (), ())
    limits = {name: getattr(gpu, name) for name in DEVICE_LIMITS}
    plan = interpret(manifest, 0, problem.sizes, limits, apart=True).plan

    def strided(argument: Argument) -> Argument:
        if argument[0] == "struct":
            alignment, fields = json.loads(str(argument[2]))
            return struct_argument([strided(tuple(field)) for field in fields], alignment)
        kind, name, own = argument
        return (kind, name, pitches.get(name, own)) if kind == "stride" else argument

    launches = [replace(one, arguments=tuple(map(strided, one.arguments))) for one in plan.launches]
    return render(kernel, problem, gpu, sliced.rendered), replace(plan, launches=tuple(launches))


class HostConfiguration:
    """All launches of a configuration, compiled for the CPU once, to be run at any sizes.

    Args:
        kernel: whose configuration it is.
        problem: for everything but the sizes.
        gpu: few SMs make persistent blocks loop.
        configuration: what is run.
        folder: where it is built.
        edit: what becomes of the sources before.
        pitches: elements from row to row of those of C and of what has its shape that are slices of larger matrices.
    """

    def __init__(
        self,
        kernel: KernelSpec,
        problem: Problem,
        gpu: Gpu,
        configuration: Configuration,
        folder: Path,
        edit: Callable[[str], str] = str,
        pitches: Mapping[str, int] | None = None,
    ) -> None:
        self.pitches = pitches or {}
        self.kernel, self.problem, self.gpu, self.configuration = kernel, problem, gpu, configuration
        sources = render(kernel, problem, gpu, configuration)
        if pitches:
            sources, _ = of_slices(kernel, problem, gpu, configuration, pitches)
        self._kernels = [
            HostKernel(edit(source), entry, folder / str(number))
            for number, (source, entry) in enumerate(sources)
        ]

    def plan(self, sizes: Mapping[str, int]) -> Plan:
        """Return the launches at these sizes."""
        problem = self.kernel.problem(dict(sizes), self.problem.dtypes, self.problem.options)
        if self.pitches:
            return of_slices(self.kernel, problem, self.gpu, self.configuration, self.pitches)[1]
        return make_plan(self.kernel, problem, self.gpu, self.configuration)

    def scratch(self, sizes: Mapping[str, int]) -> dict[str, HostArray]:
        """Return the memory between the launches: as it was left by others, or zero where the kernel asks for that."""
        memory = {}
        for buffer in self.plan(sizes).scratch:
            memory[buffer.name] = HostArray(buffer.count, buffer.dtype, 256, buffer.name)
            if buffer.zeroed_once:
                memory[buffer.name].elements[:] = 0
        return memory

    def run(self, sizes: Mapping[str, int], memory: Mapping[str, HostArray], schedule: Schedule) -> None:
        """Run all launches, on tensors and scratch by name.

        Raises:
            KernelFault: as :class:`HostKernel`; or what must be left as zeros is not.
        """
        plan = self.plan(sizes)
        for kernel, launch in zip(self._kernels, plan.launches, strict=True):
            arguments = launch_arguments(launch, memory)
            kernel(launch.grid, launch.block, launch.shared_bytes, schedule, *arguments)
        for buffer in plan.scratch:
            if buffer.zeroed_once and memory[buffer.name].elements.any():
                raise KernelFault(f"{buffer.name} is not left as zeros, as the next launch needs it")


def numbers_of(buffer: Buffer, of: Problem, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Return what a tensor means: small integers, of which bfloat16 has every sum, or what its function gives."""
    meant = buffer.shape[::-1] if buffer.transposed else buffer.shape
    if buffer.function:
        cuts = np.sort(rng.integers(0, of.sizes["m"] + 1, buffer.count - 1))
        return np.concatenate([cuts, [of.sizes["m"]]]).astype(np.int32)
    low, high = (-1, 2) if buffer.name in "ab" else (1, 3) if buffer.between else (-2, 3)
    return rng.integers(low, high, meant).astype(np.float32)


def product_of(
    kernel: KernelSpec,
    of: Problem,
    gpu: Gpu,
    configuration: Configuration,
    folder: Path,
    pitches: Mapping[str, int] | None = None,
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return what :func:`product_at` does at a problem's own sizes, in an order drawn from a seed."""
    assert not (reason := invalid_reason(kernel, of, gpu, configuration)), reason
    host = HostConfiguration(kernel, of, gpu, configuration, folder, pitches=pitches)
    return product_at(host, of.sizes, Schedule(1, shuffled=True), alignment=16)


def product_at(
    host: HostConfiguration,
    sizes: Mapping[str, int],
    schedule: Schedule,
    scratch: Mapping[str, HostArray] | None = None,
    alignment: int = 0,
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return C of small integers as a configuration computes it, and as it is; nothing is written beside it.

    Args:
        scratch: what earlier launches have left.
        alignment: of all tensors; 0 is what the first launch asks for, and no more.
    """
    kernel, pitches, rng = host.kernel, host.pitches, np.random.default_rng(0)
    of = kernel.problem(dict(sizes), host.problem.dtypes, host.problem.options)
    alignment = alignment or host.plan(sizes).launches[0].alignment
    named: dict[str, Any] = {**sizes, "alpha": 0.5, "beta": 2.0}
    memory = {**(scratch or host.scratch(sizes))}
    for buffer in tensors_of(kernel, of, host.gpu):
        if buffer.role == "input":
            named[buffer.name] = array = numbers_of(buffer, of, rng)
            beside = pitches.get(buffer.name, array.shape[-1]) - array.shape[-1]
            if beside:
                array = np.pad(array, [*[(0, 0)] * (array.ndim - 1), (0, beside)], constant_values=np.nan)
            memory[buffer.name] = HostArray(array.size, buffer.dtype, alignment, buffer.name)
            memory[buffer.name].fill((array.T if buffer.transposed else array).ravel())
    expected = numpy_of(kernel, of)["c"].evaluate(named)[0]
    n = expected.shape[-1]
    rows, apart = expected.size // n, pitches.get("c", n)
    c = memory["c"] = HostArray((rows - 1) * apart + n, of.dtypes["output"], alignment, "c")
    host.run(sizes, memory, schedule)
    whole = np.pad(c.numbers.astype(np.float32), (0, apart - n), constant_values=np.nan).reshape(rows, apart)
    assert np.isnan(whole[:, n:]).all()
    return whole[:, :n].reshape(expected.shape), expected


def worst_error(host: HostConfiguration, sizes: Mapping[str, int], schedule: Schedule) -> float:
    """Return the largest error of an element of a product of normal numbers, in units of what rounding allows for."""
    kernel, rng, memory = host.kernel, np.random.default_rng(0), host.scratch(sizes)
    of = kernel.problem(dict(sizes), host.problem.dtypes, host.problem.options)
    named: dict[str, Any] = {**sizes}
    for buffer in tensors_of(kernel, of, host.gpu):
        memory[buffer.name] = HostArray(buffer.count, buffer.dtype, 16, buffer.name)
        if buffer.role == "input":
            memory[buffer.name].fill(rng.normal(size=buffer.count))
            array = memory[buffer.name].numbers.astype(np.float64).reshape(buffer.shape)
            named[buffer.name] = array.T if buffer.transposed else array
    host.run(sizes, memory, schedule)
    expected, magnitude = numpy_of(kernel, of)["c"].evaluate(named)
    unit = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}[of.dtypes["output"]]
    allowed = (sizes["k"] + 4) * 2.0**-24 * magnitude + unit * abs(expected) + 2.0**-24
    errors = abs(memory["c"].numbers.reshape(expected.shape) - expected) / allowed
    return float(np.where(np.isfinite(errors), errors, np.inf).max())
