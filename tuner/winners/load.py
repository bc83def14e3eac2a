"""``tuner.load``: winners as a function. Light to import: a bundle needs neither the database nor the compiler."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.runtime.bundle import open_bundle
from tuner.runtime.dispatch import Policy
from tuner.runtime.operation import Operation


def load(
    kernel: str,
    *,
    bundle: str | Path,
    policy: str = Policy.NEAREST_VALID,
    dtypes: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Operation:
    """Return the winners of a kernel as a function of arrays.

    Args:
        kernel: its name.
        bundle: a folder that ``tune bundle`` wrote.
        policy: which configurations may run a problem: ``"nearest valid"``, ``"raise"``, ``"exact"`` or ``"default"``
            (:class:`tuner.runtime.dispatch.Policy`).
        dtypes: by role, where arrays alone do not tell: ``{"accumulate": "float32"}``.
        options: by name, likewise: ``{"op": "sum"}``.

    Raises:
        BundleError: there is no bundle, it is damaged, of a newer version, or of another kernel.
        CallError: there is no such policy, dtype or option.
    """
    return open_bundle(bundle, kernel, policy=policy, dtypes=dtypes, options=options)
