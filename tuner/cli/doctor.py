"""``tune doctor``: what this machine has, what is missing, and how to get it."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import sys
import tempfile
from dataclasses import dataclass
from functools import partial

from tuner.children.cubin_cache import CubinCache
from tuner.children.headers import cuda_version, header_folders, missing, toolkits
from tuner.children.nvrtc import nvrtc_version, supported_archs
from tuner.cli.commands.inspection import DoctorArguments
from tuner.core import paths
from tuner.core.errors import TunerError
from tuner.core.model import Gpu
from tuner.core.version import __version__
from tuner.database.opening import SAFE_WAL_VERSION
from tuner.devices.local import LocalDevice
from tuner.devices.started import Processes, has_gpu
from tuner.inspect.tools.nvidia import NCU, SANITIZER, ToolMissingError, find
from tuner.report.tables import picked, say, show_json, show_text


def doctor(asked: DoctorArguments) -> None:
    """Print the state of everything that tuning needs; exit status 1 if neither a GPU nor replay can be used."""
    diagnoses = examine(calibrate=asked.calibrate)
    if asked.as_json:
        show_json([picked(one, "what state detail remedy") for one in diagnoses])
    else:
        width = max(len(one.what) for one in diagnoses)
        for one in diagnoses:
            show_text(one.detail, f"{one.state:<8} {one.what:<{width}} ")
            if one.remedy:
                show_text(one.remedy, " " * (width + 10) + "-> ")
    missing = [one.what for one in diagnoses if one.state == "missing"]
    if missing == ["GPU"]:
        say("only a GPU is missing: recordings can be replayed, and kernels checked and explained")
    elif missing:
        sys.exit(1)


@dataclass(frozen=True)
class Diagnosis:
    """The state of one thing."""

    state: str
    """``ok``, ``note`` (works, with a limit) or ``missing``."""
    what: str
    detail: str
    remedy: str = ""


_ok, _note, _missing = (partial(Diagnosis, state) for state in ("ok", "note", "missing"))


def examine(*, calibrate: bool = False) -> list[Diagnosis]:
    """Return the state of everything; takes about a second with a GPU, and some more if that is calibrated."""
    nvrtc, compiler = _nvrtc()
    diagnoses, gpu = _gpu(calibrate=calibrate)
    cores = len(os.sched_getaffinity(0))
    return [
        _ok("tune", f"kernel-tune {__version__}, Python {platform.python_version()}, {cores} cores"),
        nvrtc,
        *diagnoses,
        *([_fit(compiler, gpu)] if compiler and gpu else []),
        _headers(),
        _sqlite(),
        _cache(),
        *_tools(),
    ]


def _nvrtc() -> tuple[Diagnosis, str]:
    try:
        version, archs = nvrtc_version(), supported_archs()
    except TunerError as error:
        return _missing("NVRTC", error.problem, "pip install nvidia-cuda-nvrtc"), ""
    return _ok("NVRTC", f"{version}, compute capabilities {archs[0] / 10} to {archs[-1] / 10}"), version


def _gpu(*, calibrate: bool) -> tuple[list[Diagnosis], Gpu | None]:
    if not has_gpu():
        remedy = "install NVIDIA's driver, or pass the GPU into the container; --device replay works without"
        return [_missing("GPU", "no NVIDIA GPU is visible", remedy)], None
    try:
        device = LocalDevice(Processes(0, 1, paths.cubins()))
    except TunerError as error:
        remedy = "check `nvidia-smi`; the driver must be 580 or later for CUDA 13"
        return [_missing("GPU", error.problem, remedy)], None
    try:
        gpu = device.gpu
        detail = (
            f"{gpu.name}, compute capability {gpu.cc / 10}, {gpu.sm_count} SMs, {gpu.l2_bytes >> 20} MiB L2, "
            f"{gpu.memory_bytes / 2**30:.0f} GiB at {gpu.memory_bytes_per_s / 1e12:.2f} TB/s, "
            f"driver for CUDA {gpu.driver}"
        )
        notes = [_note("GPU", note) for note in device.notes]
        return [_ok("GPU", detail), *notes, *_calibration(device, calibrate=calibrate)], gpu
    finally:
        device.close()


def _calibration(device: LocalDevice, *, calibrate: bool) -> list[Diagnosis]:
    """Return the measured ceilings and noise of the GPU."""
    try:
        measured = device.calibrate() if calibrate else device.known_calibration()
    except TunerError as error:
        return [_note("timing", error.problem, "end what else uses the GPU")]
    if measured is None:
        return [_note("timing", "not calibrated yet; the first run does it", "tune doctor --calibrate")]
    noise = ", ".join(f"{100 * share:.2f} % {how}" for how, share in measured.noise.items())
    detail = (
        f"reads {measured.read_bytes_per_s / 1e9:.0f} GB/s, copies {measured.copy_bytes_per_s / 1e9:.0f} GB/s, "
        f"tensor cores {measured.matrix_flops / 1e12:.0f} TFLOP/s, float32 {measured.vector_flops / 1e12:.1f} TFLOP/s; "
        f"a kernel and itself differ by up to {noise}; measured {measured.measured}"
    )
    return [_ok("timing", detail), *(_note("timing", note) for note in measured.notes)]


def _fit(compiler: str, gpu: Gpu) -> Diagnosis:
    """Return whether what the compiler makes can be loaded."""
    driver = int(gpu.driver.split(".")[0])
    if int(compiler.split(".")[0]) > driver:
        problem = f"NVRTC {compiler} is newer than the driver's CUDA {gpu.driver}"
        return _missing("fit", problem, f"update the driver, or pip install 'nvidia-cuda-nvrtc<{driver + 1}'")
    if gpu.cc not in supported_archs():
        problem = f"NVRTC {compiler} does not know compute capability {gpu.cc / 10}"
        return _missing("fit", problem, "use a CUDA 12 NVRTC for older GPUs")
    return _ok("fit", f"cubins of NVRTC {compiler} load on the driver's CUDA {gpu.driver}")


def _headers() -> Diagnosis:
    folders = header_folders()
    where = f"{folders[0]} (CUDA {cuda_version(folders[0]) or 'of unknown version'})" if folders else "none"
    if lacking := missing(folders):
        return _note(
            "headers",
            f"{where}; {', '.join(lacking)} not found: kernels that include such headers do not compile",
            "pip install nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl, or set CUDA_HOME to a CUDA toolkit",
        )
    for named in toolkits()[:-1]:
        if not cuda_version(named):
            detail = f"{where}; CUDA_HOME or CUDA_PATH names a folder without {named / 'cuda.h'}"
            return _note("headers", detail, "name a CUDA toolkit there, or nothing")
    return _ok("headers", where)


def _sqlite() -> Diagnosis:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info >= SAFE_WAL_VERSION:
        return _ok("SQLite", f"{version}, write-ahead log")
    safe = ".".join(map(str, SAFE_WAL_VERSION))
    return _ok("SQLite", f"{version}, rollback journal (its write-ahead log has a known fault before {safe})")


def _cache() -> Diagnosis:
    """Write a temporary file where the cache is or would be made: for root, mode bits do not tell."""
    folder = paths.cubins()
    if reason := CubinCache(folder).refusal:
        return _note(
            "cache",
            f"{reason}: nothing compiled or calibrated is kept",
            "delete it, or make it yours alone: chmod -R go-w",
        )
    try:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        return _note(
            "cache",
            f"{paths.cache()} cannot be written ({error.strerror}): nothing compiled or calibrated is kept",
            "make it writable, or name another folder with XDG_CACHE_HOME",
        )
    return _ok("cache", str(paths.cache()))


def _tools() -> list[Diagnosis]:
    diagnoses = []
    for tool, command in ((NCU, "tune profile"), (SANITIZER, "tune sanitize")):
        try:
            diagnoses.append(_ok(tool.name, str(find(tool))))
        except ToolMissingError:
            diagnoses.append(_note(tool.name, f"not installed; {command} needs it: {tool.source}"))
    nvcc = shutil.which("nvcc")
    return [*diagnoses, _ok("nvcc", nvcc) if nvcc else _note("nvcc", "not installed; no command needs it")]
