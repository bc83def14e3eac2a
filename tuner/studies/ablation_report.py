"""The results of ``tune ablate`` as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuner.core.model import Value, value_text
from tuner.report import tables
from tuner.report.configurations import timed_text
from tuner.studies.ablation import ITSELF, Ablation, AblationRequest, Alternative, worth
from tuner.studies.bench_report import compared_text, head_record, show_head, time_record


def show_ablation(ablation: Ablation, configuration: str, source: str, notes: tuple[str, ...] = ()) -> None:
    """Print what each value is worth, the most valuable first.

    Args:
        ablation: the results.
        configuration: as text.
        source: where the configuration comes from.
        notes: what a reader should know about the choice of it.
    """
    itself = (f"  {ITSELF}", f"{configuration} ({source})")
    show_head(ablation, ablation.request.why, notes, [itself, ("  time", _time(ablation))])
    rows, head = [], f"speedup of {ITSELF} over it"
    for parameter, alternatives in sorted(ablation.choices.items(), key=_least_cost):
        name = f"{parameter}={value_text(ablation.request.configuration.values[parameter])}"
        for alternative in alternatives:
            timing = alternative.timing
            rows.append(
                {
                    "choice": name,
                    "instead": _instead(alternative),
                    "time": tables.duration(timing.time_ns) if timing else "",
                    "95 % interval": tables.interval(*timing.interval_ns) if timing else "",
                    head: compared_text(alternative.compared) if timing else alternative.error,
                }
            )
            name = ""
    if rows:
        tables.show_rows(rows, right=("time",), stacked=("95 % interval",))
    if any(one.unsearched for one in ablation.alternatives):
        tables.show_text(
            "  * left out of a search at this size; `tune show --full` has the reasons", "", "    "
        )
    for unsearched, more in ((False, "a longer search may find more"), (True, "no search tries that")):
        names = ", ".join(one.name for one in ablation.faster if bool(one.unsearched) == unsearched)
        if names:
            tables.show_text(f"faster than what was chosen: {names}; {more}", "  ", "    ")


def _time(ablation: Ablation) -> str:
    itself = ablation.itself
    if itself is None:
        return ""
    ends = f" ({tables.interval(*itself.interval_ns)})"
    return timed_text(itself.time_ns, ablation.metrics(itself), ends)


def _least_cost(choice: tuple[str, Sequence[Alternative]]) -> float:
    """Order the choices by what undoing each costs at least; those without a timed alternative last."""
    least = worth(choice[1])
    return -least.ratio.median if least is not None and least.ratio is not None else 0.0


def _instead(one: Alternative) -> str:
    """Return the value, and what had to change with it."""
    besides = f", with {one.besides[0]}={value_text(one.besides[1])}" if one.besides else ""
    return f"{value_text(one.value)}{besides}{' *' if one.unsearched else ''}"


def ablation_as_json(ablation: Ablation, source: str, notes: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the same for programs, with the choices in the order of the kernel's file."""
    request, itself = ablation.request, ablation.itself
    no_time = dict.fromkeys(("time_ns", "ci_low_ns", "ci_high_ns"))
    return {
        **head_record(ablation, request.why),
        **tables.configuration_record(request.configuration),
        "source": source,
        "notes": notes,
        **(time_record(ablation, itself) if itself else no_time),
        "sm_clock_hz": (itself.sm_clock_hz if itself else 0.0) or None,
        **tables.picked(ablation, "tags error complete"),
        "choices": [_choice(request, *choice) for choice in ablation.choices.items()],
    }


def _choice(request: AblationRequest, name: str, alternatives: Sequence[Alternative]) -> dict[str, Any]:
    least, configuration = worth(alternatives), request.configuration
    return {
        "parameter": name,
        "doc": request.kernel.variants[configuration.variant].parameters[name].doc,
        "value": configuration.values[name],
        "worth": least.ratio.median if least is not None and least.ratio is not None else None,
        "instead": least.value if least is not None else None,
        "besides": _besides(least) if least is not None else {},
        "alternatives": [_alternative(one) for one in alternatives],
    }


def _alternative(one: Alternative) -> dict[str, Any]:
    timing = one.timing
    low, high = timing.interval_ns if timing else (None, None)
    return {
        "value": one.value,
        "besides": _besides(one),
        "unsearched": one.unsearched,
        "time_ns": timing.time_ns if timing else None,
        "ci_low_ns": low,
        "ci_high_ns": high,
        **tables.comparison_record(one.ratio, one.verdict),
        "sm_clock_hz": (timing.sm_clock_hz if timing else 0.0) or None,
        "error": one.error,
    }


def _besides(one: Alternative) -> dict[str, Value]:
    return dict([one.besides]) if one.besides else {}
