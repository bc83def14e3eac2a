"""Speaks the protocol of ``tuner.gpu.worker`` without a GPU, and fails when it is told to.

A kernel's entry names the fault, behind two underscores: ``scale__hang``. The times follow from the cubin, so
that they are the same in every process. The environment says the rest:

- ``FAKE_LOG``: a file that gets a line for each thing done: ``start``, ``setup SEED``, ``measure ENTRY``;
- ``FAKE_SLEEP_S``: how long a measurement takes;
- ``FAKE_START``: ``refuse``, ``die`` or ``hang`` instead of a first word;
- ``FAKE_SETUP``: ``refuse``, ``die`` or ``die_once``; ``fault``: an error after which the process ends;
- ``FAKE_REFERENCE_NS``: what the reference kernel takes;
- ``FAKE_ONCE``: a folder; the faults ``*_once`` happen only until their name is a file there.
"""

from __future__ import annotations

import base64
import hashlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tuner.conditions import Calibration
from tuner.model import Gpu
from tuner.processes import ParentPipe

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
"""The one of ``tuner.hardware.roofline``, whose import would take longer than all the rest."""
REFERENCE_NS = 150_000.0
BASELINE_NS = 2_000_000.0
"""Of whatever is no candidate; longer than any candidate takes."""
STATUSES = {
    "wrong": ("wrong_result", "y[0] is 2, expected 1; 1 of 1024 elements are wrong"),
    "oom": ("out_of_memory", "CUDA_ERROR_OUT_OF_MEMORY (2)"),
    "launch": ("launch_error", "CUDA_ERROR_INVALID_VALUE (1)"),
    "untrusted": ("too_fast", "faster than the hardware"),
    "unverified": ("unverified", "no reference"),
}


