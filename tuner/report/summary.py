"""How a run ended, in a few lines."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path

from tuner.core.errors import first_line
from tuner.core.model import Run, Status, Trial
from tuner.core.phases import listed
from tuner.core.stats import Ratio, Verdict
from tuner.database.records import RESERVATIONS
from tuner.report import tables
from tuner.report.configurations import Texts, timed_text
from tuner.report.layout import pair_lines, wrapped
from tuner.report.result_record import launch_note_of
from tuner.report.terminal import printable
from tuner.tuning.state import Finish, Result, State, WarmFinish, metrics


def summary(result: Result, database: Path, *, full: bool = False) -> str:
    """Return what won, by how much, and how sure that is, in lines that fit.

    Args:
        result: of the run.
        database: where it is kept.
        full: also say how it was timed, compared and searched, and name all parameters.
    """
    state, finish = result.state, result.finish
    texts = Texts.of_space(state.space, full=full, foreign=bool(state.run.foreign))
    if finish is None:
        return _block(
            state, [("", f"no configuration {missing(result)}"), ("failed", _failures(state) or "none")]
        )
    known = finish.winner.configuration in state.known_winners
    why_not = tables.why_not_the_fastest(
        finish.behind, finish.noise_floor, state.run.options.margin, known=known
    )
    pairs: list[tuple[str, object]] = [
        ("winner", texts(finish.winner.configuration)),
        ("time", "; ".join(filter(None, (_figures(state, finish.time_ns), _tied(finish))))),
        ("speedup", _over_default(state, finish)),
        ("confirmed", _confirmation(finish, state.run)),
        ("note", RESERVATIONS.get(finish.checked_against, "")),
        ("search", f"{_searched(state, finish.winner)}; kept in {database}"),
        ("note", _why(state, finish, finish.warm) if finish.warm and finish.warm.passed_over else why_not),
        ("note", launch_note_of(state, finish)),
        ("note", _stopped(state)),
    ]
    return _block(state, [*pairs, *_details(result, finish, texts)] if full else pairs)


def _details(result: Result, finish: Finish, texts: Texts) -> list[tuple[str, object]]:
    """Return what few need: how a winner was timed, compared and found."""
    state = result.state
    pairs: list[tuple[str, object]] = []
    if finish.default is not None and finish.default_ns is not None:
        default = texts.cell(finish.default.configuration)
        pairs.append(("default", f"{tables.duration(finish.default_ns)}: {default}"))
    if finish.warm:
        why = "" if finish.warm.passed_over else _why(state, finish, finish.warm)
        pairs += [("warm", _warm(finish, finish.warm)), ("", why)]
    return [
        *pairs,
        ("before", _against_incumbent(state, finish, texts)),
        ("inputs", _contents(finish) if finish.exportable and not state.run.replayed else ""),
        ("timed", _how(state, finish)),
        *(("rejected", f"{_named(trial)}: {reason}") for trial, reason in finish.unstable),
        ("failed", _failures(state)),
        ("trials", f"{_trials(state)}{_occupied(state)}"),
        ("initial", _initial(state, finish.winner)),
        ("seconds", listed(result.stats.get("phases", []))),
    ]


def best_so_far(state: State, *, full: bool = False) -> str:
    """Return the best trial of a run that was stopped; nothing was raced or confirmed."""
    best = state.incumbent
    texts = Texts.of_space(state.space, full=full, foreign=bool(state.run.foreign))
    pairs: list[tuple[str, object]] = [("best yet", "none: no configuration was verified")]
    if best is not None and best.time_ns is not None:
        pairs = [
            ("best yet", texts(best.configuration)),
            ("time", _figures(state, best.time_ns)),
            ("confirmed", "NOT: the search was stopped before the race"),
        ]
    return _block(
        state, [*pairs, ("search", _searched(state, best) if best else ""), ("failed", _failures(state))]
    )


def _block(state: State, pairs: Sequence[tuple[str, object]]) -> str:
    run = state.run
    title = f"{run.problem} on {printable(run.gpu.name)}{' [replayed]' if run.replayed else ''}"
    lines = [("  " + name.ljust(9), value) for name, value in pairs]
    return "\n".join([*wrapped(printable(title), "", "  "), *pair_lines(lines)])


def _figures(state: State, time_ns: float) -> str:
    figures = metrics(state.roof, time_ns)
    bound = f" ({state.roof.bound}-bound)" if figures.of_peak else ""
    # Bytes alone do not say what bounds a kernel.
    ceiling = _of_the_ceiling(state, time_ns) if state.roof.flops else ""
    return f"{timed_text(time_ns, figures)}{bound}{ceiling}"


def _tied(finish: Finish) -> str:
    others = finish.tied - 1
    return f"tied with {tables.counted(others, 'other finalist')}" if others else ""


def _named(trial: Trial) -> str:
    """Return a trial by the number that commands take; one that the database has not got by its place in the run."""
    return tables.row_number(trial.id) or f"trial {trial.number + 1}"


def _searched(state: State, best: Trial) -> str:
    """Return how many trials there were, which is the best, how many failed, and how long the search took."""
    failed = sum(state.failures.values())
    parts = (
        f"{tables.counted(len(state.trials), 'trial')}, the best {_named(best)}",
        f"{failed} failed" if failed else "",
        f"{state.elapsed_s:.1f} s",
    )
    return ", ".join(filter(None, parts))


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
    said = first_line(trials[0].error)
    ended = f"{len(trials)} of {len(result.state.trials)} ended as {status}"
    command = f"tune trials {trials[0].id} --db {shlex.quote(str(database))}"
    return f"{ended}{': ' if said else ''}{said}; see: {command}"


def missing(result: Result) -> str:
    """Return what no configuration did, in a run without a winner."""
    inaccurate = commonest_failure(result) is Status.INACCURATE
    return "is accurate enough" if inaccurate else "could be verified"


def _trials(state: State) -> str:
    before = f" ({state.resumed_trials} of them before the interruption)" if state.resumed_trials else ""
    return f"{tables.counted(len(state.trials), 'trial')}{before}"


def _stopped(state: State) -> str:
    """Return why trials are left, and what more time would be worth; empty if none are."""
    if state.out_of_time:
        gain = state.expected_gain
        more = "" if gain is None else f"; the next is expected to save {tables.percent(gain)} of the time"
        return f"time ended the search after {len(state.trials)} of {state.budget} trials{more}"
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
    return text


def _occupied(state: State) -> str:
    return "" if state.occupied is None else f", GPU occupied {tables.percent(state.occupied)}"


def _over_default(state: State, finish: Finish) -> str:
    if finish.default is None or finish.default_ns is None or finish.ratio is None:
        return "not known: the default configuration could not be measured"
    if finish.default.configuration == finish.winner.configuration:
        narrowed = " of what was searched" if state.run.options.fixed or state.run.options.variants else ""
        return f"none: the default configuration{narrowed} is the winner"
    return _compared(finish.ratio, finish, _default_of(finish.default, finish), finish.verdict)


def _default_of(default: Trial, finish: Finish) -> str:
    """Return what the winner is compared with; a winner of another variant may be the default of its own."""
    variant = default.configuration.variant
    return "the default" if variant == finish.winner.configuration.variant else f"the default of {variant}"


def _warm(finish: Finish, warm: WarmFinish) -> str:
    """Return the winner's time in the mode warm."""
    text = f"{tables.duration(warm.time_ns)} back to back"
    default = finish.default
    if warm.ratio is None or default is None or default.configuration == finish.winner.configuration:
        return text
    return f"{text}, {_compared(warm.ratio, finish, _default_of(default, finish), warm.verdict)}"


