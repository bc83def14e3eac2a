"""How a run ended, for programs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from msgspec import structs

from tuner.core.model import Configuration, Trial
from tuner.core.stats import Ratio, Verdict
from tuner.report import tables
from tuner.report.configurations import launch_note
from tuner.tuning.state import Finish, Result, State, WarmFinish, metrics


def stopped_as_json(state: State, reason: str) -> dict[str, Any]:
    """Return the record of a run that was stopped, with its best trial so far; nothing was raced or confirmed."""
    best = state.incumbent
    found = _known(best.configuration, best.time_ns) if best else None
    return {**result_as_json(Result(state, None, None, {})), "best_yet": found, "error": reason}


def _known(configuration: Configuration, time_ns: float | None) -> dict[str, Any]:
    return {"variant": configuration.variant, "configuration": configuration.values, "time_ns": time_ns}


def result_as_json(result: Result) -> dict[str, Any]:
    """Return the result for programs."""
    state, finish, run = result.state, result.finish, result.state.run
    data: dict[str, Any] = {
        "run": run.id,
        "problem": run.problem.to_json(),
        "gpu": run.gpu.name,
        **tables.picked(run, "device replayed"),
        **tables.picked(run.conditions, "mode regime"),
        "conditions_why": state.conditions_why,
        "calibration": run.calibration.to_json() if run.calibration else None,
        "stats": dict(result.stats),
        "winner": None,
    }
    if run.replayed:
        data["trajectory"] = trajectory(state.trials)
    if finish is None:
        return data
    data["winner"] = _winner(state, finish)
    data["race"] = {
        "verdict": finish.race_verdict,
        "noise_floor": finish.noise_floor or None,
        **tables.picked(finish, "rounds heats"),
        "seconds": round(finish.race_s, 3),
        "contestants": len(finish.medians_ns),
    }
    if warm := finish.warm:
        data["race"]["warm"] = {
            "verdict": warm.race_verdict,
            **tables.picked(warm, "noise_floor rounds heats"),
            "seconds": round(warm.race_s, 3),
            "passed_over": tables.trial_identity(warm.passed_over) if warm.passed_over else None,
            "passed_over_behind": warm.passed_over_behind,
        }
    if state.best_before:
        data["best_known_before"] = _known(*state.best_before)
    if finish.incumbent and finish.incumbent_ns and finish.versus_incumbent:
        data["incumbent"] = {**tables.trial_identity(finish.incumbent), "time_ns": finish.incumbent_ns}
        data["versus_incumbent"] = _comparison(finish.versus_incumbent, finish.incumbent_verdict)
    if finish.default and finish.default_ns and finish.ratio:
        data["default"] = {**tables.trial_identity(finish.default), "time_ns": finish.default_ns}
        data["versus_default"] = _comparison(finish.ratio, finish.verdict)
    return data


def _winner(state: State, finish: Finish) -> dict[str, Any]:
    of_ceiling = state.of_ceiling(finish.time_ns)
    return {
        **tables.trial_identity(finish.winner),
        "time_ns": finish.time_ns,
        **structs.asdict(metrics(state.roof, finish.time_ns)),
        "confirmed_ns": finish.confirmed_ns,
        "edge_sizes_verified": len(finish.edge_cases),
        "checked_against": finish.checked_against,
        "contents": dict(finish.varied.contents) if finish.varied else {},
        **tables.picked(finish, "exportable reason tied"),
        "warm": _warm_record(finish.warm) if finish.warm else None,
        "launch_decides": bool(launch_note_of(state, finish)),
        "ceiling": state.ceiling.name if state.ceiling and of_ceiling is not None else None,
        "of_ceiling": of_ceiling,
        **tables.picked(finish.winner, "sm_clock_hz capped_samples"),
        "samples": len(finish.winner.samples_ns),
        "true_error": finish.winner.true_error,
    }


def _warm_record(warm: WarmFinish) -> dict[str, Any]:
    return {
        **tables.picked(warm, "time_ns behind behind_in_mode"),
        "versus_default": _comparison(warm.ratio, warm.verdict) if warm.ratio else None,
    }


def _comparison(ratio: Ratio, verdict: Verdict) -> dict[str, Any]:
    low, high = (ratio.low, ratio.high) if math.isfinite(ratio.high) else (None, None)
    return {"ratio": ratio.median, "low": low, "high": high, "verdict": verdict}


def launch_note_of(state: State, finish: Finish) -> str:
    """Return the note that launch latency decides a run's winner; empty if it does not."""
    run = state.run
    return launch_note(run.calibration, run.conditions, finish.time_ns, tied=finish.tied > 1)


def trajectory(trials: Iterable[Trial]) -> list[dict[str, Any]]:
    """Return the trials in the order in which they were proposed, each with the best time up to it."""
    best: float | None = None
    evaluations: list[dict[str, Any]] = []
    for trial in sorted(trials, key=lambda trial: trial.number):
        time_ns = trial.time_ns if trial.status.ranked else None
        if time_ns is not None and not trial.suspect and (best is None or time_ns < best):
            best = time_ns
        evaluations.append(
            {
                "evaluation": len(evaluations) + 1,
                "variant": trial.configuration.variant,
                "configuration": trial.configuration.values,
                "status": str(trial.status),
                "time_ns": time_ns,
                "best_ns": best,
                "error": trial.error,
            }
        )
    return evaluations
