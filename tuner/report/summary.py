"""How a run ended, in a few lines or as JSON."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import structs

from tuner.core.model import Status, Trial
from tuner.core.stats import Ratio, Verdict
from tuner.report import tables
from tuner.report.configurations import Texts, launch_note
from tuner.report.layout import pair_lines, wrapped
from tuner.report.terminal import printable
from tuner.tuning.state import Finish, Result, State, WarmFinish, metrics


def summary(result: Result, database: Path, *, full: bool = False) -> str:
    """Return what won, by how much, and how sure that is, in lines that fit; with ``full`` all parameters are named."""
    state, finish = result.state, result.finish
    run = state.run
    texts = Texts.of_space(state.space, full=full, foreign=bool(run.foreign))
    pairs: list[tuple[str, object]]
    if finish is None:
        pairs = [("", f"no configuration {missing(result)}"), ("failed", _failures(state) or "none")]
        return _block(state, pairs)
    known = finish.winner.configuration in state.known_winners
    why_not = tables.why_not_the_fastest(finish.behind, finish.noise_floor, run.options.margin, known=known)
    pairs = [
        ("winner", f"trial {finish.winner.id}: {texts(finish.winner.configuration)}"),
        ("", _figures(state, finish.time_ns)),
        *_against_default(state, finish, texts),
    ]
    if finish.warm:
        pairs += [("warm", _warm(finish, finish.warm)), ("", _why(state, finish, finish.warm))]
    pairs += [
        ("before", _against_incumbent(state, finish, texts)),
        ("confirmed", _confirmation(finish, run.replayed)),
        ("", _contents(finish) if finish.exportable and not run.replayed else ""),
        ("", _tied(finish)),
        ("", "" if finish.warm and finish.warm.passed_over else why_not),
        ("", _launch_note(state, finish)),
        ("timed", _how(state, finish)),
        *(("rejected", f"trial {trial.id}: {reason}") for trial, reason in finish.unstable),
        ("failed", _failures(state)),
        (
            "search",
            f"{_trials(state)}{_chosen(result)} in {state.elapsed_s:.1f} s"
            + _occupied(result)
            + f"; kept in {database}",
        ),
        ("", _stopped(state)),
        ("initial", _initial(state, finish.winner)),
    ]
    return _block(state, pairs)


def best_so_far(state: State, *, full: bool = False) -> str:
    """Return the best trial of a run that was stopped; nothing was raced or confirmed."""
    best = state.incumbent
    texts = Texts.of_space(state.space, full=full, foreign=bool(state.run.foreign))
    pairs: list[tuple[str, object]] = [("best yet", "none: no configuration was verified")]
    if best is not None and best.time_ns is not None:
        pairs = [
            ("best yet", texts(best.configuration)),
            ("", _figures(state, best.time_ns)),
            ("confirmed", "NOT: the search was stopped before the race"),
        ]
    return _block(state, [*pairs, ("failed", _failures(state))])


def _block(state: State, pairs: Sequence[tuple[str, object]]) -> str:
    run = state.run
    title = f"{run.problem} on {printable(run.gpu.name)}{' [replayed]' if run.replayed else ''}"
    lines = [("  " + name.ljust(9), value) for name, value in pairs]
    return "\n".join([*wrapped(printable(title), "", "  "), *pair_lines(lines)])


def _figures(state: State, time_ns: float) -> str:
    figures = metrics(state.roof, time_ns)
    return (
        ", ".join(filter(None, (tables.duration(time_ns), tables.throughput(figures))))
        + _of_light(state, figures.speed_of_light)
        + _of_the_ceiling(state, time_ns)
    )


def _tied(finish: Finish) -> str:
    others = finish.tied - 1
    count = tables.counted(others, "other finalist")
    same = finish.race_verdict is Verdict.SAME
    tied = f"tied with {count} within the noise" if same else f"statistically tied with {count}"
    return tied if others else ""


def commonest_failure(result: Result) -> Status | None:
    """Return the status with which most of the failed trials ended; None where none failed."""
    counts = result.state.failures
    return Status(max(counts, key=lambda status: counts[status])) if counts else None


def why_nothing(result: Result, database: Path) -> str:
    """Return in a line why a run has no winner."""
    text = f"{result.state.run.problem}: no configuration {missing(result)}"
    return "; ".join(filter(None, (text, how_it_ended(result, database))))


def how_it_ended(result: Result, database: Path) -> str:
    """Return the commonest failure, and the command that shows one of its trials."""
    status = commonest_failure(result)
    if status is None:
        return ""
    trials = [trial for trial in result.state.trials if trial.status is status]
    said = next((line.strip() for line in trials[0].error.splitlines() if line.strip()), "")
    ended = f"{len(trials)} of {len(result.state.trials)} ended as {status}"
    command = f"tune trials {trials[0].id} --db {shlex.quote(str(database))}"
    return f"{ended}{': ' if said else ''}{said}; see: {command}"


def missing(result: Result) -> str:
    """Return what no configuration did, in a run without a winner."""
    inaccurate = commonest_failure(result) is Status.INACCURATE
    return "is accurate enough" if inaccurate else "could be verified"


def _trials(state: State) -> str:
    if not state.resumed_trials:
        return tables.counted(len(state.trials), "trial")
    return (
        f"{len(state.trials)} trials ({state.resumed_trials} of them before the interruption), "
        f"{len(state.trials) - state.resumed_trials}"
    )


def _chosen(result: Result) -> str:
    """Return of how many candidates the trials are; empty if all of them were tried."""
    nominated, trials = result.stats.get("nominated"), len(result.state.trials)
    # The last nominations come too late to be tried, wherever candidates are compiled ahead.
    return f" of {nominated} candidates" if nominated and nominated > 1.25 * trials else ""


def _stopped(state: State) -> str:
    """Return why trials are left; empty if none are, or time ended."""
    if state.stopped is None:
        tried = {trial.configuration for trial in state.trials}
        all_tried = len(state.trials) < state.budget and len(tried) + state.known_before >= len(state.space)
        of = "of the sample " if state.space.sampled else ""
        return f"all {len(state.space)} {state.space.kind} configurations {of}were tried" if all_tried else ""
    floor = f"{100 * state.stopped.noise_floor:.2g} %"
    return (
        f"stopped after {len(state.trials)} of {state.budget} trials: "
        f"no improvement beyond the noise floor ({floor}) is expected"
    )


def _initial(state: State, winner: Trial) -> str:
    """Return what was tried first, where it came from, and how good it was; empty if there was nothing."""
    sources = {source: trials for source, trials in state.initial_trials.items() if trials}
    text = ", ".join(f"{len(trials)} from {printable(source)}" for source, trials in sources.items())
    trials = [trial for trials in sources.values() for trial in trials]
    if any(trial.configuration == winner.configuration for trial in trials):
        text += "; the winner is one of them"
    elif times := [trial.time_ns for trial in trials if trial.status.ranked and trial.time_ns]:
        text += f"; the best of them {tables.duration(min(times))}"
    elif trials:
        text += "; none of them worked"
    return "; ".join(filter(None, (text, *map(printable, state.initial.notes))))


def _occupied(result: Result) -> str:
    state = result.state
    if state.occupied is None:
        return ""
    refined = state.device.busy.refined_s
    waiting = (
        f", {refined:.1f} s of it with further samples while the compilers were behind"
        if refined >= 0.05
        else ""
    )
    return f", GPU occupied {tables.percent(state.occupied)}{waiting}"


def _against_default(state: State, finish: Finish, texts: Texts) -> list[tuple[str, object]]:
    if finish.default is None or finish.default_ns is None or finish.ratio is None:
        return [("default", "the default configuration could not be measured")]
    if finish.default.configuration == finish.winner.configuration:
        narrowed = " of what was searched" if state.run.options.fixed or state.run.options.variants else ""
        return [("default", f"the default configuration{narrowed} is the winner")]
    compared = _compared(finish.ratio, finish, "", finish.verdict)
    default = texts.cell(finish.default.configuration)
    return [("default", compared), ("", f"default {tables.duration(finish.default_ns)}: {default}")]


def _warm(finish: Finish, warm: WarmFinish) -> str:
    """Return the winner's time in the mode warm."""
    text = f"{tables.duration(warm.time_ns)} back to back"
    if (
        warm.ratio is None
        or finish.default is None
        or finish.default.configuration == finish.winner.configuration
    ):
        return text
    return f"{text}, {_compared(warm.ratio, finish, ' as the default', warm.verdict)}"


