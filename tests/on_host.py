"""A configuration's launches on the CPU, by the emulator, at any sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tuner.core.model import Configuration, Gpu, Problem
from tuner.inspect.emulator.host import HostArray, HostKernel, KernelFault, Schedule, launch_arguments
from tuner.kernel.plan import make_plan
from tuner.kernel.render import render
from tuner.kernel.spec import KernelSpec
from tuner.runtime.launches import Plan


class HostConfiguration:
    """All launches of a configuration, compiled for the CPU once, to be run at any sizes.

    Args:
        kernel: whose configuration it is.
        problem: for everything but the sizes.
        gpu: few SMs make persistent blocks loop.
        configuration: what is run.
        folder: where it is built.
        edit: what becomes of the sources before.
    """

    def __init__(
        self,
        kernel: KernelSpec,
        problem: Problem,
        gpu: Gpu,
        configuration: Configuration,
        folder: Path,
        edit: Callable[[str], str] = str,
    ) -> None:
        self.kernel, self.problem, self.gpu, self.configuration = kernel, problem, gpu, configuration
        sources = render(kernel, problem, gpu, configuration)
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
            arguments = launch_arguments(launch, memory)
            kernel(launch.grid, launch.block, launch.shared_bytes, schedule, *arguments)
        for buffer in plan.scratch:
            if buffer.zeroed_once and memory[buffer.name].elements.any():
                raise KernelFault(f"{buffer.name} is not left as zeros, as the next launch needs it")
