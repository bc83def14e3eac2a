"""What a machine needs for tuning, looked at one by one."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import tempfile
from dataclasses import dataclass

from tuner import __version__, paths
from tuner.compile.nvrtc import header_folders, nvrtc_version, supported_archs
from tuner.devices.choose import has_gpu
from tuner.devices.local import LocalDevice
from tuner.errors import TunerError
from tuner.model import Gpu
from tuner.search import matmul_heuristics
from tuner.tools.locate import NCU, SANITIZER, ToolMissingError, find

WAL_FIXED = (3, 51, 3)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    state: str
    """``ok``, ``note`` (works, with a limit) or ``missing``."""
    detail: str
    remedy: str = ""


def examine(*, calibrate: bool = False) -> list[Finding]:
    """Look at everything; takes about a second where there is a GPU, and some more where it is calibrated."""
    nvrtc, compiler = _nvrtc()
    gpus, found = _gpus(calibrate=calibrate)
    return [
        Finding(
            "tune",
            "ok",
            f"kernel-tune {__version__}, Python {platform.python_version()}, {len(os.sched_getaffinity(0))} cores",
        ),
        nvrtc,
        *gpus,
        *_fit(compiler, found),
        _headers(),
        _heuristics(),
        _sqlite(),
        _cache(),
        *_tools(),
    ]


def _nvrtc() -> tuple[Finding, str]:
    try:
        version, archs = nvrtc_version(), supported_archs()
    except TunerError as error:
        return Finding("NVRTC", "missing", error.problem, "pip install nvidia-cuda-nvrtc"), ""
    return Finding(
        "NVRTC", "ok", f"{version}, compute capabilities {archs[0] / 10} to {archs[-1] / 10}"
    ), version


def _gpus(*, calibrate: bool) -> tuple[list[Finding], list[Gpu]]:
    if not has_gpu():
        remedy = "install NVIDIA's driver, or pass the GPU into the container; --device replay works without"
        return [Finding("GPU", "missing", "no NVIDIA GPU is visible", remedy)], []
    try:
        device = LocalDevice(jobs=1, cache=paths.cache() / "cubins")
    except TunerError as error:
        remedy = "check `nvidia-smi`; the driver must be 580 or later for CUDA 13"
        return [Finding("GPU", "missing", error.problem, remedy)], []
    try:
        gpu = device.gpu
        detail = (
            f"{gpu.name}, compute capability {gpu.cc / 10}, {gpu.sm_count} SMs, {gpu.l2_bytes >> 20} MiB L2, "
            f"{gpu.memory_bytes / 2**30:.0f} GiB at {gpu.memory_bytes_per_s / 1e12:.2f} TB/s, "
            f"driver for CUDA {gpu.driver}"
        )
        notes = [Finding("GPU", "note", note) for note in device.notes]
        return [Finding("GPU", "ok", detail), *notes, *_calibration(device, calibrate=calibrate)], [gpu]
    finally:
        device.close()


def _calibration(device: LocalDevice, *, calibrate: bool) -> list[Finding]:
    """Say what the GPU was seen to reach."""
    try:
        found = device.calibrate() if calibrate else device.known_calibration()
    except TunerError as error:
        return [Finding("timing", "note", error.problem, "end what else uses the GPU")]
    if found is None:
        return [
            Finding("timing", "note", "not calibrated yet; the first run does it", "tune doctor --calibrate")
        ]
    noise = ", ".join(f"{100 * share:.2f} % {how}" for how, share in found.noise.items())
    detail = (
        f"reads {found.read_bytes_per_s / 1e9:.0f} GB/s, copies {found.copy_bytes_per_s / 1e9:.0f} GB/s, "
        f"tensor cores {found.matrix_flops / 1e12:.0f} TFLOP/s, float32 {found.vector_flops / 1e12:.1f} TFLOP/s; "
        f"a kernel and itself differ by up to {noise}; measured {found.measured}"
    )
    return [Finding("timing", "ok", detail), *(Finding("timing", "note", note) for note in found.notes)]


def _fit(compiler: str, gpus: list[Gpu]) -> list[Finding]:
    findings = []
    for gpu in gpus:
        if compiler and int(compiler.split(".")[0]) > int(gpu.driver.split(".")[0]):
            remedy = (
                f"update the driver, or pip install 'nvidia-cuda-nvrtc<{int(gpu.driver.split('.')[0]) + 1}'"
            )
            findings.append(
                Finding(
                    "fit", "missing", f"NVRTC {compiler} is newer than the driver's CUDA {gpu.driver}", remedy
                )
            )
        elif compiler and gpu.cc not in supported_archs():
            findings.append(
                Finding(
                    "fit",
                    "missing",
                    f"NVRTC {compiler} does not know compute capability {gpu.cc / 10}",
                    "use a CUDA 12 NVRTC for older GPUs",
                )
            )
        elif compiler:
            findings.append(
                Finding("fit", "ok", f"cubins of NVRTC {compiler} load on the driver's CUDA {gpu.driver}")
            )
    return findings


def _headers() -> Finding:
    folders = header_folders()
    if folders:
        return Finding("headers", "ok", str(folders[0]))
    return Finding(
        "headers",
        "note",
        "CUDA's own headers are not here; only kernels that include them need them",
        "in the checkout: pip install '.[headers]'",
    )


def _heuristics() -> Finding:
    if matmul_heuristics.installed():
        return Finding("heuristics", "ok", matmul_heuristics.source())
    return Finding(
        "heuristics",
        "note",
        f"{matmul_heuristics.PACKAGE} is not here; searches for products of matrices begin without it",
        "in the checkout: pip install '.[heuristics]'",
    )


def _sqlite() -> Finding:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info >= WAL_FIXED:
        return Finding("SQLite", "ok", f"{version}, write-ahead log")
    return Finding(
        "SQLite", "ok", f"{version}, rollback journal (its write-ahead log has a known fault before 3.51.3)"
    )


def _cache() -> Finding:
    """Try to write where the cache is or would be made, and leave nothing there; mode bits say little to root."""
    folder = paths.cache() / "cubins"
    try:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        return Finding(
            "cache",
            "note",
            f"{paths.cache()} cannot be written ({error.strerror}): nothing compiled or calibrated is kept",
            "make it writable, or name another folder with XDG_CACHE_HOME",
        )
    return Finding("cache", "ok", str(paths.cache()))


def _tools() -> list[Finding]:
    found = []
    for tool, command in ((NCU, "tune profile"), (SANITIZER, "tune sanitize")):
        try:
            found.append(Finding(tool.name, "ok", str(find(tool))))
        except ToolMissingError:
            found.append(Finding(tool.name, "note", f"not installed; {command} needs it: {tool.source}"))
    nvcc = shutil.which("nvcc")
    return [*found, Finding("nvcc", "ok" if nvcc else "note", nvcc or "not installed; no command needs it")]
