"""``tune explain`` and ``tune profile``: why a configuration is so fast, without running it and by Nsight Compute."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tuner.children.compile_pool import CompilePool
from tuner.children.job import ToolJob
from tuner.cli.commands.inspection import ExplainArguments, ProfileArguments
from tuner.cli.configuration import (
    choose,
    describe_gpu,
    launching,
    named_gpu,
    refuse_beyond_memory,
    refuse_without_gpu,
    refuse_wrong_names,
)
from tuner.core import paths
from tuner.core.conditions import Calibration, Conditions, Mode
from tuner.core.errors import CompileError
from tuner.core.files import refuse_missing_parent, unused
from tuner.core.model import Status
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.devices.choose import gpu_number
from tuner.inspect.explain.code import read_code
from tuner.inspect.explain.explanation import Explanation, patterns_of
from tuner.inspect.explain.explanation import explain as explain_code
from tuner.inspect.explain.report import explanation_as_json, show_explanation, show_in_short
from tuner.inspect.tools.cases import Case, as_runs, compile_cases
from tuner.inspect.tools.nsight import profile as run_ncu
from tuner.inspect.tools.nvidia import NCU, find
from tuner.inspect.tools.report import Profile, profile_as_json, show_profile
from tuner.kernel.roofline import ceiling_of, roof_under
from tuner.report.configurations import ChosenConfiguration, launch_note
from tuner.report.tables import say, show_json
from tuner.tuning.state import metrics


def explain(asked: ExplainArguments) -> None:
    """Compile and read a configuration, and print what that says about its speed."""
    gpu, calibration = named_gpu(asked)
    chosen = choose(asked, gpu)
    refuse_beyond_memory(chosen.kernel, chosen.problem, chosen.gpu)
    with launching(chosen):
        explanation = explained(asked.db, chosen, calibration)
        if asked.trial is None:  # never a file that a database names
            patterns, addresses = patterns_of(chosen)
            explanation = replace(explanation, patterns=patterns, addresses=addresses)
    if asked.as_json:
        show_json(explanation_as_json(explanation))
    elif asked.full:
        show_explanation(explanation)
    else:
        show_in_short(explanation)


def explained(db: Path, chosen: ChosenConfiguration, calibration: Calibration | None) -> Explanation:
    """Compile and read a configuration, and add what the database has of it.

    Raises:
        CompileError: it does not compile.
        UnlaunchableError: the GPU cannot launch it.
    """
    kernel, problem, gpu = chosen.kernel, chosen.problem, chosen.gpu
    code = read_code(kernel, problem, gpu, chosen.configuration)
    explained = explain_code(chosen, code)
    time_ns, conditions, stored = _stored(db, chosen)
    calibration = calibration or stored
    warm = conditions is not None and conditions.mode is Mode.WARM
    roof = roof_under(explained.roof, Mode.WARM) if warm else explained.roof
    ceiling = ceiling_of(kernel, problem, gpu, explained.roof, calibration)
    return replace(
        explained,
        time_ns=time_ns,
        conditions=conditions,
        metrics=metrics(roof, time_ns),
        ceiling=ceiling if not warm or explained.binding != "bandwidth" else None,
        launch_note=launch_note(calibration, conditions, time_ns) if conditions and time_ns else "",
    )


def _stored(
    db: Path, chosen: ChosenConfiguration
) -> tuple[float | None, Conditions | None, Calibration | None]:
    """Return the time of this configuration for this problem on a GPU of this name, and that GPU's calibration."""
    if not db.is_file():
        return chosen.time_ns, chosen.conditions, None
    with Database.open(db, write=False) as database:
        if chosen.trial_id is not None and chosen.time_ns is not None:
            return chosen.time_ns, chosen.conditions, database.trial(chosen.trial_id).run.calibration
        filters = Filters(
            problem_key=chosen.problem.key,
            gpu_name=chosen.gpu.name,
            statuses=(str(Status.OK), str(Status.SLOW)),
            variant=chosen.configuration.variant,
            replayed=False,
        )
        rows = database.query(filters, "-id").rows
    for stored in rows:
        trial = stored.trial
        same = trial.configuration.key == chosen.configuration.key
        if same and trial.time_ns and not trial.suspect:
            return trial.time_ns, stored.run.conditions, stored.run.calibration
    return None, None, rows[0].run.calibration if rows else None


FOLDER = Path("results/profiles")
SUFFIX = ".ncu-rep"
MAX_NAME = 120
"""Characters of a report's name before its suffix; file systems allow 255 bytes."""


def profile(asked: ProfileArguments) -> None:
    """Profile a configuration with Nsight Compute, keep its report, and print the figures."""
    refuse_wrong_names(asked)
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
    result = Profile(**vars(chosen), warm=warm, spill_bytes=spill_bytes, report=report, launches=launches)
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
    return unused(FOLDER / f"{name}{SUFFIX}")


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