def log(text: str) -> None:
    if "FAKE_LOG" in os.environ:
        descriptor = os.open(os.environ["FAKE_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{os.getpid()} {text}\n".encode())
        os.close(descriptor)


def time_of(candidate: dict[str, Any]) -> float:
    """Return a candidate's time in nanoseconds: what it is decides it."""
    seen = hashlib.sha256(repr(candidate["plan"]["launches"]).encode())
    for cubin in candidate["cubins"]:
        seen.update(base64.b64decode(cubin))
    return 100_000.0 + int.from_bytes(seen.digest()[:4], "big") % 900_000


def samples_of(time_ns: float, count: int) -> list[float]:
    return [time_ns * (1.0 + 1e-4 * (i % 5 - 2)) for i in range(count)]


def first_time(name: str) -> bool:
    mark = Path(os.environ["FAKE_ONCE"]) / name
    if mark.exists():
        return False
    mark.touch()
    return True


class FakeWorker:
    def __init__(self, pipe: ParentPipe) -> None:
        self.pipe = pipe
        self.ready = False
        self.sleep_s = float(os.environ.get("FAKE_SLEEP_S", "0"))

    def serve(self) -> None:
        while (request := self.pipe.receive()) is not None:
            fault = self.fault_of(request)
            if fault == "unborn" or (fault == "unborn_once" and first_time("unborn_once")):
                os.kill(os.getpid(), signal.SIGKILL)
            self.pipe.send({"started": request["id"]})
            reply = getattr(self, request["do"])(request, fault)
            self.pipe.send({"id": request["id"], **reply})
            if reply.get("dying"):
                os._exit(3)

    @staticmethod
    def fault_of(request: dict[str, Any]) -> str:
        entries = request.get("entries", [""])
        return str(entries[0]).partition("__")[2]

    def setup(self, request: dict[str, Any], fault: str) -> dict[str, Any]:
        log(f"setup {request['seed']}")
        self.pipe.send({"allow_s": 60.0})
        mode = os.environ.get("FAKE_SETUP", "")
        if mode == "die" or (mode == "die_once" and first_time("setup_die_once")):
            os._exit(5)
        if mode == "refuse":
            return {"error": "this problem does not fit on the GPU"}
        if mode == "fault":
            return {"error": "the reference kernel failed: CUDA_ERROR (700)", "dying": True}
        self.ready = True
        least_error = 1e-4 if request.get("truth") else None
        reference_ns = float(os.environ.get("FAKE_REFERENCE_NS", REFERENCE_NS))
        return {"verifiable": True, "least_error": least_error, "reference_ns": reference_ns}

    def calibrate(self, request: dict[str, Any], fault: str) -> dict[str, Any]:
        log("calibrate")
        self.ready = False
        if os.environ.get("FAKE_CALIBRATION") == "refuse":
            return {
                "error": "this GPU cannot be calibrated: the GPU was busy with something else",
                "dying": False,
            }
        return {
            "calibration": Calibration(
                {"cold, rested": 0.002}, {}, REFERENCE_NS, 4.4e12, 4.2e12, 8e14
            ).to_json()
        }

    def release(self, request: dict[str, Any], fault: str) -> dict[str, Any]:
        self.ready = False
        return {}

    def measure(self, request: dict[str, Any], fault: str) -> dict[str, Any]:
        assert self.ready, "measured without a setup"
        log(f"measure {request['entries'][0]} {bool(request.get('verify_only'))}")
        began = time.monotonic()
        self.pipe.send({"allow_s": 0.2})
        time.sleep(self.sleep_s)
        self.misbehave(fault)
        time_ns = time_of(request)
        if fault == "edge" and request.get("verify_only"):
            fault = "wrong"
        if fault.startswith("sticky"):
            code = int(fault.removeprefix("sticky"))
            return {
                "measurement": self.measurement("memory_fault", f"CUDA_ERROR ({code})", []),
                "span": [],
                "dying": True,
            }
        if fault == "nonsense":
            return {"measurement": {"taste": "sweet"}, "span": [began, time.monotonic()], "dying": False}
        status, error = STATUSES.get(fault, ("ok", ""))
        samples = [] if status in ("launch_error", "out_of_memory") else samples_of(time_ns, 12)
        return {
            "measurement": {**self.measurement(status, error, samples), "drifted": fault == "drift"},
            "span": [began, time.monotonic()],
            "dying": False,
        }

    @staticmethod
    def misbehave(fault: str) -> None:
        if fault == "hang":
            time.sleep(1000.0)
        elif fault == "die" or (fault == "die_once" and first_time("die_once")):
            os.kill(os.getpid(), signal.SIGSEGV)
        elif fault == "leave":
            print("last words of a library", file=sys.stderr, flush=True)
            os._exit(7)

    @staticmethod
    def measurement(status: str, error: str, samples: list[float]) -> dict[str, Any]:
        passed = status in ("ok", "slow")
        checked = status != "unverified"
        verification = {"passed": passed, "checked": checked, "message": error} if samples else None
        return {
            "status": status,
            "samples_ns": samples,
            "error": error,
            "verification": verification,
            "tags": [],
            "measure_s": 0.0,
        }

    def race(self, request: dict[str, Any], fault: str) -> dict[str, Any]:
        assert self.ready, "raced without a setup"
        log("race")
        began = time.monotonic()
        for candidate in request["candidates"]:
            if "cubins" not in candidate:
                continue
            fault = self.fault_of(candidate)
            self.pipe.send({"allow_s": 0.2 if fault == "racehang" else 5.0})
            if fault == "racehang":
                time.sleep(1000.0)
            if fault == "raceonce" and first_time("raceonce"):
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(self.sleep_s)
        for i, candidate in enumerate(request["candidates"]):
            if candidate.get("baseline", {}).get("text", "").startswith("cupy"):
                return {"error": "cupy is not installed", "candidate": i, "dying": False}
        times = [time_of(c) if "cubins" in c else BASELINE_NS for c in request["candidates"]]
        groups = [samples_of(time_ns, request["samples"]) for time_ns in times]
        return {
            "rounds": [groups] * request["rounds"],
            "tags": [],
            "verified": [True] * len(times),
            "sm_clock_hz": [1.9e9] * len(times),
            "span": [began, time.monotonic()],
        }


def main() -> None:
    mode = os.environ.get("FAKE_START", "")
    log("start")
    if mode == "die":
        print("libfake.so: cannot open shared object file", file=sys.stderr, flush=True)
        os._exit(4)
    if mode == "hang":
        time.sleep(1000.0)
    pipe = ParentPipe()
    if mode == "refuse":
        pipe.send({"error": "no CUDA GPU can be used: CUDA_ERROR_NO_DEVICE (100); run `tune doctor`"})
        return
    pipe.send(
        {
            "gpu": GPU.to_json(),
            "nvml": False,
            "notes": ["NVML does not answer"],
            "others": int(os.environ.get("FAKE_OTHERS", "0")),
        }
    )
    FakeWorker(pipe).serve()


if __name__ == "__main__":
    main()
