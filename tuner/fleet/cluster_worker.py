"""What ``dask worker --preload`` loads: with it a worker stands for one GPU, runs searchers on it, and passes their
messages on.

The messages are those of :mod:`tuner.fleet.messages`, encoded by this package and each behind the digest of its
bytes. Dask carries them as bytes; nothing is unpickled for them. What a worker does is shown on Dask's dashboard by a
task for each problem, which only waits for its end.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import queue
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec import structs

from tuner.children.compile_pool import default_jobs
from tuner.core import paths
from tuner.core.version import __version__
from tuner.fleet.cluster_host import WorkerSettings
from tuner.fleet.links import ChildLink, Events, SearcherGone
from tuner.fleet.messages import (
    SEARCHING,
    Compilers,
    FromSearcher,
    OpenDevice,
    Task,
    TaskDone,
    TaskFailed,
    TaskStopped,
)
from tuner.kernel.load import builtin_kernels, load_kernel

if TYPE_CHECKING:
    from distributed import Worker

LEASE_S = 60.0
"""A searcher of which the head has asked nothing for so long is ended: the head is gone, or the way to it."""
FORGOTTEN = "the worker has ended it, because nothing was asked of it for a while"
WAIT_S = 0.5
"""How long an answer waits for something to be said."""
DIGEST_BYTES = 16

_UNDER_WAY: dict[str, threading.Event] = {}
"""The tasks of this process, by searcher and key; set when they have ended."""


def sealed(data: bytes) -> bytes:
    """Return bytes behind their digest."""
    return hashlib.sha256(data).digest()[:DIGEST_BYTES] + data


def unsealed(data: bytes) -> bytes:
    """Return what :func:`sealed` was given.

    Raises:
        ValueError: the digest does not fit.
    """
    content = bytes(data[DIGEST_BYTES:])
    if sealed(content) != bytes(data):
        raise ValueError("a message whose digest does not fit its content")
    return content


def hold(name: str) -> None:
    """Wait until a task of this worker has ended: what Dask's dashboard shows of it."""
    if event := _UNDER_WAY.get(name):
        event.wait()


def task_name(searcher: str, task: str) -> str:
    """Return what a task is called on its worker, where several heads may have searchers."""
    return f"{searcher} {task}"


class Searcher:
    """A searcher of this host, as the head speaks to it from afar."""

    def __init__(self, key: str, opening: OpenDevice) -> None:
        self._key = key
        self._events: Events = queue.SimpleQueue()
        self._link = ChildLink(self._events, opening)
        self._task = ""
        self.heard = time.monotonic()

    def send(self, data: bytes) -> None:
        """Pass a message on."""
        message = SEARCHING.requests.decode(data)
        if isinstance(message, Task):
            self._task = task_name(self._key, message.key)
            _UNDER_WAY[self._task] = threading.Event()
            message = structs.replace(message, kernel=_here(message.kernel))
        self._link.send(message)

    def receive(self) -> tuple[list[bytes], str]:
        """Return what was said, waiting for the first of it; and why no more will be, if so."""
        self.heard = time.monotonic()
        messages: list[bytes] = []
        try:
            event = self._events.get(timeout=WAIT_S)
            while True:
                if isinstance(event.what, SearcherGone):
                    self._ended()
                    return messages, event.what.reason or "it has ended"
                messages.append(sealed(self._noted(event.what)))
                event = self._events.get_nowait()
        except queue.Empty:
            return messages, ""

    def _noted(self, message: FromSearcher) -> bytes:
        if isinstance(message, TaskDone | TaskFailed | TaskStopped):
            self._ended()
        return SEARCHING.replies.encode(message)

    def _ended(self) -> None:
        if event := _UNDER_WAY.pop(self._task, None):
            event.set()
        self._task = ""

    def end(self) -> None:
        """Kill it, and wait until it has ended."""
        self._link.kill()
        self._link.close()
        self._ended()


def _here(kernel: Path) -> Path:
    """Return a kernel's file on this host: a built-in one is this package's own."""
    return (
        load_kernel(kernel.stem).file if not kernel.is_file() and kernel.stem in builtin_kernels() else kernel
    )


class Relay:
    """The searchers of a worker, and the calls by which the head reaches them.

    Args:
        settings: of the worker.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._searchers: dict[str, Searcher] = {}
        self._threads = ThreadPoolExecutor(32, "relay")

    @property
    def handlers(self) -> dict[str, Any]:
        """The calls, by name."""
        return {
            f"tune_{name}": getattr(self, name) for name in ("describe", "open", "send", "receive", "end")
        }

    async def describe(self) -> dict[str, Any]:
        """Return what this worker is, and what it does."""
        settings = self._settings
        return {
            "version": __version__,
            "host": socket.gethostname(),
            "device": settings.device,
            "model": settings.model,
            "uuid": settings.uuid,
            "cc": settings.cc,
            "pid": os.getpid(),
            "searchers": len(self._searchers),
        }

    async def open(self, key: str, message: bytes) -> None:
        """Start a searcher."""
        opening = SEARCHING.requests.decode(unsealed(message))
        assert isinstance(opening, OpenDevice)
        total = default_jobs()
        share = max(1, total // self._settings.neighbours)
        own = structs.replace(
            opening,
            device=self._settings.device,
            cache=None if opening.cache is None else paths.cubins(),
            compilers=Compilers(total, share, Path(self._settings.shared) / "compilers"),
        )
        self._searchers[key] = await self._in_thread(partial(Searcher, key, own))

    async def send(self, key: str, messages: Sequence[bytes]) -> None:
        """Pass messages to a searcher, in order."""
        for message in messages:
            await self._in_thread(partial(self._searchers[key].send, unsealed(message)))

    async def receive(self, key: str) -> tuple[list[bytes], str]:
        """Return what a searcher has said, and why it says no more."""
        searcher = self._searchers.get(key)
        if searcher is None:
            return [], FORGOTTEN
        messages, gone = await self._in_thread(searcher.receive)
        if gone:
            self._searchers.pop(key, None)
        return messages, gone

    async def end(self, key: str) -> None:
        """End a searcher; there may be none."""
        if searcher := self._searchers.pop(key, None):
            await self._in_thread(searcher.end)

    async def tend(self) -> None:
        """End searchers that the head has forgotten."""
        for key, searcher in [*self._searchers.items()]:
            if time.monotonic() - searcher.heard > LEASE_S:
                await self.end(key)

    async def _in_thread(self, call: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


@click.command()
@click.argument("settings")
async def dask_setup(worker: Worker, settings: str) -> None:
    """Have a worker answer the head's calls, before it joins the scheduler."""
    from tornado.ioloop import PeriodicCallback

    relay = Relay(msgspec.json.decode(settings, type=WorkerSettings))
    worker.handlers.update(relay.handlers)
    worker.periodic_callbacks["tune"] = PeriodicCallback(relay.tend, 100 * LEASE_S)


def dask_teardown(worker: Worker) -> None:  # noqa: ARG001 - Dask's signature
    """Let tasks end, for which Dask waits; searchers end with this process."""
    for event in _UNDER_WAY.values():
        event.set()
