"""A copy of a run's study in a storage of Optuna's, so that optuna-dashboard can watch the run while it goes on.

A thread writes; the run waits for it only at its end. If the storage fails, the user is told once, and the run goes on.
"""

from __future__ import annotations

import queue
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.trial import FrozenTrial

CLOSE_S = 20.0
"""How long the end of a run waits for what is still to be written: an SQLite storage takes some 5 ms a trial."""
HURRY_S = 2.0
METRIC = "time (ns)"


class StudyMirror:
    """Writes each trial that has ended into a storage.

    Args:
        url: of the storage, such as ``sqlite:///study.db``.
        name: of the study there; one of that name goes on.
        about: attributes of the study.
        warn: told, once, why there is no copy.
    """

    def __init__(self, url: str, name: str, about: Mapping[str, Any], warn: Callable[[str], None]) -> None:
        self._url, self._name, self._about, self._warn = url, name, about, warn
        self._trials: queue.SimpleQueue[FrozenTrial | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="study-mirror", daemon=True)
        self._thread.start()

    def add(self, trial: FrozenTrial) -> None:
        """Queue a trial that has ended."""
        self._trials.put(trial)

    def close(self, *, in_a_hurry: bool = False) -> None:
        """Write what is still queued; an interrupted run does not wait long, for resuming it writes the rest."""
        self._trials.put(None)
        self._thread.join(HURRY_S if in_a_hurry else CLOSE_S)
        if self._thread.is_alive():
            self._warn(f"the copy of the study in {self._url} is incomplete: it takes too long to write")

    def _serve(self) -> None:
        try:
            self._write()
        except Exception as error:  # noqa: BLE001 - whatever a storage raises, the run goes on without a copy
            lines = str(error).strip().splitlines() or [type(error).__name__]
            self._warn(f"no copy of the study in {self._url}: {lines[0]}")

    def _write(self) -> None:
        warnings.filterwarnings("ignore", category=ExperimentalWarning)  # of naming the metric
        study = optuna.create_study(storage=self._url, study_name=self._name, load_if_exists=True)
        study.set_metric_names([METRIC])
        for key, value in self._about.items():
            study.set_user_attr(key, value)
        written = len(study.get_trials(deepcopy=False))  # of a run that was interrupted
        while (trial := self._trials.get()) is not None:
            if trial.number >= written:
                study.add_trial(trial)
