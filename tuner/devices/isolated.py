"""Lends a device for calls that others wrote: its processes are new, and locked in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

from tuner.children.measuring import LOCKED_OUT
from tuner.core.errors import DeviceError
from tuner.devices.base import Device
from tuner.devices.local import LocalDevice
from tuner.devices.started import Processes

TRIES = 3
"""Starts of a process; where the driver does not start behind Landlock, the next are without that."""


@contextmanager
def isolated(device: Device, readable: Iterable[Path]) -> Iterator[Device]:
    """Return a device for the same GPU; what its processes could not be locked out of is in its notes.

    Args:
        device: which gives its room on the GPU up for so long.
        readable: files that the calls and the task need.
    """
    if not isinstance(device, LocalDevice):
        yield device
        return
    device.release()
    device.calibration = device.calibration or device.known_calibration()
    if device.calibration is None or not device.calibration.short_noise_ns:
        with suppress(DeviceError):
            device.calibrate()
    with device.phases.phase("locked-in processes"):
        lent = _locked_in(device, partial(device.processes.jailed, list(readable)))
    with closing(lent):
        lent.name, lent.versions, lent.calibration = device.name, device.versions, device.calibration
        lent.phases = device.phases
        yield lent


def expect_isolated(device: Device) -> None:
    """Start the processes that :func:`isolated` will need, so that they have imported libraries by then."""
    if isinstance(device, LocalDevice):
        device.processes.expect_jailed()


def _locked_in(device: LocalDevice, jailed: Callable[[str], Processes]) -> LocalDevice:
    """Return the device; where CUDA does not start behind Landlock, one that can read other files, and says so."""
    why = ""
    for _ in range(TRIES):
        try:
            return LocalDevice(jailed(why), device.say)
        except DeviceError as error:
            problem = error
            if error.problem.startswith(LOCKED_OUT):  # otherwise something else was in its way
                why = error.problem.removeprefix(LOCKED_OUT)
    raise problem
