"""One candidate, verified, timed as long as its rank deserves, verified again; and several in turn.

Candidates and baselines of a race are timed in shuffled rounds: drift touches all of a round alike.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from tuner.children.measuring import Raced
from tuner.core.model import Measurement, Status, Verification
from tuner.gpu.candidate import Timed
from tuner.gpu.contents import FurtherContents
from tuner.gpu.freshness import Comparison, Freshness
from tuner.gpu.problem import ProblemSession
from tuner.gpu.timing import SampleGraph, Samples, median_half_width

# docs/measuring.md, "How many samples", is the same as a table.
SLOW_FACTOR = 3.0
"""Times the incumbent from which a candidate gets no more samples than say so: no noise is so large."""
HOPELESS_FACTOR = 10.0
"""The same in the first run, after which one sample is enough. That run is cold in every way, so that kernels of
microseconds can look ten times slower in it than they are: a sample has to confirm it."""
MIN_SAMPLES = 12
"""Of a candidate that is not slow: the interval of a median needs 6 samples at least to hold with 95 % confidence."""
ALSO_RAN_NS = 20e6
"""GPU time after which a candidate far from the incumbent gets no more samples, even for :data:`MIN_SAMPLES`."""
CONTENDER_FACTOR = 1.05
"""Times the incumbent up to which a candidate may be the best: rested samples of one measurement
differ by up to 0.7 % on an H200, sustained ones by 2.5 %."""
CONTENDER_NS = 80e6
"""GPU time that a contender's samples may take: four times that of the others."""
CONTENDER_SAMPLES = 100
"""After which more samples of a kernel say little more: the interval narrows with their root."""
MOST_NODES = 640
"""Calls in a group of one candidate: some 10 us each are spent on the host to build it, which a kernel of 2 us takes to
run five times."""
FRESH_ROUNDS = 2
"""Rounds of a race in which fresh launches are compared with repeated ones."""
NARROW = 0.0025
"""Half-width of the median's interval, relative, at which a contender is known well enough: about what two copies of
one kernel differ by on an H200 (0.2 %, standard deviation)."""


