"""Runs configurations a few times and ends: what Nsight Compute and Compute Sanitizer watch.

The tool starts this process, so its pipes are the tool's. It reads what to do from a file and writes what it does to
another, its diary (:mod:`tuner.children.job` says what is in both).

Each configuration gets tensors of its own, each in an allocation of its own, without guard zones where a tool is to see
what lies beyond them. After an error that ruins the context the process ends; the tool is started again
with what is left.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import msgspec
from cuda.bindings import driver as cu

from tuner.children.cubin_cache import CubinCache
from tuner.children.job import (
    JOB,
    Began,
    CaseOutcome,
    CaseRun,
    Complaint,
    Done,
    Ended,
    Entry,
    Placed,
    Ready,
    ToolJob,
    Waiting,
)
from tuner.children.measuring import Candidate
from tuner.core.errors import TunerError
from tuner.core.model import Status, Verification
from tuner.gpu.buffers import Helpers, ProblemData
from tuner.gpu.candidate import Loaded, load
from tuner.gpu.driver import Context, described, status_of
from tuner.gpu.turns import Turns
from tuner.gpu.verify import Verifier
from tuner.runtime.driver import DriverFailure, check
from tuner.runtime.launches import RESTORED

SETTLE_S = 0.05
"""A tool's log that has not grown for so long after a synchronisation has been written."""
MOST_SETTLING_S = 1.0


class Runner:
    """Does what a job says.

    Args:
        job: the job.
        tell: told about every step.
    """

    def __init__(self, job: ToolJob, tell: Callable[[Entry], None]) -> None:
        self._job, self._log, self._tell = job, job.log, tell
        self._context = Context(self._job.gpu)
        gpu = described(self._context.device)
        cache = CubinCache(Path(self._job.cache)) if self._job.cache else None
        self._helpers = Helpers(self._context, replace(gpu, l2_bytes=0), cache)  # nothing is flushed
        self._turns = Turns(gpu.uuid)
        self._loaded = False
        """Whether everything was ready for the configuration itself: what fails before is not its fault."""

    def run(self) -> None:
        """Run everything in order; does not come back from an error that ruins the context."""
        for run in self._job.runs:
            self._tell(Waiting())
            with self._turns.turn():
                sticky = self._attempt(run)
            if sticky:
                os._exit(3)  # every later call would only repeat the error

    def _attempt(self, run: CaseRun) -> bool:
        """Run one configuration, and write down what became of it; return whether the context is ruined."""
        self._tell(Began(run.number))
        self._loaded = sticky = False
        outcome, error = CaseOutcome.OK, ""
        try:
            verification = self._once(run)
            if verification.wrong:
                outcome, error = CaseOutcome.WRONG, verification.message
            elif not verification.checked:
                outcome, error = CaseOutcome.UNVERIFIED, verification.message
        except DriverFailure as failure:
            sticky, error = failure.sticky, str(failure)
            outcome = self._outcome_of(failure)
        except TunerError as problem:
            outcome, error = CaseOutcome.UNPREPARED, str(problem)
        self._tell(Ended(run.number, outcome, error, self._log_bytes()))
        return sticky

    def _once(self, run: CaseRun) -> Verification:
        """Run one configuration as often as the job says, and compare what it computes."""
        job, setup = self._job, self._job.setups[run.setup]
        given = setup.given(job.seed)
        with closing(
            ProblemData(self._helpers, setup.tensors, job.seed, guarded=job.guarded, given=given)
        ) as data:
            verifier = Verifier(data, setup.reference)
            data.seal()
            self._loaded = True
            with closing(load(data, run.candidate)) as loaded:
                check(cu.cuCtxSynchronize())  # what fills the scratch runs on another stream
                self._note_tensors(data, run.candidate)
                verification = Verification(False, checked=False)
                for _ in range(job.calls):
                    verification = self._call(data, loaded, verifier)
                    if verification.wrong:
                        return verification
                if job.profiled:
                    self._profiled(data, loaded)
                return verification

    def _note_tensors(self, data: ProblemData, candidate: Candidate) -> None:
        """Write down where tensors and scratch lie, for findings that name an address."""
        sizes = {tensor.name: tensor.size_bytes for tensor in data.tensors}
        sizes |= {f"scratch {buffer.name}": buffer.size_bytes for buffer in candidate.plan.scratch}
        addresses = data.memory.addresses
        self._tell(Placed({name: (addresses[name], size) for name, size in sizes.items()}))

    def _call(self, data: ProblemData, loaded: Loaded, verifier: Verifier) -> Verification:
        """Run it once, on restored and (unless the tool watches for that) poisoned tensors."""
        if self._job.poisoned:
            data.poison()
        self._launch(data, loaded, restore=True)
        damage = data.damage()
        if damage:
            return Verification(False, message=f"the kernel {damage}")
        scratch = loaded.scratch_not_zeroed()
        if scratch:
            return Verification(False, message=f"scratch {scratch} is not zero after a call, as it must be")
        return verifier.check()

    def _profiled(self, data: ProblemData, loaded: Loaded) -> None:
        """Run it once more between the two calls that switch a profiler on and off: nothing else is in there."""
        if any(tensor.role in RESTORED for tensor in data.tensors):
            with self._context.launched() as graph:
                data.add_restore(graph)
        check(cu.cuProfilerStart())
        self._launch(data, loaded, restore=False)
        check(cu.cuProfilerStop())

    def _launch(self, data: ProblemData, loaded: Loaded, *, restore: bool) -> None:
        with self._context.launched() as graph:
            if restore:
                data.add_restore(graph)
            loaded.add_to(graph, 0)

    def _log_bytes(self) -> int:
        """Return the length of the tool's log once it has stopped growing: its findings come from another process."""
        if self._log is None:
            return 0
        length, deadline = -1, time.monotonic() + MOST_SETTLING_S
        while time.monotonic() < deadline:
            before, length = length, self._log.stat().st_size if self._log.exists() else 0
            if length == before:
                break
            time.sleep(SETTLE_S)
        return length

    def _outcome_of(self, failure: DriverFailure) -> CaseOutcome:
        if status_of(failure) is Status.OUT_OF_MEMORY:
            return CaseOutcome.OUT_OF_MEMORY
        if not self._loaded:
            return CaseOutcome.UNPREPARED
        return CaseOutcome.FAULT if failure.sticky else CaseOutcome.UNLAUNCHABLE


def _end_with(process: int) -> None:
    """End when another process does: a tool whose caller is gone must not keep the GPU."""

    def watch() -> None:
        while True:
            time.sleep(1.0)
            try:
                os.kill(process, 0)
            except ProcessLookupError:
                os._exit(4)
            except OSError:
                return

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Do what the job in the file that is the only argument says."""
    job = JOB.decode(Path(sys.argv[1]).read_bytes())
    diary = job.diary.open("ab", buffering=0)

    def tell(entry: Entry) -> None:
        """Write a line that is there even if the next step kills the process."""
        diary.write(msgspec.json.encode(entry) + b"\n")

    _end_with(job.head)
    try:
        runner = Runner(job, tell)
    except (TunerError, DriverFailure) as error:
        tell(Complaint(str(error)))
        sys.exit(2)
    tell(Ready(os.getpid()))
    runner.run()
    tell(Done())
    with suppress(OSError):
        sys.stdout.flush()


if __name__ == "__main__":
    main()
