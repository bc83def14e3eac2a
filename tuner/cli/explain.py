"""``tune explain``: why a configuration is as fast as it is, without running it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tuner.cli.commands.inspection import ExplainArguments
from tuner.cli.configuration import ChosenConfiguration, choose, launching, refuse_beyond_memory
from tuner.cli.gpu import named_gpu
from tuner.core.conditions import Calibration, Conditions, Mode
from tuner.core.model import Status
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.inspect.explain.code import read_code
from tuner.inspect.explain.explanation import Explanation
from tuner.inspect.explain.explanation import explain as explain_code
from tuner.inspect.explain.report import explanation_as_json, show_explanation
from tuner.kernel.roofline import ceiling_of, roof_under
from tuner.report.launches import launch_note
from tuner.report.tables import show_json
from tuner.tuning.state import metrics


def explain(asked: ExplainArguments) -> None:
    """Compile and read a configuration, and print what that says about its speed."""
    gpu, calibration = named_gpu(asked)
    chosen = choose(asked, gpu)
    refuse_beyond_memory(chosen)
    with launching(chosen):
        explanation = _explained(asked.db, chosen, calibration)
    if asked.as_json:
        show_json(explanation_as_json(explanation))
    else:
        show_explanation(explanation)


def _explained(db: Path, chosen: ChosenConfiguration, calibration: Calibration | None) -> Explanation:
    """Compile and read the configuration, and add what the database has of it."""
    kernel, problem, gpu = chosen.kernel, chosen.problem, chosen.gpu
    code = read_code(kernel, problem, gpu, chosen.configuration)
    explained = explain_code(kernel, problem, gpu, chosen.configuration, code)
    time_ns, conditions, stored = _stored(db, chosen)
    calibration = calibration or stored
    warm = conditions is not None and conditions.mode is Mode.WARM
    roof = roof_under(explained.roof, Mode.WARM) if warm else explained.roof
    ceiling = ceiling_of(kernel, problem, gpu, explained.roof, calibration)
    return replace(
        explained,
        source=chosen.source,
        notes=chosen.notes,
        time_ns=time_ns,
        conditions=conditions,
        metrics=metrics(roof, time_ns),
        ceiling=ceiling if not warm or explained.binding != "bandwidth" else None,
        launch_note=launch_note(calibration, conditions, time_ns) if conditions and time_ns else "",
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
        if same and trial.time_ns and not trial.suspect:
            return trial.time_ns, stored.run.conditions, stored.run.calibration
    return None, None, rows[0].run.calibration if rows else None
