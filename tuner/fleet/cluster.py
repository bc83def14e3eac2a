"""The head's side of a cluster: its workers as devices that come and go, and the way to their searchers.

Dask brings the connections, says which workers there are, and shows what they do. A searcher has a connection of its
own to its worker (:mod:`tuner.fleet.cluster_worker`), and ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tuner.core.errors import TunerError
from tuner.core.version import __version__
from tuner.fleet.cluster_files import WorkerGpu, require_dask, security_of
from tuner.fleet.cluster_worker import hold
from tuner.fleet.messages import SEARCHING, Event, Events, OpenDevice, SearcherGone, Task, ToSearcher

if TYPE_CHECKING:
    from distributed import Client
    from distributed.comm import Comm

ANSWER_S = 20.0
"""How long a worker may take to end a searcher."""
CONNECT_S = 10.0


SHOWN_ON = " on "
"""Between a problem and its device in the name of the task that Dask shows."""


END = "end"
"""The last that is said to a searcher."""
TWICE = "the GPU {uuid} is in the cluster already"


class Described(WorkerGpu, frozen=True):
    """What a worker says of itself."""

    version: str
    host: str
    pid: int
    searchers: int


class WorkerLink:
    """A searcher on a worker.

    Args:
        cluster: has the connections.
        address: the worker's.
        label: the device, as it is shown.
        events: gets what the searcher says.
        opening: the first message.
    """

    def __init__(
        self, cluster: Cluster, address: str, label: str, events: Events, opening: OpenDevice
    ) -> None:
        self._cluster, self._address, self._label, self._events = cluster, address, label, events
        self._key = secrets.token_hex(8)
        self._unsent: asyncio.Queue[ToSearcher | None] = asyncio.Queue()
        self._shown: list[Any] = []
        self._served = cluster.run(self._serve(opening))

    def send(self, message: ToSearcher) -> None:
        """Send a message; they arrive in order."""
        self._cluster.loop.call_soon_threadsafe(self._unsent.put_nowait, message)

    def kill(self) -> None:
        """End the searcher."""
        self._cluster.loop.call_soon_threadsafe(self._unsent.put_nowait, None)

    def close(self) -> None:
        """Wait until it has ended, or cannot be reached."""
        with contextlib.suppress(Exception):  # whatever becomes of the connection
            self._served.result(timeout=ANSWER_S)

    async def _serve(self, opening: OpenDevice) -> None:
        """Pass on what the searcher says."""
        try:
            comm = await self._cluster.connect(self._address)
            writing = asyncio.ensure_future(self._write(comm, opening))
            try:
                while not isinstance(data := await comm.read(), str):
                    self._events.put(Event(self, SEARCHING.replies.decode(data)))
                gone = SearcherGone(data)
            finally:
                writing.cancel()
                comm.abort()
        except Exception as error:  # noqa: BLE001 - of Dask, of the network, of a message: the searcher cannot be used
            reason = f"the connection to {self._label} has failed ({type(error).__name__})"
            gone = SearcherGone(reason, innocent=True)
        self._shown.clear()
        self._events.put(Event(self, gone))

    async def _write(self, comm: Comm, opening: OpenDevice) -> None:
        """Start the searcher, and pass messages on to it until it is ended."""
        with contextlib.suppress(OSError):  # the reading side finds out, and says so
            first = SEARCHING.requests.encode(opening)
            await comm.write({"op": "tune_search", "key": self._key, "message": first})
            while (message := await self._unsent.get()) is not None:
                await comm.write(SEARCHING.requests.encode(message))
                if isinstance(message, Task):
                    self._shown = [self._cluster.show(self._key, message, self._address, self._label)]
            await comm.write(END)


class Cluster:
    """A connection to a scheduler and its workers.

    Args:
        scheduler: its address.
        folder: has the certificate.

    Raises:
        TunerError: it cannot be reached, or does not accept the certificate.
    """

    def __init__(self, scheduler: str, folder: Path) -> None:
        require_dask()
        for name in ("distributed", "distributed.client", "distributed.gc", "tornado.application"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # what is wrong is said in one line
        self.scheduler, self._folder = scheduler, folder
        self._client = self._connected()
        # Connections to workers go on without the scheduler, and whatever becomes of Dask's client.
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True, name="cluster").start()

    def _connected(self) -> Client:
        from distributed import Client

        security = security_of(self._folder, self.scheduler)
        try:
            knock(self.scheduler)
            return Client(
                self.scheduler, timeout=CONNECT_S, security=security, set_as_default=False, name="tune"
            )
        except Exception as error:  # noqa: BLE001 - Dask, TLS and the network have many
            raise _unreachable(self.scheduler, error) from None

    async def connect(self, address: str) -> Comm:
        """Return a connection to a worker.

        Raises:
            OSError: it cannot be reached.
        """
        from distributed.comm import connect

        await asyncio.to_thread(knock, address)
        security = security_of(self._folder, self.scheduler)
        arguments = security.get_connection_args("client") if security else {}
        return await connect(address, timeout=CONNECT_S, **arguments)

    def reconnect(self) -> bool:
        """Return whether there is a connection, after trying to have one."""
        if self._client.status == "running":
            return True
        with contextlib.suppress(Exception):
            self._client.close(timeout=1)
        try:
            self._client = self._connected()
        except TunerError:
            return False
        return True

    def close(self) -> None:
        """Leave the cluster; searchers that are left end with their connections."""
        with contextlib.suppress(Exception):
            self._client.close(timeout=5)
        with contextlib.suppress(Exception):
            self.run(_cancel_others()).result(timeout=5)
        self.loop.call_soon_threadsafe(self.loop.stop)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Have the connections' own thread run a coroutine."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def workers(self) -> dict[str, tuple[str, Described | str]]:
        """Return the workers that there are by address: the name of each, and what it is or why it cannot be used."""
        found: dict[str, tuple[str, Described | str]] = {}
        uuids: set[str] = set()
        for address, worker in self._client.scheduler_info(n_workers=-1)["workers"].items():
            described = _described(worker)
            if isinstance(described, Described):
                if described.uuid in uuids:
                    described = TWICE.format(uuid=described.uuid)
                else:
                    uuids.add(described.uuid)
            found[address] = str(worker["name"]), described
        return found

    def tuned_on(self) -> dict[str, list[str]]:
        """Return the problems that are tuned now, by the worker's address."""
        tasks = self._client.processing()
        return {
            address: [str(key).rpartition(SHOWN_ON)[0] for key in keys] for address, keys in tasks.items()
        }

    def show(self, key: str, task: Task, address: str, label: str) -> Any:
        """Have the dashboard show what a worker tunes, until that has ended."""
        with contextlib.suppress(Exception):  # it is only shown
            name = f"{task.problem}{SHOWN_ON}{label}, {secrets.token_hex(3)}"
            return self._client.submit(hold, key, key=name, workers=[address])
        return None


