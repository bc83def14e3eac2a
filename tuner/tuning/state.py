"""State and result of a run, for the session and the reports; a finish as a winner."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.core.model import Configuration, Run, Status, Trial
from tuner.core.stats import Ratio, Verdict, ratio_record
from tuner.database.records import RESERVATIONS, KnownTrial, Mark, Metrics, WarmTime, Winner
from tuner.devices.base import Device
from tuner.kernel.roofline import Ceiling, Roof, roof_under
from tuner.kernel.space import SearchSpace
from tuner.search.stopping import Stopped
from tuner.search.translation import Results
from tuner.tuning.confirmation import Confirmation

WARM_UP_S = 3.0
"""The first compilations take so long that the GPU cannot be busy before."""
SEARCHING, SEARCHED = "searching", "searched"
"""Phases that an observer is told of; the others are a line to be printed."""


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
    """Faster than every other, the same as some, or ambiguous: rounds or time ran out. Slower than some only where it
    was chosen because another mode counts, too, or by a margin."""
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
class Finish(Confirmation, InRace):
    """Result of the race in the run's mode, and of the confirmation."""

    winner: Trial
    default: Trial | None = None
    checked_against: str = "reference"
    """What results were compared with: see ``ReferenceSpec.checked_against``."""
    exportable: bool = False
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


@dataclass
class Taught:
    """What a search was taught of other tasks."""

    results: int = 0
    """How many the sampler has learnt."""
    of: set[str] = field(default_factory=set)
    """How what they measured differs, in words: other problems, other GPUs, other tools."""
    winners: list[Configuration] = field(default_factory=list)
    """Of the tasks that it learnt from."""
    unlike: list[str] = field(default_factory=list)
    """Tasks that teach nothing, and why."""


@dataclass
class State:
    """State of a run; read by the progress display."""

    run: Run
    roof: Roof
    space: SearchSpace
    device: Device
    mark: Mark
    """What the database held when the run began: this the search is taught, also when the run is resumed."""
    trials: list[Trial] = field(default_factory=list)
    incumbent: Trial | None = None
    default: Trial | None = None
    resumed_trials: int = 0
    """Trials that were there when an interrupted run went on."""
    known_before: int = 0
    """Trials of earlier runs that the search was taught."""
    lessons: Sequence[tuple[Run, Results]] = ()
    """What other tasks have measured, a run of each and its results as those of this run's configurations."""
    taught: Taught = field(default_factory=Taught)
    search_began: float = 0.0
    search_ended: float = 0.0
    conditions_why: str = ""
    """Why everything is timed under the run's conditions."""
    ceiling: Ceiling | None = None
    best_before: tuple[Configuration, float] | None = None
    """The best that the database knew under these conditions when the run began, and its time in nanoseconds then."""
    known_winners: Mapping[Configuration, int] = field(default_factory=dict)
    """What earlier runs on this model of GPU chose, and how many of them."""
    retimed: int = 0
    """Trials beyond the budget: configurations timed again because the GPU had drifted."""
    stopped: Stopped | None = None
    """Why nothing new was tried although trials were left."""
    out_of_time: bool = False
    """Whether time ended the search."""
    expected_gain: float | None = None
    """Then the share of the best time that the next configuration was expected to save; None where nothing says so."""
    finish_s: float = 0.0
    """What race and confirmation may take after the search, roughly."""
    initial: Mapping[Configuration, str] = field(default_factory=dict)
    """Initial configurations, each with the file that has it, in the order in which they are tried."""

    def __post_init__(self) -> None:
        self.roof = roof_under(self.roof, self.run.conditions.mode)

    def number_rows(self, rows: Mapping[int, int]) -> None:
        """Set each trial's row in the database.

        Args:
            rows: by the trials' numbers.
        """
        kept = [*self.trials, *filter(None, (self.default, self.incumbent))]
        numbered = {id(trial): replace(trial, id=rows[trial.number]) for trial in kept}
        self.trials = [numbered[id(trial)] for trial in self.trials]
        self.default = self.default and numbered[id(self.default)]
        self.incumbent = self.incumbent and numbered[id(self.incumbent)]

    @property
    def budget(self) -> int:
        """Trials that there will be, unless time or space end before."""
        return self.run.options.trials + self.retimed

    @property
    def expected(self) -> int:
        """The same, where a small space ends before."""
        left = min(self.run.options.trials, len(self.space) - self.known_before) + self.retimed
        return max(left, len(self.trials))

    def of_ceiling(self, time_ns: float) -> float | None:
        """Return a time's share of the measured ceiling; None where no ceiling holds under these conditions."""
        if self.ceiling is None or not self.roof.speed_of_light_ns:
            return None
        return self.ceiling.time_ns / time_ns

    @property
    def elapsed_s(self) -> float:
        """Seconds of the search so far."""
        return (self.search_ended or time.monotonic()) - self.search_began

    @property
    def occupied(self) -> float | None:
        """Share of the search after :data:`WARM_UP_S` for which the GPU was verifying, timing or resting on purpose.

        None for a shorter search and for a recorded one.
        """
        if self.device.recorded or self.elapsed_s <= WARM_UP_S:
            return None
        return self.device.busy.share(self.search_began + WARM_UP_S, self.search_ended or time.monotonic())

    @property
    def initial_trials(self) -> dict[str, list[Trial]]:
        """The trials of the initial configurations, by where these came from."""
        first = {trial.configuration: trial for trial in reversed(self.trials)}
        tried = [(source, first[one]) for one, source in self.initial.items() if one in first]
        return {source: [trial for of, trial in tried if of == source] for source in self.initial.values()}

    @property
    def failures(self) -> dict[str, int]:
        """Number of failed trials by status."""
        return dict(Counter(trial.status for trial in self.trials if not trial.status.ranked))


