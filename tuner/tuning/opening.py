"""Opens a run: checks the request, prepares the device, and makes the run's study and state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tuner.core.errors import TooInaccurateError, UsageError
from tuner.core.model import Run
from tuner.database.schema import is_ours
from tuner.devices.base import Device
from tuner.kernel.roofline import roof_of
from tuner.kernel.space import SearchSpace
from tuner.search.base import SpaceSampler
from tuner.search.initial import gather, refuse
from tuner.search.mirror import StudyMirror
from tuner.search.protocols import Expecting
from tuner.search.samplers import find_sampler
from tuner.search.stopping import StoppingCriterion
from tuner.search.study import Search
from tuner.tuning.ceiling import ceiling_of
from tuner.tuning.request import Request
from tuner.tuning.runs import adopt, interrupted_run, new_run
from tuner.tuning.state import State
from tuner.tuning.store import Store


def open_run(request: Request, device: Device, store: Store) -> tuple[State, Search]:
    """Return the state of a new or an interrupted run, and its study. Nothing has been tried or recorded yet.

    Bad requests are refused before anything is measured.

    Raises:
        UsageError: the request names something that does not exist, or contradicts itself.
        TooInaccurateError: no kernel of this dtype can be within the bound on the error.
        TunerError: the problem cannot be tuned.
    """
    kernel, problem = request.kernel, request.problem
    adopt(store, kernel)
    if request.resume:
        # A resumed run goes on as it began, whatever the command line says now.
        run = interrupted_run(store, request, device.name)
        mark = store.mark_of(run.id)
        why = "as the interrupted run was"
    else:
        (run, why), mark = new_run(request, device), None
    options = run.options
    space = SearchSpace.from_kernel(kernel, problem, device.gpu, options.variants, options.fixed)
    sampler = _sampler(run, space)
    refuse(kernel, options.initial)
    _refuse_storage(request.options.study_storage)
    device.prepare(kernel, problem, options.seed, run.conditions, options.truth)
    _refuse_inaccurate(run, device)
    if not request.resume:
        run = replace(run, calibration=device.calibration)
    if (restricted := device.restrict(space)) is not space:
        space, sampler = restricted, _sampler(run, restricted)
    initial = gather(kernel, problem, device.gpu, space, options.initial, recorded=device.recorded)
    roof = roof_of(kernel, problem, device.gpu)
    state = State(run, roof, space, device, conditions_why=why, initial=initial)
    state.ceiling = ceiling_of(kernel, problem, device.gpu, roof, run.calibration)
    state.mark = mark or store.mark()
    if not device.recorded:
        state.best_before = store.best_known(run, state.mark)
        if not options.from_scratch:
            known = store.known_winners(run, state.mark)  # also of a text of before, with other parameters
            state.known_winners = {one: wins for one, wins in known if space.contains(one)}
    mirror = _mirror(request.options.study_storage, run, device) if request.options.study_storage else None
    criterion = StoppingCriterion(device.noise_floor) if options.stop_early else None
    return state, Search(space, sampler, criterion, mirror)


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


def _refuse_storage(url: str | None) -> None:
    """Refuse a study storage that is no URL, or a database of this tool: Optuna's tables have the same names."""
    if url and "://" not in url:
        raise UsageError(f"--study-storage {url!r} is no URL", "for example sqlite:///study.db")
    kind, _, file = (url or "").partition(":///")
    path = Path(file.partition("?")[0])
    if kind.startswith("sqlite") and is_ours(path):
        raise UsageError(
            f"--study-storage {url} is a database of this tool",
            "name another file, such as sqlite:///study.db",
        )


def _mirror(url: str, run: Run, device: Device) -> StudyMirror:
    about = {"run": run.id, "gpu": run.gpu.name, "sampler": run.options.sampler, "seed": run.options.seed}
    return StudyMirror(url, f"{run.problem}, run {run.id[:8]}", about, device.say)
