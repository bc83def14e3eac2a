"""What a run writes to the database, and asks of it, from another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.children.record import Message, Record
from tuner.core.model import Configuration, Run, Trial
from tuner.core.processes import Codec
from tuner.database.records import KnownTrial, Mark, Metrics, Winner

# -- rows -------------------------------------------------------------------------------------------------------------


class RunStarted(Message, frozen=True):
    """A run begins."""

    run: Run
    stats: Mapping[str, Any]


class RunResumed(Message, frozen=True):
    """A run goes on."""

    run: str


class Attempted(Message, frozen=True):
    """A configuration is about to be tried."""

    run: str
    number: int
    configuration: Configuration


class TrialEnded(Message, frozen=True):
    """A trial has ended."""

    run: str
    trial: Trial
    metrics: Metrics


class Retagged(Message, frozen=True):
    """A trial has other tags."""

    run: str
    number: int
    tags: tuple[str, ...]


class Unstable(Message, frozen=True):
    """A finalist could not be confirmed."""

    run: str
    number: int
    reason: str


class WinnerFound(Message, frozen=True):
    """A run has a winner."""

    run: str
    winner: Winner


class RunEnded(Message, frozen=True):
    """A run has ended."""

    run: str
    state: str
    stats: Mapping[str, Any]
    forget_attempts: bool


Row = RunStarted | RunResumed | Attempted | TrialEnded | Retagged | Unstable | WinnerFound | RunEnded

# -- questions --------------------------------------------------------------------------------------------------------


class BestKnown(Message, frozen=True):
    """The best of a run's problem."""

    run: Run
    mark: Mark | None


class KnownWinners(Message, frozen=True):
    """What most often won a run's problem."""

    run: Run
    mark: Mark | None


class EarlierTrials(Message, frozen=True):
    """The trials of earlier runs of a run's problem."""

    run: Run
    mark: Mark | None


class IntactTrials(Message, frozen=True):
    """Which of some rows are what was written."""

    rows: tuple[int, ...]


class RelatedTrials(Message, frozen=True):
    """Trials at other problems and on other GPUs."""

    run: Run
    mark: Mark | None
    limit: int


class PresentMark(Message, frozen=True):
    """What the database holds now."""


class WhatIsLeft(Message, frozen=True):
    """What an interrupted run has left."""

    run: str


class RowNumbers(Message, frozen=True):
    """The rows of a run's trials."""

    run: str


class KeptRows(Message, frozen=True):
    """Whether rows can be read by the file's name."""

    run: str
    trials: tuple[int, ...]
    winner: int | None


class LeftBehind(Record, frozen=True):
    """What an interrupted run has left."""

    trials: list[Trial]
    attempts: list[tuple[int, Configuration, int]]
    """Number, configuration and count of what was begun without a result."""
    stats: Mapping[str, Any]


Question = (
    BestKnown
    | KnownWinners
    | EarlierTrials
    | IntactTrials
    | RelatedTrials
    | PresentMark
    | WhatIsLeft
    | RowNumbers
    | KeptRows
)

_ANSWERS: Mapping[type[Message], Any] = {
    BestKnown: tuple[Configuration, float] | None,
    KnownWinners: list[tuple[Configuration, int]],
    EarlierTrials: list[KnownTrial],
    IntactTrials: list[int],
    RelatedTrials: list[tuple[Run, list[KnownTrial]]],
    PresentMark: Mark,
    WhatIsLeft: LeftBehind,
    RowNumbers: dict[int, int],
    KeptRows: None,
}
ANSWERS: Mapping[type[Message], Codec[Any]] = {
    question: Codec(answer) for question, answer in _ANSWERS.items()
}
"""What each question is answered with."""
ROW_ANSWER: Codec[int | None] = Codec(int | None)
"""What rows are answered with: the number of the last one, if it has one."""
