"""Find stalled searchers: the process is stopped, its disk or its GPU does not answer, or its loop hangs.

Each searcher sends a heartbeat every :data:`BEAT_S`, from a thread of its own. A search also reports its progress five
times a second while other processes compile and measure, so that neither counts as a stall. Heartbeats say whether the
measuring process works: it may take 600 s for the data of a large problem, and its guard kills it when a step takes
longer than announced.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from tuner.fleet.cards import Card, Lane, Phase
from tuner.fleet.links import SearcherGone
from tuner.fleet.messages import Alive, FromSearcher

BEAT_S = 2.0
SILENT_S = 60.0
"""Longest time without a heartbeat: a host that swaps may starve a thread for seconds."""
STARTING_S = 300.0
"""Longest time to the first message: Python's modules may come from a cold disk, over the network."""
SEARCHING_S = 300.0
"""Longest time for a step of a search: a user's own sampler may need a minute for a suggestion."""
PREPARING_S = 300.0
"""Longest time for a step of a preparation that is not the measuring process's: its start, with its modules from a cold
disk, has 120 s, and the compilation of a reference 60 s; a search space is enumerated in seconds."""
FINISHING_S = 3600.0
"""Longest time for a step of a race: a confirmation has two setups of 600 s in fresh processes, and may repeat them."""
PAUSE_S = 2.0
"""If the head itself was stopped for longer, as by Ctrl-Z, that is why it received nothing."""


class Heartbeats:
    """Keeps when each searcher last sent a message."""

    def __init__(self) -> None:
        self._looked = time.monotonic()

    def note(self, lane: Lane, message: FromSearcher | SearcherGone) -> None:
        """Keep that a searcher has sent a message."""
        first, lane.heard, lane.silent = lane.silent, time.monotonic(), False
        if first or not isinstance(message, Alive) or message.working:
            lane.moved = lane.heard

    def stalled(self, cards: Sequence[Card]) -> Iterator[tuple[Card, Lane, str]]:
        """Return the stalled searchers, each with the reason."""
        now = time.monotonic()
        away_s, self._looked = now - self._looked, now
        for card in cards:
            for lane in [*card.lanes]:
                if away_s > PAUSE_S:
                    lane.heard, lane.moved = lane.heard + away_s, lane.moved + away_s
                if lane.phase in (Phase.READY, Phase.IDLE):  # it waits for the head
                    lane.moved = now
                if reason := _reason(lane, now):
                    yield card, lane, reason


def _reason(lane: Lane, now: float) -> str:
    most_s = STARTING_S if lane.silent else SILENT_S
    if now - lane.heard > most_s:
        return f"the searcher sent no heartbeat for {most_s:g} s, and was killed"
    most_s = {Phase.SEARCHING: SEARCHING_S, Phase.FINISHING: FINISHING_S}.get(lane.phase, PREPARING_S)
    if now - lane.moved > most_s:
        return f"the searcher made no progress for {most_s:g} s, and was killed"
    return ""
