"""The shortlist: more candidates are compiled than tried, and the search chooses among them by the latest results.

A candidate takes some tenths of a second to compile on one core, and often less to time. Tried in the order of the
proposals, every choice would be as many results behind as there are compilers. So the search only nominates. Compiled
nominees wait, and whenever the GPU is free the search chooses among them with all results so far. With compilers to
spare more is nominated than tried; the least promising nominees are withdrawn, and are no trials.

The GPU waits for no nominee while others are compiled. One of a hundred takes three times as long to compile as the
median. So a seed gives the same run only where nothing is compiled, on a recorded device.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable

from tuner.core.model import Configuration, Status
from tuner.devices.base import Device
from tuner.search.base import Nominating

DEPTH = 6
"""Trials under way at a time while nominees are passed over: two with the measuring process, and some for
the moments in which the next is compiled or chosen."""
RESERVE = 8
"""Nominations at first, beyond one for each compiler. After as many trials it is settled whether compilers are to
spare."""
SPARE = 1.5
"""Nominations for a trial below which there are no compilers to spare."""
SHARE = 0.75
"""Of the compilers' time that is spent; the head and the measuring process need cores, too."""
NOMINATION_S = 0.01
"""Time on the GPU for each nomination: one takes the head some milliseconds, and must not hold the GPU up."""
TOGETHER = 4
"""Nominations at a time, which cost hardly more than one, and the fewest compiled nominees to choose among: where one
was enough, gemm took a tenth more trials to come within 5 %."""
MOST = 4.0
"""Nominations for a trial, at most."""
KEPT = 48
"""Compiled nominees that are kept; of more, the least promising are withdrawn."""
REMEMBERED = 25
"""Last trials, whose seconds predict the next."""


class Shortlist:
    """Nominees of a search, from their nomination until they are chosen or withdrawn.

    Args:
        sampler: of the search.
        device: one with compilers.
        lookahead: returns how many trials may be pending.
    """

    def __init__(self, sampler: Nominating, device: Device, lookahead: Callable[[], int]) -> None:
        self.sampler, self.device, self._lookahead = sampler, device, lookahead
        self.nominated = 0
        """Nominations so far."""
        self.exhausted = False
        """Whether nothing is left to nominate."""
        self._allowed = float(device.compilers + RESERVE)
        self._waiting: list[Configuration] = []
        """Nominees, oldest first."""
        self._compiled: dict[Configuration, Status] = {}
        """What became of those of them that are compiled by now."""
        self._seconds: deque[tuple[float, float]] = deque(maxlen=REMEMBERED)

    @property
    def rate(self) -> float:
        """Nominations for each trial that ends, at least 1."""
        if not self._seconds:
            return 1.0
        compile_s, measure_s = self._compile_s, self._measure_s
        spare = SHARE * self.device.compilers * measure_s / max(compile_s, 1e-6)
        return max(1.0, min(spare, measure_s / NOMINATION_S, MOST))

    @property
    def _compile_s(self) -> float:
        """Seconds of a compilation, of the last ones without the slowest tenth."""
        seconds = sorted(compile_s for compile_s, _ in self._seconds)
        # A mean: where most are in the cache, the others take the compilers' time.
        return statistics.fmean(seconds[: len(seconds) - len(seconds) // 10])

    @property
    def _measure_s(self) -> float:
        """Seconds between two trials that end, if only the GPU is waited for."""
        return statistics.median(measure_s for _, measure_s in self._seconds)

    @property
    def selecting(self) -> bool:
        """Whether there are compilers to spare, or it is not known yet."""
        return len(self._seconds) < RESERVE or self.rate >= SPARE

    @property
    def depth(self) -> int:
        """How many trials may be under way."""
        wanted = DEPTH if self.selecting else max(DEPTH, self.device.compilers // 2)
        return min(wanted, self._lookahead())

    def told(self, compile_s: float, measure_s: float) -> None:
        """Note the seconds of a trial, which makes room for others; 0 where nothing was compiled or measured."""
        if compile_s > 0.0 and measure_s > 0.0:
            self._seconds.append((compile_s, measure_s))
        self._allowed += self.rate

    def fill(self, left: int) -> None:
        """Nominate as many as there is room for, and have them compiled.

        Args:
            left: trials that are still to be begun.
        """
        room = int(self._allowed) - self.nominated
        most = math.inf
        if not self.selecting or left * self.rate < 2 * self.device.compilers:
            # Only so many are tried, and some for those that take long to compile at the end.
            most = left + 2 * TOGETHER - len(self._waiting)
            room = min(room, most)
        if room < TOGETHER and room < most and self._waiting:
            return
        if not self._waiting:
            room = max(room, 1)
        if room <= 0 or self.exhausted:
            return
        nominees = self.sampler.nominate(room)
        self.exhausted = len(nominees) < room
        self.nominated += len(nominees)
        self._waiting += nominees
        for configuration in nominees:
            self.device.compile(configuration)

    def skip(self, configuration: Configuration) -> None:
        """Leave out a configuration that is tried without being chosen here."""
        if configuration in self._waiting:
            self._remove(configuration)

    @property
    def empty(self) -> bool:
        """Whether nothing is left to choose, now or later."""
        return self.exhausted and not self._waiting

    def ready(self) -> bool:
        """Return whether there is a choice: enough nominees are compiled."""
        for nominee in self._waiting:
            if nominee not in self._compiled and (compiled := self.device.compiled(nominee)) is not None:
                self._compiled[nominee] = compiled.status
        return len(self._compiled) >= min(TOGETHER, max(1, len(self._waiting)))

    def choose(self) -> Configuration:
        """Return the configuration to try next; only when :meth:`ready`.

        One that failed to compile goes first: it costs the GPU nothing, and teaches.
        """
        nominees = [nominee for nominee in self._waiting if nominee in self._compiled]
        for nominee in nominees:
            if self._compiled[nominee] is not Status.OK:
                self._remove(nominee)
                return nominee
        chosen, *others = (nominees[index] for index in self.sampler.choose(nominees))
        self._remove(chosen)
        if not self.exhausted:
            for configuration in others[KEPT:]:
                self._withdraw(configuration)
        return chosen

    def close(self) -> None:
        """Withdraw everything: nothing more will be tried."""
        for configuration in list(self._waiting):
            self._withdraw(configuration)

    def _withdraw(self, configuration: Configuration) -> None:
        self._remove(configuration)
        self.device.forget(configuration)
        self.sampler.withdraw(configuration)

    def _remove(self, configuration: Configuration) -> None:
        self._waiting.remove(configuration)
        self._compiled.pop(configuration, None)
