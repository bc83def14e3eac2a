"""The results of ``tune ablate`` as a table and as JSON; and its progress."""

from __future__ import annotations

import time
from typing import Any

import click
from msgspec import structs

from tuner.core.model import Value, value_text
from tuner.report.tables import (
    comparison_record,
    configuration_record,
    duration,
    interval,
    percent,
    picked,
    say,
    show,
    show_pairs,
    show_text,
    throughput,
    timing_record,
)
from tuner.report.terminal import printable
from tuner.studies.ablation.results import ITSELF, AblatedParameter, Ablation, Alternative
from tuner.studies.bench.report import comparison_text
from tuner.tuning.trials import metrics

HEADS = ("choice", "instead", "time", "95 % interval", f"{ITSELF} is")


class SaidProgress:
    """A line on the standard error as each step begins, with the time that the rest takes if it goes on like this.

    Args:
        quiet: say nothing.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._steps = self._ended = 0
        self._began = time.monotonic()

    def expect(self, steps: int) -> None:
        """Learn how many there will be."""
        self._steps, self._began = steps, time.monotonic()

    def step(self, what: str) -> None:
        """Say what begins."""
        if self._quiet:
            return
        # The first step compiles; comparisons take another time, but not one of another order.
        spent_s, left = time.monotonic() - self._began, self._steps - self._ended
        eta = f"  ETA {spent_s / self._ended * left:.0f} s" if self._ended else ""
        say(f"step {self._ended + 1}/{self._steps}  {what}{eta}")

    def done(self) -> None:
        """Count."""
        self._ended += 1


def show_ablation(ablation: Ablation, configuration: str, source: str, notes: tuple[str, ...] = ()) -> None:
    """Print what each value is worth, the most valuable first.

    Args:
        ablation: the results.
        configuration: as text.
        source: where the configuration comes from.
        notes: what a reader should know about the choice of it.
    """
    click.echo(printable(f"{ablation.request.problem} on {ablation.gpu.name}"))
    calibration = ablation.calibration.notes if ablation.calibration is not None else ()
    noise = f"; noise floor {100 * ablation.noise_floor:.2g} %" if ablation.time_ns else ""
    show_pairs(
        [
            (f"  {ITSELF}", f"{configuration} ({source})"),
            ("  time", _time(ablation)),
            ("  timed", f"{ablation.request.conditions}: {ablation.request.why}{noise}"),
            *(("  note", note) for note in (*calibration, *notes)),
            ("  clocks", f"held down by {', '.join(ablation.tags)}" if ablation.tags else ""),
        ]
    )
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
    if ablation.time_ns is None:
        return ""
    figures = metrics(ablation.roof, ablation.time_ns)
    light = percent(figures.speed_of_light)
    parts = (
        f"{duration(ablation.time_ns)} ({interval(ablation.low_ns, ablation.high_ns)})",
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
    if one.ratio is None:
        return ("", "", one.error)
    ratio = one.ratio
    compared = comparison_text(ratio.median, ratio.low, ratio.high, str(one.verdict))
    return (duration(one.time_ns), interval(one.low_ns, one.high_ns), compared)


def ablation_as_json(ablation: Ablation, source: str, notes: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the same for programs, with the choices in the order of the kernel's file."""
    request = ablation.request
    return {
        "problem": request.problem.to_json(),
        **timing_record(ablation.gpu, request.conditions),
        "why": request.why,
        "noise_floor": ablation.noise_floor or None,
        **configuration_record(request.configuration),
        "source": source,
        "notes": notes,
        "time_ns": ablation.time_ns,
        "ci_low_ns": ablation.low_ns,
        "ci_high_ns": ablation.high_ns,
        **(structs.asdict(metrics(ablation.roof, ablation.time_ns)) if ablation.time_ns else {}),
        "sm_clock_hz": ablation.sm_clock_hz or None,
        **picked(ablation, "tags error complete"),
        "choices": [_choice(choice) for choice in ablation.parameters],
    }


def _choice(choice: AblatedParameter) -> dict[str, Any]:
    worth = choice.worth
    return {
        **picked(choice, "parameter doc value"),
        "worth": worth.ratio.median if worth is not None and worth.ratio is not None else None,
        "instead": worth.change.value if worth is not None else None,
        "besides": _besides(worth) if worth is not None else {},
        "alternatives": [
            {
                "value": one.change.value,
                "besides": _besides(one),
                "unsearched": one.change.unsearched,
                "time_ns": one.time_ns,
                "ci_low_ns": one.low_ns,
                "ci_high_ns": one.high_ns,
                **comparison_record(one.ratio, one.verdict),
                "sm_clock_hz": one.sm_clock_hz or None,
                "error": one.error,
            }
            for one in choice.alternatives
        ],
    }


def _besides(one: Alternative) -> dict[str, Value]:
    return dict([one.change.besides]) if one.change.besides else {}
