"""The finish of a run: which configuration is really the fastest, by how much, and also in a fresh process?

The search timed each configuration once, at different moments; the fastest of two hundred such times is mostly lucky.
So the finalists are timed again in turn, and compared by the ratio within each round, which drift does not affect
(:mod:`tuner.tuning.elimination`); those of a short problem once more with warm caches. Then
the winner is confirmed (:mod:`tuner.tuning.confirmation`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tuner.children.measuring import RaceFailed
from tuner.core.conditions import Mode
from tuner.core.model import Configuration, Problem, Status, Trial
from tuner.core.stats import Ratio, Verdict
from tuner.devices.base import Contestant, Device, RaceRequest
from tuner.kernel.spec import KernelSpec
from tuner.tuning.confirmation import (
    EDGE_CASES_S,
    Confirmation,
    confirm,
    is_wrong,
    resolution_ns,
    wrong_text,
)
from tuner.tuning.decision import Preference, alike, choose, margin_of, undecided
from tuner.tuning.elimination import Groups, Standing, eliminate
from tuner.tuning.finalists import finalists, time_warm, worth_timing_warm
from tuner.tuning.request import EFFORTS, Effort
from tuner.tuning.state import Finish, InRace, WarmFinish, fastest

SAMPLES, FEWEST_SAMPLES = 8, 3
GROUP_NS = 5e6
"""Samples of a group: so many as take this long, within these limits. Many rounds of few samples say more than few
rounds of many, for what changes from round to round does not average out within one; but a group costs some 0.1 ms."""
WARM_HEATS = 2
"""Of the race in the mode warm: 36 rounds find a difference of 0.5 %."""
RECORDED_HEATS = (16,)
"""Recorded samples are drawn, one a round: each trial has some dozens, and more rounds would claim more certainty than
these have."""
MAX_CONFIRMATIONS = 10
"""Winners that are tried at most: each costs a race, fresh processes and a verification at other sizes."""
Reject = Callable[[Trial, str, Status], None]
"""Told of a trial that failed in the race or was not confirmed, why, and its status, as soon as that is known."""


def compete(
    device: Device,
    contestants: Sequence[Trial],
    seed: int,
    reject: Reject,
    warm_ns: Mapping[Configuration, float] | None = None,
    effort: Effort = EFFORTS["normal"],
    prefer: Preference | None = None,
) -> tuple[Standing, list[Trial]]:
    """Race trials; one that fails is left out, and the heat is run again.

    Args:
        device: where they were timed.
        contestants: the fastest by the search first.
        seed: of the order within the rounds.
        reject: told of what fails.
        warm_ns: the race is in the mode warm; times there, as far as they are known.
        effort: says how long it may be.
        prefer: settles ties; with it only those go on that may still win (:mod:`tuner.tuning.decision`).

    Returns:
        The standing after the last heat, and the trials that failed.
    """
    failed: list[Trial] = []
    mode = None if warm_ns is None else Mode.WARM
    known_ns = [(warm_ns or {}).get(trial.configuration, trial.time_ns or 0.0) for trial in contestants]
    best_ns = (known_ns[0] if warm_ns is None else min(known_ns)) or 1e6
    samples = max(FEWEST_SAMPLES, min(SAMPLES, round(GROUP_NS / best_ns)))

    def measure(left: Sequence[int], rounds: int, heat: int) -> Mapping[int, Groups]:
        def failing(index: int, answer: RaceFailed) -> None:
            failed.append(contestants[left[index]])
            error = f"{mode}, back to back: {answer.error}" if mode else answer.error
            reject(failed[-1], error, answer.status)

        entered = [Contestant(contestants[i].configuration, known_ns[i]) for i in left]
        answer = device.race(RaceRequest(entered, rounds, samples, seed + heat, mode), failing)
        return {left[index]: timed.groups_ns for index, timed in answer.timed.items()}

    heats = RECORDED_HEATS if device.recorded else effort.heats if mode is None else effort.heats[:WARM_HEATS]
    noise_floor = device.noise_floor(best_ns, mode)
    may_win = partial(undecided, contestants, prefer=prefer) if prefer is not None else None
    standing = eliminate(
        len(contestants), measure, noise_floor, heats=heats, seconds=effort.race_s, undecided=may_win
    )
    return standing, failed


@dataclass(frozen=True)
class FinalRace:
    """Races the finalists, the default configuration and the incumbent, then confirms the winner."""

    device: Device
    """Where the trials were timed, with the problem prepared."""
    kernel: KernelSpec
    """That is tuned; it says at which other sizes a winner may be verified."""
    problem: Problem
    default: Trial | None
    """The trial of the default configuration."""
    say: Callable[[str], None]
    """Told what begins."""
    reject: Reject
    """Told of each trial that failed in the race or was not confirmed, at once: the end may never come."""
    seed: int = 0
    """Of the order within the rounds."""
    incumbent: Trial | None = None
    """The trial of the configuration that the database knew to be best."""
    max_error: float | None = None
    """How far from the true result the winner may be in the fresh process."""
    warm: bool = False
    """Whether the mode warm counts as well."""
    initial: Collection[Configuration] = ()
    """What was tried first."""
    known_winners: Collection[Configuration] = ()
    """Winners of earlier runs, on this card or others of its model."""
    prefer: Preference = alike
    """Settles ties, and says how many margins each configuration has to gain to win; without it the fastest wins."""
    margin: float = 0.0
    """As a share: see :func:`tuner.tuning.decision.choose`."""
    effort: Effort = EFFORTS["normal"]

    def run(self, trials: Sequence[Trial]) -> Finish | None:
        """Race until a winner among the trials of the run is confirmed.

        A trial that fails makes room for the next best, until a winner is confirmed or :data:`MAX_CONFIRMATIONS` have
        failed. It ends, too, where no process can be had for confirming: the next best would fare no better.

        Returns:
            None when nothing was verified; not exportable when no winner could be confirmed.
        """
        rejected: list[tuple[Trial, str]] = []

        def refuse(trial: Trial, reason: str, status: Status) -> None:
            rejected.append((trial, reason))
            self.reject(trial, reason, status)

        finish: Finish | None = None
        warm_ns = self._time_warm(trials) if self.warm else {}
        for _ in range(MAX_CONFIRMATIONS):
            contestants = self.contestants(trials, {trial.number for trial, _ in rejected}, warm_ns)
            if not contestants:
                break
            self.say(self.announcement(contestants))
            with self.device.phases.phase("race"):
                alone = None if self.margin or warm_ns else self.prefer
                standing, failed = compete(
                    self.device, contestants, self.seed, refuse, effort=self.effort, prefer=alone
                )
            # A contestant eliminated by one that failed later is unranked: race again.
            if not standing.left or (failed and (standing.heats > 1 or warm_ns)):
                continue
            warm: Standing | None = None
            if warm_ns:
                self.say("racing them warm, back to back")
                with self.device.phases.phase("race, warm"):
                    warm, failed = compete(self.device, contestants, self.seed, refuse, warm_ns, self.effort)
                if failed:
                    continue
            finish = self.finish(contestants, standing, warm)
            if finish.exportable or finish.no_process:
                break
            fresh = finish.confirmed.status if finish.confirmed else Status.UNSTABLE
            refuse(finish.winner, finish.reason, fresh if fresh is Status.REPEATS else Status.UNSTABLE)
            if finish.wrong_at is not None:
                self.say(f"refused {finish.winner.configuration}: {finish.reason}")
                self._refuse_wrong(finish.wrong_at, trials, rejected, refuse)
        return None if finish is None else replace(finish, unstable=rejected)

    def _refuse_wrong(
        self, at: Problem, trials: Sequence[Trial], rejected: Sequence[tuple[Trial, str]], refuse: Reject
    ) -> None:
        """Refuse whatever would race next, as long as it is wrong at a size where a winner was.

        A kernel without a bounds check is wrong in all configurations: each would take a race and a fresh process.
        """
        right, ends = set[int](), time.monotonic() + EDGE_CASES_S
        left: Sequence[Trial] = self.contestants(trials, {trial.number for trial, _ in rejected}, {})
        while left and (left_s := ends - time.monotonic()) > 0:
            self.say(f"verifying another finalist at {at}")
            answer = self.device.verify_at(at, left[0].configuration, left_s, contents=False)
            if answer is not None and is_wrong(answer):
                refuse(left[0], wrong_text(at, answer), Status.UNSTABLE)
            else:
                right.add(left[0].number)
            next_ones = self.contestants(trials, {trial.number for trial, _ in rejected}, {})
            left = [trial for trial in next_ones if trial.number not in right]
        self.device.end_confirmation()

    def _time_warm(self, trials: Sequence[Trial]) -> dict[Configuration, float]:
        candidates = worth_timing_warm(trials, self.initial)
        if candidates:
            self.say(f"timing the best {len(candidates)} warm, back to back")
        with self.device.phases.phase("times, warm"):
            return time_warm(self.device, candidates, self.seed)

    def contestants(
        self, trials: Sequence[Trial], rejected: Collection[int], warm_ns: Mapping[Configuration, float]
    ) -> list[Trial]:
        """Return the finalists, with the default and the incumbent however slow these are.

        Args:
            trials: of the run.
            rejected: numbers of those that failed.
            warm_ns: times in the mode warm, where the winner is chosen by that as well.
        """
        left = [trial for trial in trials if trial.number not in rejected]
        named, best = {*self.initial, *self.known_winners}, fastest(left)
        step = margin_of(self.device.noise_floor(best.time_ns or 0.0), self.margin) if best else 0.0
        chosen = finalists(left, resolution_ns(self.device), warm_ns, named, self.prefer, step)
        for trial in (self.default, self.incumbent) if chosen else ():
            may_race = trial and trial.time_ns and trial.status.ranked and trial.number not in rejected
            if trial and may_race and _index_of(trial, chosen) is None:
                chosen.append(trial)
        return chosen

    def announcement(self, contestants: Sequence[Trial]) -> str:
        """Return a line that says what races."""
        if len(contestants) == 1:
            return "racing 1 finalist"
        named = {"the default": self.default, "the best known before": self.incumbent}
        names = [name for name, trial in named.items() if _index_of(trial, contestants) is not None]
        among = f", {' and '.join(names)} among them" if names else ""
        return f"racing {len(contestants)} finalists{among}"

    def finish(self, contestants: Sequence[Trial], standing: Standing, warm: Standing | None) -> Finish:
        """Choose the winner, confirm it, and compare it with the default and the incumbent."""
        alone = choose(contestants, [standing], self.prefer, self.margin)
        first, warm_finish = alone, None
        if warm is not None:
            first = choose(contestants, [standing, warm], self.prefer, self.margin)
            warm_finish = WarmFinish(
                **vars(self._in_race(first, contestants, warm)),
                behind_in_mode=standing.behind(first),
                passed_over=contestants[alone] if alone != first else None,
                passed_over_behind=warm.behind(alone),
            )
        winner, in_race = contestants[first], self._in_race(first, contestants, standing)
        confirmation = Confirmation()
        if not self.device.recorded:
            other = next((one for one in in_race.medians_ns if one[0] != winner.configuration), None)
            confirmation = confirm(
                self.device,
                self.kernel,
                self.problem,
                winner.configuration,
                in_race.time_ns,
                self.say,
                max_error=self.max_error,
                other=other,
            )
        incumbent_ns, ratio, verdict = _versus(self.incumbent, first, contestants, standing)
        tied = set(standing.tied_with(first)) & set((warm or standing).tied_with(first))
        return Finish(
            **vars(in_race),
            **vars(confirmation),
            winner=winner,
            default=self.default,
            checked_against=self.kernel.reference.checked_against,
            exportable=not confirmation.reason,
            tied=1 + len(tied) if standing.rounds > 1 else 1,  # one round says nothing of ties
            incumbent=self.incumbent,
            incumbent_ns=incumbent_ns,
            versus_incumbent=ratio,
            incumbent_verdict=verdict,
            warm=warm_finish,
        )

    def _in_race(self, winner: int, contestants: Sequence[Trial], standing: Standing) -> InRace:
        first = standing.left[0]
        times = sorted((standing.time_ns(i), i) for i in standing.groups)
        default_ns, ratio, against_default = _versus(self.default, winner, contestants, standing)
        return InRace(
            time_ns=standing.time_ns(winner),
            default_ns=default_ns,
            ratio=ratio,
            verdict=against_default,
            behind=standing.behind(winner),
            # Where it is not the fastest: against that one.
            race_verdict=standing.verdict if winner == first else standing.compare(winner, first),
            medians_ns=[(contestants[i].configuration, median_ns) for median_ns, i in times],
            noise_floor=standing.noise_floor,
            rounds=standing.rounds,
            heats=standing.heats,
            race_s=standing.seconds,
        )


def _index_of(trial: Trial | None, contestants: Sequence[Trial]) -> int | None:
    """Return the index of the contestant with a trial's configuration."""
    wanted = trial.configuration if trial else None
    return next((i for i, one in enumerate(contestants) if one.configuration == wanted), None)


def _versus(
    trial: Trial | None, winner: int, contestants: Sequence[Trial], standing: Standing
) -> tuple[float | None, Ratio | None, Verdict]:
    """Return a trial's time in the race, its ratio to the winner's time, and the verdict about the winner."""
    index = _index_of(trial, contestants)
    if index is None or index not in standing.groups:
        return None, None, Verdict.AMBIGUOUS
    ratio = standing.ratio(index, winner)
    return standing.time_ns(index), ratio, standing.compare(winner, index)
