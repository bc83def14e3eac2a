"""Variables of loaded code that a launch fills from tensors of its call."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from cuda.bindings import driver as cu

from ..core.errors import CallError
from .driver import capture_id, check, failure, library
from .launches import Launch


class FillingOrder:
    """Lets launches that fill variables of one operation on one GPU follow each other, in whatever stream each is.

    A variable has one content at a time. What is captured is ordered within its graph alone.
    """

    def __init__(self) -> None:
        self._event: Any = None
        """Behind the last such launch."""

    def wait(self, stream: int) -> None:
        """Have a stream wait for the last launch."""
        if self._event is not None and capture_id(stream) is None:
            check(cu.cuStreamWaitEvent(stream, self._event, 0))

    def launched(self, stream: int) -> None:
        """Remember a launch in a stream."""
        if capture_id(stream) is None:
            if self._event is None:
                self._event = check(cu.cuEventCreate(cu.CUevent_flags.CU_EVENT_DISABLE_TIMING.value))
            check(cu.cuEventRecord(self._event, stream))

    def free(self) -> None:
        """Let go of the event."""
        if self._event is not None:
            cu.cuEventDestroy(self._event)
        self._event = None


class Filled:
    """The variables that a launch fills; the context of its module is current.

    Args:
        module: the loaded cubin.
        launch: names them by symbol.
        order: of launches that fill variables.

    Raises:
        CallError: a variable has no room for its tensor.
        DriverFailure: there is no such variable.
    """

    def __init__(self, module: Any, launch: Launch, order: FillingOrder) -> None:
        self._order, self._variables = order, list[tuple[int, str, int]]()
        self._copy = library().cuMemcpyDtoDAsync_v2
        for symbol, tensor, size_bytes in launch.constants:
            address, room = check(cu.cuModuleGetGlobal(module, symbol.encode()))
            if room < size_bytes:
                raise CallError(
                    f"{tensor} has {size_bytes} bytes, and the variable {symbol}, which it fills, {room}",
                    "use smaller sizes",
                )
            self._variables.append((int(address), tensor, size_bytes))

    def fill(self, addresses: Mapping[str, int], stream: int) -> None:
        """Fill them from tensors at these addresses, in a stream, behind the last launch that has filled any.

        Raises:
            DriverFailure: the driver refuses.
        """
        if self._variables:
            self._order.wait(stream)
        for variable, name, size_bytes in self._variables:
            to, source = ctypes.c_ulonglong(variable), ctypes.c_ulonglong(addresses[name])
            error = self._copy(to, source, ctypes.c_size_t(size_bytes), ctypes.c_void_p(stream))
            if error:
                raise failure(error)

    def launched(self, stream: int) -> None:
        """Say that the launch has been put into a stream."""
        if self._variables:
            self._order.launched(stream)
