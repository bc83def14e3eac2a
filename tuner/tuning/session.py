"""``tune()``: a run from its first trial to its confirmed winner."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

from tuner.core import signals
from tuner.core.errors import DeviceError, Interrupted
from tuner.core.model import Status, Trial
from tuner.core.observer import Observer
from tuner.core.phases import Phases
from tuner.devices.base import Device
from tuner.kernel.contents import CONTENTS_S
from tuner.kernel.default import simplicity
from tuner.kernel.edge_sizes import VERIFIED_PROBLEMS
from tuner.kernel.spec import KernelSpec
from tuner.tuning.confirmation import EDGE_CASES_S, SLOW_CASE_S
from tuner.tuning.decision import alike, preference
from tuner.tuning.finalists import warm_matters
from tuner.tuning.loop import SearchLoop
from tuner.tuning.opening import open_run
from tuner.tuning.race import FinalRace
from tuner.tuning.request import EFFORTS, Request
from tuner.tuning.state import SEARCHED, SEARCHING, Finish, Result, State, winner_of
from tuner.tuning.store import Store

FRESH_S = 2.5
"""For a fresh process up to its first message, and the verification of a dozen small sizes."""


def tune(
    request: Request,
    device: Device,
    store: Store,
    observer: Observer[State],
    stop: Callable[[], bool] = lambda: False,
    *,
    finish: bool = True,
) -> Result:
    """Search, record, race and confirm; return the result.

    Args:
        request: what to tune.
        device: where to measure; ready, and closed by the caller.
        store: where every trial goes: the database, or what passes it on to the process that has it.
        observer: told of everything.
        stop: called often; once it returns true nothing new is tried.
        finish: race the finalists and confirm the winner; a recording has no use for that.

    Raises:
        Interrupted: ``stop`` said so; everything measured is recorded, and ``resume`` goes on.
        TooInaccurateError: no kernel of this dtype can be within the bound on the error; nothing was tried.
        DatabaseError: the file has lost what was recorded in it.
        TunerError: the problem cannot be tuned.
    """
    state, search = open_run(request, device, store)
    run_id = state.run.id
    ending, innocent = "failed", True
    end: Finish | None = None
    winner_row: int | None = None
    state.finish_s = _finish_s(state)
    loop = SearchLoop(state, search, store, observer, stop, request)
    loop.begin(resumed=request.resume)
    try:
        observer.phase(SEARCHING, state.expected)
        observer.step(state, len(state.trials))
        if finish:
            device.expect_confirmation()
        with device.phases.phase("search"):
            loop.search()
        observer.phase(SEARCHED)
        if finish:
            end, winner_row = _finish(loop, request.kernel)
        ending = "finished"
    except (KeyboardInterrupt, Interrupted):
        signals.taken()
        ending = "interrupted"
        store.hurry()
    except DeviceError:
        innocent = False
        raise
    finally:
        with signals.uninterrupted():
            with contextlib.suppress(OSError):  # of a terminal that is gone
                observer.close()
            # If the GPU cannot be used any more, one of the attempts under way may be the cause.
            store.finish_run(run_id, ending, _stats(loop), forget_attempts=innocent)
    store.require_rows(run_id, list(store.rows(run_id).values()), winner_row)
    if ending == "interrupted":
        done = len(state.trials)
        how_far = (
            f"after {done} of {state.budget} trials; all of them are kept"
            if done
            else "before its first trial"
        )
        raise Interrupted(f"stopped {how_far}", "go on with --resume")
    result = Result(state, end, winner_row, _stats(loop))
    device.phases = Phases()
    return result


def _finish_s(state: State) -> float:
    """Return what race and confirmation may take, by what the beginning of the run has taken."""
    run, device = state.run, state.device
    races = 1 + warm_matters(run, device, state.roof.speed_of_light_ns)
    sizes_s = min(VERIFIED_PROBLEMS * min(device.host_s, SLOW_CASE_S), EDGE_CASES_S)
    if SLOW_CASE_S < device.host_s < CONTENTS_S:  # perhaps there are no smaller sizes for the contents
        sizes_s = max(sizes_s, CONTENTS_S)
    return races * EFFORTS[run.options.effort].race_s + FRESH_S + device.phases.seconds("problem") + sizes_s


def _finish(loop: SearchLoop, kernel: KernelSpec) -> tuple[Finish | None, int | None]:
    """Race the finalists, confirm the winner, and record it; return these, and the winner's row."""
    state, run, store = loop.state, loop.run, loop.store

    def say(what: str) -> None:
        if loop.stop():
            raise Interrupted("stopped")
        loop.observer.phase(what)

    def reject(trial: Trial, reason: str, status: Status) -> None:
        store.reject(run.id, trial.number, reason, status)

    # Answers may have come in another order; a database of another's may hold what the kernel does not have.
    trials = [trial for trial in state.trials if state.space.contains(trial.configuration)]
    trials.sort(key=lambda trial: trial.number)
    before = state.best_before[0] if state.best_before else None
    incumbent = next((trial for trial in reversed(trials) if trial.configuration == before), None)
    best_ns = state.incumbent.time_ns if state.incumbent else None
    margin, known = run.options.margin or 0.0, state.known_winners
    order = simplicity(kernel, state.space.default, tuple(state.initial) if margin else ())
    prefer = preference(order, known) if margin else order
    race = FinalRace(
        loop.device,
        kernel,
        run.problem,
        state.default,
        say,
        reject,
        run.options.seed,
        incumbent,
        run.options.max_error,
        warm=best_ns is not None and warm_matters(run, loop.device, best_ns),
        initial=state.initial,
        known_winners=known,
        prefer=alike if run.foreign else prefer,  # no card has to agree on those
        margin=margin,
        effort=EFFORTS[run.options.effort],
    )
    if (finish := race.run(trials)) is None:
        return None, None
    winner = winner_of(finish, store.rows(run.id), replayed=run.replayed, known_before=before is not None)
    return finish, store.record_winner(run.id, winner)


def _stats(loop: SearchLoop) -> dict[str, Any]:
    state = loop.state
    return {
        "phases": state.device.phases.spans(),
        "search_s": state.elapsed_s if state.search_began else 0.0,
        "occupied": state.occupied,
        "refined_s": state.device.busy.refined_s,
        "nominated": loop.shortlist.nominated if loop.shortlist else None,
        "trials": len(state.trials),
        "failures": state.failures,
        "retimed": state.retimed,
        "suspect": sum(trial.suspect for trial in state.trials),
        "capped": sum(trial.capped_samples > 0 for trial in state.trials),
        "space": len(state.space),
        "space_before": state.space.size_before,
        **({"space_about": round(state.space.about)} if state.space.about is not None else {}),
        "expected_gain": state.expected_gain,
        "stopped": dataclasses.asdict(state.stopped) if state.stopped else None,
        "seeds": {
            source: [trial.number for trial in trials] for source, trials in state.initial_trials.items()
        },
        "mark": dataclasses.asdict(state.mark),
    }
