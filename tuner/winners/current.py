"""Stored winners: the best, whether their kernels still compute the same, and those that leave the database.

A database may be damaged, or written by others: what cannot be a kernel's problem or configuration is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from tuner.core.conditions import Conditions
from tuner.core.errors import DatabaseError, TunerError
from tuner.core.groups import grouped
from tuner.core.model import Configuration, Problem, Run
from tuner.database.database import Database
from tuner.database.records import Filters, Selection, StoredTrial, StoredWinner
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import kernel_of_run, load_kernel
from tuner.kernel.spec import KernelSpec
from tuner.runtime.dtypes import ITEMSIZE

MOST_SIZE = 2**62


def misfit(kernel: KernelSpec, problem: Problem, configuration: Configuration) -> str:
    """Return why a problem or configuration cannot be one of a kernel's; empty if it can.

    Values that the kernel's file no longer lists are allowed: what was tuned with them still runs.
    """
    for what in ("sizes", "dtypes", "options"):
        given, expected = getattr(problem, what), getattr(kernel, what)
        if given.keys() != expected.keys():
            return f"its {what} are {_listed(given)}, and those of {kernel.name} {_listed(expected)}"
    for name, size in problem.sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MOST_SIZE:
            return f"its size {name} is {size!r}"
    if unknown := set(problem.dtypes.values()) - ITEMSIZE.keys():
        return f"there is no dtype {_listed(unknown)}"
    variant = kernel.variants.get(configuration.variant)
    if variant is None:
        return f"{kernel.name} has no variant {configuration.variant!r}"
    values = configuration.values
    if values.keys() != variant.parameters.keys():
        return (
            f"its parameters are {_listed(values)}, and those of {variant.name} {_listed(variant.parameters)}"
        )
    for name, value in values.items():
        if type(value) not in {type(allowed) for allowed in variant.parameters[name].values}:
            return f"its parameter {name} is {value!r}"
    return ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def kernel_filters(kernel: str | KernelSpec) -> dict[str, Any]:
    """Return the filters for a kernel: a name, or a kernel's file, which means what that kernel computes.

    Raises:
        TunerError: the file cannot be read.
    """
    spec = named_kernel(kernel) if isinstance(kernel, str) else kernel
    if spec is None:
        return {"kernel": kernel}
    return {"kernel": spec.name, "computations": KernelIdentity(spec).computations}


def named_kernel(kernel: str | None) -> KernelSpec | None:
    """Return the kernel of a file; None where it is a name, or nothing.

    Raises:
        TunerError: the file cannot be read.
    """
    is_file = kernel and (kernel.endswith(".toml") or "/" in kernel)
    return load_kernel(kernel) if kernel and is_file else None


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
        self.named = named
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
        key, named = (run.problem.kernel, run.kernel_file), self._named
        if key not in self._identities:
            try:
                self._identities[key] = KernelIdentity(kernel_of_run(run))
            except TunerError:
                self._identities[key] = None
        if self._identities[key] is None and named is not None and named.kernel.name == run.problem.kernel:
            return named if named.computes_like(run) else None
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

    def is_replaced(winner: BestWinner) -> bool:
        others = states[_same_problem(winner.stored)]
        return winner.state is KernelState.CHANGED and KernelState.CURRENT in others

    kept = [winner for winner in best if not is_replaced(winner)]
    return Selection(kept, selection.damaged)


def _order(winner: BestWinner, *, one_mode: bool) -> tuple[bool, bool, bool, bool, float]:
    stored, warm = winner.stored, winner.stored.winner.warm
    changed = winner.state is not KernelState.CURRENT
    in_one = one_mode or warm is None or not warm.counts
    return changed, stored.run.replayed, not stored.winner.exportable, in_one, stored.winner.time_ns


def changes_since(kernel: KernelSpec, stored: StoredTrial) -> tuple[str, ...]:
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
                "name one of the files in place of the kernel",
            )


def _same_problem(stored: StoredWinner) -> tuple[str, str, Conditions]:
    return stored.run.problem.key, stored.run.gpu.name, stored.run.conditions


@dataclass(frozen=True)
class Chosen:
    """What leaves, and what does not.

    Attributes:
        winners: the chosen.
        several: for how many of them there was another mode.
        left_out: why, by problem and GPU, a winner is left out: what has become of its kernel.
        damaged: a line for each row that cannot be read, or names what its kernel does not have.
    """

    winners: list[StoredWinner]
    several: int
    left_out: dict[str, KernelState]
    damaged: list[str]


def choose_winners(
    database: Database, filters: Filters, kernels: Kernels, *, with_files: bool = False
) -> Chosen:
    """Return the exportable winners that fit, one for each problem and GPU.

    Args:
        database: has them.
        filters: which count; only exportable ones should.
        kernels: with which they were tuned.
        with_files: whether their kernels' files must still be there; a header has winners without one, too.

    Raises:
        DatabaseError: two kernels of one name compute different things.
    """
    selection = database.winners(filters)
    # Another tool's recording has no kernel of ours that a program could launch.
    states = [(stored, kernels.state(stored)) for stored in selection.rows if not stored.run.foreign]
    refused = (KernelState.CHANGED, KernelState.GONE) if with_files else (KernelState.CHANGED,)
    kept, damaged = [], list(selection.damaged)
    for stored, state in states:
        reason = ""
        if state is KernelState.CURRENT:
            reason = misfit(kernels.kernel(stored.run), stored.run.problem, stored.winner.configuration)
        if reason:
            damaged.append(f"{_where(stored)}, trial {stored.winner.trial_id}: {reason}")
        elif state not in refused:
            kept.append(stored)
    refuse_namesakes(kept, kernels)
    chosen, several = latest_mode(kept)
    there = {_where(stored) for stored in kept}
    missing = {
        _where(stored): state for stored, state in states if state in refused and _where(stored) not in there
    }
    return Chosen(chosen, several, missing, damaged)


def latest_mode(winners: Sequence[StoredWinner]) -> tuple[list[StoredWinner], int]:
    """Choose one winner for each problem and GPU: the best of the mode that was tuned last, measured before replayed.

    Times of different modes are not comparable, so the fastest of all would always be one with warm caches.

    Args:
        winners: in the order in which the database gives them, with the best of each mode first.

    Returns:
        The chosen, and for how many of them there was another mode.
    """
    groups = grouped(winners, lambda stored: (stored.run.problem.key, stored.run.gpu.name))
    chosen, several = [], 0
    for group in groups.values():
        last = max(group, key=lambda stored: (not stored.run.replayed, stored.created_at)).run
        chosen.append(next(s for s in group if s.run.conditions == last.conditions))
        several += len({s.run.conditions for s in group}) > 1
    return chosen, several


def _where(stored: StoredWinner) -> str:
    return f"{stored.run.problem} on {stored.run.gpu.name}"
