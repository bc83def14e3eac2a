"""``tuner.load``: winners as a function. Light to import: a bundle needs neither the database nor the compiler."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any

from tuner.core.errors import CallError, DatabaseError, shown, suggestion
from tuner.core.reading import may_be_path
from tuner.runtime.bundle import open_bundle
from tuner.runtime.dispatch import Policy
from tuner.runtime.operation import Operation

TUNE = "tune"
"""The policy that tunes what has no winner."""


def load(
    kernel: str | Path,
    *,
    bundle: str | Path | None = None,
    db: str | Path | None = None,
    gpu: str = "",
    policy: str = Policy.NEAREST_VALID,
    dtypes: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    trials: int = 50,
    time_s: float = 60.0,
) -> Operation:
    """Return the winners of a kernel as a function of arrays.

    Args:
        kernel: its name; with ``db`` also the path of its ``.toml`` file.
        bundle: a folder that ``tune bundle`` wrote.
        db: instead of it a database: configurations are compiled when they are first used, which needs the tuner.
        gpu: with ``db``, a part of the names of the GPUs whose winners count.
        policy: which configurations may run a problem: ``"nearest valid"``, ``"raise"``, ``"exact"`` or ``"default"``
            (:class:`tuner.runtime.dispatch.Policy`). Or ``"tune"``: a problem without a winner is tuned when
            it is first called; the database, results/tuning.db by default, need not be there yet.
        dtypes: by role, where arrays alone do not tell: ``{"accumulate": "float32"}``.
        options: by name, likewise: ``{"op": "sum"}``.
        trials: with ``policy="tune"``, configurations to try for a problem.
        time_s: with it, seconds after which nothing new is tried.

    Raises:
        BundleError: there is no bundle, it is damaged, of a newer version, or of another kernel.
        DatabaseError: the database cannot be read, or has no confirmed winner of this kernel.
        CallError: there is no such policy, dtype or option, it is not one bundle or one database, or an argument has
            a wrong type.
    """
    texts: dict[str, object] = {"kernel": kernel, "gpu": gpu, "policy": policy}
    texts |= {name: path for name, path in {"bundle": bundle, "db": db}.items() if path is not None}
    wrong = [
        what for what, value in texts.items() if not may_be_path(value) or (what == "kernel" and value == "")
    ]
    tables = {"dtypes": dtypes, "options": options}
    wrong += [what for what, value in tables.items() if not isinstance(value, (Mapping, NoneType))]
    if wrong:
        given = {**texts, **tables}[wrong[0]]
        raise CallError(
            f"{wrong[0]} cannot be {shown(given)}", 'for example tuner.load("gemm", bundle="gemm_bundle")'
        )
    kernel = os.fspath(kernel)
    if policy not in (TUNE, *Policy):
        raise CallError(f"there is no policy {policy!r}", suggestion(str(policy), (TUNE, *Policy)))
    if policy == TUNE and (gpu or bundle is not None):
        what = "gpu" if gpu else "bundle"
        raise CallError(
            f"policy={TUNE!r} tunes on this machine's GPU, and takes no {what}", f"leave out {what} or policy"
        )
    if bundle is None and (db is None or policy == TUNE):
        _refuse_unknown(kernel, [*(dtypes or {}), *(options or {})])
    if policy == TUNE:
        on_call = importlib.import_module("tuner.api.on_call")
        tuning: Operation = on_call.TuningOperation(
            kernel, db, trials, time_s, dtypes=dtypes, options=options
        )
        return tuning
    if db is not None and bundle is None:
        heavy = importlib.import_module("tuner.winners.compiling")
        try:
            contents = heavy.stored_contents(kernel, Path(db), gpu)
        except DatabaseError as error:
            raise DatabaseError(error.problem, error.remedy.replace("--db", "db=")) from None
        stored: Operation = heavy.compiled_on_use(contents, policy=policy, dtypes=dtypes, options=options)
        return stored
    if bundle is None or db is not None or gpu:
        raise CallError(
            "load needs db=, a database" if bundle is None else "load takes a bundle alone",
            'for example tuner.load("gemm", db="results/tuning.db"), or tuner.load("gemm", bundle="gemm_bundle")',
        )
    return open_bundle(bundle, kernel, policy=policy, dtypes=dtypes, options=options)


def _refuse_unknown(kernel: str, names: Sequence[str]) -> None:
    """Refuse names that are no dtypes or options of a kernel, where that is a built-in one or a file."""
    loading = importlib.import_module("tuner.kernel.load") if names else None
    if loading is None or not (kernel.endswith(".toml") or kernel in loading.builtin_kernels()):
        return
    known = loading.load_kernel(kernel)
    choices = [*known.dtypes, *known.options]
    for name in names:
        if name not in choices:
            raise CallError(f"{known.name} has no dtype or option {name!r}", suggestion(str(name), choices))
