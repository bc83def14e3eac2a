"""A kernel's run on the CPU, as `tune check` asks for it."""

from __future__ import annotations

from pathlib import Path

from tuner.core.model import Configuration, Problem
from tuner.core.processes import Child
from tuner.inspect.check.host_worker import HostRequest, HostResult
from tuner.kernel.default import default_configuration
from tuner.kernel.load import read_kernel
from tuner.kernel.roofline import ARCHITECTURES

CpuChild = Child[HostRequest, HostResult]
GPU = ARCHITECTURES[90]


def cpu_run(
    child: CpuChild, file: Path, problem: Problem | None = None, configuration: Configuration | None = None
) -> HostResult:
    """Return what a child finds; the kernel's own problem and default configuration where there is no other."""
    kernel = read_kernel(file)
    problem = problem or kernel.problem()
    configuration = configuration or default_configuration(kernel, problem, GPU)
    child.send(HostRequest(file, GPU, (problem,), file.parent / "built", configuration=configuration))
    answer = child.receive(300.0)
    assert answer is not None and not answer.unsuitable, answer
    return answer
