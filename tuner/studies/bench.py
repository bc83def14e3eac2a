"""Stored winners timed again beside the default configuration and baselines, in one interleaved comparison.

All contestants are timed in turn, round by round, and compared by the ratio within each round. The targets are problems
with the stored winners that fit them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tuner.core.conditions import Conditions, Mode, Regime
from tuner.core.errors import UsageError, suggestion
from tuner.core.model import Gpu, Problem
from tuner.core.stats import UNDECIDED
from tuner.database.database import Database
from tuner.database.records import Benchmark, Filters, Selection, StoredWinner
from tuner.devices.base import Contestant, Device, Timed
from tuner.kernel.baselines import Baseline, baselines_of, parse_baseline
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.plan import invalid_reason
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.report.tables import problem_text
from tuner.runtime.dispatch import distance
from tuner.studies import interleaved
from tuner.winners.current import best_winners, changes_since, kernel_filters

BEST, DEFAULT = "best", "default"
"""Names of the stored winner and of the kernel's default configuration."""


@dataclass(frozen=True)
class Target:
    """One problem under one set of conditions."""

    kernel: KernelSpec
    problem: Problem
    conditions: Conditions
    why: str
    """Why these conditions."""
    winner: StoredWinner | None = None
    """The stored winner to time; it may have been tuned for another size."""
    broken: str = ""
    """Why that configuration cannot be run any more."""
    notes: tuple[str, ...] = ()

    @property
    def comparable(self) -> bool:
        """Whether the winner's stored time is of this very problem, under these conditions."""
        run = self.winner.run if self.winner else None
        return run is not None and run.problem == self.problem and run.conditions == self.conditions


@dataclass(frozen=True)
class Against:
    """The contestants beside the best configuration."""

    default: bool
    """The kernel's default configuration."""
    baselines: tuple[Baseline, ...]
    named: bool
    """Whether the user named them: one that cannot be run is then a failure."""


SAME_MACHINE, SAME_NAME = 0.01, 0.03
"""A stored winner counts as slower from this share on: on the GPU and driver on which it was tuned, and on another GPU
of its name, whose clocks and memory differ."""
NOISE_FLOORS = 2.0
"""And from so many noise floors on: the time now and the one then are both off by up to one."""


@dataclass(frozen=True, kw_only=True)
class Bench(interleaved.Comparison):
    """The results of one target: the reference first, the others by time; failures as far as they matter."""

    target: Target
    notes: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        """The contestant that the others are compared with: the best, else the default; empty if neither ran."""
        first = self.timings[0] if self.timings else None
        return first.name if first is not None and first.configuration is not None else ""

    @property
    def best(self) -> Timed | None:
        """The stored winner."""
        return next((timing for timing in self.timings if timing.name == BEST), None)

    def compared(self, timing: Timed) -> interleaved.Compared | None:
        """Return the reference compared with a contestant; None for itself, or without one."""
        reference = self.timings[0]
        if not self.reference or timing is reference:
            return None
        return self.against(reference, timing)

    @property
    def tied(self) -> bool:
        """Whether another contestant is statistically tied with the reference."""
        verdicts = [compared.verdict for timing in self.timings if (compared := self.compared(timing))]
        return any(verdict in UNDECIDED for verdict in verdicts)


@dataclass(frozen=True)
class SpeedCheck:
    """Whether a stored winner is still as fast as it was."""

    before_ns: float
    before: str
    """When that was."""
    now_ns: float | None
    """None where it cannot be run any more."""
    low_ns: float | None
    tolerance: float
    same_machine: bool
    """Whether GPU and driver are those of then."""
    slower: bool
    reason: str = ""
    """Why it could not be run."""


