"""The head's side of a cluster: its workers as devices that come and go, and the way to their searchers.

Dask brings the connections, says which workers there are, and shows what they do. Messages go straight to a worker, by
calls that :mod:`tuner.fleet.cluster_worker` answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.core import paths
from tuner.core.errors import TunerError
from tuner.core.messages import Record
from tuner.core.version import __version__
from tuner.fleet.cluster_files import require_dask, security_of
from tuner.fleet.cluster_worker import FORGOTTEN, hold, sealed, task_name, unsealed
from tuner.fleet.links import Event, Events, SearcherGone
from tuner.fleet.messages import SEARCHING, OpenDevice, Task, ToSearcher

if TYPE_CHECKING:
    from distributed import Client
    from distributed.core import ConnectionPool

ANSWER_S = 20.0
"""How long a worker may take to answer a call; what it waits for itself is half a second."""
CONNECT_S = 10.0


SHOWN_ON = " on "
"""Between a problem and its device in the name of the task that Dask shows."""


NO_ANSWER = "it does not answer"
TWICE = "the GPU {uuid} is in the cluster already"


class Described(Record, frozen=True):
    """What a worker says of itself."""

    version: str
    host: str
    device: str
    model: str
    uuid: str
    cc: int
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
        self._ending = False
        self._shown: list[Any] = []
        self._in_order = asyncio.Lock()
        self._opened = cluster.run(self._open(opening))
        self._served = cluster.run(self._serve())

    def send(self, message: ToSearcher) -> None:
        """Send a message; they arrive in order."""
        self._cluster.run(self._send(message))

    def kill(self) -> None:
        """End the searcher."""
        if not self._ending:
            self._ending = True
            self._ended = self._cluster.run(self._end())

    def close(self) -> None:
        """Wait until it has ended, or cannot be reached."""
        with contextlib.suppress(Exception):  # whatever becomes of the connection
            if not self._opened.done():
                knock(self._address)
            if self._served.result(timeout=ANSWER_S):
                self._ended.result(timeout=ANSWER_S)

    async def _open(self, opening: OpenDevice) -> None:
        message = sealed(SEARCHING.requests.encode(opening))
        async with self._in_order:
            await self._cluster.call(self._address, "open", key=self._key, message=message)

    async def _send(self, message: ToSearcher) -> None:
        data = sealed(SEARCHING.requests.encode(message))
        with contextlib.suppress(Exception):  # whatever it is, the reading side finds out and says so
            async with self._in_order:
                await self._cluster.call(self._address, "send", key=self._key, messages=[data])
            if isinstance(message, Task):
                name = task_name(self._key, message.key)
                self._shown = [self._cluster.show(name, message, self._address, self._label)]

    async def _serve(self) -> bool:
        """Pass on what the searcher says; return whether its worker can be reached to the last."""
        reason, cut = "it was ended", False
        try:
            await asyncio.wrap_future(self._opened)
            while not self._ending:
                answer = await self._cluster.call(self._address, "receive", key=self._key)
                for data in answer[0]:
                    self._events.put(Event(self, SEARCHING.replies.decode(unsealed(data))))
                if answer[1]:
                    reason, cut = answer[1], answer[1] == FORGOTTEN
                    break
        except Exception as error:  # noqa: BLE001 - of Dask, of the network, of a message: the searcher cannot be used
            reason, cut = f"the connection to {self._label} has failed ({type(error).__name__})", True
            self._cluster.run(self._end())
        finally:
            self._shown.clear()
            self._events.put(Event(self, SearcherGone(reason, innocent=cut)))
        return not cut

    async def _end(self) -> None:
        with contextlib.suppress(Exception):
            await asyncio.wrap_future(self._opened)  # until then there is nothing to end
        with contextlib.suppress(Exception):  # it ends itself when no head asks any more
            await self._cluster.call(self._address, "end", key=self._key)


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
        # Calls to workers go on without the scheduler, and whatever becomes of Dask's client: on a loop of our own.
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True, name="cluster").start()
        self._pool = self.run(self._new_pool()).result(timeout=CONNECT_S)

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

    async def _new_pool(self) -> ConnectionPool:
        from distributed.core import ConnectionPool

        security = security_of(self._folder, self.scheduler)
        arguments = security.get_connection_args("client") if security else {}
        pool = ConnectionPool(limit=1024, connection_args=arguments, timeout=CONNECT_S)
        await pool.start()
        return pool

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
        """Leave the cluster as it is."""
        with contextlib.suppress(Exception):
            self._client.close(timeout=5)
        with contextlib.suppress(Exception):
            self.run(self._pool.close()).result(timeout=5)
        self._loop.call_soon_threadsafe(self._loop.stop)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Have the connections' own thread run a coroutine."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def call(self, address: str, name: str, **arguments: Any) -> Any:
        """Return what a worker answers.

        Raises:
            OSError: it does not, or cannot be reached.
            AttributeError: it was not started by this tool.
        """
        call = getattr(self._pool(address), f"tune_{name}")(**arguments)
        return await asyncio.wait_for(call, ANSWER_S)

    def workers(self) -> dict[str, str]:
        """Return the names of the workers that there are, by address."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        return {address: str(worker["name"]) for address, worker in workers.items()}

    def tuned_on(self) -> dict[str, list[str]]:
        """Return the problems that are tuned now, by the worker's address."""
        tasks = self._client.processing()
        return {
            address: [str(key).rpartition(SHOWN_ON)[0] for key in keys] for address, keys in tasks.items()
        }

    def described(self, address: str) -> Described | str:
        """Return what a worker says of itself, or why it cannot be used."""
        try:
            said = self.run(self.call(address, "describe")).result(timeout=ANSWER_S)
            worker = Described(**said)
        except (OSError, TimeoutError) as error:
            return f"{NO_ANSWER} ({str(error) or type(error).__name__})"
        except Exception as error:  # noqa: BLE001 - of Dask, or of a worker of something else
            return f"it was not started by `tune cluster start` of this version ({error or type(error).__name__})"
        if worker.version != __version__:
            return f"it has kernel-tune {worker.version}, and this is {__version__}"
        return worker

    def all_described(self, addresses: Sequence[str]) -> dict[str, Described | str]:
        """Return what workers say of themselves, by address; those that do not answer are waited for together."""
        with ThreadPoolExecutor(32) as threads:
            return dict(zip(addresses, threads.map(self.described, addresses), strict=True))

    def show(self, name: str, task: Task, address: str, label: str) -> Any:
        """Have the dashboard show what a worker tunes, until that has ended."""
        with contextlib.suppress(Exception):  # it is only shown
            return self._client.submit(
                hold,
                name,
                key=f"{task.problem}{SHOWN_ON}{label}, {secrets.token_hex(3)}",
                workers=[address],
                allow_other_workers=False,
                retries=0,
                pure=False,
            )
        return None


