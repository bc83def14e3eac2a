"""The finish: who is really fastest, by how much, and is it still so in a fresh process?

The search saw each candidate once, at different moments; the fastest of two hundred such figures is mostly lucky. The
finalists are therefore timed again in turn, and judged by the ratio within each round, which drift cannot touch
(:mod:`tuner.tuning.elimination`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from tuner.conditions import Mode
from tuner.database.records import SUSPECT
from tuner.devices.base import Contestant, Device
from tuner.model import Configuration, Measurement, Problem, Status, Trial
from tuner.space.edge_sizes import edge_case_problems
from tuner.stats import Ratio, Verdict, verdict
from tuner.tuning.elimination import HEATS, Groups, Standing, eliminate

FINALISTS = 8
FINALIST_FACTOR = 1.10
"""Only candidates this close to the best are raced: the search's figures are off by a few percent, not by ten."""
SAMPLES, FEWEST_SAMPLES = 8, 3
GROUP_NS = 5e6
"""Samples of a group: so many as take this long, within these limits. Many rounds of few samples say more than few
rounds of many, for what changes from round to round does not average out within one; but a group costs some 0.1 ms."""
RECORDED_HEATS = (16,)
"""Recorded samples are drawn, one a round: each has some dozens, and more rounds would look surer than those."""
MAX_CONFIRMATIONS = 10
CONFIRMING_PROCESSES = 3
"""Fresh processes that are asked at most until one agrees with the race: where a process gets its memory moves a short
kernel by some percent (an addition of 2^20 floats on an H200 took 4.45 us in one process, and 4.74 in all others)."""
NO_PROCESS = (Status.WORKER_DIED, Status.UNSTABLE)
"""What a device says when somebody killed the fresh process, or it could not be made ready: neither says anything about
the winner."""
CONFIRMED_WITHIN = 0.02
"""How far the time in a fresh process may be from the race's: clocks and memory layout differ there."""
ALONE_FASTER = 0.15
"""How much shorter it may be where calls rotate: on an H200 sums of 2^16 to 2^22 floats took 2 to 13 % less time alone
in a fresh process than in turn with eight others. Who is faster alone claims nothing that is not so."""
EVENT_RESOLUTION_NS = 500.0
"""Events do not resolve less (documentation of cuEventElapsedTime); kernels of microseconds may be so far off."""
BATCH_RESOLUTION_NS = 100.0
"""The same where many calls share two events: where its code happens to lie moves a kernel by so much on an H200."""

Reject = Callable[[Trial, str], None]
"""Told of a trial that failed in the race or was not confirmed, and why, as soon as that is known."""


@dataclass(frozen=True)
class Finish:
    """What the race and the confirmation found."""

    winner: Trial
    time_ns: float
    default: Trial | None
    default_ns: float | None
    ratio: Ratio | None
    """The default's time over the winner's. All intervals of a race hold together with 95 %."""
    verdict: Verdict
    confirmed: Measurement | None
    edges: list[tuple[Problem, Measurement]] = field(default_factory=list)
    exportable: bool = False
    reason: str = ""
    unasked: bool = False
    """Whether the reason is none of the winner's: no process could be had to confirm or verify it."""
    unstable: list[tuple[Trial, str]] = field(default_factory=list)
    """Finalists that a fresh process could not reproduce, or that are wrong at other sizes."""
    medians_ns: list[tuple[Configuration, float]] = field(default_factory=list)
    """Of everybody who raced, the fastest first; who dropped out early has fewer samples behind it."""
    tied: int = 1
    """Finalists that the race cannot tell from the winner, itself included."""
    noise_floor: float = 0.0
    """How far from 1 the ratio of equal kernels may be: what differs by less is the same."""
    incumbent: Trial | None = None
    """The best that the database knew before, as it was timed again in this run."""
    incumbent_ns: float | None = None
    versus_incumbent: Ratio | None = None
    """The incumbent's time over the winner's."""
    incumbent_verdict: Verdict = Verdict.AMBIGUOUS
    """Of the winner against the incumbent."""
    race_verdict: Verdict = Verdict.AMBIGUOUS
    """Faster than every other, the same as some, or ambiguous: rounds or time ran out."""
    rounds: int = 0
    heats: int = 0
    race_s: float = 0.0


@dataclass(frozen=True)
class Rivals:
    """Whom the finalists are compared with, however slow: both may be finalists themselves, or unknown."""

    default: Trial | None = None
    incumbent: Trial | None = None


@dataclass(frozen=True)
class Confirmation:
    """What a fresh process and other sizes say of a winner."""

    measurement: Measurement | None
    edges: list[tuple[Problem, Measurement]]
    objection: str
    """Empty if nothing speaks against it."""
    unasked: bool = False
    """Whether the objection is that nobody could be asked."""


