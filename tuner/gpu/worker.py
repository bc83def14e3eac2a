"""The measuring process: owns the GPU, verifies and times one candidate after another, and may die at any moment.

It speaks JSON over its pipes. Before each step that a bad kernel could block for ever, it says how long the step may
take; the guard (``tuner.devices.guard``) kills it after that. After an error that ruins the context it reports and
ends, and the guard starts a new one.
"""

from __future__ import annotations

import base64
import contextlib
import os
import queue
import random
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tuner.children import ParentPipe
from tuner.cubin_cache import CubinCache
from tuner.errors import TunerError
from tuner.gpu.buffers import Helpers, ProblemData
from tuner.gpu.clocks import Clocks
from tuner.gpu.driver import Context, DriverFailure
from tuner.gpu.timing import (
    ClockMismatchError,
    ColdGraph,
    Limits,
    Loaded,
    Timer,
    group_size,
    load,
    median_half_width,
)
from tuner.gpu.verify import Verifier
from tuner.model import Measurement, Status, Verification
from tuner.plan import Plan, buffer_from_json

FIRST_LAUNCH_S = 30.0
FIRST_LAUNCH_FLOORS = 2000.0
"""Allowed for the first launch while nothing is known about the problem's time: so many seconds, and so many times what
the hardware needs at least. A naive kernel reaches some 0.2 % of a matrix unit's peak."""
KNOWN_LAUNCH_S = 10.0
"""Least that is allowed once there is an incumbent: a slow kernel is not a hang."""
LOCK_S = 600.0
"""Allowed for another tuner on the same GPU to end its turn."""
LOAD_S = 60.0
SLOW_FACTOR = 3.0
HOPELESS_FACTOR = 10.0
MIN_SAMPLES = 12
ALSO_RAN_NS = 20e6
CONTENDER_FACTOR = 1.05
CONTENDER_NS = 80e6
CONTENDER_SAMPLES = 100
NARROW = 0.0025


