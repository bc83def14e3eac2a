"""One recorded trial, measured again."""

from __future__ import annotations

from contextlib import closing

from tuner.core import paths
from tuner.core.errors import TunerError
from tuner.core.model import Trial
from tuner.database.database import Database
from tuner.devices.choose import open_device
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import kernel_of_run
from tuner.tuning.trials import trial_of

POLL_S = 0.1


def rerun(database: Database, trial_id: int, device: str) -> Trial:
    """Measure one recorded trial again, alone, on a device by name; nothing is written.

    Raises:
        TunerError: the kernel is not there any more, or has changed.
    """
    stored = database.trial(trial_id)
    run, trial = stored.run, stored.trial
    kernel = kernel_of_run(run)
    with closing(open_device(device, kernel.name, 1, paths.cubins())) as opened:
        if not KernelIdentity(kernel).current(run, trial):
            raise TunerError(f"{kernel.name} has changed since trial {trial_id}", "tune it again")
        opened.prepare(kernel, run.problem, run.options.seed, run.conditions, run.options.truth)
        opened.submit(trial.number, trial.configuration)
        while not (outcomes := opened.collect(POLL_S)):
            pass
        return trial_of(outcomes[0], run.options.max_error)
