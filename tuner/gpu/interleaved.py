"""Candidates and baselines timed in turn, in shuffled rounds: drift touches all of a round alike."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

from tuner.core.model import Verification
from tuner.gpu.candidate import Timed
from tuner.gpu.problem import ProblemSession
from tuner.gpu.sampling import SampleGraph
from tuner.gpu.timing import Samples


@dataclass(frozen=True)
class TimedContestant:
    """Something that is timed in turn with others.

    Attributes:
        timed: what is run; None where ``host_ns`` has its times already.
        estimate_ns: estimate of its time; 0 for none.
        required: whether a wrong output ends the comparison.
        host_ns: times that were taken on the host, alone.
    """

    timed: Timed | None
    estimate_ns: float = 0.0
    required: bool = True
    host_ns: tuple[float, ...] = ()


@dataclass
class InterleavedSamples:
    """Groups of samples, ``rounds[round][contestant]``, and what else was seen."""

    rounds: list[list[list[float]]] = field(default_factory=list)
    seen: list[Samples] = field(default_factory=list)
    verified: list[bool] = field(default_factory=list)


class ContestantFailed(Exception):  # noqa: N818 - an outcome
    """A contestant whose output must be right has a wrong one."""


class InterleavedTiming:
    """An interleaved comparison; :attr:`current` is the index of the contestant at work when something went wrong."""

    def __init__(self, session: ProblemSession) -> None:
        self._session = session
        self._graphs: list[SampleGraph | None] = []
        self.current = 0

    def run(
        self, contestants: Sequence[TimedContestant], rounds: int, samples: int, seed: int
    ) -> InterleavedSamples:
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
        outcome = InterleavedSamples()
        estimates: list[float] = []
        try:
            for self.current, contestant in enumerate(contestants):
                estimates.append(self._admit(contestant, samples, outcome))
            draw = random.Random(seed)
            for turn in range(rounds):
                groups: list[list[float]] = [[] for _ in contestants]
                for self.current in draw.sample(range(len(contestants)), len(contestants)):
                    i, graph = self.current, self._graphs[self.current]
                    if graph is None:
                        groups[i] = list(contestants[i].host_ns)
                        continue
                    taken = self._session.take(graph, estimates[i])
                    outcome.seen[i].add(taken)
                    groups[i] = taken.times_ns
                    if turn == rounds - 1:
                        timed = contestants[i].timed
                        assert timed is not None
                        outcome.verified[i] &= self._right(
                            contestants[i], self._session.check_after(timed, graph.calls)
                        )
                outcome.rounds.append(groups)
        finally:
            for graph in self._graphs:
                if graph is not None:
                    graph.close()
            self._graphs = []
        return outcome

    def _admit(self, contestant: TimedContestant, samples: int, outcome: InterleavedSamples) -> float:
        outcome.seen.append(Samples())
        if contestant.timed is None:
            self._graphs.append(None)
            outcome.verified.append(True)
            return 0.0
        first_ns, verification = self._session.first_run(contestant.timed, contestant.estimate_ns)
        outcome.verified.append(self._right(contestant, verification))
        estimate_ns = contestant.estimate_ns or self._probe(contestant.timed, first_ns)
        size = min(samples, self._session.size(estimate_ns))
        self._graphs.append(self._session.graph(contestant.timed, size, estimate_ns))
        return estimate_ns

    def _right(self, contestant: TimedContestant, verification: Verification) -> bool:
        """Return whether an output passed.

        Raises:
            ContestantFailed: it did not, and had to; or memory was damaged, which would fail the others.
        """
        wrong = verification.checked and not verification.passed
        if self._session.damaged or (wrong and contestant.required):
            raise ContestantFailed(verification.message)
        return verification.passed

    def _probe(self, timed: Timed, first_ns: float) -> float:
        """Estimate a time of which nothing is known: the first run was cold in every way."""
        with closing(self._session.graph(timed, 1, first_ns)) as graph:
            return min(self._session.take(graph, first_ns).times_ns[0] for _ in range(2))
