"""Opens a run, a new or an interrupted one: checks the request, prepares the device, makes study and state."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from tuner.core.errors import TooInaccurateError, TunerError, UsageError
from tuner.core.model import Configuration, Gpu, Problem, Run
from tuner.core.version import __version__
from tuner.devices.base import Device
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.initial import settle
from tuner.kernel.roofline import ceiling_of, roof_of
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.search.base import Expecting, SpaceSampler, Transferring
from tuner.search.samplers import canonical_name, find_sampler
from tuner.search.stopping import StoppingCriterion
from tuner.search.study import Search
from tuner.search.translation import winner_of
from tuner.tuning.history import gather_lessons
from tuner.tuning.request import Request
from tuner.tuning.state import State
from tuner.tuning.store import Store

LONG_NS = 50e6
"""Kernels of such a time are not submitted ahead where the time is short: every submitted one is awaited, also when the
time is over."""
AHEAD = 2
"""Then one is compiled while another is timed."""


def open_run(request: Request, device: Device, store: Store) -> tuple[State, Search]:
    """Return the state of a new or an interrupted run, and its study. Nothing has been tried or recorded yet.

    Bad requests are refused before anything is measured.

    Raises:
        UsageError: the request names something that does not exist, or contradicts itself.
        TooInaccurateError: no kernel of this dtype can be within the bound on the error.
        TunerError: the problem cannot be tuned.
    """
    kernel, problem = request.kernel, request.problem
    identity = adopt(store, kernel)
    if request.resume:
        # A resumed run goes on as it began, whatever the command line says now.
        run = interrupted_run(store, request, device.name)
        mark = store.mark_of(run.id)
        why = "as the interrupted run was"
    else:
        (run, why), mark = new_run(request, device, identity), None
    options = run.options
    prepared = _preparing(device, kernel, problem, options.seed, run.conditions, options.truth)
    with device.phases.phase("space"):
        space = SearchSpace.from_kernel(kernel, problem, device.gpu, options.variants, options.fixed)
    sampler = _sampler(run, space)
    device.compile_ahead(kernel, problem, [space.default])
    mark = mark or store.mark()
    learns = not (device.recorded or options.from_scratch)
    # Also of a text of before, with other parameters.
    known = dict(store.known_winners(run, mark)) if learns else {}
    lessons = gather_lessons(store, run, mark, space) if isinstance(sampler, Transferring) else []
    winners = filter(None, (winner_of(results, space) for _, results in lessons))
    if (candidates := device.restrict(space).including([*known, *winners])) is not space:
        space, sampler = candidates, _sampler(run, candidates)
    with device.phases.phase("initial configurations"):
        initial = {} if options.initial == "none" else _initial(kernel, problem, device.gpu, space)
    device.compile_ahead(kernel, problem, [*initial])
    prepared()
    _refuse_inaccurate(run, device)
    if not request.resume:
        run = replace(run, calibration=device.calibration)
    roof = roof_of(kernel, problem, device.gpu)
    state = State(run, roof, space, device, mark, lessons=lessons, conditions_why=why, initial=initial)
    state.ceiling = ceiling_of(kernel, problem, device.gpu, roof, run.calibration)
    if not device.recorded:
        state.best_before = store.best_known(run, mark)
        state.known_winners = {one: wins for one, wins in known.items() if space.contains(one)}
    criterion = StoppingCriterion(device.noise_floor) if options.stop_early else None
    return state, Search(space, sampler, criterion)


def _initial(kernel: KernelSpec, problem: Problem, gpu: Gpu, space: SearchSpace) -> dict[Configuration, str]:
    """Return the initial configurations of the kernel's file that are in the space, each with the file that has it."""
    settled = settle(kernel, problem, gpu, space.contains)
    return {one.configuration: one.spec.file or kernel.file.name for one in settled if one.configuration}


def _preparing(device: Device, *problem: Any) -> Callable[[], None]:
    """Begin to prepare a problem, beside what else is to be done before a run; return what waits for that."""
    executor = ThreadPoolExecutor(1, "prepare")
    prepared = executor.submit(device.prepare, *problem)
    executor.shutdown(wait=False)
    if device.recorded:  # the space depends on it
        prepared.result()
    return prepared.result


def new_run(request: Request, device: Device, identity: KernelIdentity) -> tuple[Run, str]:
    """Return the run of a request, and why it is timed under its conditions.

    Args:
        request: what to tune.
        device: where to measure.
        identity: of the kernel.

    Raises:
        UsageError: the problem cannot be timed under the conditions of the request.
    """
    options = request.options
    conditions, why = device.choose_conditions(request.kernel, request.problem, options.mode, options.regime)
    run = Run(
        id=str(uuid.uuid4()),
        problem=request.problem,
        gpu=device.gpu,
        device=device.name,
        options=replace(options, sampler=canonical_name(options.sampler)),
        lookahead=lookahead_of(device, request.expected_ns or 0.0),
        kernel_digest=identity.text,
        computation=identity.computation,
        kernel_file=str(request.kernel.file),
        versions={"kernel-tune": __version__, **device.versions},
        conditions=conditions,
    )
    return run, why


def adopt(store: Store, kernel: KernelSpec) -> KernelIdentity:
    """Identify the runs of a kernel from before there were identities; return its own."""
    identity = KernelIdentity(kernel)
    store.adopt_runs(kernel.name, lambda: identity.legacy, identity.computation, identity.text)
    return identity


def interrupted_run(store: Store, request: Request, device: str) -> Run:
    """Return the newest run of the request's problem on a device that did not end by itself.

    Args:
        store: has the run.
        request: its bound on the error must not contradict the run's.
        device: name.

    Raises:
        TunerError: there is none, its kernel has changed, or it began with another bound.
    """
    problem, identity = request.problem, KernelIdentity(request.kernel)
    run = store.latest_unfinished(problem, device, identity.same_text)
    if run is None:
        store.refuse_going_on(problem, device)
        raise TunerError(f"there is no interrupted run of {problem} on {device}", "leave out --resume")
    then, now = run.options, request.options
    others = {
        "--max-error": now.max_error not in (None, then.max_error),
        "--margin": now.margin not in (None, then.margin or 0.0),
    }
    if other := [name for name, differs in others.items() if differs]:
        raise TunerError(
            f"the interrupted run of {problem} had another {other[0]}", "say the same, or leave out --resume"
        )
    if not identity.same_text(run):
        raise TunerError(f"{run.problem.kernel} has changed since its interrupted run", "leave out --resume")
    return run


def lookahead_of(device: Device, *times_ns: float) -> int:
    """Return how many trials may be pending: what keeps a device busy, or few where one of these times is long.

    Args:
        device: says how many keep it busy.
        times_ns: of candidates, as far as they are known.
    """
    return min(device.lookahead, AHEAD) if max(times_ns) >= LONG_NS else device.lookahead


def _sampler(run: Run, space: SearchSpace) -> SpaceSampler:
    options = run.options
    sampler = find_sampler(options.sampler)(space, options.seed)
    if options.stop_early and not isinstance(sampler, Expecting):
        raise UsageError(
            f"the sampler {options.sampler} does not say what it expects, so that nothing can stop it",
            "leave out --stop auto, or take the default sampler with it",
        )
    return sampler


def _refuse_inaccurate(run: Run, device: Device) -> None:
    bound, smallest = run.options.max_error, device.least_error
    if bound is not None and smallest is not None and smallest > bound:
        raise TooInaccurateError(
            f"{run.problem}: rounding alone makes an error of {smallest:.2g}, above {bound:.2g}",
            "choose a wider dtype, or allow more",
        )
