"""What scripts take from ``kernel_tuner.util``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tuner.compat.kernel_tuner.results import best_of


def get_best_config(
    results: Sequence[dict[str, Any]], objective: str = "time", objective_higher_is_better: bool = False
) -> dict[str, Any]:
    """Return the best of the results of ``tune_kernel``."""
    return best_of(results, objective, objective_higher_is_better)


def get_config_string(
    params: Mapping[str, Any], keys: Collection[str] | None = None, units: Mapping[str, str] | None = None
) -> str:
    """Return a result on one line, such as ``block_size_x=128, time=0.123ms``; ``keys`` says what of it."""
    return ", ".join(
        f"{name}={value:.3f}{(units or {}).get(name, '')}" if isinstance(value, float) else f"{name}={value}"
        for name, value in params.items()
        if not keys or name in keys
    )
