"""Winners that several runs found: which of them is the one to use, how far the runs agree, and how their cards differ.

Runs on several cards, with other seeds, each have a winner. Where these are different configurations, they are
compared by races that had both; else by how much faster than the default each was in its own race, which the card's
speed does not move. Winners that were chosen by two modes are compared by the geometric mean of their ratios in both.
What is surely slower than another is out; of the rest the choice of most cards wins, then that of most runs.

Each calibration times the same reference kernel. Two cards of a model take different times for it, and so for all else;
a database that has both must not rank one's times among the other's.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from statistics import median

from tuner.core.errors import DatabaseError
from tuner.core.groups import grouped
from tuner.core.model import Configuration, Run
from tuner.core.stats import equivalence_margin
from tuner.database.database import Database
from tuner.database.records import Filters, Selection, StoredRace, StoredWinner
from tuner.report import tables
from tuner.winners.current import Kernels


@dataclass(frozen=True)
class WinningConfiguration:
    """A configuration and the runs that it won."""

    configuration: Configuration
    winners: tuple[StoredWinner, ...]
    times_ns: tuple[float, ...]
    """Its median in each race that it was in, as the winner or not."""
    raced_behind: float | None
    """The largest ratio of its time to another winner's, by races that both were in; None where there was none. Of
    short problems the geometric mean of those in two modes."""
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
    def stored(self) -> StoredWinner:
        """The newest of the winners with the chosen configuration."""
        return max(self.chosen.winners, key=lambda stored: stored.id)


def cards_of(winners: Iterable[StoredWinner]) -> set[str]:
    """Return the UUIDs of the cards on which winners were found."""
    return {stored.run.gpu.uuid for stored in winners}


def agreed_winners(database: Database, filters: Filters, kernels: Kernels) -> Selection[AgreedWinner]:
    """Return the winner of each computation, problem, model of GPU and conditions, in the database's order.

    Winners that are not exportable count only where a problem has no other.

    Args:
        database: has them.
        filters: which winners count.
        kernels: what they were tuned with.
    """
    selection = database.winners(filters)

    def same(stored: StoredWinner) -> tuple[object, ...]:
        run = stored.run
        return kernels.computation(run), run.problem.key, run.gpu.name, run.conditions, run.replayed

    groups = grouped(selection.rows, same)
    return Selection([_agreed(winners) for winners in groups.values()], selection.damaged)


@dataclass(frozen=True)
class _Timed:
    """How a run's winner stands in the race of one mode."""

    race_ns: Mapping[str, float]
    """The medians of its race, by the contestants' configurations as text."""
    time_ns: float
    speedup: float | None
    """The default's time over its own."""
    noise_floor: float


Winners = Mapping[Configuration, Sequence[tuple[StoredWinner, Sequence[_Timed]]]]
"""By configuration the runs that it won, and how it stands there in each mode that counts."""


def _agreed(winners: Sequence[StoredWinner]) -> AgreedWinner:
    exportable = [stored for stored in winners if stored.winner.exportable] or list(winners)
    newest = max(exportable, key=lambda stored: stored.id).run.kernel_digest
    same_text = [stored for stored in exportable if stored.run.kernel_digest == newest]
    modes = min(len(_timed(stored)) for stored in same_text)
    timed_runs = [(stored, _timed(stored)[:modes]) for stored in same_text]
    of_configuration = grouped(timed_runs, lambda one: one[0].winner.configuration)
    runs = [timed for runs in of_configuration.values() for _, timed in runs]
    candidates = [_candidate(configuration, of_configuration, runs) for configuration in of_configuration]
    floor = max(in_mode.noise_floor for timed in runs for in_mode in timed)
    limit = max(1 + equivalence_margin(floor), min(candidate.behind for candidate in candidates))
    order = sorted(
        candidates,
        key=lambda c: (c.behind > limit, -len(c.cards), -len(c.winners), c.behind, c.configuration.key),
    )
    return AgreedWinner(order[0], tuple(order[1:]), len(exportable) - len(same_text))


def _candidate(
    configuration: Configuration, winners: Winners, runs: Sequence[Sequence[_Timed]]
) -> WinningConfiguration:
    raced, compared = [], []
    in_modes = list(zip(*runs, strict=True))
    for other in winners:
        if other == configuration:
            continue
        together = [_raced(configuration, other, timed) for timed in in_modes]
        ratios = [
            ratio
            or _by_the_default(*([timed[mode] for _, timed in winners[c]] for c in (configuration, other)))
            for mode, ratio in enumerate(together)
        ]
        compared.append(math.prod(ratios) ** (1 / len(ratios)))
        if all(together):
            raced.append(compared[-1])
    own, name = winners[configuration], str(configuration)
    times = tuple(timed[0].race_ns[name] for timed in runs if name in timed[0].race_ns)
    return WinningConfiguration(
        configuration,
        tuple(stored for stored, _ in own),
        times,
        max(raced, default=None),
        max(compared, default=1.0),
    )


