"""The results of ``tune ablate`` as a table and as JSON."""

from __future__ import annotations

from typing import Any

from tuner.core.model import Value, value_text
from tuner.report.tables import (
    comparison_record,
    configuration_record,
    duration,
    interval,
    percent,
    picked,
    show,
    show_text,
    throughput,
)
from tuner.studies.ablation import ITSELF, AblatedParameter, Ablation, Alternative
from tuner.studies.bench_report import compared_text, head_record, show_head, time_record

HEADS = ("choice", "instead", "time", "95 % interval", f"{ITSELF} is")


def show_ablation(ablation: Ablation, configuration: str, source: str, notes: tuple[str, ...] = ()) -> None:
    """Print what each value is worth, the most valuable first.

    Args:
        ablation: the results.
        configuration: as text.
        source: where the configuration comes from.
        notes: what a reader should know about the choice of it.
    """
    itself = (f"  {ITSELF}", f"{configuration} ({source})")
    show_head(ablation.comparison, ablation.request.why, notes, [itself, ("  time", _time(ablation))])
    rows = []
    for choice in _by_worth(ablation):
        name = f"{choice.parameter}={value_text(choice.value)}"
        for alternative in choice.alternatives:
            rows.append((name, _instead(alternative), *_cells(alternative)))
            name = ""
    if rows:
        show(HEADS, rows, right=("time",), stacked=("95 % interval",))
    if any(one.change.unsearched for one in ablation.alternatives):
        show_text("  * left out of a search at this size; `tune show --full` has the reasons", "", "    ")
    for unsearched, more in ((False, "a longer search may find more"), (True, "no search tries that")):
        names = ", ".join(
            one.change.name for one in ablation.faster if bool(one.change.unsearched) == unsearched
        )
        if names:
            show_text(f"faster than what was chosen: {names}; {more}", "  ", "    ")


def _time(ablation: Ablation) -> str:
    itself = ablation.itself
    if itself is None:
        return ""
    figures = ablation.comparison.metrics(itself)
    light = percent(figures.speed_of_light)
    parts = (
        f"{duration(itself.time_ns)} ({interval(*itself.interval_ns)})",
        throughput(figures),
        f"{light} of the speed of light" if light else "",
    )
    return ", ".join(filter(None, parts))


def _by_worth(ablation: Ablation) -> list[AblatedParameter]:
    """Order the choices by what undoing each costs at least; those without a timed alternative last."""

    def key(choice: AblatedParameter) -> float:
        worth = choice.worth
        return -worth.ratio.median if worth is not None and worth.ratio is not None else 0.0

    return sorted((choice for choice in ablation.parameters if choice.alternatives), key=key)


def _instead(one: Alternative) -> str:
    """Return the value, and what had to change with it."""
    besides = one.change.besides
    instead = value_text(one.change.value) + (
        f", with {besides[0]}={value_text(besides[1])}" if besides else ""
    )
    return f"{instead} *" if one.change.unsearched else instead


def _cells(one: Alternative) -> tuple[str, str, str]:
    if one.timing is None:
        return ("", "", one.error)
    compared = compared_text(one.compared)
    return (duration(one.timing.time_ns), interval(*one.timing.interval_ns), compared)


def ablation_as_json(ablation: Ablation, source: str, notes: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the same for programs, with the choices in the order of the kernel's file."""
    request, itself = ablation.request, ablation.itself
    no_time = dict.fromkeys(("time_ns", "ci_low_ns", "ci_high_ns"))
    return {
        **head_record(ablation.comparison, request.why),
        **configuration_record(request.configuration),
        "source": source,
        "notes": notes,
        **(time_record(ablation.comparison, itself) if itself else no_time),
        "sm_clock_hz": (itself.sm_clock_hz if itself else 0.0) or None,
        "tags": ablation.comparison.tags,
        **picked(ablation, "error complete"),
        "choices": [_choice(choice) for choice in ablation.parameters],
    }


def _choice(choice: AblatedParameter) -> dict[str, Any]:
    worth = choice.worth
    return {
        **picked(choice, "parameter doc value"),
        "worth": worth.ratio.median if worth is not None and worth.ratio is not None else None,
        "instead": worth.change.value if worth is not None else None,
        "besides": _besides(worth) if worth is not None else {},
        "alternatives": [_alternative(one) for one in choice.alternatives],
    }


def _alternative(one: Alternative) -> dict[str, Any]:
    timing = one.timing
    low, high = timing.interval_ns if timing else (None, None)
    return {
        "value": one.change.value,
        "besides": _besides(one),
        "unsearched": one.change.unsearched,
        "time_ns": timing.time_ns if timing else None,
        "ci_low_ns": low,
        "ci_high_ns": high,
        **comparison_record(one.ratio, one.verdict),
        "sm_clock_hz": (timing.sm_clock_hz if timing else 0.0) or None,
        "error": one.error,
    }


def _besides(one: Alternative) -> dict[str, Value]:
    return dict([one.change.besides]) if one.change.besides else {}
