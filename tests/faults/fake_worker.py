"""Speaks the protocol of ``tuner.gpu.worker`` without a GPU, and fails when it is told to.

A kernel's entry names the fault, behind two underscores: ``scale__hang``. The times follow from the cubin, so
that they are the same in every process. The environment says the rest:

- ``FAKE_LOG``: a file that gets a line for each thing done: ``start``, ``setup SEED``, ``measure ENTRY``;
- ``FAKE_SLEEP_S``: how long a measurement takes;
- ``FAKE_SCALE``: by which times are multiplied: unscaled they are 100 us to 1 ms;
- ``FAKE_START``: ``refuse``, ``die`` or ``hang`` instead of a first word;
- ``FAKE_SETUP``: ``refuse``, ``die``, ``die_once`` or ``hang``, with one seed alone ``hang SEED``; ``fault``: an error
  after which the process ends;
- ``FAKE_RACE``: ``hang`` in races of warm runs;
- ``FAKE_REFERENCE_NS``: what the reference kernel takes;
Where it is locked in it asks another one, which holds outputs for right whose first byte is 0.

- ``FAKE_ONCE``: a folder; the faults ``*_once`` happen only until their name is a file there.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import signal
import struct
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

from tuner.children.measuring import (
    LOCKED_OUT,
    MEASURING,
    NOT_ISOLATED,
    Answer,
    BaselineContestant,
    Calibrate,
    Calibrated,
    Candidate,
    CandidateContestant,
    Compare,
    Compared,
    Deadline,
    Draw,
    Drawn,
    Failed,
    GpuTaken,
    Heard,
    Hello,
    LockIn,
    Measure,
    Measured,
    MeasuringReply,
    MeasuringRequest,
    Pace,
    Paced,
    Question,
    Race,
    Raced,
    RaceFailed,
    Release,
    Released,
    Setup,
    SetupDone,
    Started,
    Told,
)
from tuner.core.conditions import Calibration
from tuner.core.errors import CompileError
from tuner.core.model import Gpu, Measurement, Status, Verification
from tuner.core.processes import ParentPipe

GPU = Gpu(
    "NVIDIA H200",
    90,
    132,
    60 << 20,
    141 * 10**9,
    232448,
    228 << 10,
    clock_hz=1.98e9,
    memory_bytes_per_s=4.814304e12,
)
"""The one of ``tuner.kernel.roofline``, whose import would take longer than all the rest."""
LOCKED_IN = any(argument.startswith("/") for argument in sys.argv[4:])
"""Others are libraries that will be needed."""
REFERENCE_NS = 150_000.0
BASELINE_NS = 2_000_000.0
"""Of whatever is no candidate; longer than any candidate takes."""
BUSY_S = 100.0
"""Allowed for what does not hang: the machine may be busy with other tests."""
STATUSES = {
    "wrong": (Status.WRONG_RESULT, "y[0] is 2, expected 1; 1 of 1024 elements are wrong"),
    "oom": (Status.OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY (2)"),
    "launch": (Status.LAUNCH_ERROR, "CUDA_ERROR_INVALID_VALUE (1)"),
    "locked": (Status.LAUNCH_ERROR, "mine.py:3: PermissionError: [Errno 13] Permission denied: 'task.toml'"),
    "untrusted": (Status.TOO_FAST, "faster than the hardware"),
    "unverified": (Status.UNVERIFIED, "no reference"),
}
NONSENSE = b"\x82\xa4type\xa8Measured\xabmeasurement\x81\xa5taste\xa5sweet"
"""An answer whose measurement has no status."""
Pipe = ParentPipe[Heard, MeasuringReply]


def log(text: str) -> None:
    if "FAKE_LOG" in os.environ:
        descriptor = os.open(os.environ["FAKE_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{os.getpid()} {text}\n".encode())
        os.close(descriptor)


def time_of(candidate: Candidate) -> float:
    """Return a candidate's time in nanoseconds: its launches as plain data, and its cubins, decide it."""
    launches = json.loads(json.dumps([asdict(launch) for launch in candidate.plan.launches]))
    seen = hashlib.sha256(repr(launches).encode())
    for cubin in candidate.cubins:
        seen.update(cubin)
    if candidate.call is not None:
        seen.update(repr((candidate.call.numbers, candidate.call.parameters)).encode())
    scale = float(os.environ.get("FAKE_SCALE", "1"))
    return scale * (100_000.0 + int.from_bytes(seen.digest()[:4], "big") % 900_000)


