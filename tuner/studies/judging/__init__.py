"""Judging candidates that others wrote for a task: ``tune judge``."""
