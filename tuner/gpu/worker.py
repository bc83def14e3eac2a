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
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cuda.bindings import driver as cu

from tuner.compile.cache import CubinCache
from tuner.conditions import Regime
from tuner.errors import TunerError
from tuner.gpu.buffers import Helpers
from tuner.gpu.calibration import Calibrator
from tuner.gpu.candidate import Loaded, load
from tuner.gpu.clocks import Clocks
from tuner.gpu.drift import DriftWatch, Reference
from tuner.gpu.driver import Context, DriverFailure, check
from tuner.gpu.interleaved import Contest, Entrant, Lost
from tuner.gpu.measure import Judge
from tuner.gpu.open_baseline import open_baseline
from tuner.gpu.problem import Stand, build_stand
from tuner.gpu.timing import ClockMismatchError, Timer
from tuner.kernel.baselines import BaselineKind
from tuner.kernel.launches import Plan
from tuner.kernel.plan import buffer_from_json
from tuner.model import Measurement, Status
from tuner.processes import ParentPipe

LOCK_S = 600.0
"""Allowed for another tuner on the same GPU to end its turn."""
LOAD_S = 60.0
SETUP_S = 600.0
"""Allowed for a setup: a NumPy reference of a large problem takes its time."""
CALIBRATION_S = 120.0
NUMPY_S = 60.0
"""Allowed for NumPy on the host, which has no bound of its own."""
LIBRARY_S = 180.0
"""Allowed for a library's import and its first calls: torch alone takes seconds from a cold disk."""