def _raced(configuration: Configuration, other: Configuration, runs: Sequence[_Timed]) -> float | None:
    """Return the ratio of two configurations' times by the races of one mode that both were in; None without one."""
    a, b = str(configuration), str(other)
    ratios = [
        timed.race_ns[a] / timed.race_ns[b] for timed in runs if a in timed.race_ns and b in timed.race_ns
    ]
    return median(ratios) if ratios else None


def _by_the_default(own: Sequence[_Timed], theirs: Sequence[_Timed]) -> float:
    """Return the ratio of two winners' times, by their speed-ups over the default; by times where one has none."""
    speedups = [[timed.speedup for timed in those if timed.speedup] for those in (own, theirs)]
    if all(speedups):
        return median(speedups[1]) / median(speedups[0])
    times = [[timed.time_ns for timed in those] for those in (own, theirs)]
    return median(times[0]) / median(times[1])


def _timed(stored: StoredWinner) -> list[_Timed]:
    """Return how a winner stands in the run's mode, and in the mode warm if it was chosen by that as well."""
    winner, warm = stored.winner, stored.winner.warm
    timed = [_of_race(winner.race, winner.configuration, winner.time_ns, winner.ratio)]
    if warm:
        timed.append(_of_race(winner.race.get("warm_race"), winner.configuration, warm.time_ns, warm.ratio))
    return timed


def _of_race(record: object, configuration: Configuration, time_ns: float, speedup: float | None) -> _Timed:
    race = StoredRace.of(record)
    race_ns = {name: median_ns for name, median_ns in race.medians_ns if median_ns > 0}
    return _Timed({str(configuration): time_ns, **race_ns}, time_ns, speedup, race.noise_floor or 0.0)


REFERENCE_NOISE = 0.005
"""Share by which the reference kernel's times may differ without being called different, whatever the noise floor: two
copies of one kernel, timed in turn, differ by less on a data-centre GPU, and these are timed on different days."""


def compare_cards(database: Database) -> list[str]:
    """Return lines that say which cards of each model a database has times of, and what does not fit together.

    A database of one card, one driver and one text of each kernel gives none.
    """
    runs = _measured_runs(database)
    of_model = grouped(runs, lambda run: run.gpu.name)
    lines = []
    for model, own in sorted(of_model.items()):
        lines += [*_different_cards(model, own), *_different_software(model, own)]
    return lines + _different_kernels(runs)


def _measured_runs(database: Database) -> list[Run]:
    """Return the intact runs of a database that measured on a card."""
    runs = []
    for run_id in database.run_ids():
        with suppress(DatabaseError):  # damaged: tune db check names it
            runs.append(database.run(run_id))
    return [run for run in runs if not run.replayed]


def _different_cards(model: str, runs: Sequence[Run]) -> list[str]:
    """Return how the times of the reference kernel differ from card to card; nothing of one card."""
    of_card = grouped(runs, lambda run: run.gpu.uuid)
    first, *others = sorted(of_card.values(), key=lambda own: (-len(own), own[0].gpu.uuid))
    if not others:
        return []
    parts = []
    for own in (first, *others):
        time_ns, first_ns = _reference_ns(own), _reference_ns(first)
        said = "not calibrated"
        if time_ns and first_ns:
            noise = [run.calibration.noise.values() for run in (*own, *first) if run.calibration]
            beyond = abs(time_ns / first_ns - 1) > max(REFERENCE_NOISE, *chain(*noise))
            said = f"{time_ns / first_ns:.3f}{', beyond the noise' if beyond else ''}"
        parts.append(f"{_card(own[0])} ({tables.counted(len(own), 'run')}) {said}")
    return [f"{model}: {len(of_card)} GPUs, the reference kernel's time on each: {'; '.join(parts)}"]


def _reference_ns(runs: Sequence[Run]) -> float | None:
    """Return the time of the reference kernel on a card; None where no run was calibrated."""
    times = [run.calibration.reference_ns for run in runs if run.calibration and run.calibration.reference_ns]
    return median(times) if times else None


def _different_software(model: str, runs: Iterable[Run]) -> list[str]:
    software: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        text = f"driver {run.gpu.driver or '?'}, NVRTC {run.versions.get('nvrtc', '?')}"
        software[text].add(_card(run))
    if len(software) < 2:
        return []
    each = "; ".join(f"{text} on {', '.join(sorted(names))}" for text, names in sorted(software.items()))
    return [f"{model}: {each}: other compilers make other code, and their times do not compare"]


def _different_kernels(runs: Sequence[Run]) -> list[str]:
    """Return a line for each kernel of which there are several texts, or several computations of one name."""
    texts: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for run in runs:
        texts[run.problem.kernel][run.computation, run.kernel_digest] += 1
    lines = []
    for kernel, counted in sorted(texts.items()):
        if len(counted) < 2:
            continue
        computations = {computation for computation, _ in counted if computation}
        what = "its text was changed between runs: their results do not compare"
        if len(computations) > 1:
            what = "kernels of this name compute different things"
        each = ", ".join(
            f"{digest[:8]} in {tables.counted(count, 'run')}" for (_, digest), count in counted.most_common()
        )
        lines.append(f"{kernel}: {len(counted)} texts ({each}); {what}")
    return lines


def _card(run: Run) -> str:
    return run.gpu.uuid[:12] or "a GPU without a UUID"
