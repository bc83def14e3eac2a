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
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median

from tuner.core.conditions import Conditions
from tuner.core.errors import DatabaseError
from tuner.core.model import Configuration, Run
from tuner.core.stats import equivalence_margin
from tuner.database.database import Database
from tuner.database.records import Filters, Selection, StoredRace, StoredWinner
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
    of_configuration: dict[Configuration, list[tuple[StoredWinner, Sequence[_Timed]]]] = defaultdict(list)
    for stored in same_text:
        of_configuration[stored.winner.configuration].append((stored, _timed(stored)[:modes]))
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
FEWEST_SHARED = 3
"""Problems that two cards must have tuned for their defaults' times to say anything."""


@dataclass
class MeasuredCard:
    """What runs say of one card."""

    model: str
    uuid: str
    runs: int = 0
    reference_ns: list[float] = field(default_factory=list)
    noise: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By conditions."""
    software: Counter[str] = field(default_factory=Counter)
    """Driver and NVRTC, with the number of runs."""
    notes: set[str] = field(default_factory=set)

    @property
    def time_ns(self) -> float | None:
        """Time of the reference kernel; None where no run was calibrated."""
        return median(self.reference_ns) if self.reference_ns else None

    @property
    def noise_floor(self) -> float:
        """The largest noise floor of any conditions."""
        return max((share for shares in self.noise.values() for share in shares), default=0.0)


def compare_cards(database: Database) -> list[str]:
    """Return lines that say which cards of each model a database has times of, and what does not fit together.

    A database of one card, one driver and one text of each kernel gives none.
    """
    runs = measured_runs(database)
    by_model: dict[str, dict[str, MeasuredCard]] = defaultdict(dict)
    for run in runs:
        _add(by_model[run.gpu.name].setdefault(run.gpu.uuid, MeasuredCard(run.gpu.name, run.gpu.uuid)), run)
    lines: list[str] = []
    for model, cards in sorted(by_model.items()):
        of_model = sorted(cards.values(), key=lambda card: (-card.runs, card.uuid))
        lines += _different_cards(model, of_model)
        lines += _shared_problems(database, of_model) if len(of_model) > 1 else []
        lines += _different_software(model, of_model)
    return lines + _different_kernels(runs)


def measured_runs(database: Database) -> list[Run]:
    """Return the intact runs of a database that measured on a card."""
    runs = []
    for run_id in database.run_ids():
        try:
            run = database.run(run_id)
        except DatabaseError:  # damaged: tune db check names it
            continue
        if not run.replayed:
            runs.append(run)
    return runs


def _add(card: MeasuredCard, run: Run) -> None:
    card.runs += 1
    card.software[f"driver {run.gpu.driver or '?'}, NVRTC {run.versions.get('nvrtc', '?')}"] += 1
    if run.calibration is None:
        return
    if run.calibration.reference_ns:
        card.reference_ns.append(run.calibration.reference_ns)
    for conditions, share in run.calibration.noise.items():
        card.noise[conditions].append(share)
    card.notes.update(run.calibration.notes)


def _different_cards(model: str, cards: Sequence[MeasuredCard]) -> list[str]:
    """Return how the reference kernel's times differ, and what was noted of single cards."""
    lines = []
    if len(cards) > 1:
        first = cards[0]
        parts = []
        for card in cards:
            text = f"{_name(card)} ({_runs(card.runs)})"
            if card.time_ns and first.time_ns:
                ratio = card.time_ns / first.time_ns
                beyond = max(card.noise_floor, first.noise_floor, REFERENCE_NOISE)
                verdict = "" if abs(ratio - 1) <= beyond else ", beyond the noise"
                text += f" {ratio:.3f}{verdict}"
            else:
                text += " not calibrated"
            parts.append(text)
        lines.append(f"{model}: {len(cards)} GPUs, the reference kernel's time on each: {'; '.join(parts)}")
        noise = [card.noise_floor for card in cards if card.noise_floor]
        if noise and max(noise) > 2 * min(noise):
            floors = ", ".join(f"{_name(card)} {100 * card.noise_floor:.2g} %" for card in cards)
            lines.append(f"{model}: the noise floors differ: {floors}")
    for card in cards:
        lines += [f"{model}: {_name(card)}: {note}" for note in sorted(card.notes)]
    return lines


def _shared_problems(database: Database, cards: Sequence[MeasuredCard]) -> list[str]:
    """Return how much longer the default configurations of shared problems took on each further card."""
    times: dict[str, dict[tuple[str, Conditions, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for stored in database.winners(Filters(gpu=cards[0].model, replayed=False)).rows:
        run, time_ns = stored.run, stored.winner.default_time_ns
        if time_ns and run.gpu.name == cards[0].model:
            times[run.gpu.uuid][run.problem.key, run.conditions, run.kernel_digest].append(time_ns)
    lines = []
    first = times[cards[0].uuid]
    for card in cards[1:]:
        other = times[card.uuid]
        ratios = sorted(median(other[key]) / median(first[key]) for key in first.keys() & other.keys())
        if len(ratios) >= FEWEST_SHARED:
            lines.append(
                f"{card.model}: of {len(ratios)} problems tuned on both, the default takes {median(ratios):.3f} times "
                f"as long on {_name(card)} as on {_name(cards[0])} ({ratios[0]:.3f} to {ratios[-1]:.3f})"
            )
    return lines


def _different_software(model: str, cards: Iterable[MeasuredCard]) -> list[str]:
    software: dict[str, list[str]] = defaultdict(list)
    for card in cards:
        for text in card.software:
            software[text].append(_name(card))
    if len(software) < 2:
        return []
    each = "; ".join(f"{text} on {', '.join(names)}" for text, names in sorted(software.items()))
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
        what = (
            "kernels of this name compute different things"
            if len(computations) > 1
            else "its text was changed between runs: their results do not compare"
        )
        each = ", ".join(f"{digest[:8]} in {_runs(count)}" for (_, digest), count in counted.most_common())
        lines.append(f"{kernel}: {len(counted)} texts ({each}); {what}")
    return lines


def _name(card: MeasuredCard) -> str:
    return card.uuid[:12] or "a GPU without a UUID"


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"
