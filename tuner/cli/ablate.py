"""``tune ablate``: what each choice of a configuration is worth, by undoing one at a time."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from tuner.cli.commands.studies import AblateArguments
from tuner.cli.configuration import choose, open_gpu, refuse_device, refuse_wrong_names
from tuner.cli.loader import part
from tuner.core.conditions import Conditions, Regime
from tuner.core.errors import Interrupted, TunerError
from tuner.core.model import Value, value_text
from tuner.core.signals import stopping
from tuner.database.database import Database
from tuner.devices.base import Device, say_nothing
from tuner.report import tables
from tuner.report.configurations import ChosenConfiguration, Texts, timed_text
from tuner.report.next_steps import kernel_argument
from tuner.report.progress import counting
from tuner.report.tables import say, show_json
from tuner.studies.ablation import ITSELF, Ablation, AblationRequest, Alternative, records_of, worth
from tuner.studies.ablation import ablate as time_changes
from tuner.studies.bench_report import compared_record, compared_text, head_record, show_head, time_record


def ablate(asked: AblateArguments) -> None:
    """Time the alternatives to each value of a configuration, keep the times and print them.

    Raises:
        TunerError: the configuration could not be timed.
        Interrupted: by Ctrl-C; what was timed is printed and kept.
    """
    names = [name.strip() for text in asked.parameters for name in text.split(",") if name.strip()]
    refuse_wrong_names(asked, names)
    refuse_device(asked.device_name)
    tell = say_nothing if asked.quiet else say
    with (
        stopping() as stop,
        closing(open_gpu(asked.device_name, asked.kernel_name, asked.jobs, tell)) as device,
        closing(counting(quiet=asked.quiet, every_s=0.0)) as progress,
    ):
        chosen = choose(asked, device.gpu)
        texts = Texts.of_kernel(chosen.kernel, full=asked.full)
        conditions, why = _conditions(device, chosen, asked)
        tell(f"{chosen.problem} ({conditions}): {texts(chosen.configuration)}")
        request = part(
            asked,
            AblationRequest,
            kernel=chosen.kernel,
            problem=chosen.problem,
            conditions=conditions,
            why=why,
            configuration=chosen.configuration,
            only=names,
            known_ns=chosen.time_ns if conditions == chosen.conditions else None,
        )
        ablated = time_changes(device, request, progress, stop)
        if rows := records_of(ablated, device, str(uuid.uuid4())):
            with Database.open(asked.db) as database:
                database.record_benchmark(rows)
    if asked.as_json:
        show_json(ablation_as_json(ablated, chosen.source, chosen.notes))
    else:
        show_ablation(ablated, texts(chosen.configuration), chosen.source, chosen.notes)
    if ablated.error:
        raise TunerError(
            f"{chosen.configuration} could not be timed: {ablated.error}", "name another one with --config"
        )
    if not ablated.complete:
        raise Interrupted("stopped; what was timed is kept", "the same command begins anew")


def _conditions(
    device: Device, chosen: ChosenConfiguration, asked: AblateArguments
) -> tuple[Conditions, str]:
    """Return how it is timed, and why: as it was tuned, unless that is unknown or the command line says otherwise."""
    if chosen.conditions is not None and asked.mode is None and asked.regime is None:
        return chosen.conditions, "as it was tuned"
    regime = asked.regime or Regime.RESTED
    return device.choose_conditions(chosen.kernel, chosen.problem, asked.mode, regime)


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
        kernel = ablation.request.kernel
        command = f"tune show {shlex.quote(kernel_argument(kernel.name, kernel.file))} --full"
        tables.show_text(f"  * left out of a search at this size; `{command}` has the reasons", "", "    ")
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
        **compared_record(one.compared),
        "sm_clock_hz": (timing.sm_clock_hz if timing else 0.0) or None,
        "error": one.error,
    }


def _besides(one: Alternative) -> dict[str, Value]:
    return dict([one.besides]) if one.besides else {}
