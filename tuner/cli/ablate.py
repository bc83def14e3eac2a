"""``tune ablate``: what each choice of a configuration is worth, by undoing one at a time."""

from __future__ import annotations

import uuid
from contextlib import closing

from tuner.cli.commands.studies import AblateArguments
from tuner.cli.configuration import choose, open_gpu, refuse_device, refuse_wrong_names
from tuner.cli.loader import part
from tuner.core.conditions import Conditions, Regime
from tuner.core.errors import Interrupted, TunerError
from tuner.core.signals import stopping
from tuner.database.database import Database
from tuner.devices.base import Device, say_nothing
from tuner.report.configurations import ChosenConfiguration, Texts
from tuner.report.progress import counting
from tuner.report.tables import say, show_json
from tuner.studies.ablation import AblationRequest, records_of
from tuner.studies.ablation import ablate as time_changes
from tuner.studies.ablation_report import ablation_as_json, show_ablation


def ablate(asked: AblateArguments) -> None:
    """Time the alternatives to each value of a configuration, keep the times and print them.

    Raises:
        TunerError: the configuration could not be timed.
        Interrupted: by Ctrl-C; what was timed is printed and kept.
    """
    names = [name.strip() for text in asked.parameters for name in text.split(",") if name.strip()]
    refuse_wrong_names(asked, names)
    refuse_device(asked.device_name)
    with (
        stopping() as stop,
        closing(
            open_gpu(asked.device_name, asked.kernel_name, asked.jobs, say_nothing if asked.quiet else say)
        ) as device,
        closing(counting(quiet=asked.quiet, every_s=0.0)) as progress,
    ):
        chosen = choose(asked, device.gpu)
        texts = Texts.of_kernel(chosen.kernel, full=asked.full)
        conditions, why = _conditions(device, chosen, asked)
        if not asked.quiet:
            say(f"{chosen.problem} ({conditions}): {texts(chosen.configuration)}")
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
