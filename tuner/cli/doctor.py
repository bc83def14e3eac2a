"""``tune doctor``: what this machine has, what is missing, and how to get it."""

from __future__ import annotations

import sys

from tuner.cli.diagnosis import examine
from tuner.report.tables import show_json, show_text


def doctor(calibrate: bool, as_json: bool) -> None:
    """Print the state of everything that tuning needs; exit status 1 if tuning on a GPU cannot work."""
    diagnoses = examine(calibrate=calibrate)
    if as_json:
        show_json([vars(one) for one in diagnoses])
    else:
        width = max(len(one.what) for one in diagnoses)
        for one in diagnoses:
            show_text(one.detail, f"{one.state:<8} {one.what:<{width}} ")
            if one.remedy:
                show_text(one.remedy, " " * (width + 10) + "-> ")
    if any(one.state == "missing" for one in diagnoses):
        sys.exit(1)
