"""The finish: who is really fastest, by how much, and is it still so in a fresh process?

The search saw each candidate once, at different moments; the fastest of two hundred such figures is mostly lucky. The
finalists are therefore timed again in turn, and judged by the ratio within each round, which drift cannot touch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from tuner.devices.base import Contestant, Device, RaceRound
from tuner.edges import edge_problems
from tuner.model import Configuration, Measurement, Problem, Status, Trial
from tuner.stats import Ratio, Verdict, paired_ratio, verdict

FINALISTS = 5
FINALIST_FACTOR = 1.10
"""Only candidates this close to the best are raced: the search's figures are off by a few percent, not by ten."""
HEATS = ((6, 8), (12, 8))
"""Rounds, and samples a round, of each heat; after the first, who is surely slower drops out."""
NOISE_FLOOR = 0.005
"""Two copies of one kernel, timed in turn, differed by up to 1.1 % and typically by 0.2 % on an H200."""
CONFIRMED_WITHIN = 0.03
"""How far the time in a fresh process may be from the race's: clocks and memory layout differ there."""
EVENT_RESOLUTION_NS = 500.0
"""Events do not resolve less (documentation of cuEventElapsedTime); kernels of microseconds may be so far off."""


Groups = list[list[Sequence[float]]]
"""For each runner its groups of samples, one a round."""


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
) -> Finish | None:
    """Race the finalists and the default configuration, then confirm the winner.

    Returns:
        None when no trial was verified.
    """
    candidates = finalists(trials)
    rejected: list[tuple[Trial, str]] = []
    last: Finish | None = None
    while True:
        refused = [trial for trial, _ in rejected]
        runners = [trial for trial in candidates if trial not in refused]
        if default is not None and default.time_ns and default.status.ranked and default not in candidates:
            runners.append(default)
        say(
            f"racing {len(runners)} finalists, the default among them"
            if default in runners
            else f"racing {len(runners)} finalists"
        )
        groups, runners, lost = _heats(device, runners, default, seed)
        rejected += [(trial, reason) for trial, reason in lost if trial is not default]
        order = [trial for trial in _ranking(groups, runners) if trial not in refused]
        if not order:
            return last
        last = _judge(device, problem, groups, runners, order[0], default, seed, say)
        last = replace(last, unstable=list(rejected))
        if last.exportable:
            return last
        rejected.append((order[0], last.reason))


def _judge(
    device: Device,
    problem: Problem,
    groups: Groups,
    runners: list[Trial],
    winner: Trial,
    default: Trial | None,
    seed: int,
    say: Callable[[str], None],
) -> Finish:
    """Confirm a winner, and compare it with the default."""
    if not device.recorded:
        say("confirming the winner in a fresh process")
    time_ns = _middle(groups[runners.index(winner)])
    confirmed = device.confirm(winner.configuration, time_ns)
    if confirmed.status is Status.WORKER_DIED:  # somebody killed it: that says nothing about the winner
        confirmed = device.confirm(winner.configuration, time_ns)
    reason, edges = _objection(device, problem, winner, time_ns, confirmed, say)
    at = runners.index(winner)
    ratio = None
    if default in runners:
        ratio = paired_ratio(_medians(groups[runners.index(default)]), _medians(groups[at]), seed)
    return Finish(
        winner,
        time_ns,
        default,
        _middle(groups[runners.index(default)]) if default in runners else None,
        ratio,
        _opinion(ratio, winner is default),
        confirmed,
        edges,
        exportable=not reason,
        reason=reason,
        medians_ns=[
            (trial.configuration, _middle(group)) for trial, group in zip(runners, groups, strict=True)
        ],
        tied=_tied(groups, runners, winner, seed),
    )


def _heats(
    device: Device, runners: list[Trial], default: Trial | None, seed: int
) -> tuple[Groups, list[Trial], list[tuple[Trial, str]]]:
    lost: list[tuple[Trial, str]] = []
    groups: Groups = []
    for heat, (rounds, samples) in enumerate(HEATS):
        while runners:
            found = _round(device, runners, rounds, samples, seed + heat)
            if found.lost is None:
                groups = [[list(r[i]) for r in found.samples_ns] for i in range(len(runners))]
                break
            lost.append((runners[found.lost], found.error))
            runners = [runner for i, runner in enumerate(runners) if i != found.lost]
        if not runners:
            return [], [], lost
        if heat == len(HEATS) - 1:
            break
        best = min(range(len(runners)), key=lambda i: _middle(groups[i]))
        kept = [
            i for i, runner in enumerate(runners)
            if i == best or runner is default or _may_tie(groups[i], groups[best], seed)
        ]  # fmt: skip
        runners = [runners[i] for i in kept]
    return groups, runners, lost


def _may_tie(group: Sequence[Sequence[float]], best: Sequence[Sequence[float]], seed: int) -> bool:
    return paired_ratio(_medians(group), _medians(best), seed).low <= 1.0 + NOISE_FLOOR / 2


def _round(device: Device, runners: Sequence[Trial], rounds: int, samples: int, seed: int) -> RaceRound:
    contestants = [Contestant(trial.configuration, trial.time_ns or 1e6) for trial in runners]
    return device.race(contestants, rounds, samples, seed)


def _ranking(groups: Groups, runners: list[Trial]) -> list[Trial]:
    """Order by time; whoever is within the noise of the first counts as tied, and the simpler one goes first."""
    times = sorted(
        ((_middle(group), trial) for group, trial in zip(groups, runners, strict=True)),
        key=lambda pair: pair[0],
    )
    if not times:
        return []
    limit = times[0][0] * (1.0 + NOISE_FLOOR / 2)
    tied = [trial for time, trial in times if time <= limit]
    return sorted(tied, key=_complexity) + [trial for _, trial in times[len(tied) :]]


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
    if not device.recorded:
        say(f"verifying the winner at {len(problems)} awkward sizes")
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


def _tied(groups: Groups, runners: list[Trial], winner: Trial, seed: int) -> int:
    own = _medians(groups[runners.index(winner)])
    return sum(
        runner is winner or verdict(paired_ratio(_medians(group), own, seed), NOISE_FLOOR) is Verdict.SAME
        for runner, group in zip(runners, groups, strict=True)
    )


def _medians(groups: Sequence[Sequence[float]]) -> list[float]:
    return [median(group) for group in groups]


def _middle(groups: Sequence[Sequence[float]]) -> float:
    return median(sample for group in groups for sample in group)
