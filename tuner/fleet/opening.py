"""Opens the device of a searcher."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from tuner.children.compile_pool import CompilePool
from tuner.children.limits import Slots, memory_limit
from tuner.children.nvrtc import nvrtc_version
from tuner.devices.base import Device
from tuner.devices.choose import open_device
from tuner.devices.local import LocalDevice
from tuner.fleet.messages import OpenDevice


def open_for_searcher(message: OpenDevice, say: Callable[[str], None]) -> Device:
    """Open what a head asks for.

    Args:
        message: the head's.
        say: told what the device says.

    Raises:
        TunerError: it cannot be opened.
    """
    if message.opener:
        module, _, name = message.opener.partition(":")
        opened: Device = getattr(importlib.import_module(module), name)(message, say)
        return opened
    compilers = message.compilers
    if compilers is None or not message.device.startswith("cuda"):
        return open_device(message.device, message.kernel, None, message.cache, say)
    version = nvrtc_version()  # said before anything is started
    index = int(message.device.partition(":")[2] or 0)
    device = LocalDevice(index, None, message.cache, say=say, compiler=version, pool=shared_pool(message))
    if message.facts is not None:
        device.adopt_facts(message.facts.notes, message.facts.calibration)
    return device


def shared_pool(message: OpenDevice) -> CompilePool:
    """Return a searcher's compilers, which take turns with those of the others."""
    compilers = message.compilers
    if compilers is None:
        return CompilePool(None, message.cache)
    limit = memory_limit(compilers.jobs)
    slots = Slots(compilers.slots, compilers.jobs)
    return CompilePool(compilers.share, message.cache, memory_limit_bytes=limit, slots=slots)
