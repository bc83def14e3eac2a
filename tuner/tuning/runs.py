"""The run that a request stands for: a new one, or the newest one that was interrupted."""

from __future__ import annotations

import uuid
from dataclasses import replace

from tuner.core.errors import TunerError
from tuner.core.model import Run
from tuner.core.version import __version__
from tuner.devices.base import Device
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.spec import KernelSpec
from tuner.search.samplers import canonical_name
from tuner.tuning.lookahead import lookahead_of
from tuner.tuning.request import Request
from tuner.tuning.store import Store


def new_run(request: Request, device: Device) -> tuple[Run, str]:
    """Return the run of a request, and why it is timed under its conditions.

    Args:
        request: what to tune.
        device: where to measure.

    Raises:
        UsageError: the problem cannot be timed under the conditions of the request.
    """
    options = request.options
    conditions, why = device.choose_conditions(request.kernel, request.problem, options.mode, options.regime)
    identity = KernelIdentity(request.kernel)
    run = Run(
        id=str(uuid.uuid4()),
        problem=request.problem,
        gpu=device.gpu,
        device=device.name,
        options=replace(options, sampler=canonical_name(options.sampler)),
        lookahead=lookahead_of(device, request.expected_ns),
        kernel_digest=identity.text,
        computation=identity.computation,
        kernel_file=str(request.kernel.file),
        versions={"kernel-tune": __version__, **device.versions},
        conditions=conditions,
    )
    return run, why


def adopt(store: Store, kernel: KernelSpec) -> None:
    """Identify the runs of a kernel from before there were identities."""
    identity = KernelIdentity(kernel)
    store.adopt_runs(kernel.name, lambda: identity.legacy, identity.computation, identity.text)


def interrupted_run(store: Store, request: Request, device: str) -> Run:
    """Return the newest run of the request's problem on a device that did not end by itself.

    Args:
        store: has the run.
        request: its rules and its bound on the error must not contradict the run's.
        device: name.

    Raises:
        TunerError: there is none, its kernel has changed, or it began with another bound or other rules.
    """
    problem, identity = request.problem, KernelIdentity(request.kernel)
    run = store.latest_unfinished(problem, device, identity.same_text)
    if run is None:
        store.refuse_going_on(problem, device)
        raise TunerError(f"there is no interrupted run of {problem} on {device}", "leave out --resume")
    rules = run.options.rules
    if rules != request.options.rules:
        began = f"with --rules {','.join(rules)}" if rules else "without --rules"
        raise TunerError(
            f"the interrupted run of {problem} began {began}", "say the same, or leave out --resume"
        )
    if not identity.same_text(run):
        raise TunerError(f"{run.problem.kernel} has changed since its interrupted run", "leave out --resume")
    bound = run.options.max_error
    if request.options.max_error not in (None, bound):
        began = "without a bound on the error" if bound is None else f"with --max-error {bound:g}"
        raise TunerError(f"the interrupted run of {problem} began {began}", "leave out --resume")
    if request.options.margin not in (None, run.options.margin):
        raise TunerError(
            f"the interrupted run of {problem} began with another --margin", "leave out --resume"
        )
    return run
