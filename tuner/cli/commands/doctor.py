"""Options of ``tune doctor``."""

from __future__ import annotations

import click

from tuner.cli.loader import Once, runs


@click.command(cls=Once)
@click.option("--calibrate", is_flag=True, help="Measure ceilings and noise of the GPU again.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@runs("tuner.cli.doctor:doctor")
def doctor() -> None:
    """Show what this machine has, what is missing, and how to get it. Exit status 1 if tuning on a GPU cannot work.

    Looks at Python, NVRTC, the GPU and its driver, what else uses the GPU, how well it can be timed, CUDA's headers,
    SQLite, the cache and NVIDIA's tools.
    """
