"""``tune doctor``: what this machine has, what is missing, and how to get it."""

from __future__ import annotations

import sys

import click

from tuner.cli.diagnosis import examine
from tuner.report.tables import show_json


def doctor(calibrate: bool, as_json: bool) -> None:
    """Print the state of everything that tuning needs; exit status 1 if tuning on a GPU cannot work."""
    diagnoses = examine(calibrate=calibrate)
    if as_json:
        show_json([vars(one) for one in diagnoses])
    else:
        for one in diagnoses:
            click.echo(
                f"{one.state:<8} {one.what:<10} {one.detail}"
                + (f"\n{'':19} -> {one.remedy}" if one.remedy else "")
            )
    if any(one.state == "missing" for one in diagnoses):
        sys.exit(1)
