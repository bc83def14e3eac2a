"""What a configuration becomes, launch by launch: source, entry, grid, block, shared memory and arguments."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.core.model import Configuration, Gpu, Problem
from tuner.kernel.line_map import with_line_directives
from tuner.kernel.plan import make_plan
from tuner.kernel.render import line_map, render_launch
from tuner.kernel.spec import KernelSpec
from tuner.kernel.templates import apart, template_name
from tuner.kernel.variant_spec import LaunchSpec
from tuner.runtime.launches import Launch, Plan


@dataclass(frozen=True)
class RenderedLaunch:
    """One launch of a configuration."""

    spec: LaunchSpec
    template: str
    """The template's name."""
    entry: str
    source: str
    """What is compiled."""
    launch: Launch
    lined: str | None
    """The source with ``#line`` directives; None where its lines cannot be told."""


@dataclass(frozen=True)
class RenderedConfiguration:
    """All launches of a configuration, in order, with what they belong to."""

    kernel: KernelSpec
    problem: Problem
    gpu: Gpu
    configuration: Configuration
    plan: Plan
    launches: tuple[RenderedLaunch, ...]


def render_configuration(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration
) -> RenderedConfiguration:
    """Return what a configuration becomes.

    Raises:
        KernelError: a template cannot be rendered.
        UnlaunchableError: a grid, block or amount of shared memory is beyond the GPU's limits.
    """
    plan = make_plan(kernel, problem, gpu, configuration)
    specs = kernel.launches(problem, gpu, configuration)

    def rendered() -> list[tuple[str, str, str | None]]:
        launches = []
        for spec in specs:
            source, entry = render_launch(kernel, spec, problem, gpu, configuration)
            lined: str | None = source  # a plain file has a directive already
            if spec.template.suffix == ".j2":
                lines = line_map(kernel, spec, problem, gpu, configuration)
                lined = with_line_directives(source, lines) if lines is not None else None
            launches.append((source, entry, lined))
        return launches

    launches = [
        RenderedLaunch(spec, template_name(kernel.folder, spec.template), entry, source, launch, lined)
        for spec, launch, (source, entry, lined) in zip(
            specs, plan.launches, apart(rendered, kernel.file.name), strict=True
        )
    ]
    return RenderedConfiguration(kernel, problem, gpu, configuration, plan, tuple(launches))
