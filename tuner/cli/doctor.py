"""``tune doctor``: what this machine has, what is missing, and how to get it."""

from __future__ import annotations

import json
import sys

import click

from tuner.cli.diagnosis import examine


def doctor(calibrate: bool, as_json: bool) -> None:
    """Print the state of everything that tuning needs; exit status 1 if tuning on a GPU cannot work."""
    diagnoses = examine(calibrate=calibrate)
    if as_json:
        click.echo(json.dumps([vars(one) for one in diagnoses], indent=2))
    else:
        for one in diagnoses:
            click.echo(
                f"{one.state:<8} {one.what:<10} {one.detail}"
                + (f"\n{'':19} -> {one.remedy}" if one.remedy else "")
            )
    if any(one.state == "missing" for one in diagnoses):
        sys.exit(1)