class Worker:
    """Answers the guard's requests."""

    def __init__(self, pipe: ParentPipe, index: int, cache: CubinCache | None) -> None:
        self._pipe = pipe
        self.requests: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._context = Context(index)
        self.gpu = self._context.describe()
        self._helpers = Helpers(self._context, self.gpu.arch, cache)
        clocks = Clocks(self.gpu.uuid)
        self._timer = Timer(self._context, clocks, self.gpu.uuid)
        self._data: ProblemData | None = None
        self._verifier: Verifier | None = None
        self._limits = Limits(0.0, 0.0, 0.0)
        self._span = 0.0
        self._refined_s = 0.0
        """Seconds of the current span spent on more samples than its rank asked for, for want of another candidate."""
        self._damaged = False
        """A kernel wrote where it must not: nothing in this process's GPU memory can be relied on any more."""
        self.nvml = clocks.available

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a request asks for."""
        handlers = {
            "setup": self._setup,
            "measure": self._measure,
            "race": self._race,
            "release": self._release,
        }
        self._allow(LOCK_S)
        with self._timer.exclusive():
            self._allow(LOAD_S)
            return handlers[request["do"]](request)

    def _allow(self, seconds: float) -> None:
        self._pipe.send({"allow_s": seconds})

    # -- setup ------------------------------------------------------------------------------------------------

    def _setup(self, request: dict[str, Any]) -> dict[str, Any]:
        self._release(request)
        self._allow(600.0)  # a NumPy reference of a large problem takes its time
        self._limits = Limits(**request["limits"])
        tensors = tuple(buffer_from_json(tensor) for tensor in request["tensors"])
        try:
            data = ProblemData(self._helpers, tensors, request["seed"], self.gpu.l2_bytes, self.gpu.sm_count)
            self._data = data
            self._verifier = Verifier(data, request["reference"])
            data.seal()
        except TunerError as error:
            return {"error": str(error)}
        except DriverFailure as failure:
            if failure.sticky:
                return {"error": f"the reference kernel failed: {failure}", "dying": True}
            if failure.status is not Status.OUT_OF_MEMORY:
                return {"error": f"the reference cannot be launched: {failure}"}
            needs = sum(tensor.size_bytes for tensor in tensors) / 2**30
            return {
                "error": f"this problem does not fit on the GPU: {failure}; its tensors alone take {needs:.1f} GiB"
            }
        return {"verifiable": self._verifier.possible}

    def _release(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - a handler's signature
        """Give back the problem's memory, so that another process has room for the same problem."""
        if self._data is not None:
            self._data.close()
        self._data = self._verifier = None
        return {}

    # -- one candidate ------------------------------------------------------------------------------------------

    def _measure(self, request: dict[str, Any]) -> dict[str, Any]:
        candidate = None
        self._span = self._refined_s = 0.0
        try:
            candidate = self._load(request)
            self._span = time.monotonic()
            measurement = self._judge(candidate, request)
        except DriverFailure as failure:
            measurement = Measurement(failure.status, error=str(failure))
            dying = failure.sticky
        except ClockMismatchError as mismatch:
            measurement, dying = Measurement(Status.UNTRUSTED, error=str(mismatch)), False
        else:
            dying = False
        end = time.monotonic()
        if candidate is not None and not dying:
            candidate.close()
        span = [self._span, end] if self._span else []
        return {
            "measurement": asdict(measurement),
            "span": span,
            "refined_s": self._refined_s,
            "dying": dying or self._damaged,
        }

    def _load(self, request: dict[str, Any]) -> Loaded:
        assert self._data is not None
        plan = Plan.from_json(request["plan"])
        return load(self._data, request["cubins"], request["entries"], plan.launches, plan.scratch)

    def _judge(self, candidate: Loaded, request: dict[str, Any]) -> Measurement:
        incumbent = request.get("incumbent_ns") or 0.0
        first, verification = self._first_run(candidate, incumbent)
        if verification.checked and not verification.passed:
            return Measurement(Status.WRONG_RESULT, (first,), verification.message, verification)
        if request.get("verify_only"):
            return Measurement(Status.OK, (first,), "", verification)
        samples, tags, slow = self._sample(candidate, first, incumbent, bool(request.get("thorough")))
        again = self._check()
        if again.checked and not again.passed:
            return Measurement(
                Status.WRONG_RESULT,
                tuple(samples),
                f"after timing: {again.message}",
                again,
                tuple(sorted(tags)),
            )
        middle = statistics.median(samples)
        status, error = (Status.SLOW if slow else Status.OK), ""
        if not verification.checked:
            status, error = Status.UNVERIFIED, verification.message
        if middle < self._limits.floor_ns:
            status = Status.UNTRUSTED
            error = f"{middle / 1e3:.2f} us is less than the hardware needs ({self._limits.floor_ns / 1e3:.2f} us)"
        return Measurement(status, tuple(samples), error, verification, tuple(sorted(tags)))

    def _first_run(self, candidate: Loaded, incumbent_ns: float) -> tuple[float, Verification]:
        """Run once on poisoned outputs, and compare: the check is the warm-up, and sizes everything after it."""
        assert self._data is not None
        unknown = FIRST_LAUNCH_S + FIRST_LAUNCH_FLOORS * self._limits.floor_ns * 1e-9
        self._allow(max(KNOWN_LAUNCH_S, 100 * incumbent_ns * 1e-9) if incumbent_ns else unknown)
        self._data.poison()
        graph = ColdGraph(self._data, candidate, 1, flush=False)
        try:
            (first,) = graph.run(self._context)
        finally:
            graph.close()
        self._allow(60.0)
        return first, self._check()

    def _check(self) -> Verification:
        assert self._data is not None and self._verifier is not None
        damage = self._data.damage()
        if damage:
            self._damaged = True
            return Verification(False, message=f"the kernel {damage}")
        return self._verifier.check()

    def _sample(
        self, candidate: Loaded, first_ns: float, incumbent_ns: float, thorough: bool
    ) -> tuple[list[float], set[str], bool]:
        """Take as many samples as the candidate's rank deserves."""
        assert self._data is not None
        if incumbent_ns and not thorough and first_ns > HOPELESS_FACTOR * incumbent_ns:
            # The first run was not warmed up: kernels of microseconds can look ten times slower in it.
            samples, tags = self._groups(candidate, 1, first_ns, 1)
            if samples[0] > SLOW_FACTOR * incumbent_ns:
                return samples, tags, True
        if incumbent_ns and not thorough and first_ns > SLOW_FACTOR * incumbent_ns:
            samples, tags = self._groups(candidate, 2, first_ns, 2)
            if min(samples) > SLOW_FACTOR * incumbent_ns:
                return samples, tags, True
        size = group_size(first_ns)
        samples, tags = self._groups(candidate, size, first_ns, 1 if first_ns > ALSO_RAN_NS / 3 else 3)
        while len(samples) < MIN_SAMPLES and sum(samples) < ALSO_RAN_NS:
            self._extend(candidate, size, samples, tags)
        contends = (
            thorough or not incumbent_ns or statistics.median(samples) < CONTENDER_FACTOR * incumbent_ns
        )
        while len(samples) < CONTENDER_SAMPLES and sum(samples) < CONTENDER_NS:
            wide = contends and median_half_width(samples) > NARROW
            # While the compilers are behind, the time is best spent on this candidate: it costs nobody anything.
            if not wide and (thorough or not self.requests.empty()):
                break
            began = time.monotonic()
            self._extend(candidate, size, samples, tags)
            self._refined_s += 0.0 if wide else time.monotonic() - began
        return samples, tags, False

    def _extend(self, candidate: Loaded, size: int, samples: list[float], tags: set[str]) -> None:
        more, more_tags = self._groups(candidate, size, statistics.median(samples), size)
        samples += more
        tags |= more_tags

    def _groups(
        self, candidate: Loaded, size: int, estimate_ns: float, least: int
    ) -> tuple[list[float], set[str]]:
        """Take groups of ``size`` until there are ``least`` samples."""
        assert self._data is not None
        samples: list[float] = []
        tags: set[str] = set()
        graph = ColdGraph(self._data, candidate, size)
        try:
            while len(samples) < least:
                self._allow(KNOWN_LAUNCH_S + 20 * size * estimate_ns * 1e-9)
                more, reasons = self._timer.group(self._data, graph, heavy=self._limits.heavy(estimate_ns))
                samples += more
                tags |= reasons
        finally:
            graph.close()
        return samples, tags

    # -- several in turn ------------------------------------------------------------------------------------------

    def _race(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time candidates in turn, in shuffled rounds; each round gives one group of each."""
        assert self._data is not None
        self._span = time.monotonic()
        order = random.Random(request["seed"])
        loaded: list[Loaded] = []
        graphs: list[ColdGraph] = []
        rounds: list[list[list[float]]] = []
        tags: set[str] = set()
        estimates: Sequence[float] = request["estimates_ns"]
        current = 0
        try:
            for current, item in enumerate(request["candidates"]):
                loaded.append(self._load(item))
                _insist(self._first_run(loaded[-1], estimates[current])[1])
                size = min(request["samples"], group_size(estimates[current]))
                graphs.append(ColdGraph(self._data, loaded[-1], size))
            for turn in range(request["rounds"]):
                found: list[list[float]] = [[] for _ in graphs]
                for current in order.sample(range(len(graphs)), len(graphs)):
                    self._allow(KNOWN_LAUNCH_S + 20 * graphs[current].samples * estimates[current] * 1e-9)
                    heavy = self._limits.heavy(estimates[current])
                    found[current], reasons = self._timer.group(self._data, graphs[current], heavy=heavy)
                    tags |= reasons
                    if turn == request["rounds"] - 1:
                        _insist(self._check())
                rounds.append(found)
        except (DriverFailure, ClockMismatchError, _WrongResult) as failure:
            dying = self._damaged or (isinstance(failure, DriverFailure) and failure.sticky)
            return {"error": str(failure), "candidate": current, "dying": dying}
        finally:
            for graph in graphs:
                graph.close()
            for candidate in loaded:
                candidate.close()
        return {"rounds": rounds, "tags": sorted(tags), "span": [self._span, time.monotonic()]}


class _WrongResult(Exception):  # noqa: N818 - a verdict on a candidate
    """A contestant's output is wrong."""


def _insist(verification: Verification) -> None:
    if verification.checked and not verification.passed:
        raise _WrongResult(verification.message)


def _read_requests(pipe: ParentPipe, requests: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    """Empty the pipe at once, so that the guard never blocks on it, and decode while the GPU works."""
    while True:
        request = pipe.receive()
        if request is not None:
            for item in (request, *request.get("candidates", ())):
                if "cubins" in item:
                    item["cubins"] = [base64.b64decode(cubin) for cubin in item["cubins"]]
        requests.put(request)
        if request is None:
            # The tuner is gone; a hung kernel must not keep this process.
            time.sleep(2.0)
            os._exit(0)


def main() -> None:
    """Serve until the guard closes the pipe. Arguments: GPU number, cache folder or ``-``."""
    pipe = ParentPipe()
    cache = None if sys.argv[2] == "-" else CubinCache(Path(sys.argv[2]))
    try:
        worker = Worker(pipe, int(sys.argv[1]), cache)
    except (TunerError, DriverFailure) as error:
        pipe.send({"error": str(error)})
        return
    pipe.send({"gpu": worker.gpu.to_json(), "nvml": worker.nvml})
    threading.Thread(target=_read_requests, args=(pipe, worker.requests), daemon=True).start()
    while (request := worker.requests.get()) is not None:
        pipe.send({"started": request["id"]})
        reply = worker.answer(request)
        pipe.send({"id": request["id"], **reply})
        if reply.get("dying"):
            # The context is ruined: every later call would only repeat the error.
            with contextlib.suppress(OSError):
                sys.stderr.flush()
            os._exit(3)
    os._exit(0)  # the context's own tear-down can block behind a kernel


if __name__ == "__main__":
    main()