def _why(state: State, finish: Finish, warm: WarmFinish) -> str:
    """Return how the winner stands among the finalists in both modes, and so why it is the winner."""
    mode = state.run.conditions.mode
    here, there = _behind(warm.behind_in_mode, finish.noise_floor), _behind(warm.behind, warm.noise_floor)
    if warm.passed_over is None:
        return f"among the finalists {here} {mode}, {there} warm"
    instead = _behind(warm.passed_over_behind, warm.noise_floor)
    return (
        f"chosen because it is also fast with warm caches: {here} {mode}, {there} warm; "
        f"the winner of {mode} alone, {_named(warm.passed_over)}, is {instead} warm"
    )


def _behind(ratio: float, noise_floor: float) -> str:
    """Return how far something is behind the fastest."""
    slower = ratio > 1 + noise_floor
    return f"{100 * (ratio - 1):.1f} % behind the fastest" if slower else "as fast as the fastest"


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
    compared = _compared(ratio, finish, "the best known", finish.incumbent_verdict)
    return f"{compared}; that took {tables.duration(finish.incumbent_ns)}: {texts(configuration)}"


def _compared(ratio: Ratio, finish: Finish, over: str, verdict: Verdict) -> str:
    if not math.isfinite(ratio.high):
        why = "the file has no noise data" if finish.rounds == 1 else f"{finish.rounds} rounds are too few"
        return f"{ratio.median:.3f}x over {over}, not compared: {why}"
    return tables.speedup(ratio.median, ratio.low, ratio.high, verdict, over)


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


def _confirmation(finish: Finish, run: Run) -> str:
    if run.replayed:
        return f"no: replayed on samples of {printable(run.gpu.name)}; run on a GPU to confirm"
    again = finish.confirmed_ns
    if again is None or finish.reason:
        return f"NOT: {finish.reason}"
    change = 100 * (again / finish.time_ns - 1)
    return f"{tables.duration(again)} in a fresh process ({change:+.2f} %), {_edge_sizes(finish)}"


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
