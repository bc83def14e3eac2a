"""``tune explain``: why a configuration is as fast as it is, without running it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.choice import Asked, choice_options

if TYPE_CHECKING:
    from tuner.cli.choice import Choice
    from tuner.explain.report import Told
    from tuner.model import Calibration, Conditions, Gpu

EPILOG = """\b
Examples:
  tune explain vector_add --size n=2**28
  tune explain gemm --cc 80 --config "mma_sync block_m=128 stages=3"
  tune explain --trial 12 --json
"""


@click.command(epilog=EPILOG)
@choice_options
@click.option(
    "--gpu", "gpu_text", metavar="TEXT", help="A GPU whose name contains this: a stored or typical one."
)
@click.option("--cc", type=int, help="The typical GPU of a compute capability, times ten.")
@click.option("--device", "device_name", metavar="DEVICE", help="A GPU of this machine: cuda or cuda:N.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(
    asked: Asked, gpu_text: str | None, cc: int | None, device_name: str | None, as_json: bool
) -> None:
    """Explain a configuration by its numbers: roofline, occupancy, waves, memory access, bytes in flight, and advice.

    It is compiled and read, not run: no GPU is needed. Without --config and --trial it is the winner for this problem,
    or the default configuration where nothing was tuned. Without --gpu, --cc and --device the GPU is that of this
    machine, else the winner's or trial's, else a typical H200.
    """
    from tuner.cli.choice import choose
    from tuner.explain.report import show_explanation
    from tuner.explain.report_json import explanation_as_json
    from tuner.report.tables import show_json

    gpu, calibration = _gpu(asked, gpu_text, cc, device_name)
    told = _told(asked.db, choose(asked, gpu), calibration)
    if as_json:
        show_json(explanation_as_json(told))
    else:
        show_explanation(told)


def _gpu(
    asked: Asked, gpu_text: str | None, cc: int | None, device_name: str | None
) -> tuple[Gpu | None, Calibration | None]:
    """Settle the GPU, as far as the command line and this machine say; with its calibration if it is here."""
    from tuner.devices.choose import has_gpu
    from tuner.errors import DeviceError, UsageError
    from tuner.hardware.roofline import ARCHITECTURES
    from tuner.report.tables import say

    given = [name for name, value in (("--gpu", gpu_text), ("--cc", cc), ("--device", device_name)) if value]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other", "give one of them")
    if cc is not None:
        if cc not in ARCHITECTURES:
            known = ", ".join(map(str, ARCHITECTURES))
            raise UsageError(f"no compute capability {cc}", f"choose from: {known}")
        return ARCHITECTURES[cc], None
    if gpu_text:
        return _named(gpu_text, asked.db), None
    if device_name:
        return _here(device_name)
    if asked.trial is None and has_gpu():
        try:
            return _here("cuda")
        except DeviceError as error:  # nobody insisted on it
            say(f"{error.problem}: going on without this machine's GPU")
    return None, None


def _named(text: str, db: Path) -> Gpu:
    """Find a GPU by a part of its name: the one that was tuned on last, else a typical one."""
    from tuner.database.database import Database, Filters
    from tuner.errors import UsageError
    from tuner.hardware.roofline import ARCHITECTURES
    from tuner.kernel.spec import suggestion

    if db.is_file():
        with Database.open(db, write=False) as database:
            rows = database.query(Filters(gpu=text), "-id", 1).rows
        if rows:
            return rows[0].run.gpu
    fitting = [gpu for gpu in ARCHITECTURES.values() if text.lower() in gpu.name.lower()]
    if len(fitting) != 1:
        names = [gpu.name for gpu in ARCHITECTURES.values()]
        problem = f"--gpu {text!r} fits {len(fitting)} of the known GPUs"
        raise UsageError(problem, suggestion(text, names))
    return fitting[0]


def _here(device: str) -> tuple[Gpu, Calibration | None]:
    from tuner import paths
    from tuner.devices.choose import open_device
    from tuner.devices.local import LocalDevice
    from tuner.errors import UsageError

    if device.partition(":")[0] != "cuda":
        raise UsageError(f"--device {device}: this is no GPU of this machine", "use cuda or cuda:N")
    with closing(open_device(device, "", 1, paths.cache() / "cubins")) as opened:
        known = opened.known_calibration() if isinstance(opened, LocalDevice) else None
        return opened.gpu, known


def _told(db: Path, choice: Choice, calibration: Calibration | None) -> Told:
    """Compile, read, and put beside it what the database knows."""
    from tuner.explain.advice import advise
    from tuner.explain.code_reader import read_code
    from tuner.explain.explanation import explain as put_together
    from tuner.explain.report import Told
    from tuner.model import Mode
    from tuner.report.launch import launch_note
    from tuner.tuning.state import ceiling_of, metrics, roof_under

    kernel, problem, gpu = choice.kernel, choice.problem, choice.gpu
    code = read_code(kernel, problem, gpu, choice.configuration)
    found = put_together(kernel, problem, gpu, choice.configuration, code)
    time_ns, conditions, stored = _stored(db, choice)
    calibration = calibration or stored
    warm = conditions is not None and conditions.mode is Mode.WARM
    roof = roof_under(found.roof, Mode.WARM) if warm else found.roof
    ceiling = ceiling_of(kernel, problem, gpu, found.roof, calibration)
    note = launch_note(calibration, conditions, time_ns) if conditions and time_ns else ""
    return Told(
        found,
        advise(found),
        choice.source,
        choice.notes,
        time_ns,
        conditions,
        metrics(roof, time_ns),
        calibration,
        ceiling if not warm or found.binding != "bandwidth" else None,
        note,
    )


def _stored(db: Path, choice: Choice) -> tuple[float | None, Conditions | None, Calibration | None]:
    """Return the time of this configuration for this problem on a GPU of this name, and that GPU's calibration."""
    from tuner.database.database import Database, Filters
    from tuner.database.records import SUSPECT
    from tuner.model import Status

    if not db.is_file():
        return choice.time_ns, choice.conditions, None
    with Database.open(db, write=False) as database:
        if choice.trial_id is not None and choice.time_ns is not None:
            return choice.time_ns, choice.conditions, database.trial(choice.trial_id).run.calibration
        filters = Filters(
            problem_key=choice.problem.key,
            gpu=choice.gpu.name,
            statuses=(str(Status.OK), str(Status.SLOW)),
            variant=choice.configuration.variant,
            replayed=False,
        )
        rows = database.query(filters, "-id").rows
    for stored in rows:
        trial = stored.trial
        same = trial.configuration.key == choice.configuration.key and stored.run.gpu.name == choice.gpu.name
        if same and trial.time_ns and SUSPECT not in trial.tags:
            return trial.time_ns, stored.run.conditions, stored.run.calibration
    return None, None, rows[0].run.calibration if rows else None
