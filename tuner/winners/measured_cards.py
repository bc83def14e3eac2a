"""The cards whose times are in a database, and what about them does not fit together.

Each calibration times the same reference kernel. Two cards of a model take different times for it, and so for all else;
a database that has both must not rank one's times among the other's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from tuner.core.conditions import Conditions
from tuner.core.errors import DatabaseError
from tuner.core.model import Run
from tuner.database.database import Database
from tuner.database.records import Filters

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
        lines.append(f"{model}: {len(cards)} cards, the reference kernel's time on each: {'; '.join(parts)}")
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
    return card.uuid[:12] or "a card without a UUID"


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"
