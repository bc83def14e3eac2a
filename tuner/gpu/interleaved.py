"""Candidates and baselines timed in turn, in shuffled rounds: drift touches all of a round alike."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tuner.gpu.candidate import Timed
from tuner.gpu.problem import Stand
from tuner.gpu.sampling import SampleGraph
from tuner.gpu.timing import Samples
from tuner.model import Verification


@dataclass(frozen=True)
class Entrant:
    """Who takes part.

    Attributes:
        timed: what is run; None where ``host_ns`` has its times already.
        estimate_ns: what is known of its time; 0 for nothing.
        insist: whether a wrong output ends the contest.
        host_ns: times that were taken on the host, alone.
    """

    timed: Timed | None
    estimate_ns: float = 0.0
    insist: bool = True
    host_ns: tuple[float, ...] = ()


@dataclass
class Outcome:
    """Groups of samples, ``rounds[round][entrant]``, and what else was seen."""

    rounds: list[list[list[float]]] = field(default_factory=list)
    seen: list[Samples] = field(default_factory=list)
    verified: list[bool] = field(default_factory=list)


class Lost(Exception):  # noqa: N818 - an outcome
    """An entrant that must not be wrong is."""


class Contest:
    """A contest; :attr:`current` says who was at work when something went wrong."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand
        self._graphs: list[SampleGraph | None] = []
        self.current = 0

    def run(self, entrants: Sequence[Entrant], rounds: int, samples: int, seed: int) -> Outcome:
        """Verify everybody, take the rounds, verify everybody again.

        Args:
            entrants: who takes part.
            rounds: groups of each.
            samples: event pairs of a group, at most; long kernels get fewer.
            seed: of the order within the rounds.

        Raises:
            Lost: an entrant with ``insist`` gave a wrong output.
            DriverFailure: one cannot be launched, or ruined the context.
            ClockMismatchError: times contradict a clock.
        """
        outcome = Outcome()
        estimates: list[float] = []
        try:
            for self.current, entrant in enumerate(entrants):
                estimates.append(self._admit(entrant, samples, outcome))
            draw = random.Random(seed)
            for turn in range(rounds):
                found: list[list[float]] = [[] for _ in entrants]
                for self.current in draw.sample(range(len(entrants)), len(entrants)):
                    i, graph = self.current, self._graphs[self.current]
                    if graph is None:
                        found[i] = list(entrants[i].host_ns)
                        continue
                    taken = self._stand.take(graph, estimates[i])
                    outcome.seen[i].add(taken)
                    found[i] = taken.times_ns
                    if turn == rounds - 1:
                        timed = entrants[i].timed
                        assert timed is not None
                        outcome.verified[i] &= self._right(
                            entrants[i], self._stand.check_after(timed, graph.calls)
                        )
                outcome.rounds.append(found)
        finally:
            for graph in self._graphs:
                if graph is not None:
                    graph.close()
            self._graphs = []
        return outcome

    def _admit(self, entrant: Entrant, samples: int, outcome: Outcome) -> float:
        outcome.seen.append(Samples())
        if entrant.timed is None:
            self._graphs.append(None)
            outcome.verified.append(True)
            return 0.0
        first_ns, verification = self._stand.first_run(entrant.timed, entrant.estimate_ns)
        outcome.verified.append(self._right(entrant, verification))
        estimate_ns = entrant.estimate_ns or self._probe(entrant.timed, first_ns)
        size = min(samples, self._stand.size(estimate_ns))
        self._graphs.append(self._stand.graph(entrant.timed, size, estimate_ns))
        return estimate_ns

    def _right(self, entrant: Entrant, verification: Verification) -> bool:
        """Whether an output passed.

        Raises:
            Lost: it did not, and had to; or something else was damaged, for which the others would be blamed.
        """
        wrong = verification.checked and not verification.passed
        if self._stand.damaged or (wrong and entrant.insist):
            raise Lost(verification.message)
        return verification.passed

    def _probe(self, timed: Timed, first_ns: float) -> float:
        """Time somebody of whom nothing is known: the first run was cold in every way."""
        graph = self._stand.graph(timed, 1, first_ns)
        try:
            return min(self._stand.take(graph, first_ns).times_ns[0] for _ in range(2))
        finally:
            graph.close()
