"""Runs configurations a few times and ends: what Nsight Compute and Compute Sanitizer watch.

The tool starts this process, so its pipes are the tool's. It reads what to do from a file
(:mod:`tuner.protocol.job` says what is in it) and writes what it does to another, its diary, one JSON object a line:

- ``{"ready": pid}`` once there is a context;
- ``{"waiting": true}`` before each configuration, for other tuners on this GPU to end their turn;
- ``{"began": number}``, then ``{"tensors": {name: [address, bytes]}}`` when its data is ready;
- ``{"ended": number, "outcome": ..., "error": ..., "log_bytes": ...}`` with the length of the tool's log by then;
- ``{"done": true}`` as the last line.

Each configuration gets tensors of its own, each in an allocation of its own, without guard zones where a tool is to see
what lies beyond them. After an error that ruins the context the process ends; whoever started the tool starts it again
with what is left.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from cuda.bindings import driver as cu

from tuner.compile.cache import CubinCache
from tuner.errors import TunerError
from tuner.gpu.buffers import Helpers, ProblemData
from tuner.gpu.candidate import Loaded, load
from tuner.gpu.clocks import Clocks
from tuner.gpu.driver import Context, DriverFailure, check
from tuner.gpu.graph import Graph
from tuner.gpu.timing import Timer
from tuner.gpu.verify import Verifier
from tuner.kernel.launches import Plan
from tuner.kernel.plan import buffer_from_json
from tuner.model import Status, Verification
from tuner.protocol.job import Outcome

SETTLE_S = 0.05
"""A tool's log that has not grown for so long after a synchronisation has been written."""
MOST_SETTLING_S = 1.0


class Diary:
    """What this process has done, for whoever started the tool."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def write(self, **entry: Any) -> None:
        """Add a line that is there even if the next step kills the process."""
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()


class Runner:
    """Does what a job says.

    Args:
        job: as :class:`tuner.protocol.job.Job` writes it.
        diary: told about every step.
    """

    def __init__(self, job: dict[str, Any], diary: Diary) -> None:
        self._job, self._diary = job, diary
        self._log = Path(job["log"]) if job["log"] else None
        self._context = Context(job["gpu"])
        self._gpu = self._context.describe()
        cache = CubinCache(Path(job["cache"])) if job["cache"] else None
        self._helpers = Helpers(self._context, self._gpu.arch, cache)
        self._timer = Timer(self._context, Clocks(self._gpu.uuid), self._gpu.uuid)
        self._loaded = False
        """Whether everything was ready for the configuration itself: what fails before is not its fault."""

    def run(self) -> None:
        """Run everything in order; does not come back from an error that ruins the context."""
        for item in self._job["runs"]:
            self._diary.write(waiting=True)
            with self._timer.exclusive():
                sticky = self._attempt(item)
            if sticky:
                os._exit(3)  # every later call would only repeat the error

    def _attempt(self, item: dict[str, Any]) -> bool:
        """Run one configuration, and write down what became of it; gives whether the context is ruined."""
        self._diary.write(began=item["number"])
        self._loaded = sticky = False
        outcome, error = Outcome.OK, ""
        try:
            verification = self._once(item)
            if verification.checked and not verification.passed:
                outcome, error = Outcome.WRONG, verification.message
            elif not verification.checked:
                outcome, error = Outcome.UNVERIFIED, verification.message
        except DriverFailure as failure:
            sticky, error = failure.sticky, str(failure)
            outcome = self._outcome_of(failure)
        except TunerError as problem:
            outcome, error = Outcome.UNPREPARED, str(problem)
        self._diary.write(ended=item["number"], outcome=outcome, error=error, log_bytes=self._log_bytes())
        return sticky

    def _once(self, item: dict[str, Any]) -> Verification:
        """Run one configuration as often as the job says, and compare what it computes."""
        setup = self._job["setups"][item["setup"]]
        tensors = tuple(buffer_from_json(tensor) for tensor in setup["tensors"])
        guarded = self._job["guarded"]
        with closing(
            ProblemData(self._helpers, tensors, self._job["seed"], 0, self._gpu.sm_count, guarded=guarded)
        ) as data:
            verifier = Verifier(data, setup["reference"])
            data.seal()
            plan = Plan.from_json(item["plan"])
            cubins = [base64.b64decode(cubin) for cubin in item["cubins"]]
            self._loaded = True
            with closing(load(data, cubins, item["entries"], plan.launches, plan.scratch)) as loaded:
                check(cu.cuCtxSynchronize())  # what fills the scratch runs on another stream
                sizes = {tensor.name: tensor.size_bytes for tensor in tensors}
                sizes |= {f"scratch {buffer.name}": buffer.size_bytes for buffer in plan.scratch}
                addresses = data.memory.addresses
                self._diary.write(tensors={name: [addresses[name], size] for name, size in sizes.items()})
                found = Verification(False, checked=False)
                for _ in range(self._job["calls"]):
                    found = self._call(data, loaded, verifier)
                    if found.checked and not found.passed:
                        return found
                if self._job["profiled"]:
                    self._profiled(data, loaded)
                return found

    def _call(self, data: ProblemData, loaded: Loaded, verifier: Verifier) -> Verification:
        """Run it once, on restored and (unless the tool watches for that) poisoned tensors."""
        if self._job["poisoned"]:
            data.poison()
        self._launch(data, loaded, restore=True)
        damage = data.damage()
        if damage:
            return Verification(False, message=f"the kernel {damage}")
        untidy = loaded.untidy()
        if untidy:
            return Verification(False, message=f"scratch {untidy} is not zero after a call, as it must be")
        return verifier.check()

    def _profiled(self, data: ProblemData, loaded: Loaded) -> None:
        """Run it once more between the two calls that switch a profiler on and off: nothing else is in there."""
        graph = Graph(self._context)
        try:
            data.add_restore(graph)
            if any(tensor.role == "inout" for tensor in data.tensors):
                graph.launch()
                self._context.synchronize()
        finally:
            graph.close()
        check(cu.cuProfilerStart())
        self._launch(data, loaded, restore=False)
        check(cu.cuProfilerStop())

    def _launch(self, data: ProblemData, loaded: Loaded, *, restore: bool) -> None:
        graph = Graph(self._context)
        try:
            if restore:
                data.add_restore(graph)
            loaded.add_to(graph, 0)
            graph.launch()
            self._context.synchronize()
        finally:
            graph.close()

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

    def _outcome_of(self, failure: DriverFailure) -> Outcome:
        if failure.status is Status.OUT_OF_MEMORY:
            return Outcome.OUT_OF_MEMORY
        if not self._loaded:
            return Outcome.UNPREPARED
        return Outcome.FAULT if failure.sticky else Outcome.UNLAUNCHABLE


def _end_with(process: int) -> None:
    """End when another process does: a tool that nobody waits for must not keep the GPU."""

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
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    diary = Diary(Path(job["diary"]))
    _end_with(job["head"])
    try:
        runner = Runner(job, diary)
    except (TunerError, DriverFailure) as error:
        diary.write(error=str(error))
        sys.exit(2)
    diary.write(ready=os.getpid())
    runner.run()
    diary.write(done=True)
    with suppress(OSError):
        sys.stdout.flush()


if __name__ == "__main__":
    main()
