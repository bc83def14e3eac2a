"""What can be said of a candidate without a GPU: whether it compiles, and whether its launches fit its kernels."""

from __future__ import annotations

from contextlib import closing

from tuner.children.compilation import RenderRequest
from tuner.children.compile_pool import CompilePool
from tuner.core import paths
from tuner.core.model import Gpu, Problem, Status
from tuner.inspect.check.findings import Report
from tuner.inspect.check.signatures import PlannedCall, check_signatures
from tuner.inspect.check.toml_lines import TomlLines
from tuner.kernel.default import default_configuration
from tuner.kernel.spec import KernelSpec
from tuner.studies.judging.task import Task, no_configuration


def seen_without_gpu(task: Task, candidate: KernelSpec, gpu: Gpu, jobs: int | None) -> tuple[str, str]:
    """Return the first fault of a candidate that needs no GPU to be seen, and what was looked at where there is none.

    Args:
        task: what it computes.
        candidate: the task, computed by it.
        gpu: that it is compiled for.
        jobs: compiling processes; None for one a core.
    """
    if any(variant.call for variant in candidate.variants.values()) or candidate.file.suffix == ".cubin":
        return "", "it can be read"
    with closing(CompilePool(jobs, paths.cubins())) as pool:
        faults = (_fault(task, problem, candidate, gpu, pool) for problem in task.problems)
        return next(filter(None, faults), ""), f"it compiles for {gpu.arch}, and its launches fit"


def _fault(task: Task, problem: Problem, candidate: KernelSpec, gpu: Gpu, pool: CompilePool) -> str:
    configuration = default_configuration(candidate, problem, gpu)
    if configuration is None:
        return no_configuration(candidate, problem, gpu)
    request = RenderRequest(task.kernel.file, problem, gpu, configuration, candidate=candidate.candidate)
    compiled = pool.submit(request).result()
    if compiled.status is not Status.OK or compiled.plan is None:
        return compiled.error
    variant = candidate.variants[configuration.variant]
    specs = candidate.launches(problem, gpu, configuration)
    place = ("variants", variant.name)
    calls = [
        PlannedCall(place, specs[one.code], one, compiled.sources[one.code], request)
        for one in compiled.plan.launches
    ]
    report = Report(candidate.file, TomlLines("", {}))
    check_signatures(candidate, calls, pool, report)
    return next((f"{one.problem}; {one.remedy}" for one in report.sorted), "")
