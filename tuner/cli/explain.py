"""``tune explain``: why a configuration is as fast as it is, without running it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tuner import paths
from tuner.cli.configuration import ChosenConfiguration, choose
from tuner.cli.configuration_options import ConfigurationArguments
from tuner.conditions import Calibration, Conditions, Mode
from tuner.database.database import Database
from tuner.database.records import SUSPECT, Filters
from tuner.devices.choose import has_gpu, open_device
from tuner.devices.local import LocalDevice
from tuner.errors import DeviceError, UsageError, suggestion
from tuner.explain import explanation
from tuner.explain.advice import advise
from tuner.explain.code_reader import read_code
from tuner.explain.report import ExplanationReport, show_explanation
from tuner.explain.report_json import explanation_as_json
from tuner.hardware.roofline import ARCHITECTURES
from tuner.model import Gpu, Status
from tuner.report.launch import launch_note
from tuner.report.tables import say, show_json
from tuner.tuning.ceiling import ceiling_of, roof_under
from tuner.tuning.trials import metrics


def explain(
    given: ConfigurationArguments,
    gpu_text: str | None,
    cc: int | None,
    device_name: str | None,
    as_json: bool,
) -> None:
    """Compile and read a configuration, and print what that says about its speed."""
    gpu, calibration = _gpu(given, gpu_text, cc, device_name)
    report = _report(given.db, choose(given, gpu), calibration)
    if as_json:
        show_json(explanation_as_json(report))
    else:
        show_explanation(report)


def _gpu(
    given: ConfigurationArguments, gpu_text: str | None, cc: int | None, device_name: str | None
) -> tuple[Gpu | None, Calibration | None]:
    """Return the GPU, as far as the command line and this machine say; with its calibration if it is here."""
    options = [
        name for name, value in (("--gpu", gpu_text), ("--cc", cc), ("--device", device_name)) if value
    ]
    if len(options) > 1:
        raise UsageError(f"{' and '.join(options)} exclude each other", "give one of them")
    if cc is not None:
        if cc not in ARCHITECTURES:
            choices = ", ".join(map(str, ARCHITECTURES))
            raise UsageError(f"no compute capability {cc}", f"choose from: {choices}")
        return ARCHITECTURES[cc], None
    if gpu_text:
        return _named(gpu_text, given.db), None
    if device_name:
        return _here(device_name)
    if given.trial is None and has_gpu():
        try:
            return _here("cuda")
        except DeviceError as error:  # no option asked for it
            say(f"{error.problem}: going on without this machine's GPU")
    return None, None


def _named(text: str, db: Path) -> Gpu:
    """Return a GPU by a part of its name: the one that was tuned on last, else a typical one."""
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
    """Return a GPU of this machine, with its calibration if there is one."""
    if device.partition(":")[0] != "cuda":
        raise UsageError(f"--device {device}: this is no GPU of this machine", "use cuda or cuda:N")
    with closing(open_device(device, "", 1, paths.cubins())) as opened:
        calibration = opened.known_calibration() if isinstance(opened, LocalDevice) else None
        return opened.gpu, calibration


def _report(db: Path, chosen: ChosenConfiguration, calibration: Calibration | None) -> ExplanationReport:
    """Compile and read the configuration, and add what the database has of it."""
    kernel, problem, gpu = chosen.kernel, chosen.problem, chosen.gpu
    code = read_code(kernel, problem, gpu, chosen.configuration)
    explained = explanation.explain(kernel, problem, gpu, chosen.configuration, code)
    time_ns, conditions, stored = _stored(db, chosen)
    calibration = calibration or stored
    warm = conditions is not None and conditions.mode is Mode.WARM
    roof = roof_under(explained.roof, Mode.WARM) if warm else explained.roof
    ceiling = ceiling_of(kernel, problem, gpu, explained.roof, calibration)
    note = launch_note(calibration, conditions, time_ns) if conditions and time_ns else ""
    return ExplanationReport(
        explained,
        advise(explained),
        chosen.source,
        chosen.notes,
        time_ns,
        conditions,
        metrics(roof, time_ns),
        calibration,
        ceiling if not warm or explained.binding != "bandwidth" else None,
        note,
    )


def _stored(
    db: Path, chosen: ChosenConfiguration
) -> tuple[float | None, Conditions | None, Calibration | None]:
    """Return the time of this configuration for this problem on a GPU of this name, and that GPU's calibration."""
    if not db.is_file():
        return chosen.time_ns, chosen.conditions, None
    with Database.open(db, write=False) as database:
        if chosen.trial_id is not None and chosen.time_ns is not None:
            return chosen.time_ns, chosen.conditions, database.trial(chosen.trial_id).run.calibration
        filters = Filters(
            problem_key=chosen.problem.key,
            gpu=chosen.gpu.name,
            statuses=(str(Status.OK), str(Status.SLOW)),
            variant=chosen.configuration.variant,
            replayed=False,
        )
        rows = database.query(filters, "-id").rows
    for stored in rows:
        trial = stored.trial
        same = trial.configuration.key == chosen.configuration.key and stored.run.gpu.name == chosen.gpu.name
        if same and trial.time_ns and SUSPECT not in trial.tags:
            return trial.time_ns, stored.run.conditions, stored.run.calibration
    return None, None, rows[0].run.calibration if rows else None
