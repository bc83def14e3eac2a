"""How a configuration's warps lie in memory, by a run on the CPU: sectors of global memory, banks of shared memory."""

from __future__ import annotations

from contextlib import closing

from tuner.core.files import temporary_folder
from tuner.inspect.check.emulation import problems_on_host
from tuner.inspect.check.host_children import HostChildren, Run, elements_of, unavailable
from tuner.inspect.check.host_worker import HostRequest
from tuner.inspect.emulator.accesses import Pattern
from tuner.report.configurations import ChosenConfiguration
from tuner.report.tables import counted

MOST = 1 << 20
"""Accesses of a launch that are looked at."""


def patterns_of(chosen: ChosenConfiguration) -> tuple[tuple[tuple[Pattern, ...], ...], str]:
    """Run a configuration on the CPU, at the largest of the small sizes that it is for.

    Returns:
        What the warps of each launch ask of memory, and the size, or why it was not run.
    """
    kernel, problem, configuration = chosen.kernel, chosen.problem, chosen.configuration
    gpu, around, whole = problems_on_host(kernel, problem, chosen.gpu, configuration)
    if why := "no small problem is valid for it" if not whole + around else unavailable():
        return (), f"not examined: {why}"
    largest = max(whole + around, key=elements_of)
    with temporary_folder() as folder, closing(HostChildren(1)) as children:
        request = HostRequest(kernel.file, gpu, (largest,), folder, configuration=configuration, most=MOST)
        outcome = children.ask(Run(("variants", configuration.variant), str(configuration), request))
    if why := outcome.note or "; ".join(fault.problem for fault in outcome.faults):
        return (), f"not examined: {why}"
    requests = sum(one.requests for launch in outcome.patterns for one in launch)
    return (
        outcome.patterns,
        f"examined: {counted(requests, 'request')} of warps, as it runs on the CPU at {largest.sizes_text}",
    )
