"""Everything that is checked of a kernel's file, in order: each step needs what the ones before have chosen right."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.children.nvrtc import nvrtc_version
from tuner.core.errors import CompileError
from tuner.inspect.check.compiling import CompiledVariants, check_compiling
from tuner.inspect.check.conditions import check_conditions, check_plans, check_values
from tuner.inspect.check.emulation import HostChildren, check_on_host, check_references
from tuner.inspect.check.findings import Report, Watch, watch_nothing
from tuner.inspect.check.loading import load
from tuner.inspect.check.references import check_reference
from tuner.inspect.check.subjects import Sampling, check_problems, subjects
from tuner.inspect.check.uses import check_uses
from tuner.kernel.spec import KernelSpec


@dataclass(frozen=True)
class Checks:
    """What is checked, and with how many processes.

    Attributes:
        sampling: GPUs and configurations.
        jobs: processes; None for one a core.
        on_host: whether plain kernels are run on the CPU, too.
        watch: told how far it is.
    """

    sampling: Sampling
    jobs: int | None = None
    on_host: bool = True
    watch: Watch = watch_nothing


def check_kernel(file: Path, checks: Checks) -> Report:
    """Return what is wrong with a kernel's file.

    Args:
        file: the TOML file.
        checks: what is checked.
    """
    kernel, report = load(file)
    report.watch = checks.watch
    if kernel is None:
        report.note("nothing was compiled: correct the file first")
        return report
    with closing(HostChildren(checks.jobs)) as children:
        _check(kernel, checks, children, report)
    return report


def _check(kernel: KernelSpec, checks: Checks, children: HostChildren, report: Report) -> None:
    sampling = checks.sampling
    check_values(kernel, sampling, report)
    check_reference(kernel, sampling.gpus[0], report)
    before = len(report.findings)
    check_references(kernel, sampling.gpus[0], children, report)
    comparable = len(report.findings) == before
    wrong = check_conditions(kernel, sampling, report)
    variants = {name: variant for name, variant in kernel.variants.items() if name not in wrong}
    sound = replace(kernel, variants=variants)
    chosen = subjects(sound, sampling, report)
    check_problems(sound, sampling, chosen, report)
    for subject in chosen:
        check_plans(kernel, subject, report)
    compiled = CompiledVariants()
    try:
        nvrtc_version()
    except CompileError as error:
        report.note(f"nothing was compiled: {error}")
    else:
        compiled = check_compiling(kernel, chosen, sampling, checks.jobs, report)
    check_uses(kernel, compiled.misspelt, report)
    if checks.on_host and comparable:
        running = [subject for subject in chosen if subject.variant.name not in compiled.broken]
        check_on_host(kernel, running, sampling.gpus[0], children, report)
