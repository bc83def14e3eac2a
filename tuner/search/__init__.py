"""Choosing what to try next: samplers by name, and a run's study."""