def knock(address: str) -> None:
    """Raise OSError where nothing listens at an address: Dask would try for :data:`CONNECT_S` to connect to it."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()


def _unreachable(scheduler: str, error: BaseException) -> TunerError:
    """Return what is wrong where a scheduler cannot be spoken to, in one line."""
    texts = []
    cause: BaseException | None = error
    while cause is not None:
        texts.append(str(cause))
        cause = cause.__cause__ or cause.__context__
    said = " ".join(texts)
    if "certificate" in said.lower() or "ssl" in said.lower():
        return TunerError(
            f"the scheduler {scheduler} and this certificate do not match",
            "copy the folder of the host on which `tune cluster start` made it, and name it with --folder",
        )
    reason = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
    return TunerError(
        f"no scheduler answers at {scheduler}{reason}",
        "`tune cluster start` says the address",
    )


def cluster_opening(kernel: str, *, cache: bool, opener: str) -> OpenDevice:
    """Return what every searcher of a cluster is told first."""
    return OpenDevice("", kernel, paths.cubins() if cache else None, None, None, opener)


def listed(cluster: Cluster) -> Sequence[tuple[str, Described | str, Sequence[str]]]:
    """Return every worker by name, with what it says of itself, or why it cannot be used, and what it tunes now."""
    workers, tuned = cluster.workers(), cluster.tuned_on()
    rows: list[tuple[str, Described | str, Sequence[str]]] = []
    uuids: set[str] = set()
    described = cluster.all_described([*workers])
    for address, name in workers.items():
        worker = described[address]
        if isinstance(worker, Described) and worker.uuid in uuids:
            worker = TWICE.format(uuid=worker.uuid)
        if isinstance(worker, Described):
            uuids.add(worker.uuid)
        rows.append((name, worker, tuned.get(address, [])))
    return rows
