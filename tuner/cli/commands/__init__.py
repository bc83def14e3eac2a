"""Each command's options and help; they import click and the standard library, and :mod:`tuner.cli.loader` the rest."""
