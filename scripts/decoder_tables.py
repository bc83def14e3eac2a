"""What ``decoder.py`` found, beside what is asked of it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch

import tuner
from scripts.decoder_model import Case
from scripts.harness import output_of, today
from scripts.page_figures import evidence, program
from tuner.children.nvrtc import nvrtc_version

REPLACED_SHARE, MEAN_RATIO, PREDICTION, ERROR_RATIO = 0.9, 1.01, 0.02, 1.1


def where(device: str) -> dict[str, str]:
    """Return the machine and the versions."""
    versions = {"torch": torch.__version__, "nvrtc": nvrtc_version(), "kernel-tune": tuner.__version__}
    versions["day"] = today()
    if device != "cuda":
        return {"gpu": "none", **versions}
    driver = output_of(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    return {"gpu": torch.cuda.get_device_name(), "driver": driver.strip(), **versions}


def findings(known: Mapping[str, Any], cases: Sequence[Case]) -> dict[str, Any]:
    """Return what is asked of the figures, each with whether it holds."""
    measured = [known["cases"][case.name] for case in cases if case.name in known["cases"]]
    if not measured:
        return {}
    mean = statistics.geometric_mean([one["ratio"] for one in measured])
    covered = min(
        one["shares"].get("replaced", 0.0) + one["shares"].get("not faster", 0.0) for one in measured
    )
    slowest = min(one["ratio_high"] for one in measured)
    worst = max(abs(one["prediction_error"]) for one in measured)
    refused = sum(one["refused_calls"] for one in measured)
    error = max(one["output_errors"]["tuned"] / (one["output_errors"]["torch"] or 1.0) for one in measured)
    return {
        "passes": {"value": len(measured), "asked": len(cases), "holds": len(measured) == len(cases)},
        "replaced or not faster, of the operations": _asked(
            covered, REPLACED_SHARE, covered >= REPLACED_SHARE
        ),
        "mean": _asked(mean, MEAN_RATIO, mean >= MEAN_RATIO),
        "upper end of the slowest's interval": _asked(slowest, 1.0, slowest >= 1),
        "prediction": _asked(worst, PREDICTION, worst <= PREDICTION),
        "error over torch's": _asked(error, ERROR_RATIO, error <= ERROR_RATIO),
        "replaced calls that torch answered": _asked(refused, 0, not refused),
    }


def _asked(value: float, asked: float, holds: bool) -> dict[str, Any]:
    return {"value": value, "asked": asked, "holds": holds}


def text_of(known: Mapping[str, Any], cases: Sequence[Case]) -> str:
    """Return the results as the pages have them, and whether they are what is asked."""
    asked = findings(known, cases)
    lines = [f"FAILED: {name}: {error}" for name, error in known["failed"].items()]
    for name, one in asked.items():
        lines.append(
            f"{'holds' if one['holds'] else 'MISSED'}: {name} {one['value']:.4g}, asked {one['asked']:g}"
        )
    figures = (program.passes, program.products) if asked else ()
    return "\n".join([evidence.shown("decoder", {**known, "asked": asked}, *figures), *lines])
