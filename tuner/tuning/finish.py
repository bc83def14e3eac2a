"""How a run ended: its winner, the winner's times in each race, and its confirmation."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuner.core.model import Configuration, Measurement, Problem, Trial
from tuner.core.stats import Ratio, Verdict


@dataclass(frozen=True)
class InRace:
    """How the winner stands in the race of one mode."""

    time_ns: float
    default_ns: float | None
    ratio: Ratio | None
    """The default's time over the winner's. All intervals of a race hold together with 95 %."""
    verdict: Verdict
    behind: float = 1.0
    """Its time over that of the fastest finalist."""
    race_verdict: Verdict = Verdict.AMBIGUOUS
    """Faster than every other, the same as some, or ambiguous: rounds or time ran out. Slower than some where it was
    chosen because another mode counts, too, or because it differs less from an initial configuration."""
    medians_ns: list[tuple[Configuration, float]] = field(default_factory=list)
    """Of every contestant that did not fail, the fastest first; an eliminated one has fewer samples behind it."""
    noise_floor: float = 0.0
    """How far from 1 the ratio of equal kernels may be: what differs by less is the same."""
    rounds: int = 0
    heats: int = 0
    race_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class WarmFinish(InRace):
    """How the winner stands in the mode warm."""

    behind_in_mode: float
    """Its time over that of the fastest finalist in the run's mode."""
    passed_over: Trial | None
    """What would have won by the run's mode alone, if that is another."""
    passed_over_behind: float
    """How far that is behind, warm; as far as the winner if it is no other."""


@dataclass(frozen=True, kw_only=True)
class Finish(InRace):
    """Result of the race in the run's mode, and of the confirmation."""

    winner: Trial
    default: Trial | None = None
    confirmed: Measurement | None = None
    edge_cases: list[tuple[Problem, Measurement]] = field(default_factory=list)
    """The winner at other sizes."""
    exportable: bool = False
    reason: str = ""
    no_process: bool = False
    """Whether the reason says nothing about the winner: no process could be had to confirm or verify it."""
    unstable: list[tuple[Trial, str]] = field(default_factory=list)
    """Finalists that a fresh process could not reproduce, or that are wrong at other sizes."""
    tied: int = 1
    """Finalists that are statistically tied with the winner, itself included."""
    incumbent: Trial | None = None
    """The best that the database knew before, as it was timed again in this run."""
    incumbent_ns: float | None = None
    versus_incumbent: Ratio | None = None
    """The incumbent's time over the winner's."""
    incumbent_verdict: Verdict = Verdict.AMBIGUOUS
    """Of the winner against the incumbent."""
    warm: WarmFinish | None = None
    """How it stands in the mode warm, if it was chosen by that as well."""