def _why(state: State, finish: Finish, warm: WarmFinish) -> str:
    """Return how the winner stands among the finalists in both modes, and so why it is the winner."""
    mode = state.run.conditions.mode
    here, there = _behind(warm.behind_in_mode, finish.noise_floor), _behind(warm.behind, warm.noise_floor)
    if warm.passed_over is None:
        return f"among the finalists {here} {mode}, {there} warm"
    instead = _behind(warm.passed_over_behind, warm.noise_floor)
    return (
        f"chosen because it is also fast with warm caches: {here} {mode}, {there} warm; "
        f"the winner of {mode} alone, trial {warm.passed_over.id}, is {instead} warm"
    )


def _behind(ratio: float, noise_floor: float) -> str:
    """Return how far something is behind the fastest."""
    return (
        f"{100 * (ratio - 1):.1f} % behind the fastest"
        if ratio > 1 + noise_floor
        else "as fast as the fastest"
    )


def _against_incumbent(state: State, finish: Finish, texts: Texts) -> str:
    """Return the comparison with the best of earlier runs; empty if there was none, or it was not timed again."""
    if state.best_before is None:
        return ""
    configuration, then_ns = state.best_before
    if configuration == finish.winner.configuration:
        return f"the best known already, at {tables.duration(then_ns)} then"
    ratio = finish.versus_incumbent
    if finish.incumbent_ns is None or ratio is None:
        return f"{tables.duration(then_ns)} is the best known, and could not be timed again: {texts(configuration)}"
    compared = _compared(ratio, finish, " as the best known", finish.incumbent_verdict)
    return f"{compared}; that {tables.duration(finish.incumbent_ns)}: {texts(configuration)}"


