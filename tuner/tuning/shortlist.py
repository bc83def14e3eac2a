"""The shortlist: more candidates are compiled than tried, and the search chooses among them by the latest results.

A candidate takes some tenths of a second to compile on one core, and often less to time. Tried in the order of the
proposals, every choice would be as many results behind as there are compilers. So the search only nominates. Compiled
nominees wait, and whenever the GPU is free the search chooses among them with all results so far. With compilers to
spare more is nominated than tried; the least promising nominees are withdrawn, and are no trials.

Without compilers to spare every nominee becomes a trial. Then more are nominated ahead: trials are told in order, and
no compiler is to wait for work while one trial holds up the others.

Nominations and choices go by counts, not by the clock: a nominee may be chosen once so many others were nominated after
it that it must be compiled, and is waited for if it is not. How many are nominated for each trial follows from the
seconds that the trials so far took. So the same answers give the same run. The one exception is :data:`PATIENCE_S`.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable

from tuner.core.model import Configuration, Status
from tuner.devices.base import Device
from tuner.search.base import Nominating

DEPTH = 6
"""Trials under way at a time while nominees are passed over: two with the measuring process, and some for
the moments in which the next is compiled or chosen."""
SLACK = 4
"""Nominations after which a nominee must be compiled, beside two for each compiler: one of a hundred candidates takes
three times as long to compile as the median, and waiting for it holds up the GPU."""
RESERVE = 8
"""Nominees that must be compiled before the first choice. After as many trials it is settled whether compilers are to
spare."""
SPARE = 1.5
"""Nominations for a trial below which there are no compilers to spare."""
FURTHER, OF_THE_REST = 1.5, 4
"""Then so many more are nominated ahead for each compiler, and of the trials that are left at most one in so many: what
is nominated ahead knows less. Simulated with 16 compilers, 0.4 s for a compilation (0.7 s for one in ten) and 25 ms on
the GPU, 200 trials take 7.4 s so, and 9.4 s without."""
SHARE = 0.75
"""Of the compilers' time that is spent; the head and the measuring process need cores, too."""
NOMINATION_S = 0.01
"""Time on the GPU for each nomination: one takes the head some milliseconds, and must not hold the GPU up."""
TOGETHER = 4
"""Nominations at a time, which cost hardly more than one, and the fewest nominees to choose among."""
MOST = 4.0
"""Nominations for a trial, at most."""
KEPT = 48
"""Compiled nominees that are kept; of more, the least promising are withdrawn."""
AWAY = 1.3
"""How much longer a nominee gets than the slowest of the last compilations, a tenth of them left out."""
REMEMBERED = 25
"""Last trials, whose seconds predict the next."""
PATIENCE_S = 2.0
"""How long a compilation may hold up the GPU while others have ended; it is then passed over."""


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
        self._waiting: dict[Configuration, int] = {}
        """Nominees by number, oldest first."""
        self._seconds: deque[tuple[float, float]] = deque(maxlen=REMEMBERED)
        self._held_up_since: float | None = None

    @property
    def rate(self) -> float:
        """Nominations for each trial that ends, at least 1."""
        if not self._seconds:
            return 1.0
        # A mean: where most are in the cache, the others take the compilers' time.
        compile_s, measure_s = statistics.fmean(self._compile_s), self._measure_s
        spare = SHARE * self.device.compilers * measure_s / max(compile_s, 1e-6)
        return max(1.0, min(spare, measure_s / NOMINATION_S, MOST))

    @property
    def _compile_s(self) -> list[float]:
        """Seconds of the last compilations, the slowest tenth left out."""
        seconds = sorted(compile_s for compile_s, _ in self._seconds)
        return seconds[: len(seconds) - len(seconds) // 10]

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
        further = 0 if self.selecting else min(int(FURTHER * self.device.compilers), left // OF_THE_REST)
        room = int(self._allowed) + further - self.nominated
        most = math.inf
        if not self.selecting or left * self.rate < self._ahead:
            # Only so many are tried, or the run will be over before others may be chosen.
            most = left - len(self._waiting)
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
        for number, configuration in enumerate(nominees, self.nominated - len(nominees)):
            self._waiting[configuration] = number
            self.device.compile(configuration)

    def skip(self, configuration: Configuration) -> None:
        """Leave out a configuration that is tried without being chosen here."""
        self._waiting.pop(configuration, None)

    @property
    def empty(self) -> bool:
        """Whether nothing is left to choose, now or later."""
        return self.exhausted and not self._waiting

    def ready(self) -> bool:
        """Return whether a choice is possible: all nominees that must be compiled are."""
        due = self._due()
        late = sum(self.device.compiled(configuration) is None for configuration in due)
        if late == 0:
            self._held_up_since = None
            return bool(due)
        now = time.monotonic()
        self._held_up_since = self._held_up_since or now
        return now - self._held_up_since > PATIENCE_S and any(map(self.device.compiled, self._waiting))

    def choose(self) -> Configuration:
        """Return the configuration to try next; only when :meth:`ready`.

        One that failed to compile goes first: it costs the GPU nothing, and teaches.
        """
        nominees, due = [], self._due()
        if not any(map(self.device.compiled, due)):
            due = list(self._waiting)  # all of them are passed over
        for configuration in due:
            if (compiled := self.device.compiled(configuration)) is not None:
                if compiled.status is not Status.OK:
                    del self._waiting[configuration]
                    return configuration
                nominees.append(configuration)
        chosen, *others = (nominees[index] for index in self.sampler.choose(nominees))
        del self._waiting[chosen]
        if not self.exhausted:
            for configuration in others[KEPT:]:
                self._withdraw(configuration)
        return chosen

    def close(self) -> None:
        """Withdraw everything: nothing more will be tried."""
        for configuration in list(self._waiting):
            self._withdraw(configuration)

    @property
    def _ahead(self) -> int:
        """Nominations after which a nominee must be compiled: more where they come so fast that some still are."""
        least = 2 * self.device.compilers + SLACK
        if not self._seconds:
            return least
        meanwhile = AWAY * self.rate * self._compile_s[-1] / self._measure_s
        return max(least, min(int(meanwhile), 2 * least))

    def _due(self) -> list[Configuration]:
        """Return the nominees that must be compiled by now: those with enough after them, at least the oldest."""
        newest = max(RESERVE, int(self._allowed) - self._ahead)
        due = sum(number < newest for number in self._waiting.values())
        return list(self._waiting)[: max(due, TOGETHER)]

    def _withdraw(self, configuration: Configuration) -> None:
        del self._waiting[configuration]
        self.device.forget(configuration)
        self.sampler.withdraw(configuration)