def finalists(trials: Sequence[Trial], resolution_ns: float = 0.0) -> list[Trial]:
    """Return the verified trials that could be the fastest, best first; one for each configuration.

    A trial whose time is suspect is none: its configuration was timed again.
    """
    ranked = sorted(
        (t for t in trials if t.status is Status.OK and t.time_ns and SUSPECT not in t.tags),
        key=lambda t: t.time_ns or 0.0,
    )
    if not ranked:
        return []
    best_ns = ranked[0].time_ns or 0.0
    limit = max(FINALIST_FACTOR * best_ns, best_ns + resolution_ns)
    close: dict[Configuration, Trial] = {}
    for trial in ranked:
        if (trial.time_ns or 0.0) <= limit:
            close.setdefault(trial.configuration, trial)
    return list(close.values())[:FINALISTS]


def run_finish(
    device: Device,
    problem: Problem,
    trials: Sequence[Trial],
    default: Trial | None,
    seed: int,
    say: Callable[[str], None],
    reject: Reject,
    *,
    incumbent: Trial | None = None,
    max_error: float | None = None,
) -> Finish | None:
    """Race the finalists, the default configuration and the incumbent, then confirm the winner.

    Whoever fails makes room for the next best, until one is confirmed or :data:`MAX_CONFIRMATIONS` have failed. Where
    nobody can be asked that is the end: it says nothing about the winner, and the next best would fare no better.

    Args:
        device: where the trials were timed, with the problem prepared.
        problem: what is tuned.
        trials: of this run.
        default: the trial of the default configuration.
        seed: of the order within the rounds.
        say: told what begins.
        reject: told who failed in the race or was not confirmed; not in the end, which may never come.
        incumbent: the trial of the configuration that the database knew to be best.
        max_error: how far from the true result the winner may be in the fresh process.

    Returns:
        The end, which is None when nothing was verified, and is not exportable when nobody could be confirmed.
    """
    rejected: list[tuple[Trial, str]] = []

    def out(trial: Trial, reason: str) -> None:
        rejected.append((trial, reason))
        reject(trial, reason)

    last: Finish | None = None
    rivals = Rivals(default, incumbent)
    for _ in range(MAX_CONFIRMATIONS):
        refused = {trial.number for trial, _ in rejected}
        left = [trial for trial in trials if trial.number not in refused]
        runners = finalists(left, _resolution_ns(device))
        if not runners:
            break
        for rival in (default, incumbent):
            if rival is None or not rival.time_ns or not rival.status.ranked or rival.number in refused:
                continue
            if rival.configuration not in [runner.configuration for runner in runners]:
                runners.append(rival)
        say(_announcement(runners, rivals))
        standing, lost = compete(device, runners, seed, out)
        # Who dropped out may have done so against somebody who failed later: that race says nothing of them.
        if not standing.left or (lost and standing.heats > 1):
            continue
        last = _judge(device, problem, runners, standing, rivals, max_error, say)
        if last.exportable or last.unasked:
            break
        out(last.winner, last.reason)
    return None if last is None else replace(last, unstable=rejected)


def _announcement(runners: Sequence[Trial], rivals: Rivals) -> str:
    text = f"racing {len(runners)} {'finalist' if len(runners) == 1 else 'finalists'}"
    if len(runners) < 2:
        return text
    configurations = [runner.configuration for runner in runners]
    names = {"the default": rivals.default, "the best known before": rivals.incumbent}
    there = [name for name, rival in names.items() if rival and rival.configuration in configurations]
    return f"{text}, {' and '.join(there)} among them" if there else text


def compete(
    device: Device, runners: Sequence[Trial], seed: int, reject: Reject
) -> tuple[Standing, list[Trial]]:
    """Let the runners race, the fastest known first; who fails is left out, and the heat is run again.

    Returns:
        The order, and who failed.
    """
    lost: list[Trial] = []
    best_ns = runners[0].time_ns or 1e6
    samples = max(FEWEST_SAMPLES, min(SAMPLES, round(GROUP_NS / best_ns)))

    def measure(left: Sequence[int], rounds: int, heat: int) -> Mapping[int, Groups]:
        running = list(left)
        while running:
            contestants = [Contestant(runners[i].configuration, runners[i].time_ns or 0.0) for i in running]
            found = device.race(contestants, rounds, samples, seed + heat)
            if found.lost is None:
                return {i: [groups[place] for groups in found.samples_ns] for place, i in enumerate(running)}
            lost.append(runners[running.pop(found.lost)])
            reject(lost[-1], found.error)
        return {}

    heats = RECORDED_HEATS if device.recorded else HEATS
    standing = eliminate(len(runners), measure, device.noise_floor(best_ns), heats=heats, seed=seed)
    return standing, lost


