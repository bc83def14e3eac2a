"""What ``tune ladder`` found, for programs."""

from __future__ import annotations

from typing import Any

from tuner.bench.bench import Failure
from tuner.ladder.ladder import Contest, Ladder, Level, Place


def ladder_as_json(ladder: Ladder) -> dict[str, Any]:
    """Return everything for programs, samples included."""
    return {
        "kernel": ladder.kernel.name,
        "gpu": ladder.gpu.name,
        "gpu_uuid": ladder.gpu.uuid,
        "driver": ladder.gpu.driver,
        "device": ladder.device,
        "replayed": ladder.replayed,
        "complete": ladder.complete,
        "swept": list(ladder.swept),
        "rungs": [
            {
                "name": rung.name,
                "doc": rung.doc,
                "variant": rung.variant,
                "parameters": {name: list(values) for name, values in rung.parameters.items()},
                "dtypes": dict(rung.dtypes),
                "options": dict(rung.options),
            }
            for rung in ladder.rungs
        ],
        "levels": [_level(ladder, level) for level in ladder.levels],
    }


def _level(ladder: Ladder, level: Level) -> dict[str, Any]:
    absent = {name: {"reason": a.reason, "failed": a.failed} for name, a in level.absent.items()}
    first = level.first(ladder.rungs)
    contests = [_contest(level, contest, first) for contest in level.contests]
    return {"sizes": dict(level.sizes), "first": first or None, "contests": contests, "absent": absent}


def _contest(level: Level, contest: Contest, first: str) -> dict[str, Any]:
    fastest, rival = contest.fastest, contest.rival
    launch_ns = contest.calibration.launch_ns if contest.calibration else {}
    return {
        "problem": contest.problem.to_json(),
        "mode": str(contest.conditions.mode),
        "regime": str(contest.conditions.regime),
        "why": contest.why,
        "flops": contest.roof.flops,
        "bytes": contest.roof.bytes,
        "noise_floor": contest.noise_floor(fastest) if fastest else None,
        "launch_ns": launch_ns.get(str(contest.conditions.mode)),
        "launch_decides": contest.launch_decides,
        "fastest": fastest.name if fastest else None,
        "tied": [place.name for place in contest.tied],
        "against": rival.name if rival else None,
        "tags": list(contest.tags),
        "contestants": [_place(level, contest, place, first) for place in contest.places],
        "failed": [_failure(failure) for failure in contest.failures],
    }


def _failure(failure: Failure) -> dict[str, Any]:
    return {"contestant": failure.name, "what": failure.text, "error": failure.error}


def _place(level: Level, contest: Contest, place: Place, first: str) -> dict[str, Any]:
    tuned, rival = place.tuned, contest.rival
    over = level.speed_up(contest, place, first)
    against = contest.against(place, rival) if tuned is not None and rival is not None else None
    low, high = place.interval_ns
    configuration = tuned.configuration if tuned else None
    return {
        "contestant": place.name,
        "rung": tuned is not None,
        "variant": configuration.variant if configuration else None,
        "parameters": configuration.values if configuration else None,
        "call": None if tuned else place.text,
        "trial": tuned.trial_id if tuned else None,
        "run": tuned.run if tuned else None,
        "trials": tuned.trials if tuned else None,
        "known": tuned.known if tuned else None,
        "time_ns": place.time_ns,
        "ci_low_ns": low,
        "ci_high_ns": high,
        **vars(contest.metrics(place)),
        "over_first": {**vars(over.ratio), "paired": over.paired} if over else None,
        "versus": {**vars(against.ratio), "verdict": str(against.verdict)} if against else None,
        "by_launch": contest.by_launch(place),
        "verified": place.verified,
        "on_host": place.on_host,
        "sm_clock_hz": place.sm_clock_hz or None,
        "samples_ns": list(place.samples_ns),
    }
