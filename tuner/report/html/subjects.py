"""What a page is about: each problem on a GPU with one of its runs, its winners and its benchmarks; and its figures.

A file of others may hold anything: rows whose numbers cannot be times, rates and ratios are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from tuner.core.errors import DatabaseError
from tuner.core.model import Run, Trial
from tuner.database.database import Database
from tuner.database.records import Benchmark, Filters, StoredRace, StoredTrial, StoredWinner
from tuner.report.tables import why_not_the_fastest

MOST_DETAILED = 12
"""Problems that a page shows in detail, each with some 40 kB beside its trials. The others are in the overview."""
MOST_LISTED = 500
"""Problems of the overview."""
MOST_TRIALS, MOST_TOGETHER = 12_000, 8_000
"""Trials that are read of one run, and of the runs of a page together; each takes some 50 bytes of the page."""


Row = TypeVar("Row", StoredTrial, StoredWinner, Benchmark)


@dataclass(frozen=True)
class TunedProblem:
    """A problem on a GPU, timed in one way: what one run did, and what all runs have found."""

    run: Run
    began: str
    """UTC."""
    state: str
    search_s: float | None
    stored: list[StoredTrial]
    """Trials of the run, in their order."""
    left_out: int
    """Trials of the run that are more than were read."""
    winner: StoredWinner | None
    """Of this run."""
    winners: list[StoredWinner]
    """Of all runs of this problem, the oldest first."""
    benchmarks: list[Benchmark]
    """The newest first."""

    @property
    def trials(self) -> list[Trial]:
        """The trials of the run."""
        return [stored.trial for stored in self.stored]

    @property
    def timed(self) -> list[Trial]:
        """The trials that are verified and timed, and whose time is not suspect."""
        return [one for one in self.trials if one.status.ranked and one.time_ns and not one.suspect]

    @property
    def default(self) -> Trial | None:
        """The default configuration's trial, as far as the winner was compared with it."""
        number = self.winner.winner.default_trial_id if self.winner else None
        return next((trial for trial in self.trials if number is not None and trial.id == number), None)

    @property
    def stored_best(self) -> StoredWinner | None:
        """The best winner of all runs of this problem; None if this run's is as good."""
        winners = [one for one in self.winners if one.winner.exportable]
        best = min(winners, key=lambda one: one.winner.time_ns, default=None)
        own = self.winner.winner.time_ns if self.winner else 0.0
        return best if best and best.winner.time_ns < own else None

    @property
    def speed_of_light_ns(self) -> float | None:
        """The least time that the hardware allows, as the database has it; None where it is not known."""
        for one in self.stored:
            if one.metrics.of_peak and one.trial.time_ns:
                return one.metrics.of_peak * one.trial.time_ns
        return None

    @property
    def race(self) -> StoredRace:
        """What is known of the race: nothing where another program has written something else."""
        race = StoredRace.of(self.winner.winner.race if self.winner else {})
        before = race.incumbent
        of_before = (before.time_ns, before.ratio, before.ratio_low, before.ratio_high) if before else ()
        times = [time_ns for _, time_ns in race.medians_ns]
        return race if plausible(race.noise_floor or None, race.behind, *of_before, *times) else StoredRace()

    @property
    def why_not_the_fastest(self) -> str:
        """Why the winner is not the fastest finalist, in words; empty if it is, or there is none."""
        if self.winner is None:
            return ""
        behind, warm = self.race.behind, self.race.warm_race
        if warm and warm.get("passed_over") is not None:
            how_far = f"{100 * (behind - 1):.2f} % behind the fastest finalist {self.run.conditions.mode}"
            return f"chosen because it is also fast with warm caches: {how_far}"
        earlier = [one.winner for one in self.winners if one.created_at < self.winner.created_at]
        known = self.winner.winner.configuration in [one.configuration for one in earlier]
        floor = self.race.noise_floor or 0.0
        return why_not_the_fastest(behind, floor, self.run.options.margin, known=known)

    def configuration_name(self, trial: Trial) -> str:
        """Return what differs from the winner's configuration; the variant where that differs."""
        own, best = trial.configuration, self.winner.winner.configuration if self.winner else None
        if best is None or own.variant != best.variant:
            return own.variant
        values = best.values
        return ", ".join(f"{name}={value}" for name, value in own.parameters if values.get(name) != value)


@dataclass(frozen=True)
class Subjects:
    """All that a page is about."""

    best: list[StoredWinner]
    """The best winner of each problem, GPU and conditions; of a run, that run's."""
    problems: list[TunedProblem]
    """In detail: the newest first."""
    not_detailed: int
    """Problems for which there was no room."""
    damaged: list[str]


