"""The winners that leave the database: one for each problem and GPU, of a kernel that is still the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.database.database import Database
from tuner.database.records import Filters, StoredWinner
from tuner.winners.current import Kernels, KernelState, refuse_namesakes
from tuner.winners.sound import misfit


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
    groups: dict[tuple[str, str], list[StoredWinner]] = {}
    for stored in winners:
        groups.setdefault((stored.run.problem.key, stored.run.gpu.name), []).append(stored)
    chosen, several = [], 0
    for group in groups.values():
        last = max(group, key=lambda stored: (not stored.run.replayed, stored.created_at)).run
        chosen.append(next(s for s in group if s.run.conditions == last.conditions))
        several += len({s.run.conditions for s in group}) > 1
    return chosen, several


def _where(stored: StoredWinner) -> str:
    return f"{stored.run.problem} on {stored.run.gpu.name}"
