"""How a run begins: anew, as it was asked for, or as one that was interrupted and is taken up again."""

from __future__ import annotations

import uuid
from typing import Any

from tuner import __version__
from tuner.database.database import Database
from tuner.devices.base import Device
from tuner.errors import TunerError
from tuner.kernel.load import content_digest
from tuner.model import Problem, Run
from tuner.tuning.state import Request


def new_run(request: Request, device: Device) -> tuple[Run, str]:
    """Return a run that does what was asked, and why it is timed as it is.

    What narrows the search is kept with it, so that it can go on as it began.

    Args:
        request: what to tune.
        device: where to measure.

    Raises:
        UsageError: the problem cannot be timed as it was asked to be.
    """
    conditions, why = device.choose_conditions(request.kernel, request.problem, request.mode, request.regime)
    narrowing: dict[str, Any] = {
        "variants": list(request.variants),
        "fixed": {name: list(values) for name, values in request.fixed.items()},
        "from_scratch": request.from_scratch,
    }
    if request.stop_early:
        narrowing["stop_early"] = True
    if request.rules:
        narrowing["rules"] = list(request.rules)
    if request.seeds != "auto":
        narrowing["seeds"] = request.seeds
    if request.max_error is not None:
        narrowing["max_error"] = request.max_error
        narrowing["truth"] = request.truth.to_json() if request.truth else None
    run = Run(
        id=str(uuid.uuid4()),
        problem=request.problem,
        gpu=device.gpu,
        device=device.name,
        seed=request.seed,
        sampler=request.sampler,
        trials=request.trials,
        lookahead=device.lookahead,
        narrowing=narrowing,
        kernel_digest=content_digest(request.kernel),
        kernel_file=str(request.kernel.file),
        versions={"kernel-tune": __version__, **device.versions},
        conditions=conditions,
    )
    return run, why


def interrupted_run(database: Database, request: Request, device: str) -> Run:
    """Return the newest run of the request's problem on a device that did not end by itself.

    Args:
        database: where it is.
        request: what to tune; its rules and its bound on the error must not contradict the run's.
        device: its name.

    Raises:
        TunerError: there is none, its kernel has changed, or it began with another bound or other rules.
    """
    problem = request.problem
    run = database.latest_unfinished(problem, device)
    if run is None:
        raise TunerError(f"there is no interrupted run of {problem} on {device}", "leave out --resume")
    rules = tuple(run.narrowing.get("rules", ()))
    if rules != request.rules:
        began = f"with --rules {','.join(rules)}" if rules else "without --rules"
        raise TunerError(
            f"the interrupted run of {problem} began {began}", "say the same, or leave out --resume"
        )
    if run.kernel_digest != content_digest(request.kernel):
        raise TunerError(f"{run.problem.kernel} has changed since its interrupted run", "leave out --resume")
    bound = run.narrowing.get("max_error")
    if request.max_error not in (None, bound):
        began = "without a bound on the error" if bound is None else f"with --max-error {bound:g}"
        raise TunerError(f"the interrupted run of {problem} began {began}", "leave out --resume")
    return run


def truth_of(run: Run) -> Problem | None:
    """Return the problem whose result counts as true, where the run bounds the error."""
    truth = run.narrowing.get("truth")
    return Problem.from_json(truth) if truth else None