class CandidateMeasurement:
    """Measures one candidate after the other.

    Args:
        session: the problem.
        idle: whether no other request waits for the GPU; further samples then cost nothing.
        freshness: compares fresh launches with repeated ones; without it the usual one does.
    """

    def __init__(
        self, session: ProblemSession, idle: Callable[[], bool], freshness: Freshness | None = None
    ) -> None:
        self._session = session
        self._idle = idle
        self._freshness = freshness or Freshness(session)
        self.refined_s = 0.0
        """Seconds spent on more samples of the last candidate than its rank asked for."""
        self._graph: SampleGraph | None = None
        """Of the last groups of the candidate: to build it takes far longer than to launch it, if calls are many."""

    def measure(self, timed: Timed, incumbent_ns: float, *, thorough: bool, verify_only: bool) -> Measurement:
        """Verify a candidate, time it as long as its rank deserves, and verify it again.

        Args:
            timed: the candidate.
            incumbent_ns: the best time so far; 0 for none.
            thorough: take as many samples as a contender gets, whatever its rank.
            verify_only: one run, no timing.

        Raises:
            DriverFailure: it cannot be launched, or ruined the context.
            ClockMismatchError: its times contradict a clock.
        """
        self.refined_s = 0.0
        session = self._session
        first_ns, verification = session.first_run(timed, incumbent_ns)
        if verify_only and verification.passed:
            verification = session.with_other_poisons(timed, incumbent_ns)
        if verification.wrong:
            return Measurement(Status.WRONG_RESULT, (first_ns,), verification.message, verification)
        if kept := timed.keeps():
            return Measurement(Status.REPEATS, (first_ns,), kept, verification)
        if verify_only:
            return Measurement(Status.OK, (first_ns,), "", verification)
        try:
            samples, slow = self._sample(timed, first_ns, incumbent_ns, thorough)
        finally:
            self._let_go()
        measurement = Measurement(
            Status.SLOW if slow else Status.OK,
            tuple(samples.times_ns),
            verification=verification,
            tags=tuple(sorted(samples.tags)),
            sm_clock_hz=samples.sm_clock_hz,
            capped_samples=samples.capped,
        )
        middle, floor = statistics.median(samples.times_ns), session.limits.floor_ns
        again = session.check_after(timed, samples.calls)
        kept = timed.keeps()  # before the comparison gives variables their first values again
        comparison = None
        # The others cannot win, or will be contestants of the race, where all are compared.
        may_win = middle >= floor and (thorough or not incumbent_ns or middle < incumbent_ns)
        if may_win and again.passed and not kept:
            comparison = self._freshness.compare(timed, middle)
            again = comparison.verification
        if again.wrong:
            return _wrong_after(measurement, again)
        if objection := self._freshness.objection(timed, middle, comparison):
            return replace(measurement, status=Status.REPEATS, error=objection)
        if middle < floor:
            least = f"{middle / 1e3:.2f} us is less than the hardware needs ({floor / 1e3:.2f} us)"
            return replace(measurement, status=Status.TOO_FAST, error=least)
        if may_win and again.passed:
            again = session.with_other_poisons(timed, middle)
            if again.wrong:
                return _wrong_after(measurement, again)
        if not again.checked:
            return replace(measurement, status=Status.UNVERIFIED, error=again.message)
        return measurement

    def _sample(
        self, timed: Timed, first_ns: float, incumbent_ns: float, thorough: bool
    ) -> tuple[Samples, bool]:
        """Take as many samples as the candidate's rank deserves; says whether it was given up as slow."""
        session = self._session
        if incumbent_ns and not thorough and first_ns > HOPELESS_FACTOR * incumbent_ns:
            # The first run was not warmed up: kernels of microseconds can look ten times slower in it.
            samples = self._groups(timed, 1, first_ns, 1)
            if samples.times_ns[0] > SLOW_FACTOR * incumbent_ns:
                return samples, True
        if incumbent_ns and not thorough and first_ns > SLOW_FACTOR * incumbent_ns:
            samples = self._groups(timed, 2, first_ns, 2)
            if min(samples.times_ns) > SLOW_FACTOR * incumbent_ns:
                return samples, True
            first_ns = min(samples.times_ns)
        calls = session.batch.calls_for(first_ns)
        size = min(session.size(first_ns), max(1, MOST_NODES // calls))
        samples = self._groups(timed, size, first_ns, 1 if calls * first_ns > ALSO_RAN_NS / 3 else 3)
        while len(samples.times_ns) < MIN_SAMPLES and calls * sum(samples.times_ns) < ALSO_RAN_NS:
            self._extend(timed, size, samples)
        middle = statistics.median(samples.times_ns)
        contends = thorough or not incumbent_ns or middle < CONTENDER_FACTOR * incumbent_ns
        while len(samples.times_ns) < CONTENDER_SAMPLES and calls * sum(samples.times_ns) < CONTENDER_NS:
            wide = contends and median_half_width(samples.times_ns) > NARROW
            # While the compilers are behind, the time is best spent on this candidate.
            if not wide and (thorough or not self._idle()):
                break
            began = time.monotonic()
            self._extend(timed, size, samples)
            self.refined_s += 0.0 if wide else time.monotonic() - began
        return samples, False

    def _extend(self, timed: Timed, size: int, samples: Samples) -> None:
        samples.add(self._groups(timed, size, statistics.median(samples.times_ns), size))

    def _groups(self, timed: Timed, size: int, estimate_ns: float, least: int) -> Samples:
        """Take groups of ``size`` until there are ``least`` samples."""
        calls = self._session.batch.calls_for(estimate_ns)
        if self._graph is None or (self._graph.samples, self._graph.calls) != (size, calls):
            self._let_go()
            self._graph = self._session.graph(timed, size, estimate_ns)
        samples = Samples()
        while len(samples.times_ns) < least:
            samples.add(self._session.take(self._graph, estimate_ns))
        return samples

    def _let_go(self) -> None:
        """Free the graph."""
        if self._graph is not None:
            self._graph.close()
            self._graph = None


def _wrong_after(measurement: Measurement, found: Verification) -> Measurement:
    return replace(measurement, status=Status.WRONG_AFTER_TIMING, error=found.message, verification=found)


@dataclass(frozen=True)
class TimedContestant:
    """Something that is timed in turn with others.

    Attributes:
        timed: what is run.
        estimate_ns: estimate of its time; 0 for none.
        required: whether a wrong output ends the comparison.
        own: whether it is a user's own code, which is verified on further contents of small inputs, too.
    """

    timed: Timed
    estimate_ns: float = 0.0
    required: bool = True
    own: bool = False


class ContestantFailed(Exception):  # noqa: N818 - an outcome
    """A contestant whose output must be right has a wrong one, or whose time is that of repeated launches only."""

    def __init__(self, message: str, status: Status = Status.UNSTABLE) -> None:
        super().__init__(message)
        self.status = status


class InterleavedTiming:
    """An interleaved comparison; :attr:`current` is the index of the contestant at work when something went wrong."""

    def __init__(self, session: ProblemSession) -> None:
        self._session = session
        self._freshness = Freshness(session)
        self._graphs: list[SampleGraph] = []
        self._seen: list[Samples] = []
        self._verified: list[bool] = []
        self.current = 0

    def run(self, contestants: Sequence[TimedContestant], rounds: int, samples: int, seed: int) -> Raced:
        """Verify all contestants, take the rounds, verify all again.

        Args:
            contestants: what is timed.
            rounds: groups of each.
            samples: event pairs of a group, at most; long kernels get fewer.
            seed: of the order within the rounds.

        Raises:
            ContestantFailed: a contestant with ``required`` gave a wrong output.
            DriverFailure: one cannot be launched, or ruined the context.
            ClockMismatchError: times contradict a clock.
        """
        taken_rounds: list[list[list[float]]] = []
        estimates: list[float] = []
        self._seen, self._verified = [], []
        try:
            for self.current, contestant in enumerate(contestants):
                estimates.append(self._admit(contestant, samples))
            draw = random.Random(seed)
            compared = draw.sample(range(rounds), min(FRESH_ROUNDS, rounds))
            comparisons: list[Comparison | None] = [None for _ in contestants]
            for turn in range(rounds):
                groups: list[list[float]] = [[] for _ in contestants]
                for self.current in draw.sample(range(len(contestants)), len(contestants)):
                    i, graph = self.current, self._graphs[self.current]
                    if turn in compared:
                        comparisons[i] = self._compare(contestants[i], estimates[i], comparisons[i])
                    taken = self._session.take(graph, estimates[i])
                    self._seen[i].add(taken)
                    groups[i] = taken.times_ns
                    if turn == rounds - 1:
                        after = self._session.check_after(contestants[i].timed, graph.calls)
                        self._verified[i] &= self._right(contestants[i], after)
                taken_rounds.append(groups)
            for self.current, comparison in enumerate(comparisons):
                timed = contestants[self.current].timed
                claimed_ns = statistics.median(self._seen[self.current].times_ns)
                if objection := self._freshness.objection(timed, claimed_ns, comparison):
                    raise ContestantFailed(objection, Status.REPEATS)
        finally:
            for graph in self._graphs:
                graph.close()
            self._graphs = []
        self._vary(contestants, seed)
        tags = {tag for seen in self._seen for tag in seen.tags}
        clocks_hz = tuple(seen.sm_clock_hz for seen in self._seen)
        return Raced(taken_rounds, tuple(sorted(tags)), tuple(self._verified), clocks_hz)

    def _admit(self, contestant: TimedContestant, samples: int) -> float:
        self._seen.append(Samples())
        first_ns, verification = self._session.first_run(contestant.timed, contestant.estimate_ns)
        self._verified.append(self._right(contestant, verification))
        if kept := contestant.timed.keeps():
            raise ContestantFailed(kept, Status.REPEATS)
        if verification.passed and not contestant.timed.trusted:
            verification = self._session.with_other_poisons(contestant.timed, contestant.estimate_ns)
            self._verified[-1] &= self._right(contestant, verification)
        estimate_ns = contestant.estimate_ns or self._probe(contestant.timed, first_ns)
        size = min(samples, self._session.size(estimate_ns))
        self._graphs.append(self._session.graph(contestant.timed, size, estimate_ns))
        return estimate_ns

    def _compare(
        self, contestant: TimedContestant, estimate_ns: float, before: Comparison | None
    ) -> Comparison | None:
        """Compare fresh launches with repeated ones; not those of what is trusted."""
        if contestant.timed.trusted:
            return None
        comparison = self._freshness.compare(contestant.timed, estimate_ns)
        self._verified[self.current] &= self._right(contestant, comparison.verification)
        if before is not None:
            comparison.add(before)
        return comparison

    def _vary(self, contestants: Sequence[TimedContestant], seed: int) -> None:
        """Verify users' own code on further contents; the problem's data is of no more use then.

        Raises:
            ContestantFailed: one is wrong there.
        """
        further = FurtherContents(self._session, seed)
        for self.current, contestant in enumerate(contestants):
            if not contestant.own:
                continue
            found = further.verify(contestant.timed, Measurement(Status.OK), quick=True)
            if found.status is not Status.OK:
                raise ContestantFailed(found.error)

    def _right(self, contestant: TimedContestant, verification: Verification) -> bool:
        """Return whether an output passed.

        Raises:
            ContestantFailed: it did not, and had to; or memory was damaged, which would fail the others.
        """
        if self._session.damaged or (verification.wrong and contestant.required):
            raise ContestantFailed(verification.message)
        return verification.passed

    def _probe(self, timed: Timed, first_ns: float) -> float:
        """Estimate a time of which nothing is known: the first run was cold in every way."""
        with closing(self._session.graph(timed, 1, first_ns)) as graph:
            return min(self._session.take(graph, first_ns).times_ns[0] for _ in range(2))
