"""What ``dask worker --preload`` loads: with it a worker stands for one GPU, runs searchers on it, and passes their
messages on.

The messages are those of :mod:`tuner.fleet.messages`, encoded by this package. Dask carries them as bytes; nothing is
unpickled for them. What a worker does is shown on Dask's dashboard by a task for each problem, which only waits for its
end.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec import structs

from tuner.children.compile_pool import default_jobs
from tuner.core import paths
from tuner.core.version import __version__
from tuner.fleet.cluster_connections import limit_handshakes
from tuner.fleet.cluster_files import WorkerGpu, WorkerSettings
from tuner.fleet.messages import (
    SEARCHING,
    ChildLink,
    Compilers,
    Ending,
    Event,
    OpenDevice,
    SearcherGone,
    Task,
)
from tuner.kernel.load import builtin_kernels, load_kernel

if TYPE_CHECKING:
    from distributed import Worker
    from distributed.comm import Comm
    from distributed.core import Status

_UNDER_WAY: dict[str, threading.Event] = {}
"""The tasks of this process, by the searcher's key; set when they have ended."""


def hold(key: str) -> None:
    """Wait until a searcher's task has ended: what Dask's dashboard shows of it."""
    if event := _UNDER_WAY.get(key):
        event.wait()


def _here(kernel: Path) -> Path:
    """Return a kernel's file on this host: a built-in one is this package's own."""
    builtin = not kernel.is_file() and kernel.stem in builtin_kernels()
    return load_kernel(kernel.stem).file if builtin else kernel


class Relay:
    """Runs searchers, and passes on what they and the head say.

    Args:
        settings: of the worker.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self.searchers = 0

    def describe(self) -> dict[str, Any]:
        """Return what this worker is."""
        gpu = {name: getattr(self._settings, name) for name in WorkerGpu.__struct_fields__}
        return {**gpu, "version": __version__, "host": socket.gethostname(), "pid": os.getpid()}

    async def search(self, comm: Comm, key: str, message: bytes) -> Status:
        """Run a searcher while the head is connected; the last that is said is why it has ended.

        Args:
            comm: the connection.
            key: of the searcher.
            message: the first one.
        """
        from distributed.core import Status

        loop, said = asyncio.get_running_loop(), asyncio.Queue[Event]()

        def tell(event: Event) -> None:
            with suppress(RuntimeError):  # the loop is closed: the worker ends
                loop.call_soon_threadsafe(said.put_nowait, event)

        link = ChildLink(tell, self._opening(message))
        listening = asyncio.ensure_future(_listen(comm, key, link))
        self.searchers += 1
        try:
            while not isinstance(what := (await said.get()).what, SearcherGone):
                if isinstance(what, Ending):
                    _end_shown(key)
                await comm.write(SEARCHING.replies.encode(what))
            await asyncio.to_thread(link.close)
            await comm.write(what.reason or "it has ended")
        finally:
            self.searchers -= 1
            listening.cancel()  # which kills the searcher
            _end_shown(key)
        return Status.dont_reply

    def _opening(self, message: bytes) -> OpenDevice:
        opening = SEARCHING.requests.decode(message)
        assert isinstance(opening, OpenDevice)
        total = default_jobs()
        share = max(1, total // self._settings.neighbours)
        return structs.replace(
            opening,
            device=self._settings.device,
            cache=None if opening.cache is None else paths.cubins(),
            compilers=Compilers(total, share, Path(self._settings.shared) / "compilers"),
        )


async def _listen(comm: Comm, key: str, link: ChildLink) -> None:
    """Pass on what the head says; kill the searcher when it says that, or is gone."""
    try:
        while not isinstance(data := await comm.read(), str):
            message = SEARCHING.requests.decode(data)
            if isinstance(message, Task):
                _UNDER_WAY[key] = threading.Event()
                message = structs.replace(message, kernel=_here(message.kernel))
            link.send(message)
    except OSError:  # the head, or the way to it
        pass
    finally:
        link.kill()


def _end_shown(key: str) -> None:
    if event := _UNDER_WAY.pop(key, None):
        event.set()


@click.command()
@click.argument("settings")
async def dask_setup(worker: Worker, settings: str) -> None:
    """Have a worker answer the head's calls, before it joins the scheduler."""
    limit_handshakes()
    relay = Relay(msgspec.json.decode(settings, type=WorkerSettings))
    worker.handlers["tune_search"] = relay.search
    worker.startup_information["tune"] = lambda _: relay.describe()
    worker.metrics["searchers"] = lambda _: relay.searchers


def dask_teardown(worker: Worker) -> None:  # noqa: ARG001 - Dask's signature
    """Let tasks end, for which Dask waits; searchers end with this process."""
    for event in _UNDER_WAY.values():
        event.set()
