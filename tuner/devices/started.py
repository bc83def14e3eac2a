"""The processes of a device: compilers, and those that measure. A command starts them before it imports the rest."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from tuner.children.compile_pool import CompilePool
from tuner.children.cubin_cache import usable
from tuner.children.measuring import LockIn
from tuner.core.errors import TunerError
from tuner.core.files import temporary_folder
from tuner.devices.examined import ExaminedGuard
from tuner.devices.guard import Guard

LIBRARIES = "torch", "triton", "cupy"
"""Which take seconds to import."""
FIRST_COMPILERS = 2
"""Compilers that start at once; the others do when a device is opened. Each has half as much to import as the command,
which would wait for all of them: with 8 on 2 cores for 2 s."""
MOST_BUILDERS = 8
"""Each has half a gigabyte of torch in memory."""


def has_gpu() -> bool:
    """Return whether this machine shows an NVIDIA GPU; asks the file system, so that no context is made here."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


class Processes:
    """The processes of a device.

    Args:
        index: number of the GPU.
        jobs: compiling processes; None for one a core.
        cache: folder of the cubin cache; None for none.
        worker: module of the measuring process; tests put their own there.
        pool: of compilers, closed with the others; None for one of its own.
        referee: where measuring processes are locked in, knows what is right; the pool is then another's.
        libraries: that others import before they are asked for anything.

    Raises:
        TunerError: there is no room for the files of processes that are locked in.
    """

    def __init__(
        self,
        index: int,
        jobs: int | None,
        cache: Path | None,
        worker: str = "tuner.gpu.worker",
        pool: CompilePool | None = None,
        *,
        referee: Guard | None = None,
        libraries: Iterable[str] = (),
    ) -> None:
        self.index, self._worker, self.locked_in = index, worker, referee is not None
        self._said: list[str] = []
        self._say: Callable[[str], None] = self._said.append
        self.cache = usable(cache, self._said.append)
        self._folder = ExitStack()
        self.arguments = [str(index), str(self.cache or "-"), "-"]
        self._lock: Future[LockIn] = Future()
        self._ahead: Processes | None = None
        self._new_guard: Callable[[], Guard] = partial(Guard, worker, self.arguments, self._tell)
        if referee is None:
            with suppress(TunerError):  # without it, slow references are asked again
                self.arguments[2] = str(self._folder.enter_context(temporary_folder()))
            self.arguments += libraries
        else:  # which must not read what others found to be right
            folder = self._folder.enter_context(temporary_folder())
            own, exchange = folder / "own", folder / "exchange"
            own.mkdir()
            exchange.touch()
            self.arguments += [str(own), str(exchange)]
            self._new_guard = partial(
                ExaminedGuard, worker, self.arguments, self._tell, referee, exchange, self._lock
            )
        self.guard = self._new_guard()
        """Of the process that measures candidates."""
        self._fresh: Guard | None = None
        self._next: Guard | None = None
        self._ending: list[threading.Thread] = []
        self.pool = pool or CompilePool(jobs, self.cache, at_once=FIRST_COMPILERS)
        self._builders: CompilePool | None = None

    def _tell(self, text: str) -> None:
        self._say(text)

    def expect_jailed(self) -> None:
        """Start those of :meth:`jailed`, which import libraries until it is known into what they are locked."""
        with suppress(TunerError):  # it is said where they are needed
            self._ahead = self._ahead or self._waiting()

    def _waiting(self) -> Processes:
        waiting = Processes(self.index, None, self.cache, self._worker, self.pool, referee=self.guard)
        waiting.expect_fresh()
        return waiting

    def jailed(self, readable: Iterable[Path], open_files: str = "") -> Processes:
        """Return others for the same GPU, with the same compilers, that are locked in (:mod:`tuner.core.jail`).

        What is right, the measuring process of these knows; it has nothing else to do meanwhile.

        Args:
            readable: files that they may read.
            open_files: why they are not kept from others; empty if they are.

        Raises:
            TunerError: there is no room for their files.
        """
        jailed, self._ahead = self._ahead or self._waiting(), None
        jailed._lock.set_result(LockIn(tuple(path.resolve() for path in readable), open_files))
        return jailed

    def compilers_for(self, libraries: Collection[str]) -> CompilePool:
        """Return who compiles what functions build with some libraries; the fresh process begins to import these."""
        if libraries:
            self.arguments += [one for one in LIBRARIES if one in libraries and one not in self.arguments]
            self.expect_fresh()
        if "triton" not in libraries:
            return self.pool
        jobs = min(self.pool.jobs, MOST_BUILDERS)
        self._builders = self._builders or CompilePool(jobs, worker="tuner.children.build_worker")
        return self._builders

    def tell(self, say: Callable[[str], None]) -> None:
        """Say from now on, and now what there was to say before."""
        self._say = say
        for text in self._said:
            say(text)

    def expect_fresh(self) -> None:
        """Start a process beside the others; it makes its context between two measurements of these."""
        self._next = self._next or self._new_guard()

    def fresh(self, *, again: bool = False) -> Guard:
        """Return the guard of a process that has measured nothing, or ``again`` of the last such one.

        Raises:
            DeviceError: there can be none.
        """
        if self._fresh is None or not again:
            if self._fresh is not None:
                self._end(self._fresh)
            self.alone()
            self._fresh, self._next = self._next or self._new_guard(), None
            self._fresh.hello()
        return self._fresh

    def end_fresh(self) -> None:
        """Begin to end these: a driver takes some tenths of a second to let go of one."""
        for guard in filter(None, (self._fresh, self._next)):
            self._end(guard)
        self._fresh = self._next = None

    def _end(self, guard: Guard) -> None:
        thread = threading.Thread(target=guard.close, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is ending
            guard.close()
        else:
            self._ending.append(thread)

    def alone(self) -> None:
        """Wait until what was to end has ended: a large problem does not fit twice."""
        while self._ending:
            self._ending.pop().join()

    def close(self) -> None:
        """Kill all of them, at the same time."""
        self._end(self.guard)
        self.end_fresh()
        if self._ahead is not None:
            self._ahead.close()
        if self._builders is not None:
            self._builders.close()
        if not self.locked_in:
            self.pool.close()
        self.alone()
        self._folder.close()


_begun: dict[tuple[int, int | None, Path | None], Processes] = {}


def begin(
    index: int,
    jobs: int | None,
    cache: Path | None,
    *,
    jailed: bool = False,
    libraries: Iterable[str] = (),
) -> None:
    """Start the processes of a device that will be opened with the same arguments, if there is a GPU.

    Args:
        index: number of the GPU.
        jobs: compiling processes; None for one a core.
        cache: folder of the cubin cache; None for none.
        jailed: start those that run what others wrote in Python, too.
        libraries: that references or baselines need.
    """
    if has_gpu():
        atexit.register(discard)
        begun = _begun[index, jobs, cache] = Processes(index, jobs, cache, libraries=libraries)
        if jailed:
            begun.expect_jailed()


def begun(index: int, jobs: int | None, cache: Path | None) -> Processes | None:
    """Return what was begun with these arguments, once."""
    return _begun.pop((index, jobs, cache), None)


def discard() -> None:
    """End what was begun for nothing."""
    while _begun:
        _begun.popitem()[1].close()
