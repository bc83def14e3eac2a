"""``tune list``: the built-in kernels."""

from __future__ import annotations

import json

import click

from tuner.kernel.load import builtin_kernels, load_kernel
from tuner.report.tables import show


def list_kernels(as_json: bool) -> None:
    """Print the built-in kernels with their variants."""
    kernels = [load_kernel(name) for name in builtin_kernels()]
    if as_json:
        rows = [
            {"kernel": k.name, "summary": k.summary, "variants": list(k.variants), "presets": list(k.presets)}
            for k in kernels
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    show(
        ["kernel", "what it computes", "variants", "presets"],
        [[k.name, k.summary, ", ".join(k.variants), ", ".join(k.presets)] for k in kernels],
    )