@dataclass(frozen=True)
class Result:
    """Result of a run."""

    state: State
    finish: Finish | None
    winner_id: int | None
    stats: Mapping[str, Any]


def verified(trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials that are verified and timed; one whose time is suspect is timed again, as another."""
    return [trial for trial in trials if trial.status is Status.OK and trial.time_ns and not trial.suspect]


def fastest(trials: Iterable[Trial]) -> Trial | None:
    """Return the fastest of the verified trials, of equally fast ones the first; None if there is none."""
    return min(verified(trials), key=lambda trial: trial.time_ns or math.inf, default=None)


def bounded(trial: Trial, max_error: float | None) -> Trial:
    """Return a trial, ``inaccurate`` if its error is above a bound, or not known."""
    if max_error is None or not trial.status.ranked:
        return trial
    error = trial.true_error
    if error is not None and error <= max_error:
        return trial
    far = "is not known" if error is None else f"of {error:.3g} is above {max_error:.3g}"
    return replace(trial, status=Status.INACCURATE, error=f"its error {far}")


def told_time(trial: Trial | KnownTrial) -> float | None:
    """Return what a search is told: the time in nanoseconds, or None for a failure."""
    return trial.time_ns if trial.status.ranked and trial.time_ns else None


def metrics(roof: Roof, time_ns: float | None) -> Metrics:
    """Return the throughput of a time and its share of the speed of light; None where no ceiling is known."""
    if not time_ns:
        return Metrics()
    return Metrics(
        tflops=roof.flops / time_ns * 1e-3 or None,
        gbytes_per_s=roof.bytes / time_ns or None,
        speed_of_light=roof.speed_of_light_ns / time_ns or None,
    )


def winner_of(
    finish: Finish, ids: Mapping[int, int], *, replayed: bool, known_before: bool = False
) -> Winner:
    """Return what the database keeps of a finish.

    Args:
        finish: how the run ended.
        ids: rows of the run's trials, by number.
        replayed: whether the samples were recorded earlier.
        known_before: whether the database knew a best before.
    """
    race: dict[str, Any] = {
        **_race_record(finish),
        "tied": finish.tied,
        "edges": [str(problem) for problem, _ in finish.edge_cases],
        "replayed": replayed,
        "behind": finish.behind,
        "incumbent": _against_incumbent(finish, ids),
    }
    if finish.checked_against in RESERVATIONS:
        race["checked_against"] = finish.checked_against
    warm_time = None
    if (warm := finish.warm) is not None:
        race["warm_race"] = {
            **_race_record(warm),
            "passed_over": str(warm.passed_over.configuration) if warm.passed_over else None,
            "passed_over_behind": warm.passed_over_behind,
        }
        warm_time = WarmTime(
            time_ns=warm.time_ns,
            **ratio_record(warm.ratio),
            verdict=str(warm.verdict),
            behind=warm.behind,
            behind_in_mode=warm.behind_in_mode,
            counts=finish.incumbent_ns is not None or not known_before,
        )
    return Winner(
        trial_id=ids[finish.winner.number],
        configuration=finish.winner.configuration,
        time_ns=finish.time_ns,
        default_trial_id=ids[finish.default.number] if finish.default and finish.default_ns else None,
        default_time_ns=finish.default_ns,
        **ratio_record(finish.ratio),
        verdict=finish.verdict,
        confirmed_ns=finish.confirmed_ns,
        edges_verified=bool(finish.edge_cases) and not finish.reason,
        exportable=finish.exportable,
        reason=finish.reason,
        race=race,
        warm=warm_time,
    )


def _race_record(race: InRace) -> dict[str, Any]:
    return {
        "medians_ns": [[str(configuration), time_ns] for configuration, time_ns in race.medians_ns],
        "noise_floor": race.noise_floor,
        "verdict": str(race.race_verdict),
        "rounds": race.rounds,
        "heats": race.heats,
        "seconds": round(race.race_s, 3),
    }


def _against_incumbent(finish: Finish, ids: Mapping[int, int]) -> dict[str, Any] | None:
    if finish.incumbent is None or finish.versus_incumbent is None:
        return None
    return {
        "trial_id": ids[finish.incumbent.number],
        "time_ns": finish.incumbent_ns,
        **ratio_record(finish.versus_incumbent),
        "verdict": str(finish.incumbent_verdict),
    }