def _compared(ratio: Ratio, finish: Finish, as_what: str, verdict: Verdict) -> str:
    if math.isfinite(ratio.high):
        ends = f" ({ratio.low:.3f} to {ratio.high:.3f})"
        return f"{ratio.median:.3f}x as fast{ends}{as_what}: {verdict}"
    why = "the file has no noise data" if finish.rounds == 1 else f"{finish.rounds} rounds are too few"
    return f"{ratio.median:.3f}x as fast{as_what}, not compared: {why}"


def _of_light(state: State, share: float | None) -> str:
    return (
        "" if share is None else f", {tables.percent(share)} of the speed of light ({state.roof.bound}-bound)"
    )


def _of_the_ceiling(state: State, time_ns: float) -> str:
    share = state.of_ceiling(time_ns)
    if share is None or state.ceiling is None:
        return ""
    return f", {tables.percent(share)} of the measured {state.ceiling.name} rate"


def _how(state: State, finish: Finish) -> str:
    """Return the conditions, the noise floor, and what was amiss."""
    floor = f"{100 * finish.noise_floor:.2g} %" if finish.noise_floor else "not known"
    parts = [f"{state.run.conditions}; noise floor {floor}"]
    if not state.run.replayed and finish.rounds:
        parts.append(f"race of {finish.rounds} rounds in {finish.race_s:.1f} s")
    capped = finish.winner.capped_samples
    if capped:
        parts.append(f"{capped} of the winner's {len(finish.winner.samples_ns)} samples at the power limit")
    if state.retimed:
        parts.append(f"{state.retimed} timed again after the GPU had drifted")
    return "; ".join(parts)