def bench(device: Device, target: Target, against: Against, rounds: int, seed: int) -> Bench:
    """Time a target's contestants in turn, and compare them.

    Raises:
        TunerError: the problem cannot be measured at all.
    """
    device.prepare(target.kernel, target.problem, seed, target.conditions)
    contestants, notes = _contestants(device, target, against)
    found = interleaved.compare(device, contestants, rounds, seed)
    failures = [one for one in found.failures if against.named or not one.not_installed]
    if target.winner is not None and target.broken:
        best = Contestant(target.winner.winner.configuration, name=BEST)
        failures.insert(0, interleaved.Failure(best, target.broken))
    first = next((timing for timing in found.timings if timing.configuration is not None), None)
    timings = sorted(found.timings, key=lambda timing: (timing is not first, timing.time_ns))
    found = replace(found, timings=tuple(timings), failures=tuple(failures))
    return Bench(**vars(found), target=target, notes=(*target.notes, *notes))


def check(device: Device, timed: Bench, rounds: int, seed: int) -> SpeedCheck | None:
    """Return whether a target's stored winner is slower than it was; one that seems so is measured once more.

    Must follow the target's :func:`bench`, while the device is prepared for it. None if nothing can be compared: no
    winner of this problem, or one that was timed under other conditions.
    """
    target, best = timed.target, timed.best
    stored = target.winner
    if stored is None or not target.comparable:
        return None
    now, then = timed.gpu, stored.run.gpu
    same = bool(now.uuid) and (now.uuid, now.driver) == (then.uuid, then.driver)
    tolerance = max(SAME_MACHINE if same else SAME_NAME, NOISE_FLOORS * timed.reference_noise)
    result = SpeedCheck(
        stored.winner.time_ns, stored.created_at, None, None, tolerance, same_machine=same, slower=True
    )
    if best is None:
        reason = next((failure.error for failure in timed.failures if failure.name == BEST), "")
        return replace(result, reason=reason or "it could not be run")
    limit_ns = stored.winner.time_ns * (1.0 + tolerance)
    if best.interval_ns[0] > limit_ns:
        again = interleaved.compare(device, [best.contestant], rounds, seed + 1)
        if again.failures:
            return replace(result, reason=again.failures[0].error)
        (best,) = again.timings
    low_ns = best.interval_ns[0]
    return replace(result, now_ns=best.time_ns, low_ns=low_ns, slower=low_ns > limit_ns)


def records_of(result: Bench, device: Device, bench_id: str) -> list[Benchmark]:
    """Return the rows that the database keeps of it."""
    target = result.target
    row = interleaved.rows_of(KernelIdentity(target.kernel), device, bench_id)
    return [
        row(
            timing.name,
            timing,
            result.compared(timing) if result.reference == BEST else None,
            result.tags,
            noise_floor=result.reference_noise,
            winner_id=target.winner.id if target.winner and timing.name == BEST else None,
        )
        for timing in result.timings
    ]


def _contestants(device: Device, target: Target, against: Against) -> tuple[list[Contestant], list[str]]:
    """Return the best, the default and the baselines, in this order."""
    contestants: list[Contestant] = []
    notes: list[str] = []
    stored = target.winner
    best = stored.winner if stored is not None and not target.broken else None
    if best is not None:
        best_ns = best.time_ns if target.comparable else 0.0
        contestants.append(Contestant(best.configuration, best_ns, name=BEST))
    if against.default or best is None:
        default = SearchSpace.from_kernel(target.kernel, target.problem, device.gpu).default
        if best is not None and default == best.configuration:
            notes.append("the default configuration is the best")
        else:
            default_ns = stored.winner.default_time_ns if stored and target.comparable else None
            contestants.append(Contestant(default, default_ns or 0.0, name=DEFAULT))
    contestants += map(Contestant.of, against.baselines)
    return contestants, notes


def stored_winners(database: Database, gpu: Gpu, kernel: KernelSpec | None = None) -> Selection[StoredWinner]:
    """Return the confirmed winners on GPUs of this name: the best of each problem and conditions.

    Args:
        database: has them.
        gpu: where they were measured.
        kernel: what they have to compute; winners of all kernels without it.
    """
    filters = Filters(**kernel_filters(kernel or ""), gpu_name=gpu.name, exportable=True, replayed=False)
    winners = best_winners(database, filters, kernel)
    return Selection([winner.stored for winner in winners.rows], winners.damaged)


