"""Whether a Python candidate has made the baselines of its race slower, which share its process."""

from __future__ import annotations

from tuner.core.conditions import Mode, Regime
from tuner.devices.base import Device
from tuner.studies import interleaved
from tuner.studies.judging.task import Task
from tuner.studies.judging.verdict import Speed, Verdict
from tuner.tuning.confirmation import ALONE_FASTER, EVENT_RESOLUTION_NS

ROUNDS = 5
"""Enough to tell 15 %."""


def slowed_baseline(device: Device, task: Task, verdict: Verdict) -> str:
    """Return which baseline that is slower than a candidate was so in its process only; empty if none was.

    Where a process gets its memory moves short kernels, and alone they are faster: by up to 13 % on an H200.

    Args:
        device: which runs nothing of the candidate.
        task: the task.
        verdict: about the candidate.

    Raises:
        TunerError: they cannot be timed there.
    """
    for problem, at in zip(task.problems, verdict.problems, strict=False):
        prepared = False
        for times in at.modes:
            inside_ns = {one.baseline: one.time_ns for one in times.versus if one.verdict is Speed.FASTER}
            beaten = [one for one in task.contestants(problem, device.gpu) if one.name in inside_ns]
            beaten = [one for one in beaten if not one.on_host]
            if beaten and not prepared:
                conditions, _ = device.choose_conditions(task.kernel, problem, task.mode, Regime.RESTED)
                device.prepare(task.kernel, problem, verdict.seed, conditions)
                prepared = True
            if not beaten:
                continue
            mode = Mode(times.mode)
            compared = interleaved.compare(
                device, task.kernel, problem, beaten, ROUNDS, verdict.seed,
                mode=mode if mode is not device.conditions.mode else None,
            )  # fmt: skip
            for timing in compared.timings:
                beside_ns = inside_ns[timing.name] or 0.0
                if beside_ns > (1.0 + ALONE_FASTER) * timing.time_ns + EVENT_RESOLUTION_NS:
                    took, takes = beside_ns / 1e3, timing.time_ns / 1e3
                    return f"{timing.name} takes {took:.4g} us beside it, and {takes:.4g} us outside of its process"
    return ""