class Worker:
    """Answers the guard's requests."""

    def __init__(self, pipe: ParentPipe, index: int, cache: CubinCache | None) -> None:
        self._pipe = pipe
        self.requests: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        uuid = _uuid(index)
        clocks = Clocks(uuid)
        self.others = clocks.processes()  # before there is a context of our own
        self._context = Context(index)
        self.gpu = self._context.describe()
        self.notes = _notes(self.gpu.name, clocks, self.others)
        self._cache = cache
        self._helpers = Helpers(self._context, self.gpu.arch, cache)
        self._timer = Timer(self._context, clocks, uuid)
        self._stand: Stand | None = None
        self._judge: Judge | None = None
        self._drift: DriftWatch | None = None
        self.nvml = clocks.available

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a request asks for."""
        handlers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "setup": self._setup,
            "measure": self._measure,
            "race": self._race,
            "calibrate": self._calibrate,
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
        self._allow(SETUP_S)
        try:
            return self._set_up(request)
        except TunerError as error:
            return {"error": str(error)}
        except ClockMismatchError as mismatch:
            return {"error": f"this GPU cannot be timed: {mismatch}"}
        except DriverFailure as failure:
            if failure.sticky:
                return {"error": f"the reference kernel failed: {failure}", "dying": True}
            if failure.status is not Status.OUT_OF_MEMORY:
                return {"error": f"the reference cannot be launched: {failure}"}
            return {"error": f"this problem does not fit on the GPU: {failure}; {_needs(request)}"}

    def _set_up(self, request: dict[str, Any]) -> dict[str, Any]:
        stand, least_error = build_stand(request, self._helpers, self.gpu, self._timer, self._allow)
        self._stand = stand
        self._drift = DriftWatch(Reference(stand, self._helpers, self.gpu)) if request["timed"] else None
        self._judge = Judge(stand, self.requests.empty)
        return {
            "verifiable": stand.verifier.possible,
            "least_error": least_error,
            "reference_ns": self._drift.reference_ns if self._drift is not None else 0.0,
        }

    def _release(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - a handler's signature
        """Return back the problem's memory, so that another process has room for the same problem."""
        if self._stand is not None:
            self._stand.close()
        self._stand = self._judge = self._drift = None
        return {}

    def _calibrate(self, request: dict[str, Any]) -> dict[str, Any]:
        self._release(request)
        self._allow(CALIBRATION_S)

        def allow(seconds: float) -> None:
            self._allow(max(seconds, CALIBRATION_S))

        calibrator = Calibrator(self._context, self.gpu, self._helpers, self._timer, allow, self._cache)
        try:
            return {"calibration": calibrator.measure().to_json()}
        except (DriverFailure, ClockMismatchError, TunerError) as error:
            dying = isinstance(error, DriverFailure) and error.sticky
            return {"error": f"this GPU cannot be calibrated: {error}", "dying": dying}

    # -- one candidate ------------------------------------------------------------------------------------------

    def _measure(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._stand is not None and self._judge is not None
        candidate = None
        began = 0.0
        drifted = dying = False
        try:
            candidate = self._load(request)
            began = time.monotonic()
            measurement = self._judge.judge(
                candidate,
                request.get("incumbent_ns") or 0.0,
                thorough=bool(request.get("thorough")),
                verify_only=bool(request.get("verify_only")),
            )
            drifted = self._has_drifted()
        except DriverFailure as failure:
            measurement = Measurement(failure.status, error=str(failure))
            dying = failure.sticky
        except ClockMismatchError as mismatch:
            measurement = Measurement(Status.CLOCK_MISMATCH, error=str(mismatch))
        end = time.monotonic()
        if candidate is not None and not dying:
            candidate.close()
        return {
            "measurement": {**asdict(measurement), "drifted": drifted},
            "span": [began, end] if began else [],
            "refined_s": self._judge.refined_s if began else 0.0,
            "dying": dying or self._stand.damaged,
            # The guard compares the next process's with it, should this one not live.
            **({"reference_ns": self._drift.reference_ns} if self._drift is not None else {}),
        }

    def _has_drifted(self) -> bool:
        assert self._stand is not None
        rested = self._stand.conditions.regime is Regime.RESTED
        if self._drift is None or self._stand.damaged or not rested:
            return False
        try:
            return self._drift.look()
        except ClockMismatchError:  # says nothing about the candidate; the next one brings another look
            return False

    def _load(self, request: dict[str, Any]) -> Loaded:
        assert self._stand is not None
        plan = Plan.from_json(request["plan"])
        return load(self._stand.data, request["cubins"], request["entries"], plan.launches, plan.scratch)

    # -- several in turn ------------------------------------------------------------------------------------------

    def _race(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time candidates and baselines in turn, in shuffled rounds; each round gives one group of each."""
        stand = self._stand
        assert stand is not None
        began = time.monotonic()
        contest = Contest(stand)
        with ExitStack() as loaded:
            entrants: list[Entrant] = []
            try:
                for item in request["candidates"]:
                    contest.current = len(entrants)
                    entrants.append(self._entrant(item, loaded))
                outcome = contest.run(entrants, request["rounds"], request["samples"], request["seed"])
            except (DriverFailure, ClockMismatchError, Lost, TunerError) as failure:
                dying = stand.damaged or (isinstance(failure, DriverFailure) and failure.sticky)
                if dying:
                    loaded.pop_all()  # every call would only repeat the error
                return {"error": str(failure), "candidate": contest.current, "dying": dying}
        tags = set().union(*(seen.tags for seen in outcome.seen)) if outcome.seen else set()
        return {
            "rounds": outcome.rounds,
            "tags": sorted(tags),
            "verified": outcome.verified,
            "sm_clock_hz": [seen.sm_clock_hz for seen in outcome.seen],
            "span": [began, time.monotonic()],
        }

    def _entrant(self, item: dict[str, Any], loaded: ExitStack) -> Entrant:
        assert self._stand is not None
        estimate_ns = float(item["estimate_ns"])
        if "cubins" in item:
            candidate = self._load(item)
            loaded.callback(candidate.close)
            return Entrant(candidate, estimate_ns, insist=bool(item["insist"]))
        self._allow(NUMPY_S if item["baseline"]["kind"] == BaselineKind.NUMPY else LIBRARY_S)
        baseline = loaded.enter_context(open_baseline(self._context, self._stand.data, item["baseline"]))
        if isinstance(baseline, tuple):
            return Entrant(None, host_ns=baseline)
        return Entrant(baseline, estimate_ns, insist=False)


def _needs(request: dict[str, Any]) -> str:
    """Say how much memory a setup asks for."""
    tensors = [buffer_from_json(tensor) for tensor in request["tensors"]]
    copies = request["batch"]["copies"]
    size_bytes = sum(tensor.size_bytes for tensor in tensors) * copies
    size_bytes += sum(12 * tensor.count for tensor in tensors if tensor.role != "input")
    text = f"its tensors and what is expected of them take {size_bytes / 2**30:.1f} GiB"
    return f"{text} in {copies} copies; --mode cold needs one" if copies > 1 else text


def _uuid(index: int) -> str:
    """Return a GPU's UUID without making a context on it; empty where there is no such GPU."""
    try:
        check(cu.cuInit(0))
        return bytes(check(cu.cuDeviceGetUuid(check(cu.cuDeviceGet(index)))).bytes).hex()
    except (DriverFailure, RuntimeError, ImportError):
        return ""  # the context says it better


def _notes(name: str, clocks: Clocks, others: int) -> list[str]:
    """Say what a reader of the times should know about this GPU."""
    notes = []
    if others:
        who = "another process has" if others == 1 else f"{others} other processes have"
        notes.append(f"{who} a context on this GPU: what they run there disturbs the times")
    if "MIG" in name.split():
        notes.append("a MIG slice: the other slices share its memory bandwidth and power")
    if not clocks.available:
        notes.append("NVML does not answer: power caps and slow-downs cannot be told from slow kernels")
    return notes


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
    pipe.send(
        {"gpu": worker.gpu.to_json(), "nvml": worker.nvml, "notes": worker.notes, "others": worker.others}
    )
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
