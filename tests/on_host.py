"""A configuration's launches on the CPU, by the emulator, at any sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from tuner.core.model import Configuration, Gpu, Problem
from tuner.inspect.emulator.host import HostArray, HostKernel, KernelFault, Schedule, launch_arguments
from tuner.kernel.plan import make_plan
from tuner.kernel.render import render
from tuner.kernel.spec import KernelSpec
from tuner.runtime.launches import Launch, Plan
from tuner.runtime.structs import struct_argument
from tuner.winners.records import APART


def apart(launch: Launch, pitch: int) -> Launch:
    """Return a launch whose C is passed as that of a slice: its address and the elements from row to row."""
    of_slice = struct_argument([("buffer", "c", 0), ("scalar", "int32", pitch)], 1)
    arguments = [of_slice if one[:2] == ("buffer", "c") else one for one in launch.arguments]
    return replace(launch, arguments=tuple(arguments))


def rendered_apart(configuration: Configuration, pitch: int) -> Configuration:
    """Return a configuration as templates get it; for code that writes to slices where there is a pitch."""
    more = {APART: True} if pitch else {}
    return Configuration.of(configuration.variant, {**configuration.values, **more})


class HostConfiguration:
    """All launches of a configuration, compiled for the CPU once, to be run at any sizes.

    Args:
        kernel: whose configuration it is.
        problem: for everything but the sizes.
        gpu: few SMs make persistent blocks loop.
        configuration: what is run.
        folder: where it is built.
        edit: what becomes of the sources before.
        pitch: elements from row to row of C, if it is a slice of a larger matrix.
    """

    def __init__(
        self,
        kernel: KernelSpec,
        problem: Problem,
        gpu: Gpu,
        configuration: Configuration,
        folder: Path,
        edit: Callable[[str], str] = str,
        pitch: int = 0,
    ) -> None:
        self._pitch = pitch
        self.kernel, self.problem, self.gpu, self.configuration = kernel, problem, gpu, configuration
        sources = render(kernel, problem, gpu, rendered_apart(configuration, pitch))
        self._kernels = [
            HostKernel(edit(source), entry, folder / str(number))
            for number, (source, entry) in enumerate(sources)
        ]

    def plan(self, sizes: Mapping[str, int]) -> Plan:
        """Return the launches at these sizes."""
        problem = self.kernel.problem(dict(sizes), self.problem.dtypes, self.problem.options)
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
            passed = apart(launch, self._pitch) if self._pitch else launch
            arguments = launch_arguments(passed, memory)
            kernel(launch.grid, launch.block, launch.shared_bytes, schedule, *arguments)
        for buffer in plan.scratch:
            if buffer.zeroed_once and memory[buffer.name].elements.any():
                raise KernelFault(f"{buffer.name} is not left as zeros, as the next launch needs it")
