"""The finish: who is really fastest, by how much, and is it still so in a fresh process?

The search saw each candidate once, at different moments; the fastest of two hundred such figures is mostly lucky. The
finalists are therefore timed again in turn, and judged by the ratio within each round, which drift cannot touch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from tuner.devices.base import Contestant, Device
from tuner.edges import edge_problems
from tuner.model import Configuration, Measurement, Problem, Status, Trial
from tuner.stats import Ratio, Verdict, paired_ratio, verdict

FINALISTS = 5
FINALIST_FACTOR = 1.10
"""Only candidates this close to the best are raced: the search's figures are off by a few percent, not by ten."""
HEATS = ((6, 8), (12, 8))
"""Rounds, and samples a round, of each heat; after the first, who is surely slower drops out."""
FAR_BEHIND = 2.0
"""A default that is surely slower than this is known well enough after the first heat."""
MAX_CONFIRMATIONS = 10
NOISE_FLOOR = 0.005
"""Two copies of one kernel, timed in turn, differed by up to 1.1 % and typically by 0.2 % on an H200."""
CONFIRMED_WITHIN = 0.03
"""How far the time in a fresh process may be from the race's: clocks and memory layout differ there."""
EVENT_RESOLUTION_NS = 500.0
"""Events do not resolve less (documentation of cuEventElapsedTime); kernels of microseconds may be so far off."""


Rejection = tuple[Trial, str]
"""A trial that failed in the race or was not confirmed, and why."""
UNDECIDED = (Verdict.SAME, Verdict.AMBIGUOUS)


@dataclass(frozen=True)
class Finish:
    """What the race and the confirmation found."""

    winner: Trial
    time_ns: float
    default: Trial | None
    default_ns: float | None
    ratio: Ratio | None
    """The default's time over the winner's."""
    verdict: Verdict
    confirmed: Measurement | None
    edges: list[tuple[Problem, Measurement]] = field(default_factory=list)
    exportable: bool = False
    reason: str = ""
    unstable: list[tuple[Trial, str]] = field(default_factory=list)
    """Finalists that a fresh process could not reproduce, or that are wrong at other sizes."""
    medians_ns: list[tuple[Configuration, float]] = field(default_factory=list)
    tied: int = 1
    """Finalists that the race cannot tell from the winner, itself included."""


@dataclass(frozen=True)
class Heat:
    """Groups of samples of each runner, taken in turn: ``groups[runner][round]``."""

    runners: Sequence[Trial]
    groups: Sequence[Sequence[Sequence[float]]]

    def time_ns(self, runner: Trial) -> float:
        """Give a runner's median."""
        return median(sample for group in self._of(runner) for sample in group)

    def ratio(self, runner: Trial, other: Trial, seed: int) -> Ratio:
        """Compare two runners by the medians of their groups, round by round."""
        a, b = ([median(group) for group in self._of(trial)] for trial in (runner, other))
        return paired_ratio(a, b, seed)

    def ranking(self) -> list[Trial]:
        """Order by time; whoever is within the noise of the first counts as tied, and the simpler one goes first."""
        order = sorted(self.runners, key=self.time_ns)
        limit = self.time_ns(order[0]) * (1.0 + NOISE_FLOOR / 2)
        tied = [trial for trial in order if self.time_ns(trial) <= limit]
        return sorted(tied, key=_complexity) + order[len(tied) :]

    def _of(self, runner: Trial) -> Sequence[Sequence[float]]:
        return next(group for trial, group in zip(self.runners, self.groups, strict=True) if trial is runner)


def finalists(trials: Sequence[Trial]) -> list[Trial]:
    """Give the verified trials that could be the fastest, best first."""
    ranked = sorted(
        (t for t in trials if t.status is Status.OK and t.time_ns), key=lambda t: t.time_ns or 0.0
    )
    if not ranked:
        return []
    limit = FINALIST_FACTOR * (ranked[0].time_ns or 0.0)
    return [t for t in ranked[:FINALISTS] if (t.time_ns or 0.0) <= limit]


def run_finish(
    device: Device,
    problem: Problem,
    trials: Sequence[Trial],
    default: Trial | None,
    seed: int,
    say: Callable[[str], None],
) -> tuple[Finish | None, list[Rejection]]:
    """Race the finalists and the default configuration, then confirm the winner.

    Whoever fails makes room for the next best, until one is confirmed or :data:`MAX_CONFIRMATIONS` have failed.

    Returns:
        The end, which is None when nothing was verified, and is not exportable when nobody could be confirmed; and who
        failed in the race or was not confirmed.
    """
    rejected: list[Rejection] = []
    last: Finish | None = None
    for _ in range(MAX_CONFIRMATIONS):
        refused = {trial.number for trial, _ in rejected}
        runners = finalists([trial for trial in trials if trial.number not in refused])
        if not runners:
            break
        beside = default is not None and default.time_ns and default.status.ranked and default not in runners
        if default is not None and beside and default.number not in refused:
            runners.append(default)
        say(
            f"racing {len(runners)} {'finalist' if len(runners) == 1 else 'finalists'}"
            + _among(runners, default)
        )
        heats, lost = _heats(device, runners, default, seed)
        rejected += lost
        if not heats:
            continue
        last = _judge(device, problem, heats, default, seed, say)
        if last.exportable:
            break
        rejected.append((last.winner, last.reason))
    return (None if last is None else replace(last, unstable=list(rejected))), rejected


