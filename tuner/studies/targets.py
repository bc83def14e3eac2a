"""The targets of ``tune bench``: problems with the stored winners that fit them, and the baselines to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tuner.core.conditions import Conditions, Mode, Regime
from tuner.core.errors import UsageError, suggestion
from tuner.core.model import Gpu, Problem
from tuner.database.database import Database
from tuner.database.records import Filters, Selection, StoredWinner
from tuner.devices.base import Device
from tuner.kernel.baselines import Baseline, baselines_of, parse_baseline
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.plan import invalid_reason
from tuner.kernel.spec import KernelSpec
from tuner.report.tables import problem_text
from tuner.runtime.dispatch import distance
from tuner.winners.current import best_winners, changes_since

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


def stored_winners(database: Database, gpu: Gpu, kernel: KernelSpec | None = None) -> Selection[StoredWinner]:
    """Return the confirmed winners on GPUs of this name: the best of each problem and conditions.

    Args:
        database: has them.
        gpu: where they were measured.
        kernel: what they have to compute; winners of all kernels without it.
    """
    filters = Filters(
        kernel=kernel.name if kernel else "", gpu=gpu.name, exportable=True, replayed=False,
        computations=KernelIdentity(kernel).computations if kernel else (),
    )  # fmt: skip
    winners = best_winners(database, filters, kernel)
    here = [w.stored for w in winners.rows if w.stored.run.gpu.name == gpu.name]
    return Selection(here, winners.damaged)


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
        names: of the command line: ``none``, ``default``, the name of one of the kernel's baselines, ``numpy``, or a
            kernel or function of the user's own. Nothing means the default configuration and the libraries' calls.

    Raises:
        UsageError: there is no such baseline.
    """
    baselines = {baseline.name: baseline for baseline in baselines_of(kernel)}
    if not names:
        calls = tuple(baseline for baseline in baselines.values() if not baseline.on_host)
        return Against(True, calls, named=False)
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
    alike = [
        stored
        for stored in sorted(winners, key=lambda stored: stored.created_at, reverse=True)
        if (stored.run.problem.kernel, stored.run.problem.dtypes, stored.run.problem.options)
        == (problem.kernel, problem.dtypes, problem.options)
        and stored.run.problem.sizes.keys() == problem.sizes.keys()
    ]

    def order(stored: StoredWinner) -> tuple[float, bool]:
        apart = distance(problem.sizes, problem.sizes, stored.run.problem.sizes)
        return apart, stored.run.conditions != conditions

    return sorted(alike, key=order)