def _confirmation(finish: Finish, replayed: bool) -> str:
    if replayed:
        return "by recorded samples only: measure on a GPU before relying on it"
    confirmed = finish.confirmed
    if confirmed is None or not confirmed.samples_ns:
        return f"NOT: {finish.reason}"
    again = median(confirmed.samples_ns)
    text = f"{tables.duration(again)} in a fresh process ({100 * (again / finish.time_ns - 1):+.2f} %)"
    if finish.reason:
        return f"NOT: {finish.reason}"
    return f"{text}, {_edge_sizes(finish)}"


def _edge_sizes(finish: Finish) -> str:
    why = f": {finish.edge_note}" if finish.edge_note else ""
    if not finish.edge_cases:
        return f"verified at NO edge-case size{why or ': none is valid'}"
    return f"right at {tables.counted(len(finish.edge_cases), 'edge-case size')}{why}"


def _contents(finish: Finish) -> str:
    """Return with which contents of the inputs the winner is right."""
    contents = finish.varied.contents if finish.varied else {}
    left_out = {name: why for name, why in contents.items() if why}
    if len(left_out) == len(contents):
        return f"inputs not varied{''.join(f': {why}' for why in list(left_out.values())[:1])}"
    without = f" ({', '.join(left_out)} left out)" if left_out else ""
    return f"right with {len(contents) - len(left_out)} other contents of its inputs{without}"


def _failures(state: State) -> str:
    return ", ".join(f"{count} {status}" for status, count in sorted(state.failures.items()))


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
        data["trajectory"] = tables.trajectory(state.trials)
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
        data["best_known_before"] = {
            "variant": state.best_before[0].variant,
            "configuration": state.best_before[0].values,
            "time_ns": state.best_before[1],
        }
    if finish.incumbent and finish.incumbent_ns and finish.versus_incumbent:
        data["incumbent"] = {**tables.trial_identity(finish.incumbent), "time_ns": finish.incumbent_ns}
        data["versus_incumbent"] = _comparison(finish.versus_incumbent, finish.incumbent_verdict)
    if finish.default and finish.default_ns and finish.ratio:
        data["default"] = {**tables.trial_identity(finish.default), "time_ns": finish.default_ns}
        data["versus_default"] = _comparison(finish.ratio, finish.verdict)
    return data


def _winner(state: State, finish: Finish) -> dict[str, Any]:
    of_ceiling = state.of_ceiling(finish.time_ns)
    confirmed = finish.confirmed
    return {
        **tables.trial_identity(finish.winner),
        "time_ns": finish.time_ns,
        **structs.asdict(metrics(state.roof, finish.time_ns)),
        "confirmed_ns": median(confirmed.samples_ns) if confirmed and confirmed.samples_ns else None,
        "edge_sizes_verified": len(finish.edge_cases),
        "contents": dict(finish.varied.contents) if finish.varied else {},
        **tables.picked(finish, "exportable reason tied"),
        "warm": _warm_record(finish.warm) if finish.warm else None,
        "launch_decides": bool(_launch_note(state, finish)),
        "ceiling": state.ceiling.name if state.ceiling and of_ceiling is not None else None,
        "of_ceiling": of_ceiling,
        **tables.picked(finish.winner, "sm_clock_hz capped_samples"),
        "samples": len(finish.winner.samples_ns),
        "true_error": finish.winner.verification.true_error if finish.winner.verification else None,
    }


def _warm_record(warm: WarmFinish) -> dict[str, Any]:
    return {
        **tables.picked(warm, "time_ns behind behind_in_mode"),
        "versus_default": _comparison(warm.ratio, warm.verdict) if warm.ratio else None,
    }


def _launch_note(state: State, finish: Finish) -> str:
    run = state.run
    return launch_note(run.calibration, run.conditions, finish.time_ns, tied=finish.tied > 1)


def _comparison(ratio: Ratio, verdict: Verdict) -> dict[str, Any]:
    low, high = (ratio.low, ratio.high) if math.isfinite(ratio.high) else (None, None)
    return {"ratio": ratio.median, "low": low, "high": high, "verdict": verdict}
