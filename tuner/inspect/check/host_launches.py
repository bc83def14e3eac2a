"""Runs the launches of a configuration, or of the CUDA reference, on arrays of the host."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from tuner.core.model import Configuration, Gpu, Problem
from tuner.inspect.check.host_data import HostData
from tuner.inspect.emulator.accesses import Pattern, Told
from tuner.inspect.emulator.building import NotForHost
from tuner.inspect.emulator.host import (
    HostArray,
    HostKernel,
    KernelFault,
    Schedule,
    in_structs,
    launch_arguments,
)
from tuner.kernel.contents import NAN
from tuner.kernel.headers import with_own_headers
from tuner.kernel.options import options_of
from tuner.kernel.plan import make_plan, reference_configuration, reference_launch
from tuner.kernel.reference import Expected
from tuner.kernel.render import line_map, render_launch
from tuner.kernel.source.device_part import needed_part
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import LaunchSpec
from tuner.runtime.launches import Launch

RESIDENT = 4
"""Blocks at once, of launches whose blocks do not wait for each other."""


class HostLaunches:
    """The launches of a kernel on the CPU, each source compiled once.

    Args:
        kernel: whose they are.
        gpu: that they are for.
        folder: for what is compiled.
        most: accesses of a launch that are recorded; then variables that change are no matter.
    """

    def __init__(self, kernel: KernelSpec, gpu: Gpu, folder: Path, most: int) -> None:
        self._kernel, self._gpu, self._folder, self._most = kernel, gpu, folder, most
        self._patterns: dict[int, tuple[Pattern, ...]] = {}
        self.unset: Told | None = None
        """Of a configuration's launches, the first that reads what nothing has written."""
        self._compiled: dict[tuple[object, ...], HostKernel] = {}

    @property
    def patterns(self) -> tuple[tuple[Pattern, ...], ...]:
        """What the warps of each launch of the last configuration have asked of memory."""
        return tuple(self._patterns[code] for code in sorted(self._patterns))

    def run(
        self,
        problem: Problem,
        configuration: Configuration,
        memory: dict[str, HostArray],
        poison: int = NAN,
    ) -> None:
        """Run a configuration.

        Args:
            problem: whose tensors are in the memory.
            configuration: what is run.
            memory: tensors by name; gets the scratch memory.
            poison: what scratch and shared memory hold before.

        Raises:
            KernelFault: it does what it may not, or leaves what it may not.
            NotForHost: it cannot run on a CPU.
        """
        self.unset, self._patterns = None, {}
        plan = make_plan(self._kernel, problem, self._gpu, configuration)
        specs = self._kernel.launches(problem, self._gpu, configuration)
        for buffer in plan.scratch:
            memory[buffer.name] = HostArray(buffer.count, buffer.dtype, 256, buffer.name, poison)
            if buffer.zeroed or buffer.zeroed_once:
                memory[buffer.name].fill(np.zeros(buffer.count))
        ran = {
            self._run(specs[one.code], one, problem, configuration, memory, poison) for one in plan.launches
        }
        for compiled in () if self._most else ran:
            if fault := compiled.lasting.changed(plan.state):
                raise KernelFault(fault)
        for buffer in plan.scratch:
            if buffer.zeroed_once and memory[buffer.name].elements.any():
                raise KernelFault(f"{buffer.name} is not left as zeros, as the next run needs it")

    def of_reference(self, data: HostData) -> dict[str, Expected]:
        """Return what the CUDA reference makes of the inputs; errors as of :meth:`run`."""
        spec, launch = self._kernel.reference.cuda, reference_launch(self._kernel, data.problem, data.gpu)
        assert spec is not None and launch is not None
        memory = data.reference_memory()
        self._run(spec, launch, data.problem, reference_configuration(self._kernel), memory)
        return data.reference_results(memory)

    def _run(
        self,
        spec: LaunchSpec,
        launch: Launch,
        problem: Problem,
        configuration: Configuration,
        memory: Mapping[str, HostArray],
        poison: int = NAN,
    ) -> HostKernel:
        if launch.needs_cluster_order or any(kind == "map" for kind, _, _ in launch.arguments):
            raise NotForHost("it takes tensor maps, or clusters in an order")
        compiled = self._compile(spec, problem, configuration)
        for variable, tensor, _ in launch.constants:
            compiled.fill(variable, memory[tensor])
        together = 1 << 20 if launch.resident or launch.cooperative else math.prod(launch.cluster or (1,))
        schedule = Schedule(0, max(RESIDENT, together), together == 1, launch.cooperative, poison)
        arguments, others = launch_arguments(launch, memory), in_structs(launch, memory)
        shape = launch.grid, launch.block, launch.shared_bytes
        compiled(*shape, schedule, *arguments, others=others, most=self._most)
        if self._most:
            self._patterns.setdefault(launch.code, tuple(compiled.told.patterns(launch.threads)))
        if self.unset is None and compiled.told.seen.unset.line:
            self.unset = compiled.told
        return compiled

    def _compile(self, spec: LaunchSpec, problem: Problem, configuration: Configuration) -> HostKernel:
        source, entry = render_launch(self._kernel, spec, problem, self._gpu, configuration)
        of = configuration if configuration.variant else None
        options = options_of(self._kernel, problem, self._gpu, of)
        if spec.cluster and "_in_cluster_of<" not in source:  # by which rows.cuh.j2 says how many blocks
            raise NotForHost("it launches clusters")
        key = (source, entry, spec.constants, options)
        if key not in self._compiled:
            folder = self._folder / str(len(self._compiled))
            include = (spec.template.parent, *self._kernel.include)
            compiled = partial(
                HostKernel,
                entry=entry,
                folder=folder,
                include=include,
                variables=[variable for variable, _ in spec.constants],
                options=options,
                place=partial(self._place, spec, problem, configuration),
                cc=self._gpu.cc,
            )
            try:
                kernel = compiled(source)
            except NotForHost:
                whole = with_own_headers(source, include, spec.template.name)
                if (needed := needed_part(whole, entry)) == whole:
                    raise
                kernel = compiled(needed)
            self._compiled[key] = kernel
        return self._compiled[key]

    def _place(self, spec: LaunchSpec, problem: Problem, configuration: Configuration, line: int) -> str:
        """Return where a line of a rendered template comes from."""
        lines = line_map(self._kernel, spec, problem, self._gpu, configuration)
        place = lines.location(line) if lines is not None else None
        return f"{place.name}:{place.line}" if place else f"line {line} of the rendered {spec.template.name}"
