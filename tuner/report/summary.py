"""How a run ended, in a few lines or as JSON."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from tuner.model import Trial
from tuner.race import Finish
from tuner.report.tables import duration, percent, printable, throughput
from tuner.state import Result, State, metrics


def summary(result: Result, database: Path) -> str:
    """Say what won, by how much, and how sure that is."""
    state, finish = result.state, result.finish
    run = state.run
    mark = " [replayed]" if run.replayed else ""
    lines = [f"{run.problem} on {printable(run.gpu.name)}{mark}"]
    if finish is None:
        return "\n".join([*lines, "  no configuration could be verified", _failures(result)])
    found = metrics(state.roof, finish.time_ns)
    trial = f"trial {finish.winner.id}"
    lines.append(f"  winner     {trial}: {finish.winner.configuration}")
    lines.append(
        f"             {duration(finish.time_ns)}, {throughput(found)}, "
        f"{percent(found.speed_of_light)} of the speed of light ({state.roof.bound}-bound)"
    )
    lines.append(f"  default    {_against_default(finish)}")
    lines.append(f"  confirmed  {_confirmation(finish, run.replayed)}")
    if finish.tied > 1:
        lines.append(
            f"             tied with {finish.tied - 1} other finalist(s) within the noise; the simplest was chosen"
        )
    lines += [f"  rejected   trial {trial.id}: {reason}" for trial, reason in finish.unstable]
    if state.failures:
        lines.append(_failures(result))
    lines.append(
        f"  search     {_trials(state)} in {state.elapsed_s:.1f} s"
        + _occupied(result)
        + f"; kept in {database}"
    )
    return "\n".join(lines)


def _trials(state: State) -> str:
    if not state.resumed_trials:
        return f"{len(state.trials)} trials"
    return (
        f"{len(state.trials)} trials ({state.resumed_trials} of them before the interruption), "
        f"{len(state.trials) - state.resumed_trials}"
    )


def _occupied(result: Result) -> str:
    state = result.state
    if state.occupied is None or state.device is None:
        return ""
    refined = state.device.occupancy.refined_s
    waiting = (
        f", {refined:.1f} s of it with further samples while the compilers were behind"
        if refined >= 0.05
        else ""
    )
    return f", GPU occupied {percent(state.occupied)}{waiting}"


def _against_default(finish: Finish) -> str:
    if finish.default is None or finish.default_ns is None or finish.ratio is None:
        return "the default configuration could not be measured"
    if finish.default is finish.winner:
        return "the default configuration is the winner"
    ratio = finish.ratio
    return (
        f"{ratio.median:.3f}x as fast ({ratio.low:.3f} to {ratio.high:.3f}): {finish.verdict}; "
        f"default {duration(finish.default_ns)}: {finish.default.configuration}"
    )


def _confirmation(finish: Finish, replayed: bool) -> str:
    if replayed:
        return "by recorded samples only: measure on a GPU before relying on it"
    confirmed = finish.confirmed
    if confirmed is None or not confirmed.samples_ns:
        return f"NOT: {finish.reason}"
    again = median(confirmed.samples_ns)
    text = f"{duration(again)} in a fresh process ({100 * (again / finish.time_ns - 1):+.2f} %)"
    if finish.reason:
        return f"NOT: {finish.reason}"
    return f"{text}, {_edges(finish)}"


def _edges(finish: Finish) -> str:
    count = len(finish.edges)
    return f"right at {count} awkward sizes" if count else "other sizes could not be checked"


def _failures(result: Result) -> str:
    failures = ", ".join(f"{count} {status}" for status, count in sorted(result.state.failures.items()))
    return f"  failed     {failures or 'none'}"


def result_as_json(result: Result) -> dict[str, Any]:
    """Give the same for programs."""
    state, finish = result.state, result.finish
    data: dict[str, Any] = {
        "run": state.run.id,
        "problem": state.run.problem.to_json(),
        "gpu": state.run.gpu.name,
        "device": state.run.device,
        "replayed": state.run.replayed,
        "stats": dict(result.stats),
        "winner": None,
    }
    if finish is None:
        return data
    found = metrics(state.roof, finish.time_ns)
    confirmed = finish.confirmed
    data["winner"] = {
        **_trial(finish.winner),
        "time_ns": finish.time_ns,
        "tflops": found.tflops,
        "gbytes_per_s": found.gbytes_per_s,
        "speed_of_light": found.speed_of_light,
        "confirmed_ns": median(confirmed.samples_ns) if confirmed and confirmed.samples_ns else None,
        "edge_sizes_verified": len(finish.edges),
        "exportable": finish.exportable,
        "reason": finish.reason,
        "tied": finish.tied,
    }
    if finish.default and finish.default_ns and finish.ratio:
        data["default"] = {**_trial(finish.default), "time_ns": finish.default_ns}
        data["versus_default"] = {
            "ratio": finish.ratio.median,
            "low": finish.ratio.low,
            "high": finish.ratio.high,
            "verdict": finish.verdict,
        }
    return data


def _trial(trial: Trial) -> dict[str, Any]:
    return {
        "trial": trial.id,
        "variant": trial.configuration.variant,
        "configuration": trial.configuration.values,
    }
