"""``tune profile``: Nsight Compute on one configuration, and the figures that matter."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

from tuner.children.compile_pool import CompilePool
from tuner.children.job import ToolJob
from tuner.cli.commands.inspection import ProfileArguments
from tuner.cli.configuration import ChosenConfiguration, choose, refuse_wrong_names
from tuner.cli.gpu import describe_gpu, gpu_number, refuse_without_gpu
from tuner.core import paths
from tuner.core.conditions import Mode
from tuner.core.errors import CompileError
from tuner.core.files import refuse_missing_parent
from tuner.inspect.tools.cases import Case, as_runs, compile_cases
from tuner.inspect.tools.locate import NCU, find
from tuner.inspect.tools.nsight import profile as run_ncu
from tuner.inspect.tools.report import Profile, profile_as_json, show_profile
from tuner.report.tables import say, show_json

FOLDER = Path("results/profiles")
SUFFIX = ".ncu-rep"
MAX_NAME = 120
"""Characters of a report's name before its suffix; file systems allow 255 bytes."""


def profile(asked: ProfileArguments) -> None:
    """Profile a configuration with Nsight Compute, keep its report, and print the figures."""
    refuse_wrong_names(asked)
    if asked.output is not None:
        refuse_missing_parent(asked.output)
    refuse_without_gpu(asked.device_name)
    ncu = find(NCU, asked.ncu_path)  # a missing tool is reported before anything is started
    chosen = choose(asked, describe_gpu(asked.device_name))
    tuned_warm = chosen.conditions is not None and chosen.conditions.mode is Mode.WARM
    warm = asked.mode_name == "warm" if asked.mode_name else tuned_warm
    report = _report_file(chosen, asked.output)
    if report.exists():
        say(f"replacing {report}")
    job, spill_bytes = _job(chosen, gpu_number(asked.device_name), asked.seed)
    report.parent.mkdir(parents=True, exist_ok=True)
    launches = run_ncu(ncu, job, report, asked.deadline_s, warm=warm)
    result = Profile(
        chosen.problem,
        chosen.gpu,
        chosen.configuration,
        chosen.source,
        chosen.time_ns,
        chosen.conditions,
        warm,
        spill_bytes,
        report,
        launches,
        chosen.notes,
    )
    if asked.as_json:
        show_json(profile_as_json(result))
    else:
        show_profile(result)


def _report_file(chosen: ChosenConfiguration, output: Path | None) -> Path:
    """Return the report's path: ``output``, or a new file named after kernel, sizes and configuration."""
    if output is not None:
        return output if output.suffix == SUFFIX else output.with_name(output.name + SUFFIX)
    words = [
        chosen.problem.kernel,
        *(f"{name}{size}" for name, size in chosen.problem.sizes.items()),
        chosen.problem.dtype,
        chosen.configuration.variant,
        *(str(value) for value in chosen.configuration.values.values()),
    ]
    name = re.sub(r"[^\w.+-]", "_", "-".join(words))[:MAX_NAME]
    path, count = FOLDER / f"{name}{SUFFIX}", 2
    while path.exists():
        path, count = FOLDER / f"{name}-{count}{SUFFIX}", count + 1
    return path


def _job(chosen: ChosenConfiguration, device: int, seed: int) -> tuple[ToolJob, int]:
    """Compile the configuration and its reference; return the job, and the bytes that are spilled.

    Raises:
        CompileError: it does not compile.
        UnlaunchableError: it cannot be launched.
    """
    with closing(CompilePool(2, paths.cubins())) as pool:
        cases = [Case(chosen.problem, chosen.configuration)]
        units, left_out = compile_cases(chosen.kernel, chosen.gpu, pool, cases, chosen.problem)
    if left_out:
        case, reason = left_out[0]
        raise CompileError(f"{case}: {reason}", "choose another configuration")
    setups, runs = as_runs(units)
    job = ToolJob(device, str(paths.cubins()), setups, runs, seed=seed, profiled=True)
    return job, sum(resources.spill_bytes for resources in units[0].resources)
