"""Another tool's results as rows of the database: a run marked as foreign, which is never ranked with ours."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from tuner.core.model import Configuration, Run, RunOptions, Trial, digest
from tuner.core.version import __version__
from tuner.database.database import Database
from tuner.database.records import Winner
from tuner.formats.as_kernel import ForeignResults
from tuner.kernel.identity import KernelIdentity

SAMPLER = "import"
"""The sampler of such a run."""
TAG = "foreign"
UNVERIFIED = "another tool's result, which nothing here has verified"


@dataclass(frozen=True)
class Imported:
    """The outcome of importing a file."""

    run: Run
    trials: int
    failures: int
    best: Configuration | None
    best_ns: float | None
    added: bool
    """False if the same results were there already."""


def import_foreign(database: Database, results: ForeignResults) -> Imported:
    """Add all results of a file as one run, in one transaction; the same results are not added twice.

    Raises:
        DatabaseError: the database cannot be written.
    """
    run = _run(results)
    trials = [
        Trial(
            number, configuration, row.status, row.time_ns, samples_ns=row.samples_ns, error=row.error,
            compile_s=row.compile_s, measure_s=row.measure_s, tags=("replayed", TAG),
        )
        for number, (configuration, row) in enumerate(results.rows.items())
    ]  # fmt: skip
    ranked = [trial for trial in trials if trial.time_ns is not None]
    best = min(ranked, key=lambda trial: trial.time_ns or 0.0, default=None)
    added = run.id not in database.run_ids()
    if added:
        with database.transaction():
            database.start_run(run)
            ids = {trial.number: database.record(run.id, trial) for trial in trials}
            if best is not None and best.time_ns is not None:
                database.record_winner(
                    run.id, Winner(ids[best.number], best.configuration, best.time_ns, reason=UNVERIFIED)
                )
            database.finish_run(run.id, "finished", {"trials": len(trials)})
    failures = len(trials) - len(ranked)
    configuration, best_ns = (best.configuration, best.time_ns) if best else (None, None)
    return Imported(run, len(trials), failures, configuration, best_ns, added)


def _run(results: ForeignResults) -> Run:
    recording, kernel = results.recording, results.kernel
    identity = KernelIdentity(kernel)
    what = digest([kernel.digest, results.problem.to_json(), recording.gpu.name, str(recording.conditions)])
    return Run(
        id=str(uuid.uuid5(uuid.NAMESPACE_OID, what)),
        problem=results.problem,
        gpu=recording.gpu,
        device=f"replay:{recording.name}",
        options=RunOptions(sampler=SAMPLER, trials=len(results.rows)),
        kernel_digest=identity.text,
        computation=identity.computation,
        kernel_file=str(kernel.file),
        versions={"kernel-tune": __version__, **recording.versions},
        conditions=recording.conditions,
    )
