"""Options of ``tune list``."""

from __future__ import annotations

import click

from tuner.cli.loader import Once, runs


@click.command("list", cls=Once)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@runs("tuner.cli.list_kernels:list_kernels")
def list_kernels() -> None:
    """List the built-in kernels with their variants."""
