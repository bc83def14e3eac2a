"""The GPU that a command line means: one to be used, or one that a command is about which needs none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tuner.cli.options import ForGpuArguments
from tuner.core import paths
from tuner.core.conditions import Calibration
from tuner.core.errors import DeviceError, NoGpuError, UsageError, suggestion
from tuner.core.model import Gpu
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.devices.base import Device, say_nothing
from tuner.devices.choose import has_gpu, open_device
from tuner.devices.local import LocalDevice
from tuner.kernel.roofline import ARCHITECTURES
from tuner.report.tables import say

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


def typical_gpu(cc: int) -> Gpu:
    """Return the typical GPU of a compute capability, times ten.

    Raises:
        UsageError: none is known.
    """
    if cc not in ARCHITECTURES:
        raise UsageError(f"no compute capability {cc}", f"choose from: {', '.join(map(str, ARCHITECTURES))}")
    return ARCHITECTURES[cc]


def named_gpu(given: ForGpuArguments) -> tuple[Gpu | None, Calibration | None]:
    """Return the GPU, as far as the command line and this machine say; with its calibration if it is here.

    Raises:
        UsageError: two options name one, or none fits.
        DeviceError: the GPU of this machine that is named cannot be used.
    """
    named = {"--gpu": given.gpu_text, "--cc": given.cc, "--device": given.device_name}
    options = [name for name, value in named.items() if value]
    if len(options) > 1:
        raise UsageError(f"{' and '.join(options)} exclude each other", "give one of them")
    if given.cc is not None:
        return typical_gpu(given.cc), None
    if given.gpu_text:
        return _named(given.gpu_text, given.db), None
    if given.device_name:
        return _here(given.device_name)
    if given.trial is None and has_gpu():
        try:
            return _here("cuda")
        except DeviceError as error:  # no option asked for it
            say(f"{error.problem}: going on without this machine's GPU")
    return None, None


def _named(text: str, db: Path) -> Gpu:
    """Return a GPU by a part of its name: the one that was tuned on last, else a typical one."""
    if db.is_file():
        with Database.open(db, write=False) as database:
            rows = database.query(Filters(gpu=text), "-id", 1).rows
        if rows:
            return rows[0].run.gpu
    fitting = [gpu for gpu in ARCHITECTURES.values() if text.lower() in gpu.name.lower()]
    if len(fitting) != 1:
        names = [gpu.name for gpu in ARCHITECTURES.values()]
        problem = f"--gpu {text!r} fits {len(fitting)} of the known GPUs"
        raise UsageError(problem, suggestion(text, names))
    return fitting[0]


def _here(device: str) -> tuple[Gpu, Calibration | None]:
    """Return a GPU of this machine, with its calibration if there is one."""
    if device.partition(":")[0] != "cuda":
        raise UsageError(f"--device {device}: this is no GPU of this machine", "use cuda or cuda:N")
    with closing(open_device(device, "", 1, paths.cubins())) as opened:
        calibration = opened.known_calibration() if isinstance(opened, LocalDevice) else None
        return opened.gpu, calibration
