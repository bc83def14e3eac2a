"""Tuning from Python: what ``tuner.tune``, ``tuner.Kernel`` and ``tuner.open`` are made of."""