def targets_of(
    device: Device,
    kernel: KernelSpec,
    problem: Problem,
    winners: Sequence[StoredWinner],
    mode: Mode | None = None,
    regime: Regime | None = None,
) -> list[Target]:
    """Return the targets of a problem.

    A problem that was tuned is timed as it was tuned, under each of the conditions for which there is a winner. One
    that was not gets the winner of the nearest size with the same dtypes and options whose configuration is valid here.

    Args:
        device: where it will be timed.
        kernel: as it is now.
        problem: one of its problems.
        winners: stored ones of this kernel on such GPUs.
        mode: the only one wanted, if any.
        regime: the only one wanted, if any.
    """
    own = [
        stored
        for stored in winners
        if stored.run.problem == problem
        and mode in (None, stored.run.conditions.mode)
        and regime in (None, stored.run.conditions.regime)
    ]
    if own:
        return [_as_tuned(device, kernel, stored) for stored in own]
    conditions, why = device.choose_conditions(kernel, problem, mode, regime or Regime.RESTED)
    notes: list[str] = []
    for stored in _nearest(problem, winners, conditions):
        run = stored.run
        text = problem_text(run.problem)
        reason = invalid_reason(kernel, problem, device.gpu, stored.winner.configuration)
        if reason:
            notes.append(f"what was tuned for {text} is not valid here: {reason}")
            continue
        if run.problem != problem:
            notes.append(f"the best is the configuration tuned for {text}")
        if run.conditions != conditions:
            notes.append(f"it was tuned {run.conditions}")
        notes += changes_since(kernel, stored)
        return [Target(kernel, problem, conditions, why, stored, "", tuple(notes))]
    notes.append("nothing was tuned for these dtypes and options: only the default configuration is timed")
    return [Target(kernel, problem, conditions, why, notes=tuple(notes))]


def choose_against(kernel: KernelSpec, names: Sequence[str]) -> Against:
    """Return the contestants to compare with.

    Args:
        kernel: whose file may name calls of libraries.
        names: of the command line: ``none``, ``default``, the name of one of the kernel's baselines, or a kernel or
            function of the user's own. Nothing means the default configuration and the libraries' calls.

    Raises:
        UsageError: there is no such baseline.
    """
    baselines = {baseline.name: baseline for baseline in baselines_of(kernel)}
    if not names:
        return Against(True, tuple(baselines.values()), named=False)
    if "none" in names and len(set(names)) > 1:
        raise UsageError("--against none excludes all others", "leave it out")
    chosen: dict[str, Baseline] = {}
    for text in dict.fromkeys(names):
        if text in ("none", DEFAULT):
            continue
        if text in baselines:
            baseline = baselines[text]
        elif text.isidentifier():
            remedy = suggestion(text, ["none", DEFAULT, *baselines])
            raise UsageError(f"{kernel.name} has no baseline {text!r}", f"{remedy}, or give a file")
        else:
            baseline = parse_baseline(text)
        name, count = baseline.name, 2
        while name in (BEST, DEFAULT, *chosen):
            name, count = f"{baseline.name} ({count})", count + 1
        chosen[name] = replace(baseline, name=name)
    return Against(DEFAULT in names, tuple(chosen.values()), named=True)


def _as_tuned(device: Device, kernel: KernelSpec, stored: StoredWinner) -> Target:
    run = stored.run
    broken = invalid_reason(kernel, run.problem, device.gpu, stored.winner.configuration)
    notes = changes_since(kernel, stored)
    return Target(kernel, run.problem, run.conditions, "as it was tuned", stored, broken, notes)


def _nearest(problem: Problem, winners: Sequence[StoredWinner], conditions: Conditions) -> list[StoredWinner]:
    """Return the winners of the same kind, first those of the nearest sizes, by their factor, as the header does."""

    def what(of: Problem) -> tuple[object, ...]:
        return of.kernel, of.kind, of.sizes.keys()

    def order(stored: StoredWinner) -> tuple[float, bool]:
        apart = distance(problem.sizes, problem.sizes, stored.run.problem.sizes)
        return apart, stored.run.conditions != conditions

    newest = sorted(winners, key=lambda stored: stored.created_at, reverse=True)
    return sorted((one for one in newest if what(one.run.problem) == what(problem)), key=order)
