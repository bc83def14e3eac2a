"""The workers of a cluster as devices of a head, which come and go while it works."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from msgspec import structs

from tuner.fleet.cards import Card
from tuner.fleet.cluster import Cluster, Described, WorkerLink
from tuner.fleet.head import Head
from tuner.fleet.messages import Events, GpuFacts, Link, OpenDevice

UPDATE_S = 1.0
"""From one update of the workers to the next."""
PATIENCE_S = 120.0
"""How long a run waits for a worker when none is left: a host that is started again takes a minute or two."""
LEFT = "it has left the cluster"


Workers = dict[str, tuple[str, Described | str]]
"""As :meth:`Cluster.workers` has them."""


class WorkersAsCards:
    """The workers of a cluster as devices of a head: :meth:`update` adds those that have come.

    Args:
        cluster: has them.
        opening: what a searcher is told first; its device and compilers are the worker's.
        say: told of what joins, leaves or cannot be used.
        model: the GPUs that count; empty for those of the first worker. Times of two models are never pooled.
        overlap: whether two searchers take turns on each.
    """

    def __init__(
        self,
        cluster: Cluster,
        opening: OpenDevice,
        say: Callable[[str], None],
        *,
        model: str = "",
        overlap: bool,
    ) -> None:
        self._model = model
        self._cluster, self._opening, self._say, self._overlap = cluster, opening, say, overlap
        self._cards: dict[str, Card] = {}
        self._refused: dict[str, Card] = {}
        """Those that cannot be used, by address; their cards only show that."""
        self._looked = 0.0
        self._usable = 0.0
        """When there was last a worker that can be used; else when that was first looked for."""
        self._connected = True
        self._seen: queue.SimpleQueue[tuple[bool, Workers | None]] = queue.SimpleQueue()
        """Whether there was a scheduler, and the workers; None where it has just gone."""
        self._looking: threading.Thread | None = None
        """A host that is gone lets a connection wait for seconds, and the head has searchers to answer."""

    @property
    def expecting(self) -> bool:
        """Whether it is worth waiting for a worker although none can be used now."""
        return not self._usable or time.monotonic() - self._usable < PATIENCE_S

    def update(self, head: Head) -> None:
        """Add the workers that have come to a head's devices, and mark those that are gone."""
        now = time.monotonic()
        if now - self._looked >= UPDATE_S and (self._looking is None or not self._looking.is_alive()):
            self._looking = threading.Thread(target=self._list, daemon=True, name="workers")
            self._looking.start()
        while not self._seen.empty():
            self._looked = now
            self._take(*self._seen.get(), head)

    def _list(self) -> None:
        """Look which workers there are."""
        if not self._cluster.reconnect():
            self._seen.put((False, None))
            return
        workers: Workers | None = None
        with suppress(Exception):  # the scheduler has just gone: the next look says so
            workers = self._cluster.workers()
        self._seen.put((True, workers))

    def _take(self, connected: bool, workers: Workers | None, head: Head) -> None:
        self._usable = self._usable or time.monotonic()
        if connected != self._connected:
            self._connected = connected
            scheduler = f"the scheduler {self._cluster.scheduler}"
            self._say(f"{scheduler} is there again" if connected else f"{scheduler} is gone; waiting for it")
        if workers is None:
            return
        for address in self._cards.keys() - workers.keys():
            card = self._cards.pop(address)
            card.left_out = LEFT
            self._say(f"{card.name} has left the cluster")
            self._forget(self._refused, head)  # what was in the way of others may have left with it
        self._forget(self._refused.keys() - workers.keys(), head)
        head.cards[:] = [card for card in head.cards if card.left_out != LEFT or card.lanes]
        for address, (name, worker) in workers.items():
            if address not in self._cards and address not in self._refused:
                self._add(address, name, worker, head)
        if any(not card.left_out for card in self._cards.values()):
            self._usable = time.monotonic()

    def _forget(self, refused: Collection[str], head: Head) -> None:
        for address in [*refused]:
            head.cards.remove(self._refused.pop(address))

    def _add(self, address: str, name: str, worker: Described | str, head: Head) -> None:
        def start(events: Events, facts: GpuFacts | None) -> Link:
            opening = structs.replace(self._opening, facts=facts)
            return WorkerLink(self._cluster, address, card.name, events, opening)

        card = Card(name, start, self._overlap)
        if isinstance(worker, Described) and (self._model or worker.model) != worker.model:
            worker = f"this run is for {self._model}: times of two models are not pooled"
        if isinstance(worker, str):
            card.left_out, self._refused[address] = worker, card
            self._say(f"{name}: left out: {worker}")
        else:
            self._model, card.name = worker.model, f"{worker.host} {worker.device}"
            self._cards[address] = card
        head.cards.append(card)
