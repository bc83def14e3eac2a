"""From what a user calls a device to the device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tuner.children.nvrtc import nvrtc_version
from tuner.core import paths
from tuner.core.errors import NoGpuError, UsageError
from tuner.devices.base import Device, say_nothing
from tuner.devices.local import LocalDevice
from tuner.devices.replay import HERE, ReplayDevice, recording_of
from tuner.devices.started import Processes, begun, has_gpu
from tuner.formats.recording import find_recording, read_recording, recorded_kernel
from tuner.kernel.load import builtin_kernels, load_kernel
from tuner.kernel.spec import KernelSpec


def gpu_number(device: str) -> int:
    """Return the number of a GPU from what a user calls it: ``cuda`` is the first, as is ``cuda:0``."""
    number = device.partition(":")[2]
    return int(number) if number.isdigit() else 0


def open_device(
    text: str,
    kernel: str,
    jobs: int | None,
    cache: Path | None,
    say: Callable[[str], None] = say_nothing,
) -> Device:
    """Return a device, opened.

    Args:
        text: ``auto``, ``cuda``, ``cuda:1``, ``replay`` or ``replay:<name or file>``.
        kernel: the kernel's name, which chooses the recording.
        jobs: compiling processes; None for one a core.
        cache: folder of the cubin cache.
        say: told when something takes seconds that the user did not ask for.

    Raises:
        UsageError: there is no such device.
        NoGpuError: a GPU is required, or nothing is recorded, and there is no GPU.
    """
    kind, _, rest = text.partition(":")
    if kind == "auto" and not rest:
        if has_gpu():
            return _local("", jobs, cache, say)
        path = find_recording(kernel)
        if path is None:
            raise NoGpuError(
                f"this machine has no NVIDIA GPU, and nothing is recorded for {kernel}",
                f"run it on a machine with a GPU; {HERE}",
            )
        recording = read_recording(path)
        note = (
            f"no NVIDIA GPU here: replaying what an {recording.gpu.name} answered ({path.name}); "
            "--device cuda requires a GPU"
        )
        return ReplayDevice(recording, say, [note])
    if kind == "cuda":
        if not has_gpu():
            replayed = kernel in builtin_kernels() and recording_of(load_kernel(kernel))
            instead = ", or without --device cuda" if replayed else ""
            raise NoGpuError(
                "this machine has no NVIDIA GPU",
                f"run it on a machine with one (`tune doctor` says what is missing){instead}; {HERE}",
            )
        return _local(rest, jobs, cache, say)
    if kind == "replay":
        return ReplayDevice(_recording(rest, kernel), say)
    meant = f"did you mean replay:{text}? " if any(map(Path.is_file, _places(text))) else ""
    raise UsageError(f"no device {text!r}", f"{meant}use auto, cuda, cuda:N, replay or replay:FILE")


def kernel_for(device: str, kernel: str) -> str:
    """Return what to load of a kernel for a device: what was given, or the kernel as it was when it was recorded.

    Raises:
        UsageError: there is no such recording.
    """
    if kernel.endswith(".toml") or "/" in kernel:
        return kernel
    kind, _, rest = device.partition(":")
    if kind == "replay":
        return recorded_kernel(_recording(rest, kernel), kernel)
    if kind == "auto" and not has_gpu() and (path := find_recording(kernel)):
        return recorded_kernel(path, kernel)
    return kernel


def introduce(device: Device, kernel: KernelSpec, say: Callable[[str], None], *, changed: bool) -> None:
    """Say what holds for all times of a device.

    Args:
        device: that one.
        kernel: which is timed there.
        say: told.
        changed: whether it is as it was recorded, and is another now.

    Raises:
        RecordingError: the device is a recording of another kernel.
    """
    if isinstance(device, ReplayDevice):
        device.refuse_other(kernel)
    if device.note:
        say(device.note)
    if changed:
        say(f"{kernel.name} has changed since: this is the kernel as it was recorded")


def _local(index: str, jobs: int | None, cache: Path | None, say: Callable[[str], None]) -> Device:
    if index and not index.isdigit():
        raise UsageError(f"no GPU {index!r}", "give its number, such as cuda:0")
    version = nvrtc_version()  # where it is missing, that is said before anything is started
    number = int(index or 0)
    return LocalDevice(begun(number, jobs, cache) or Processes(number, jobs, cache), say, version)


def _places(name: str) -> tuple[Path, Path]:
    """Return where a recording of a name may be: the file itself, or one of the project's."""
    return Path(name), paths.recordings() / f"{name}.json.gz"


def _recording(name: str, kernel: str) -> Path:
    if name:
        for path in filter(Path.is_file, _places(name)):
            return path
        names = ", ".join(
            sorted(p.name.removesuffix(".json.gz") for p in paths.recordings().glob("*.json.gz"))
        )
        raise UsageError(f"no recording {name!r}", f"give a file, or one of: {names or 'none'}")
    newest = find_recording(kernel)
    if newest is None:
        raise UsageError(f"nothing is recorded for {kernel}", "give a file: --device replay:FILE")
    return newest