def _judge(
    device: Device,
    problem: Problem,
    runners: Sequence[Trial],
    standing: Standing,
    rivals: Rivals,
    max_error: float | None,
    say: Callable[[str], None],
) -> Finish:
    """Choose the winner, confirm it, and compare it with its rivals."""
    first = _first(device, runners, standing, rivals)
    winner, time_ns = runners[first], standing.time_ns(first)
    found = Confirmation(None, [], "")
    if not device.recorded:
        found = _confirm(device, problem, winner, time_ns, max_error, say)

    def versus(rival: Trial | None) -> tuple[float | None, Ratio | None, Verdict]:
        places = (i for i in standing.groups if rival and runners[i].configuration == rival.configuration)
        place = next(places, None)
        if place is None:
            return None, None, Verdict.AMBIGUOUS
        ratio = standing.ratio(place, first)
        return standing.time_ns(place), ratio, _opinion(ratio, standing.noise_floor)

    default_ns, ratio, against_default = versus(rivals.default)
    incumbent_ns, versus_incumbent, against_incumbent = versus(rivals.incumbent)
    times = sorted((standing.time_ns(i), i) for i in standing.groups)
    return Finish(
        winner,
        time_ns,
        rivals.default,
        default_ns,
        ratio,
        against_default,
        found.measurement,
        found.edges,
        exportable=not found.objection,
        reason=found.objection,
        unasked=found.unasked,
        medians_ns=[(runners[i].configuration, median_ns) for median_ns, i in times],
        tied=1 + len(standing.tied_with(first)),
        noise_floor=standing.noise_floor,
        incumbent=rivals.incumbent,
        incumbent_ns=incumbent_ns,
        versus_incumbent=versus_incumbent,
        incumbent_verdict=against_incumbent,
        race_verdict=standing.verdict,
        rounds=standing.rounds,
        heats=standing.heats,
        race_s=standing.seconds,
    )


def _first(device: Device, runners: Sequence[Trial], standing: Standing, rivals: Rivals) -> int:
    """Choose the winner: of those that are the same beyond doubt the simplest, of others the fastest.

    Where a launch takes most of the time, the default configuration, unless something beats it: what else would come
    out there comes out by chance.
    """
    same = standing.same_as_first()
    first = min(same, key=lambda i: _complexity(runners[i]))
    calibration, time_ns = device.calibration, standing.time_ns(first)
    if calibration is not None and calibration.launch_decides(device.conditions, time_ns, tied=True):
        default = rivals.default.configuration if rivals.default else None
        return next((i for i in same if runners[i].configuration == default), first)
    return first


def _complexity(trial: Trial) -> tuple[int, int]:
    resources = trial.resources
    if resources is None:
        return (0, trial.number)
    # Registers of a whole block are not known here; both terms are in bytes a thread or block asks for.
    return (
        4 * resources.registers * 128 + resources.static_shared_bytes + resources.dynamic_shared_bytes,
        trial.number,
    )


def _confirm(
    device: Device,
    problem: Problem,
    winner: Trial,
    raced_ns: float,
    max_error: float | None,
    say: Callable[[str], None],
) -> Confirmation:
    """Measure the winner in a fresh process, and verify it at other sizes."""
    say("confirming the winner in a fresh process")
    found: list[float] = []
    for _ in range(CONFIRMING_PROCESSES):
        again = device.confirm(winner.configuration, raced_ns)
        if again.status in NO_PROCESS:
            again = device.confirm(winner.configuration, raced_ns)
        if again.status is not Status.OK:
            objection = f"in a fresh process: {again.status}: {again.error}"
            return Confirmation(again, [], objection, unasked=again.status in NO_PROCESS)
        found.append(median(again.samples_ns))
        if _agrees(device, found[-1], raced_ns):
            break
    else:
        times = ", ".join(f"{time_ns / 1e3:.2f}" for time_ns in found)
        moved = f"{raced_ns / 1e3:.2f} us in the race, {times} us in fresh processes"
        return Confirmation(again, [], moved)
    error = again.verification.true_error if again.verification else None
    if max_error is not None and error is not None and error > max_error:
        return Confirmation(again, [], f"on other inputs its error is {error:.2g}, above {max_error:.2g}")
    say("verifying the winner at awkward sizes")
    chosen = winner.configuration
    edges = device.verify_at(edge_case_problems(problem, chosen, device.fits), chosen)
    failed = [(where, found) for where, found in edges if found.status is not Status.OK]
    if not failed:
        return Confirmation(again, edges, "")
    # What is wrong at one size counts, also if another could not be looked at.
    where, worst = min(failed, key=lambda one: one[1].status is Status.UNVERIFIED)
    objection = f"at {where}: {worst.status}: {worst.error}"
    return Confirmation(again, edges, objection, unasked=worst.status is Status.UNVERIFIED)


def _agrees(device: Device, again_ns: float, raced_ns: float) -> bool:
    """Return whether the time in a fresh process is that of the race."""
    slower = max(CONFIRMED_WITHIN * raced_ns, _resolution_ns(device))
    faster = ALONE_FASTER * raced_ns if device.conditions.mode is Mode.ROTATING else slower
    return -max(faster, slower) <= again_ns - raced_ns <= slower


def _resolution_ns(device: Device) -> float:
    return EVENT_RESOLUTION_NS if device.conditions.mode is Mode.COLD else BATCH_RESOLUTION_NS


def _opinion(ratio: Ratio, noise_floor: float) -> Verdict:
    """Turn a ratio of a rival's time to the winner's into a verdict about the winner."""
    found = verdict(ratio, noise_floor)
    return {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}.get(found, found)
