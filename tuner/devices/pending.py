"""Requests to a measuring process that wait for an answer, and what they get where there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tuner.children.measuring import MeasuringRequest
from tuner.core.model import Status


@dataclass(frozen=True)
class Unanswered:
    """What a request gets whose process ended or hung: the guard's word in place of an answer."""

    status: Status
    error: str
    fatal: bool = False
    """Whether no process can be started any more: every further request gets the same."""
    undecided: bool = False
    """Whether the caller did not wait any longer: that says nothing."""


@dataclass
class Pending:
    """A request that waits for its answer."""

    request: MeasuringRequest
    done: Callable[[Any], None]
    deaths: int = 0
    """How often a process ended that had not begun with it, though it was the next."""
