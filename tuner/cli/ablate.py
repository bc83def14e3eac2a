"""``tune ablate``: what each choice of a configuration is worth, by undoing one at a time."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from tuner.cli.choice import Asked, choice_options
from tuner.cli.options import as_tuned_options, gpu_option, jobs_option, rounds_option, seed_option

if TYPE_CHECKING:
    from tuner.ablation.ablation import Ablation
    from tuner.cli.choice import Choice
    from tuner.devices.base import Device
    from tuner.model import Conditions

EPILOG = """\b
Examples:
  tune ablate gemm --dtype bfloat16
  tune ablate gemm --size m=8192,n=8192,k=8192 --parameter stages --parameter raster
  tune ablate --trial 12 --json
"""


@click.command(epilog=EPILOG)
@choice_options
@click.option(
    "--parameter",
    "parameters",
    multiple=True,
    metavar="NAME[,...]",
    help="Only this parameter; repeat for several.",
)
@as_tuned_options
@rounds_option
@gpu_option
@seed_option("Of the inputs and the order.")
@jobs_option
@click.option("-q", "--quiet", is_flag=True, help="Print the result only.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ablate(
    asked: Asked,
    parameters: tuple[str, ...],
    mode: str | None,
    regime: str | None,
    rounds: int,
    device_name: str,
    seed: int,
    jobs: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Show what each choice of a configuration is worth: one parameter at a time takes its other values.

    Each is verified and timed in turn with the configuration itself. Without --config and --trial that is the winner
    for this problem on this GPU, or the default configuration where nothing was tuned.
    """
    from tuner.ablation.ablation import ablate as undo_each
    from tuner.ablation.report import SaidProgress, ablation_as_json, show_ablation
    from tuner.cli.choice import choose, refuse_slips
    from tuner.cli.stopping import stopping
    from tuner.errors import Interrupted, TunerError
    from tuner.report.tables import say, show_json

    names = [name.strip() for text in parameters for name in text.split(",") if name.strip()]
    refuse_slips(asked, names)
    with stopping() as stop, closing(_open(device_name, asked.kernel_name, jobs)) as device:
        if not quiet:
            device.say = say
        choice = choose(asked, device.gpu)
        conditions, why = _conditions(device, choice, mode, regime)
        if not quiet:
            say(f"{choice.problem} ({conditions}): {choice.configuration}")
        found = undo_each(
            device,
            choice.kernel,
            choice.problem,
            conditions,
            why,
            choice.configuration,
            rounds,
            seed,
            SaidProgress(quiet=quiet),
            stop,
            names,
            choice.time_ns if conditions == choice.conditions else None,
        )
        _keep(asked, device, found)
    if as_json:
        show_json(ablation_as_json(found, choice.source, choice.notes))
    else:
        show_ablation(found, choice.source, choice.notes)
    if found.error:
        raise TunerError(
            f"{choice.configuration} could not be timed: {found.error}", "name another one with --config"
        )
    if not found.complete:
        raise Interrupted("stopped; what was timed is kept", "the same command begins anew")


def _open(device: str, kernel: str, jobs: int | None) -> Device:
    from tuner import paths
    from tuner.cli.choice import refuse_device
    from tuner.devices.choose import open_device
    from tuner.errors import NoGpuError, UsageError

    if device.partition(":")[0] == "replay":
        raise UsageError(f"--device {device}: a recording cannot be timed again", "use cuda or cuda:N")
    refuse_device(device)
    try:
        return open_device(device, kernel, jobs, paths.cache() / "cubins")
    except NoGpuError as error:
        raise NoGpuError(error.problem, "run it on a machine with one; see `tune doctor`") from None


def _conditions(
    device: Device, choice: Choice, mode: str | None, regime: str | None
) -> tuple[Conditions, str]:
    """Settle how it is timed: as it was tuned, unless that is unknown or something else is asked for."""
    from tuner.model import Mode, Regime

    if choice.conditions is not None and mode is None and regime is None:
        return choice.conditions, "as it was tuned"
    return device.choose_conditions(
        choice.kernel, choice.problem, Mode(mode) if mode else None, Regime(regime or Regime.RESTED)
    )


def _keep(asked: Asked, device: Device, found: Ablation) -> None:
    """Write it down among the benches."""
    import uuid

    from tuner import __version__
    from tuner.ablation.ablation import records_of
    from tuner.database.database import Database

    rows = records_of(found, str(uuid.uuid4()), {"kernel-tune": __version__, **device.versions})
    if rows:
        with Database.open(asked.db) as database:
            database.record_benchmark(rows)
