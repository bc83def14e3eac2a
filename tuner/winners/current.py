"""The best stored winners, and whether their configurations still compute the same in the same way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from tuner.core.conditions import Conditions
from tuner.core.errors import DatabaseError, TunerError
from tuner.core.model import Run
from tuner.database.database import Database
from tuner.database.records import Filters, Selection, StoredTrial, StoredWinner
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import kernel_of_run
from tuner.kernel.spec import KernelSpec


class KernelState(StrEnum):
    """What has become of the kernel that a winner was tuned with, in words."""

    CURRENT = "current"
    CHANGED = "the kernel has changed since it was tuned"
    GONE = "its kernel's file is gone"


@dataclass(frozen=True)
class BestWinner:
    """The best winner of a computation, problem, GPU and conditions, and whether its kernel is still the same."""

    stored: StoredWinner
    state: KernelState


class Kernels:
    """The kernels of stored runs, each read once.

    Args:
        named: by the user; it stands for a kernel whose file is gone, if it computes the same.
    """

    def __init__(self, named: KernelSpec | None = None) -> None:
        self._named = None if named is None else KernelIdentity(named)
        self._identities: dict[tuple[str, str], KernelIdentity | None] = {}

    def state(self, stored: StoredWinner | StoredTrial) -> KernelState:
        """Return whether a configuration still computes the same in the same way, or why that is not known."""
        if stored.run.foreign:  # another tool's file has no kernel that could have changed
            return KernelState.CURRENT
        identity = self._identity(stored.run)
        if identity is None:
            return KernelState.GONE
        return KernelState.CURRENT if identity.current(stored.run, stored.trial) else KernelState.CHANGED

    def current(self, stored: StoredWinner) -> bool | None:
        """Return whether it is :attr:`KernelState.CURRENT`; None where no trial of its kernel's text can be."""
        if self.state(stored) is KernelState.CURRENT:
            return True
        identity = self._identity(stored.run)
        return False if identity and identity.computes_like(stored.run) else None

    def computation(self, run: Run) -> str:
        """Return the digest of what a run computed; of one of schema 2 whose text is no longer there, that text's."""
        if run.computation:
            return run.computation
        identity = None if run.foreign else self._identity(run)
        return identity.computation if identity and identity.same_text(run) else run.kernel_digest

    def kernel(self, run: Run) -> KernelSpec:
        """Return a run's kernel.

        Raises:
            TunerError: its file is gone, or cannot be read.
        """
        identity = self._identity(run)
        return kernel_of_run(run) if identity is None else identity.kernel

    def _identity(self, run: Run) -> KernelIdentity | None:
        own, named = self._own(run), self._named
        if own is None and named is not None and named.kernel.name == run.problem.kernel:
            return named if named.computes_like(run) else None
        return own

    def _own(self, run: Run) -> KernelIdentity | None:
        key = run.problem.kernel, run.kernel_file
        if key not in self._identities:
            try:
                self._identities[key] = KernelIdentity(kernel_of_run(run))
            except TunerError:
                self._identities[key] = None
        return self._identities[key]


def best_winners(
    database: Database, filters: Filters, named: KernelSpec | None = None
) -> Selection[BestWinner]:
    """Return the best winner of each computation, problem, GPU and conditions.

    One whose kernel has changed is there only where no winner has the same problem, GPU and conditions and its kernel
    has not changed.

    Args:
        database: has them.
        filters: which count.
        named: the kernel that the user named, as for :class:`Kernels`.
    """
    kernels = Kernels(named)
    selection = database.best(filters, kernels.current)
    of_computation: defaultdict[tuple[object, ...], list[BestWinner]] = defaultdict(list)
    for stored in selection.rows:
        key = kernels.computation(stored.run), *_same_problem(stored)
        of_computation[key].append(BestWinner(stored, kernels.state(stored)))
    order = partial(_order, one_mode=bool(filters.mode))
    best = [min(winners, key=order) for winners in of_computation.values()]
    states: defaultdict[tuple[str, str, Conditions], set[KernelState]] = defaultdict(set)
    for winner in best:
        states[_same_problem(winner.stored)].add(winner.state)
    kept = [
        winner
        for winner in best
        if winner.state is not KernelState.CHANGED
        or KernelState.CURRENT not in states[_same_problem(winner.stored)]
    ]
    return Selection(kept, selection.damaged)


def _order(winner: BestWinner, *, one_mode: bool) -> tuple[bool, bool, bool, bool, float]:
    stored, warm = winner.stored, winner.stored.winner.warm
    changed = winner.state is not KernelState.CURRENT
    in_one = one_mode or warm is None or not warm.counts
    return changed, stored.run.replayed, not stored.winner.exportable, in_one, stored.winner.time_ns


def changes_since(kernel: KernelSpec, stored: StoredTrial | StoredWinner) -> tuple[str, ...]:
    """Return the note that a configuration no longer computes as it did when it was timed; nothing if it does."""
    return () if KernelIdentity(kernel).current(stored.run, stored.trial) else (str(KernelState.CHANGED),)


def refuse_namesakes(winners: Sequence[StoredWinner], kernels: Kernels) -> None:
    """Refuse winners of two kernels that have one name and compute different things.

    Raises:
        DatabaseError: there are such.
    """
    files: dict[str, dict[str, str]] = {}
    for stored in winners:
        run = stored.run
        of_name = files.setdefault(run.problem.kernel, {})
        of_name[kernels.computation(run)] = run.kernel_file
        if len(of_name) > 1:
            raise DatabaseError(
                f"two kernels named {run.problem.kernel} compute different things: {' and '.join(of_name.values())}",
                "name one of the files with --kernel",
            )


def _same_problem(stored: StoredWinner) -> tuple[str, str, Conditions]:
    return stored.run.problem.key, stored.run.gpu.name, stored.run.conditions
