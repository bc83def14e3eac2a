"""Trials as an Optuna study, for optuna-dashboard and all else that reads Optuna's storages."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from tuner.core.errors import DatabaseError
from tuner.database.records import StoredTrial
from tuner.formats.files import new_file
from tuner.formats.results import Results

METRIC = "time (us)"
JOURNALS = (".log", ".journal")
"""Endings of names that mean Optuna's journal; any other file is an SQLite storage."""
EVERY = 500
"""Trials between two notes on the progress."""


def write_study(
    path: Path, results: Results, say: Callable[[str], None] = lambda _: None, *, force: bool = False
) -> str:
    """Write a study with a storage of its own, and return its name.

    The objective is the time in microseconds. A failure is a failed trial, with the status among its attributes.

    Args:
        path: the new file.
        results: the trials.
        say: called with notes on the progress, if there are many.
        force: replace a file that is there.

    Raises:
        DatabaseError: there is something of that name, or it cannot be written.
    """
    run = results.run
    name = f"{run.problem} on {run.gpu.name}"
    with new_file(path, force=force) as partial, _said(path), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about experimental parts of Optuna
        partial.touch()  # where that is not allowed, the error is the system's and not a library's
        storage = _storage(partial, journal=path.suffix in JOURNALS)
        study = storage.create_new_study([StudyDirection.MINIMIZE], name)
        storage.set_study_system_attr(study, "study:metric_names", [METRIC])
        for key, value in _about(results).items():
            storage.set_study_user_attr(study, key, value)
        distributions = _distributions(results)
        for number, stored in enumerate(results.trials()):
            storage.create_new_trial(study, _trial(results, stored, number, distributions))
            if (number + 1) % EVERY == 0:
                say(f"{number + 1} of {len(results.numbers)} trials written")
        if isinstance(storage, RDBStorage):
            storage.remove_session()
            storage.engine.dispose()
    return name


@contextmanager
def _said(path: Path) -> Iterator[None]:
    """Say in a line what SQLite says of a study that it cannot write."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        cause = error.__cause__ if isinstance(error, StorageInternalError) else error
        raise DatabaseError(f"{path}: {getattr(cause, 'orig', cause)}", "name another file with -o") from None


def _storage(path: Path, *, journal: bool) -> BaseStorage:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if journal:
        return JournalStorage(JournalFileBackend(str(path)))
    where = quote(str(path.absolute()))  # ?, % and braces have a meaning in a URL
    return RDBStorage(f"sqlite:///{where}", engine_kwargs={"connect_args": {"timeout": 30}})


def _about(results: Results) -> dict[str, Any]:
    run = results.run
    return {
        "kernel": run.problem.kernel,
        "problem": run.problem.to_json(),
        "gpu": run.gpu.name,
        "mode": str(run.conditions.mode),
        "regime": str(run.conditions.regime),
        "sampler": run.options.sampler,
        "seed": run.options.seed,
        "run": run.id,
        "replayed": run.replayed,
    }


def _distributions(results: Results) -> dict[str, BaseDistribution]:
    """Return each parameter's values that occur; for Optuna, they must be the same in all trials."""
    return {
        name: CategoricalDistribution(sorted(values, key=lambda v: (isinstance(v, str), v)))
        for name, values in results.occurring.items()
    }


def _trial(
    results: Results, stored: StoredTrial, number: int, distributions: dict[str, BaseDistribution]
) -> FrozenTrial:
    trial = stored.trial
    values = results.flat(stored, pad=False)
    ok = trial.status.ranked and trial.time_ns is not None
    ended = datetime.fromisoformat(stored.created_at).replace(tzinfo=None)
    about = {
        "status": str(trial.status),
        "trial": trial.id,
        "error": trial.error[:1000],
        "ci_low_ns": trial.ci_low_ns,
        "ci_high_ns": trial.ci_high_ns,
        "tflops": stored.metrics.tflops,
        "gbytes_per_s": stored.metrics.gbytes_per_s,
        "registers": trial.resources.registers if trial.resources else None,
        "spill_bytes": trial.resources.spill_bytes if trial.resources else None,
    }
    return FrozenTrial(
        number=number,
        trial_id=-1,
        state=TrialState.COMPLETE if ok else TrialState.FAIL,
        value=(trial.time_ns or 0.0) / 1e3 if ok else None,
        values=None,
        datetime_start=ended,
        datetime_complete=ended,
        params=values,
        distributions={n: distributions[n] for n in values},
        user_attrs={n: value for n, value in about.items() if value not in (None, "")},
        system_attrs={},
        intermediate_values={},
    )
