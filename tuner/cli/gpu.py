"""The GPU of this machine that a command line means."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from tuner.core import paths
from tuner.core.errors import NoGpuError, UsageError
from tuner.core.model import Gpu
from tuner.devices.base import Device, say_nothing
from tuner.devices.choose import has_gpu, open_device

ELSEWHERE = "run it on a machine with one; see `tune doctor`"


def refuse_device(device: str) -> None:
    """Refuse a device that is no GPU of this machine.

    Raises:
        UsageError: that.
    """
    if device.partition(":")[0] != "cuda":
        raise UsageError(f"--device {device}: this needs a GPU of this machine", "use cuda or cuda:N")


def refuse_without_gpu(device: str) -> None:
    """Refuse a device that is no GPU of this machine, and a machine without one, before anything else is looked for.

    Raises:
        UsageError, NoGpuError: that.
    """
    refuse_device(device)
    if not has_gpu():
        raise NoGpuError("this machine has no NVIDIA GPU", ELSEWHERE)


def open_gpu(
    device: str, kernel: str = "", jobs: int | None = 1, say: Callable[[str], None] = say_nothing
) -> Device:
    """Open a GPU of this machine, for a command that needs one.

    Args:
        device: ``cuda`` or ``cuda:N``.
        kernel: the kernel's name.
        jobs: compiling processes; None for one per core.
        say: told when something takes seconds that the user did not ask for.

    Raises:
        NoGpuError: there is none.
        UsageError: this device is no GPU of this machine.
    """
    refuse_device(device)
    try:
        return open_device(device, kernel, jobs, paths.cubins(), say)
    except NoGpuError as error:
        raise NoGpuError(error.problem, ELSEWHERE) from None


def describe_gpu(device: str = "cuda") -> Gpu:
    """Describe a GPU of this machine: a measuring process is started, asked, and ended.

    Raises:
        NoGpuError, UsageError: as :func:`open_gpu`.
    """
    with closing(open_gpu(device)) as opened:
        return opened.gpu


def gpu_number(device: str) -> int:
    """Return the number of a GPU from what a user calls it: ``cuda`` is the first, as is ``cuda:0``."""
    number = device.partition(":")[2]
    return int(number) if number.isdigit() else 0
