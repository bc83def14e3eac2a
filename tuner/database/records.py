"""The records that go into the database and come out of it, beside those of ``tuner.core.model``, and their filters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from msgspec import Struct, ValidationError, convert

from tuner.core.conditions import Conditions
from tuner.core.errors import UsageError
from tuner.core.model import Configuration, Gpu, Problem, Run, Status, Trial

Record = TypeVar("Record")

RESERVATIONS = {
    "default": "checked against the default only",
    "kernel": "checked against your own kernel, in its own precision",
}
"""What is said of a winner whose results were compared with rounded ones, by what these were of."""


class Metrics(Struct, frozen=True):
    """What a time means: throughput, and the fraction of the speed of light (1.0 is the roof)."""

    tflops: float | None = None
    gbytes_per_s: float | None = None
    speed_of_light: float | None = None

    @property
    def of_peak(self) -> float | None:
        """The share of the speed of light that people are shown: none where the kernel's file gives no FLOP, for the
        bytes alone do not say what bounds it."""
        return self.speed_of_light if self.tflops else None


class WarmTime(Struct, frozen=True):
    """How a winner that was chosen by the mode warm as well stands there."""

    time_ns: float
    ratio: float | None
    """The default's time over the winner's, paired."""
    ratio_low: float | None
    ratio_high: float | None
    verdict: str
    behind: float
    """Its time over that of the fastest finalist, and the same in the run's mode."""
    behind_in_mode: float
    counts: bool
    """Whether it was raced against the best known before, if there was any: then it takes the place of what was not."""


@dataclass(frozen=True)
class Winner:
    """A run's best configuration, and how sure that is; ``trial_id`` is the row it came from."""

    trial_id: int
    configuration: Configuration
    time_ns: float
    """As re-timed in the race."""
    default_trial_id: int | None = None
    default_time_ns: float | None = None
    ratio: float | None = None
    """The default's time over the winner's, paired: 1.25 means that the winner is 1.25 times as fast."""
    ratio_low: float | None = None
    ratio_high: float | None = None
    verdict: str = ""
    """faster, slower, same or ambiguous."""
    confirmed_ns: float | None = None
    """The time in a fresh process."""
    edges_verified: bool = False
    """Right at edge-case sizes, around its own tile."""
    exportable: bool = False
    reason: str = ""
    """Why it is not exportable."""
    race: Mapping[str, Any] = field(default_factory=dict)
    warm: WarmTime | None = None
    """None where it was chosen by the run's mode alone."""

    @property
    def checked_against(self) -> str:
        """What results were compared with: ``reference``, or a key of :data:`RESERVATIONS`."""
        return next((one for one in RESERVATIONS if self.race.get("checked_against") == one), "reference")


class StoredIncumbent(Struct, frozen=True):
    """The best known before, as the race of a run has timed it."""

    trial_id: int
    time_ns: float
    ratio: float
    ratio_low: float | None = None
    ratio_high: float | None = None
    verdict: str = ""


class StoredRace(Struct, frozen=True):
    """What the database keeps of a race, as far as it is read."""

    medians_ns: list[tuple[str, float]] = []
    """Of the contestants, by their configurations as text."""
    noise_floor: float | None = None
    verdict: str = ""
    rounds: int = 0
    incumbent: StoredIncumbent | None = None
    behind: float = 1.0
    """The winner's time over that of the fastest finalist."""
    warm_race: dict[str, Any] | None = None
    """Of the race with warm caches: ``passed_over`` is what would have won without it; None if that is the winner."""

    @classmethod
    def of(cls, record: object) -> StoredRace:
        """Return what a record says: nothing where another program has written something else."""
        try:
            return convert(record, cls)
        except ValidationError:
            return cls()


@dataclass(frozen=True)
class Mark:
    """What a database held at a moment: its last rows."""

    trials: int
    winners: int


@dataclass(frozen=True)
class KnownTrial:
    """What a run learns from a trial of an earlier run."""

    id: int
    configuration: Configuration
    status: Status
    time_ns: float | None
    true_error: float | None
    """How far the output was from the true result; None where it was not counted."""


@dataclass(frozen=True)
class LeftBehind:
    """What an interrupted run has left."""

    trials: list[Trial]
    attempts: list[tuple[int, Configuration, int]]
    """Number, configuration and count of what was begun without a result."""
    stats: Mapping[str, Any]


@dataclass(frozen=True)
class StoredTrial:
    """A trial as read back, with the run it belongs to."""

    trial: Trial
    run: Run
    metrics: Metrics
    created_at: str
    outliers: int = 0
    """Samples further from the median than five standard deviations (:func:`tuner.core.stats.outlier_count`)."""


@dataclass(frozen=True, kw_only=True)
class StoredWinner(StoredTrial):
    """A winner as read back, with its run and the trial it came from; the metrics are of its time in the race."""

    id: int
    winner: Winner


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One contestant of ``tune bench`` on one problem: a stored configuration, or something to compare it with."""

    bench: str
    """Id of the invocation: what was timed together has it in common."""
    problem: Problem
    gpu: Gpu
    conditions: Conditions
    contestant: str
    """``best``, ``default``, or a baseline's name."""
    configuration: Configuration | None
    winner_id: int | None = None
    """The row of the winner whose configuration it is; the winner may be one of another size."""
    kernel_digest: str
    computation: str
    """Both as of a run: :class:`tuner.core.model.Run`."""
    time_ns: float
    """Median of the samples."""
    ci_low_ns: float
    ci_high_ns: float
    samples_ns: tuple[float, ...]
    ratio: float | None = None
    """Its time over that of ``best``, paired: 1.25 means that the best is 1.25 times as fast."""
    ratio_low: float | None = None
    ratio_high: float | None = None
    verdict: str = ""
    """``best`` compared with it: faster, slower, same or ambiguous."""
    noise_floor: float
    sm_clock_hz: float
    tags: tuple[str, ...]
    versions: Mapping[str, str]
    id: int | None = None
    """Row number, once it is in the database."""
    created_at: str = ""
    """UTC, once it is in the database; the same for all that were recorded together."""