def read_run(database: Database, run_id: str) -> Subjects:
    """Return one run.

    Raises:
        DatabaseError: there is none, or it is damaged.
    """
    run = database.run(run_id)
    damaged: list[str] = []
    problem = _read(database, run, MOST_TRIALS, damaged)
    return Subjects([problem.winner] if problem.winner else [], [problem], 0, damaged)


def read_all(database: Database, filters: Filters) -> Subjects:
    """Return every problem that fits, each with its newest run that searched all of the space, else its newest.

    A run may be narrowed, as each step of ``tune ladder`` is: its few trials say little about the problem.

    Args:
        database: to read.
        filters: by kernel, GPU and dtype; by nothing that tells trials of a run apart.

    Raises:
        DatabaseError: the file cannot be read.
    """
    best = database.best(filters)
    damaged = list(best.damaged)
    winners = sound("winner", best.rows, damaged)
    newest: dict[tuple[object, ...], Run] = {}
    for run_id in database.runs_that_fit(filters):
        try:
            run = database.run(run_id)
        except DatabaseError as error:
            damaged.append(str(error))
            continue
        chosen = newest.setdefault(_group(run), run)
        if _is_narrowed(chosen) and not _is_narrowed(run):
            newest[_group(run)] = run
    detailed = list(newest.values())[:MOST_DETAILED]
    problems = [_read(database, run, MOST_TOGETHER // len(detailed), damaged) for run in detailed]
    left = len(newest) - len(problems)
    return Subjects(winners[:MOST_LISTED], problems, left, list(dict.fromkeys(damaged)))


def _group(run: Run) -> tuple[object, ...]:
    computation = run.computation or run.kernel_digest
    return computation, run.problem.key, run.gpu.name, run.conditions, run.replayed


def _is_narrowed(run: Run) -> bool:
    return bool(run.options.variants or run.options.fixed)


def _read(database: Database, run: Run, most: int, damaged: list[str]) -> TunedProblem:
    trials = database.trials_of_run(run.id, most)
    damaged += trials.damaged
    stored = sound("trial", trials.rows, damaged)
    state = database.run_state(run.id)
    same = Filters(computations=(run.computation or run.kernel_digest,)).like(run)
    winners = database.winners(replace(same, replayed=run.replayed))
    damaged += winners.damaged
    own = sound("winner", winners.rows, damaged)
    benchmarks = database.benchmarks(same)
    damaged += benchmarks.damaged
    search_s = state["stats"].get("search_s")
    total = state["stats"].get("trials")
    return TunedProblem(
        run,
        state["started_at"],
        state["state"],
        search_s if isinstance(search_s, (int, float)) and plausible(search_s) else None,
        stored,
        max(0, total - len(trials.rows)) if isinstance(total, int) else 0,
        next((one for one in own if one.run.id == run.id), None),
        sorted(own, key=lambda one: one.created_at),
        [] if run.replayed else sound("benchmark", benchmarks.rows, damaged),
    )


LOWEST, HIGHEST = 1e-12, 1e18
"""Of a time in nanoseconds, a rate in any unit, a ratio."""
WHY = "has numbers that cannot be"


def plausible(*values: float | None) -> bool:
    """Return whether times, rates and ratios can be such, as far as they are there."""
    return all(value is None or LOWEST <= value <= HIGHEST for value in values)


def sound(kind: str, rows: Iterable[Row], damaged: list[str]) -> list[Row]:
    """Return trials, winners or contestants of benches without those whose numbers cannot be: each adds a line."""
    kept = []
    for row in rows:
        if plausible(*_numbers(row)):
            kept.append(row)
        else:
            number = row.id if isinstance(row, StoredWinner | Benchmark) else row.trial.id
            damaged.append(f"{kind} {number} {WHY}")
    return kept


_NUMBERS = "time_ns ci_low_ns ci_high_ns ratio ratio_low ratio_high default_time_ns confirmed_ns".split()  # noqa: SIM905


def _numbers(row: StoredTrial | Benchmark) -> list[float | None]:
    """Return the times, rates and ratios of a row."""
    if isinstance(row, Benchmark):
        return [getattr(row, name, None) for name in _NUMBERS]
    records = [row.trial, *([row.winner] if isinstance(row, StoredWinner) else [])]
    numbers = [getattr(one, name, None) for one in records for name in _NUMBERS]
    rates = msgspec.structs.astuple(row.metrics)
    return [*numbers, *row.trial.samples_ns, row.trial.sm_clock_hz or None, *rates]