def _among(runners: Sequence[Trial], default: Trial | None) -> str:
    return ", the default among them" if len(runners) > 1 and default in runners else ""


def _judge(
    device: Device,
    problem: Problem,
    heats: Sequence[Heat],
    default: Trial | None,
    seed: int,
    say: Callable[[str], None],
) -> Finish:
    """Confirm the winner of the last heat, and compare it with the default."""
    final = heats[-1]
    winner = final.ranking()[0]
    time_ns = final.time_ns(winner)
    confirmed: Measurement | None = None
    reason = ""
    edges: list[tuple[Problem, Measurement]] = []
    if not device.recorded:
        say("confirming the winner in a fresh process")
        confirmed = device.confirm(winner.configuration, time_ns)
        if confirmed.status is Status.WORKER_DIED:  # somebody killed it: that says nothing about the winner
            confirmed = device.confirm(winner.configuration, time_ns)
        reason, edges = _objection(device, problem, winner, time_ns, confirmed, say)
    # The default may have dropped out, hopelessly behind: the last heat that both were in has the answer.
    both = next((heat for heat in reversed(heats) if default in heat.runners), None)
    ratio, default_ns = None, None
    if both is not None and default is not None:
        ratio, default_ns = both.ratio(default, winner, seed), both.time_ns(default)
    return Finish(
        winner,
        time_ns,
        default,
        default_ns,
        ratio,
        _opinion(ratio, winner is default),
        confirmed,
        edges,
        exportable=not reason,
        reason=reason,
        medians_ns=[(trial.configuration, final.time_ns(trial)) for trial in final.runners],
        tied=sum(
            runner is winner or verdict(final.ratio(runner, winner, seed), NOISE_FLOOR) in UNDECIDED
            for runner in final.runners
        ),
    )


def _heats(
    device: Device, runners: list[Trial], default: Trial | None, seed: int
) -> tuple[list[Heat], list[Rejection]]:
    """Run the heats; who fails is left out and the heat is run again."""
    lost: list[Rejection] = []
    heats: list[Heat] = []
    for number, (rounds, samples) in enumerate(HEATS):
        while runners:
            contestants = [Contestant(trial.configuration, trial.time_ns or 1e6) for trial in runners]
            found = device.race(contestants, rounds, samples, seed + number)
            if found.lost is None:
                heats.append(Heat(runners, [[r[i] for r in found.samples_ns] for i in range(len(runners))]))
                break
            lost.append((runners[found.lost], found.error))
            runners = [runner for i, runner in enumerate(runners) if i != found.lost]
        if not runners:
            return [], lost
        heat = heats[-1]
        best = min(runners, key=heat.time_ns)
        runners = [
            runner
            for runner in runners
            if runner is best
            or heat.ratio(runner, best, seed).low
            <= (FAR_BEHIND if runner is default else 1.0 + NOISE_FLOOR / 2)
        ]
    return heats, lost


def _complexity(trial: Trial) -> tuple[int, int]:
    resources = trial.resources
    if resources is None:
        return (0, trial.number)
    # Registers of a whole block are not known here; both terms are in bytes a thread or block asks for.
    return (
        4 * resources.registers * 128 + resources.static_shared_bytes + resources.dynamic_shared_bytes,
        trial.number,
    )


def _objection(
    device: Device,
    problem: Problem,
    winner: Trial,
    raced_ns: float,
    confirmed: Measurement,
    say: Callable[[str], None],
) -> tuple[str, list[tuple[Problem, Measurement]]]:
    """Say what speaks against the winner; empty if nothing does."""
    if confirmed.status is not Status.OK:
        return f"in a fresh process: {confirmed.status}: {confirmed.error}", []
    again = median(confirmed.samples_ns)
    if abs(again - raced_ns) > max(CONFIRMED_WITHIN * raced_ns, EVENT_RESOLUTION_NS):
        return f"{raced_ns / 1e3:.2f} us in the race, {again / 1e3:.2f} us in a fresh process", []
    problems = edge_problems(problem, winner.configuration)
    say("verifying the winner at awkward sizes")
    edges = device.verify_at(problems, winner.configuration)
    for where, measurement in edges:
        if measurement.status is not Status.OK:
            return f"at {where}: {measurement.status}: {measurement.error}", edges
    return "", edges


def _opinion(ratio: Ratio | None, same: bool) -> Verdict:
    if same:
        return Verdict.SAME
    if ratio is None:
        return Verdict.AMBIGUOUS
    # The ratio is the default's time over the winner's, the verdict is about the winner.
    return {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}.get(
        found := verdict(ratio, NOISE_FLOOR), found
    )