def samples_of(time_ns: float, count: int) -> tuple[float, ...]:
    return tuple(time_ns * (1.0 + 1e-4 * (i % 5 - 2)) for i in range(count))


def fault_of(candidate: Candidate) -> str:
    return candidate.entries[0].partition("__")[2]


def first_time(name: str) -> bool:
    mark = Path(os.environ["FAKE_ONCE"]) / name
    if mark.exists():
        return False
    mark.touch()
    return True


class FakeWorker:
    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.ready = False
        self.sleep_s = float(os.environ.get("FAKE_SLEEP_S", "0"))

    def serve(self) -> None:
        while (request := self.pipe.receive()) is not None:
            assert not isinstance(request, Compared | Drawn | Paced)
            fault = fault_of(request.candidate) if isinstance(request, Measure) else ""
            if fault == "unborn" or (fault == "unborn_once" and first_time("unborn_once")):
                os.kill(os.getpid(), signal.SIGKILL)
            self.pipe.send(Started())
            if fault == "wait":  # beyond its deadline
                for _ in range(10):
                    self.pipe.send(GpuTaken("process 7 (tune) is using this GPU"))
                    time.sleep(0.1)
            answer = self.answer(request)
            self.pipe.send(answer)
            if fault == "twice":
                self.pipe.send(answer)
            if isinstance(answer, Measured | Failed | RaceFailed) and answer.dying:
                os._exit(3)

    def answer(self, request: MeasuringRequest) -> Answer:
        match request:
            case Setup():
                return self.setup(request)
            case Measure():
                return self.measure(request)
            case Race():
                return self.race(request)
            case Calibrate():
                return self.calibrate(short=request.short)
            case Release():
                self.ready = False
                return Released()
            case Compare():
                right = self.exchange.read_bytes()[:1] == b"\0"
                return Compared(Verification(right, message="" if right else STATUSES["wrong"][1]))
            case Draw():
                return Drawn("zeros" if request.turn < 2 else "")

    def ask(self, question: Question) -> Told:
        self.pipe.send(question)
        told = self.pipe.receive()
        assert isinstance(told, Compared | Drawn | Paced)
        return told

    def show(self, fault: str, outputs: int) -> None:
        """Have outputs compared so often; some lie about it."""
        if not LOCKED_IN or fault == "secretive":
            return
        with self.exchange.open("r+b") as file:
            file.write(bytes([fault in ("wrong", "liar")]))
        while fault == "curious":
            self.ask(Compare())
        if fault == "slow":
            self.pipe.send(Deadline(1e9))
            time.sleep(1000.0)
        for _ in range(outputs):
            self.ask(Compare())

    def pace(self, fault: str, time_ns: float) -> None:
        if LOCKED_IN and fault != "idle":
            took_s = 1e-9 * time_ns * (30.0 if fault == "slowpoke" else 0.5)
            said_ns = {"timeless": math.nan, "unhurried": 100.0 * time_ns}.get(fault, time_ns)
            while (asked := cast("Paced", self.ask(Pace(said_ns)))).launches:
                time.sleep(asked.calls * asked.launches * took_s)

    def setup(self, request: Setup) -> SetupDone | Failed:
        assert not LOCKED_IN or not request.problem.reference.numpy, "what is right is no business of it"
        log(f"setup {request.seed}")
        self.pipe.send(Deadline(BUSY_S))
        mode = os.environ.get("FAKE_SETUP", "")
        if mode == "die" or (mode == "die_once" and first_time("setup_die_once")):
            os._exit(5)
        if mode in ("hang", f"hang {request.seed}"):
            time.sleep(1000.0)
        if mode == "refuse":
            return Failed("this problem does not fit on the GPU")
        if mode == "undecided":
            return Failed("the reference of y is not a number", undecided=True)
        if mode == "fault":
            return Failed("the reference kernel failed: CUDA_ERROR (700)", dying=True)
        self.ready = True
        reference_ns = float(os.environ.get("FAKE_REFERENCE_NS", REFERENCE_NS))
        self.drifted = request.reference_ns not in (0.0, reference_ns)
        self.exchange = request.exchange or Path()
        least_error = 1e-4 if request.truth is not None else None
        return SetupDone(least_error, reference_ns)

    def calibrate(self, *, short: bool) -> Calibrated | Failed:
        log("calibrate")
        self.ready = False
        if os.environ.get("FAKE_CALIBRATION") == "refuse":
            return Failed("this GPU cannot be calibrated: the GPU was busy with something else")
        short_ns = {"cold": 20.0, "rotating": 5.0, "warm": 5.0} if short else {}
        return Calibrated(Calibration({"cold, rested": 0.002}, short_ns, REFERENCE_NS, 4.4e12, 4.2e12, 8e14))

    def measure(self, request: Measure) -> Measured:
        assert self.ready, "measured without a setup"
        candidate = request.candidate
        incumbent = (
            f" against {request.incumbent_ns:g}" if request.incumbent_ns and not request.thorough else ""
        )
        log(f"measure {candidate.entries[0]} {request.verify_only}{incumbent}")
        if request.contents:
            log("further contents")
        fault = fault_of(candidate)
        began = time.monotonic()
        allowed_s = 0.2 if fault in ("hang", "compiling") else BUSY_S
        self.pipe.send(Deadline(allowed_s, Status.COMPILE_TIMEOUT if fault == "compiling" else Status.HANG))
        time.sleep(self.sleep_s)
        self.misbehave(fault)
        if candidate.call is not None and candidate.call.function.builds:
            from tuner.kernel.functions import built  # what is late to import, few tests need

            try:
                built(candidate.call.function, candidate.call.parameters)
            except CompileError as error:
                return Measured(
                    Measurement(Status.COMPILE_ERROR, error=str(error)), (began, time.monotonic())
                )
        if fault == "edge" and request.verify_only:
            fault = "wrong"
        if fault == "lonely" and request.thorough:
            self.misbehave("die")
        if fault.startswith("sticky"):
            error = f"CUDA_ERROR ({fault.removeprefix('sticky')})"
            return Measured(Measurement(Status.MEMORY_FAULT, error=error), dying=True)
        if fault == "long":
            self.pipe.send(GpuTaken("x" * (5 << 20)))
        self.show(fault, 1 if request.verify_only else 2)
        if not request.verify_only:
            self.pace(fault, time_of(candidate))
        if request.contents and LOCKED_IN and fault != "onecontent":
            for turn in itertools.count(1):
                if not cast("Drawn", self.ask(Draw(turn))).content:
                    break
                self.show(fault, 1)
        status, error = STATUSES.get(fault, (Status.OK, ""))
        measurement = Measurement(status, error=error, drifted=self.drifted or fault == "drift")
        self.drifted = False  # said once
        if status not in (Status.LAUNCH_ERROR, Status.OUT_OF_MEMORY):
            verification = Verification(status.ranked, checked=status is not Status.UNVERIFIED, message=error)
            samples = samples_of(time_of(candidate), 12)
            measurement = replace(measurement, samples_ns=samples, verification=verification)
        if request.contents:
            from tuner.kernel.contents import Content  # as above

            why = "its reference is too slow" if fault == "slowreference" else ""
            measurement = replace(measurement, contents={Content.LATER: why})
        if fault == "numberless":
            measurement = replace(measurement, samples_ns=())
        span = math.nan if fault == "dateless" else began, time.monotonic()
        return Measured(measurement, span, reference_ns=1.5 * REFERENCE_NS if fault == "drift" else None)

    def misbehave(self, fault: str) -> None:
        if fault in ("hang", "compiling"):
            time.sleep(1000.0)
        elif fault == "die" or (fault == "die_once" and first_time("die_once")):
            os.kill(os.getpid(), signal.SIGSEGV)
        elif fault == "leave":
            print("last words of a library", file=sys.stderr, flush=True)
            os._exit(7)
        elif fault == "nonsense":
            self.pipe._out.write(struct.pack("<I", len(NONSENSE)) + NONSENSE)
            self.pipe._out.flush()
            time.sleep(1000.0)

    def race(self, request: Race) -> Raced | RaceFailed:
        assert self.ready, "raced without a setup"
        log(f"race {request.mode} in {request.batch.copies}" if request.mode and request.batch else "race")
        if request.mode and os.environ.get("FAKE_RACE") == "hang":
            self.pipe.send(Deadline(BUSY_S))
            time.sleep(1000.0)
        times = []
        self.show("", 2)
        for contestant in request.contestants:
            if isinstance(contestant, CandidateContestant):
                self.misbehave_in_race(fault_of(contestant.candidate), len(request.contestants))
        for i, contestant in enumerate(request.contestants):
            if isinstance(contestant, BaselineContestant) and contestant.text.startswith("cupy"):
                return RaceFailed("cupy is not installed", i)
            candidate = isinstance(contestant, CandidateContestant)
            times.append(time_of(contestant.candidate) if candidate else BASELINE_NS)
            if times[1:] and LOCKED_IN and fault_of(request.contestants[0].candidate) == "brake":
                times[-1] *= 20.0
            if candidate and fault_of(contestant.candidate) == "coldonly":
                times[-1] *= 10.0 if request.mode else 0.1
        groups = tuple(samples_of(time_ns, request.samples) for time_ns in times)
        faults = {
            fault_of(one.candidate) for one in request.contestants if isinstance(one, CandidateContestant)
        }
        if "another" in faults:
            return RaceFailed("it is none of these", 99)
        if "raceless" in faults:
            groups = ((0.0,),)
        return Raced((groups,) * request.rounds, (), (True,) * len(times), (1.9e9,) * len(times))

    def misbehave_in_race(self, fault: str, others: int) -> None:
        if fault == "company" and others > 1:
            self.misbehave("die")
        self.pipe.send(Deadline(0.2 if fault == "racehang" else BUSY_S))
        if fault == "racehang":
            time.sleep(1000.0)
        if fault == "raceonce" and first_time("raceonce"):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.sleep_s)


def main() -> None:
    mode = os.environ.get("FAKE_START", "")
    log("start")
    if mode == "hang":
        time.sleep(1000.0)
    pipe: Pipe = ParentPipe(MEASURING)
    lock = pipe.receive() if LOCKED_IN else None
    locked = isinstance(lock, LockIn) and not lock.open_files
    if mode == "die" or (mode == "die_locked_once" and locked and first_time("locked")):
        print("libfake.so: cannot open shared object file", file=sys.stderr, flush=True)
        os._exit(4)
    if mode == "refuse" or (mode == "locked" and locked):
        why = "no CUDA GPU can be used: CUDA_ERROR_NO_DEVICE (100); run `tune doctor`"
        pipe.send(Failed(LOCKED_OUT + why if mode == "locked" else why))
        return
    missing = [f"{NOT_ISOLATED}{lock.open_files}"] if isinstance(lock, LockIn) and lock.open_files else []
    pipe.send(Hello(GPU, ("NVML does not answer", *missing), int(os.environ.get("FAKE_OTHERS", "0"))))
    FakeWorker(pipe).serve()


if __name__ == "__main__":
    main()