@dataclass(frozen=True)
class Selection(Generic[Record]):
    """The records that fit a query, and a line for each that was left out because it is damaged."""

    rows: list[Record]
    damaged: list[str]


@dataclass(frozen=True)
class CheckReport:
    """The outcome of ``check``: rows by table, and one line for each problem."""

    rows: Mapping[str, int]
    problems: list[str]


@dataclass(frozen=True)
class Merged:
    """The outcome of ``merge``: what was added, and one line for each row that was not."""

    runs: int
    trials: int
    winners: int
    benchmarks: int
    refused: list[str]


SORTS = {
    "time": "t.time_ns",
    "number": "t.number",
    "id": "t.id",
    "created": "t.created_at",
    "kernel": "r.kernel",
    "variant": "t.variant",
    "status": "t.status",
    "tflops": "t.tflops",
    "bandwidth": "t.gbytes_per_s",
    "speed": "t.speed_of_light",
    "registers": "t.registers",
}
"""What trials can be sorted by; a ``-`` before the name reverses the order."""


def order_by(sort: str) -> str:
    """Return the SQL of a sort key of trials ``t`` and runs ``r``, rows without a value last.

    Raises:
        UsageError: not one of :data:`SORTS`.
    """
    column = SORTS.get(sort.removeprefix("-"))
    if column is None:
        raise UsageError(f"cannot sort by {sort!r}", f"choose from: {', '.join(SORTS)}, or -time and so on")
    direction = " DESC" if sort.startswith("-") else ""
    return f"t.id{direction}" if column == "t.id" else f"{column}{direction} NULLS LAST, t.id"


COMPUTED = "CASE r.computation WHEN '' THEN r.kernel_digest ELSE r.computation END"
"""SQL of the digest of what a run ``r`` computed; those of schema 2 go by their kernel's text."""


@dataclass(frozen=True)
class Filters:
    """Which trials, winners or benchmarks are meant; an empty field matches everything."""

    kernel: str = ""
    gpu: str = ""
    """A part of the GPU's name, in any case."""
    gpu_name: str = ""
    """All of it."""
    dtype: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    variant: str = ""
    statuses: tuple[str, ...] = ()
    since: str = ""
    """UTC in ISO 8601; earlier rows are left out."""
    run: str = ""
    """The start of a run's id."""
    problem_key: str = ""
    computations: tuple[str, ...] = ()
    """What was computed: :data:`COMPUTED`."""
    replayed: bool | None = None
    exportable: bool | None = None
    """Only for winners."""
    mode: str = ""
    """What the caches held: a :class:`tuner.core.conditions.Mode`."""
    regime: str = ""
    """Whether the card rested: a :class:`tuner.core.conditions.Regime`."""

    def like(self, run: Run) -> Filters:
        """Return these filters for a run's problem, GPU and conditions alone."""
        return replace(
            self, kernel=run.problem.kernel, problem_key=run.problem.key, gpu_name=run.gpu.name,
            mode=str(run.conditions.mode), regime=str(run.conditions.regime),
        )  # fmt: skip

    def where(self) -> tuple[str, list[Any]]:
        """Return a condition over ``t`` (trials, winners or benchmarks) and ``r`` (runs), with the values to bind."""
        parts: list[tuple[str, list[Any]]] = [("1", [])]
        of_run = ("kernel", "gpu_name", "dtype", "problem_key", "mode", "regime")
        parts += [(f"r.{name} = ?", [value]) for name in of_run if (value := getattr(self, name))]
        if self.variant:
            parts.append(("t.variant = ?", [self.variant]))
        if self.computations:
            marks = ", ".join("?" * len(self.computations))
            parts.append((f"{COMPUTED} IN ({marks})", list(self.computations)))
        if self.gpu:
            parts.append(("instr(lower(r.gpu_name), lower(?)) > 0", [self.gpu]))
        for name, size in self.sizes.items():
            path = "CASE WHEN json_valid(r.problem) THEN json_extract(r.problem, ?) END = ?"
            parts.append((path, [f"$.sizes.{_size_name(name)}", size]))
        if self.statuses:
            parts.append((f"t.status IN ({', '.join('?' * len(self.statuses))})", list(self.statuses)))
        if self.since:
            parts.append(("t.created_at >= ?", [self.since]))
        if self.run:
            parts.append(("substr(t.run_id, 1, length(?)) = ?", [self.run, self.run]))
        flags = [("r.replayed", self.replayed), ("t.exportable", self.exportable)]
        parts += [(f"{column} = ?", [int(flag)]) for column, flag in flags if flag is not None]
        return " AND ".join(part for part, _ in parts), [value for _, values in parts for value in values]


def _size_name(name: str) -> str:
    if not (name.isascii() and name.isidentifier()):
        raise UsageError(f"{name!r} cannot be the name of a size", "for example --size m=4096")
    return name