def _described(worker: Mapping[str, Any]) -> Described | str:
    """Return what a worker is, as it has told the scheduler, or why it cannot be used."""
    try:
        said = {**worker["tune"], "searchers": worker["metrics"].get("searchers", 0)}
        described = msgspec.convert(said, Described)
    except (KeyError, TypeError, msgspec.ValidationError):
        return "it was not started by `tune cluster start` of this version"
    if described.version != __version__:
        return f"it has kernel-tune {described.version}, and this is {__version__}"
    return described


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def knock(address: str) -> None:
    """Raise OSError where nothing listens at an address: Dask would try for :data:`CONNECT_S` to connect to it."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()


def _unreachable(scheduler: str, error: BaseException) -> TunerError:
    """Return what is wrong where a scheduler cannot be spoken to, in one line."""
    said, cause = str(error), error.__cause__ or error.__context__
    while cause is not None:
        said, cause = f"{said} {cause}", cause.__cause__ or cause.__context__
    if "certificate" in said.lower() or "ssl" in said.lower():
        return TunerError(
            f"the scheduler {scheduler} and this certificate do not match",
            "copy the folder of the host on which `tune cluster start` made it, and name it with --folder",
        )
    reason = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
    return TunerError(f"no scheduler answers at {scheduler}{reason}", "`tune cluster start` says the address")


def listed(cluster: Cluster) -> Sequence[tuple[str, Described | str, Sequence[str]]]:
    """Return every worker by name, with what it says of itself, or why it cannot be used, and what it tunes now."""
    tuned = cluster.tuned_on()
    return [(*worker, tuned.get(address, [])) for address, worker in cluster.workers().items()]
