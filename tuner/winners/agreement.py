"""Winners that several runs found for one problem: which of them is the one to use, and how far the runs agree.

Runs on several cards, with other seeds, each have a winner. Where these are different configurations, they are
compared by races that had both; else by how much faster than the default each was in its own race, which the card's
speed does not move. Winners that were chosen by two modes are compared by the geometric mean of both, in the mode warm
always by the default: of that race only the winner's times are kept. What is surely slower than another is out; of the
rest the choice of most cards wins, then that of most runs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from tuner.database.database import Database
from tuner.database.records import Filters, Selection, StoredWinner
from tuner.model import Configuration
from tuner.stats import equivalence_margin
from tuner.winners.current import Kernels


@dataclass(frozen=True)
class WinningConfiguration:
    """A configuration and the runs that it won."""

    configuration: Configuration
    winners: tuple[StoredWinner, ...]
    times_ns: tuple[float, ...]
    """Its median in each race that it was in, as the winner or not."""
    raced_behind: float | None
    """The largest ratio of its time to another winner's, by races that both were in; None where there was none."""
    behind: float
    """The same where races, or else speed-ups over the default, compare them; below 1 it is the fastest."""

    @property
    def cards(self) -> set[str]:
        """UUIDs of the cards on which it won."""
        return cards_of(self.winners)

    @property
    def spread(self) -> float | None:
        """How far its times in several races are apart, as a share; None where it raced once."""
        return max(self.times_ns) / min(self.times_ns) - 1 if len(self.times_ns) > 1 else None


@dataclass(frozen=True)
class AgreedWinner:
    """The winner of a problem on a model of GPU under some conditions."""

    chosen: WinningConfiguration
    others: tuple[WinningConfiguration, ...]
    """Other configurations that won, the most frequent first."""
    other_texts: int
    """Runs that are left out because the kernel's text was another one."""

    @cached_property
    def every(self) -> tuple[StoredWinner, ...]:
        """The winners of all runs that count."""
        return tuple(stored for one in (self.chosen, *self.others) for stored in one.winners)

    @property
    def by_most(self) -> bool:
        """Whether most runs chose it."""
        return 2 * len(self.chosen.winners) > len(self.every)

    @property
    def stored(self) -> StoredWinner:
        """The newest of the winners with the chosen configuration."""
        return max(self.chosen.winners, key=lambda stored: stored.id)


def cards_of(winners: Iterable[StoredWinner]) -> set[str]:
    """Return the UUIDs of the cards on which winners were found."""
    return {stored.run.gpu.uuid for stored in winners}


def agreed_winners(
    database: Database, filters: Filters, *, kernels: Kernels | None = None
) -> Selection[AgreedWinner]:
    """Return the winner of each computation, problem, model of GPU and conditions, in the database's order.

    Winners that are not exportable count only where a problem has no other.

    Args:
        database: has them.
        filters: which winners count.
        kernels: what they were tuned with.
    """
    kernels = kernels or Kernels()
    selection = database.winners(filters)
    groups: dict[tuple[object, ...], list[StoredWinner]] = defaultdict(list)
    for stored in selection.rows:
        run = stored.run
        key = kernels.computation(run), run.problem.key, run.gpu.name, run.conditions, run.replayed
        groups[key].append(stored)
    return Selection([_agreed(winners) for winners in groups.values()], selection.damaged)


def _agreed(winners: Sequence[StoredWinner]) -> AgreedWinner:
    exportable = [stored for stored in winners if stored.winner.exportable] or list(winners)
    newest = max(exportable, key=lambda stored: stored.id).run.kernel_digest
    same_text = [stored for stored in exportable if stored.run.kernel_digest == newest]
    of_configuration: dict[Configuration, list[StoredWinner]] = defaultdict(list)
    for stored in same_text:
        of_configuration[stored.winner.configuration].append(stored)
    races = [_race(stored) for stored in same_text]
    candidates = [_candidate(configuration, of_configuration, races) for configuration in of_configuration]
    floor = max((_noise_floor(stored) for stored in same_text), default=0.0)
    limit = max(1 + equivalence_margin(floor), min(candidate.behind for candidate in candidates))
    order = sorted(
        candidates,
        key=lambda c: (c.behind > limit, -len(c.cards), -len(c.winners), c.behind, c.configuration.key),
    )
    return AgreedWinner(order[0], tuple(order[1:]), len(exportable) - len(same_text))


def _candidate(
    configuration: Configuration,
    winners: Mapping[Configuration, Sequence[StoredWinner]],
    races: Sequence[Mapping[str, float]],
) -> WinningConfiguration:
    own, name = winners[configuration], str(configuration)
    raced, compared = [], []
    for other, theirs in winners.items():
        if other == configuration:
            continue
        together = [race[name] / race[str(other)] for race in races if name in race and str(other) in race]
        behind = median(together) if together else _by_the_default(own, theirs)
        if warm := _warm_by_the_default(own, theirs):
            behind = math.sqrt(behind * warm)
        compared.append(behind)
        if together:
            raced.append(behind)
    times = tuple(race[name] for race in races if name in race)
    return WinningConfiguration(
        configuration, tuple(own), times, max(raced, default=None), max(compared, default=1.0)
    )


def _by_the_default(own: Sequence[StoredWinner], theirs: Sequence[StoredWinner]) -> float:
    """Return the ratio of two winners' times, by their speed-ups over the default; by times where one has none."""
    speedups = [[s.winner.ratio for s in winners if s.winner.ratio] for winners in (own, theirs)]
    if all(speedups):
        return median(speedups[1]) / median(speedups[0])
    times = [[s.winner.time_ns for s in winners] for winners in (own, theirs)]
    return median(times[0]) / median(times[1])


def _warm_by_the_default(own: Sequence[StoredWinner], theirs: Sequence[StoredWinner]) -> float | None:
    """Return the same in the mode warm; None if not all were chosen by that as well."""
    warm = [[s.winner.warm.ratio if s.winner.warm else None for s in winners] for winners in (own, theirs)]
    speedups = [[ratio for ratio in ratios if ratio] for ratios in warm]
    if any(len(known) < len(ratios) for known, ratios in zip(speedups, warm, strict=True)):
        return None
    return median(speedups[1]) / median(speedups[0])


def _race(stored: StoredWinner) -> dict[str, float]:
    """Return the medians of a winner's race, by the contestants' configurations as text."""
    medians = stored.winner.race.get("medians_ns")
    pairs = medians if isinstance(medians, list) else []
    race = {
        pair[0]: float(pair[1])
        for pair in pairs
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)
        and isinstance(pair[1], int | float) and pair[1] > 0
    }  # fmt: skip
    return {str(stored.winner.configuration): stored.winner.time_ns, **race}


def _noise_floor(stored: StoredWinner) -> float:
    floor = stored.winner.race.get("noise_floor")
    return float(floor) if isinstance(floor, int | float) else 0.0
