"""Compiles on all cores: a thread and a child process each, with a deadline that kills."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from tuner.children.compilation import COMPILING, Compilation, CompileRequest
from tuner.children.cubin_cache import CubinCache
from tuner.children.limits import NICE, Slots, memory_limit, most_children
from tuner.core.messages import UnsendableError
from tuner.core.model import Status
from tuner.core.processes import Child, ChildDied

DEADLINE_S = 60.0
"""The heaviest built-in kernel compiles in about a second; single instantiations of others take minutes."""

TELL_S = 5.0
"""Between two calls, while a compilation is waited for."""
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Unless the user has said otherwise. 16 children on 16 cores of an H100's host then compile 38 kernels of gemm a
second instead of 32, with 12,000 page faults each instead of 35,000."""
CompileChild = Child[CompileRequest, Compilation]


@dataclass(frozen=True, order=True)
class _QueuedCompilation:
    rank: int
    """What a caller waits for goes first."""
    number: int
    """In the order of submission."""
    request: CompileRequest | None = field(compare=False)
    """None ends a thread."""
    future: Future[Compilation] = field(compare=False)


WAITED_FOR, AHEAD, END = range(3)
"""Ranks of tasks."""


class CompilePool:
    """Child processes that render and compile.

    Args:
        jobs: number of children.
        cache: folder of the cubin cache; None compiles everything anew.
        deadline_s: after so long a compilation is killed and counts as ``compile_timeout``.
        memory_limit_bytes: by how much the address space of a child may grow; beyond it the compilation counts as
            ``compile_oom``. None for a share of the machine's memory.
        slots: of all pools that share the machine with this one.
        worker: module of the children.
        at_once: children that start now; the others do with :meth:`start_all`, or the first request. None for all.
    """

    def __init__(
        self,
        jobs: int | None = None,
        cache: Path | None = None,
        deadline_s: float = DEADLINE_S,
        memory_limit_bytes: int | None = None,
        slots: Slots | None = None,
        worker: str = "tuner.children.compile_worker",
        at_once: int | None = None,
    ) -> None:
        self._worker = worker
        self.jobs = jobs or default_jobs()
        self.cache = cache
        self._deadline_s = deadline_s
        self._slots = slots
        self._limit = memory_limit_bytes or memory_limit(self.jobs)
        self._queue: queue.PriorityQueue[_QueuedCompilation] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._children: set[CompileChild] = set()
        self._closing = False
        self._lock = threading.Lock()
        self._all = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._serve, args=(at_once is None or i < at_once,), daemon=True, name=f"compile-{i}"
            )
            for i in range(self.jobs)
        ]
        for thread in self._threads:
            thread.start()

    def start_all(self) -> None:
        """Start the children that have waited for that."""
        self._all.set()

    def submit(self, request: CompileRequest, *, ahead: bool = False) -> Future[Compilation]:
        """Return what a request will be compiled to.

        Args:
            request: a configuration, the kernel's CUDA reference, or a source as it is.
            ahead: whether nothing waits for it yet: all else goes first, and it may be cancelled until its turn comes.
        """
        future: Future[Compilation] = Future()
        rank = AHEAD if ahead else WAITED_FOR
        self._queue.put(_QueuedCompilation(rank, next(self._numbers), request, future))
        self.start_all()
        if self._closing:  # another thread may ask, or ask once more
            self._answer_left()
        return future

    def compile(self, request: CompileRequest) -> Compilation:
        """Compile what a request describes and wait for it."""
        return self.submit(request).result()

    def close(self) -> None:
        """Kill the children, finished or not; what still waits for a compilation gets an answer."""
        self._closing = True
        self.start_all()
        for number in range(len(self._threads)):
            self._queue.put(_QueuedCompilation(END, number, None, Future()))
        with self._lock:
            for child in self._children:
                child.stop()
        for thread in self._threads:
            thread.join(timeout=5)
        self._answer_left()
        if self.cache is not None:
            CubinCache(self.cache).trim()

    def _answer_left(self) -> None:
        """Answer what no compiler will: a thread that waited for it for ever would keep the interpreter from ending."""
        with contextlib.suppress(queue.Empty):
            while (task := self._queue.get_nowait()).request is not None:
                _refuse(task)
            self._queue.put(task)  # for a thread that is late

    def _serve(self, at_once: bool) -> None:
        child: CompileChild | None = None
        if not at_once:
            self._all.wait()
        try:
            with contextlib.suppress(OSError):  # the first task says so
                child = None if self._closing else self._spawn()
            while (task := self._queue.get()).request is not None:
                if self._closing:
                    _refuse(task)
                    continue
                if not task.future.set_running_or_notify_cancel():
                    continue
                try:
                    with self._slots.one(lambda: self._closing) if self._slots else contextlib.nullcontext():
                        child, compilation = self._run(child, task.request)
                except (MemoryError, OSError) as error:  # of this process; the caller needs an answer
                    if child is not None:  # its answer may still come, and is not that of the next task
                        self._discard(child)
                        child = None
                    memory = isinstance(error, MemoryError)
                    status = Status.COMPILE_OOM if memory else Status.COMPILE_ERROR
                    why = "the tuner has too little memory" if memory else str(error)
                    compilation = Compilation(status, f"no compiler process can be used: {why}")
                task.future.set_result(compilation)
        finally:
            if child is not None:
                self._discard(child)

    def _run(
        self, child: CompileChild | None, request: CompileRequest
    ) -> tuple[CompileChild | None, Compilation]:
        """Compile; return also the child that the next task can have."""
        try:
            child = self._hand_over(child, request)
        except (OSError, ChildDied) as error:
            return None, Compilation(Status.COMPILE_ERROR, f"no compiler process can be started: {error}")
        except UnsendableError as error:
            return child, Compilation(Status.COMPILE_ERROR, str(error))
        try:
            compilation = child.receive(self._deadline_s)
        except ChildDied as death:
            self._discard(child)
            memory = death.max_rss_bytes > self._limit // 2 or "MemoryError" in death.reason
            status = Status.COMPILE_OOM if memory else Status.COMPILE_ERROR
            return None, Compilation(status, f"the compiler process died ({death.reason})")
        if compilation is None:
            self._discard(child)
            late = f"not compiled after {self._deadline_s:g} s"
            return None, Compilation(Status.COMPILE_TIMEOUT, late, compile_s=self._deadline_s)
        if compilation.status is Status.COMPILE_OOM:
            # Its heap may stay full, and the next candidate would fail for it.
            self._discard(child)
            return None, compilation
        return child, compilation

    def _hand_over(self, child: CompileChild | None, request: CompileRequest) -> CompileChild:
        """Send the request; a child that has died since its last task is replaced, for this one is not to blame."""
        if child is not None:
            try:
                child.send(request)
                return child
            except ChildDied:
                self._discard(child)
        child = self._spawn()
        try:
            child.send(request)
        except (ChildDied, UnsendableError):
            self._discard(child)
            raise
        return child

    def _spawn(self) -> CompileChild:
        arguments = [str(self.cache) if self.cache else "-", str(self._limit)]
        child = Child(self._worker, COMPILING, arguments, HUGE_PAGES)
        with contextlib.suppress(ProcessLookupError):  # it has ended; the first task says so
            os.setpriority(os.PRIO_PROCESS, child.pid, os.getpriority(os.PRIO_PROCESS, 0) + NICE)
        with self._lock:
            self._children.add(child)
            if self._closing:
                child.stop()
        return child

    def _discard(self, child: CompileChild) -> None:
        child.kill()
        with self._lock:
            self._children.discard(child)


def _refuse(task: _QueuedCompilation) -> None:
    if task.future.set_running_or_notify_cancel():
        task.future.set_result(Compilation(Status.COMPILE_ERROR, "the compilers were closed"))


def patiently(compiling: Future[Compilation], tell: Callable[[], None]) -> Compilation:
    """Return what becomes of a compilation, and call something every few seconds until that is known."""
    while True:
        try:
            return compiling.result(TELL_S)
        except TimeoutError:
            tell()


def default_jobs() -> int:
    """Return how many compilers this machine has room for: one a core, as far as its memory goes."""
    return max(1, min(len(os.sched_getaffinity(0)), most_children()))  # a container may own few of the cores
