"""What a configuration becomes, launch by launch: source, entry, grid, block, shared memory and arguments."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.core.errors import KernelError
from tuner.core.model import Configuration, Gpu, Problem
from tuner.kernel.line_map import with_line_directives
from tuner.kernel.plan import make_plan
from tuner.kernel.render import line_map, render_launch, template_name
from tuner.kernel.spec import KernelSpec
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


@dataclass(frozen=True)
class RenderedConfiguration:
    """All launches of a configuration, in order, with what they belong to."""

    kernel: KernelSpec
    problem: Problem
    gpu: Gpu
    configuration: Configuration
    plan: Plan
    launches: tuple[RenderedLaunch, ...]

    def with_lines(self, launch: RenderedLaunch) -> str | None:
        """Return a launch's source with ``#line`` directives; None where its lines cannot be told."""
        if launch.spec.template.suffix != ".j2":
            return launch.source  # it has one already
        lines = line_map(self.kernel, launch.spec, self.problem, self.gpu, self.configuration)
        return with_line_directives(launch.source, lines) if lines is not None else None


def render_configuration(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration
) -> RenderedConfiguration:
    """Return what a configuration becomes.

    Raises:
        KernelError: a template cannot be rendered.
        UnlaunchableError: a grid, block or amount of shared memory is beyond the GPU's limits.
    """
    plan = make_plan(kernel, problem, gpu, configuration)
    rendered = []
    try:
        for spec, launch in zip(kernel.launches(problem, gpu, configuration), plan.launches, strict=True):
            source, entry = render_launch(kernel, spec, problem, gpu, configuration)
            name = template_name(kernel.folder, spec.template)
            rendered.append(RenderedLaunch(spec, name, entry, source, launch))
    except MemoryError:
        raise KernelError("out of memory while rendering", "shorten what the template collects") from None
    return RenderedConfiguration(kernel, problem, gpu, configuration, plan, tuple(rendered))
