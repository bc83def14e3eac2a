"""What the GPU's clocks did while samples were taken: NVML's reasons, and cycles counted on the GPU itself."""

from __future__ import annotations

import statistics
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cuda.bindings import driver as cu

from tuner.gpu.driver import fill_bytes
from tuner.runtime.driver import check

if TYPE_CHECKING:
    from tuner.gpu.buffers import Helpers
    from tuner.gpu.driver import Graph
    from tuner.gpu.memory import Memory

# Bits of nvmlClocksEventReasons: https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
_REASONS = {
    0x2: "clocks_setting",
    0x4: "power_cap",
    0x8: "hw_slowdown",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "power_brake",
}
SLOWDOWNS = frozenset(("hw_slowdown", "sw_thermal", "hw_thermal", "power_brake"))
"""Heat or a failing power supply, not the kernel's own doing: waited out."""


class Clocks:
    """Reads what NVML knows of one GPU; silent where NVML is absent.

    Args:
        uuid_hex: of the GPU, as the driver gives it; a MIG slice has one that NVML files under another name.
    """

    def __init__(self, uuid_hex: str) -> None:
        self._nvml: Any = None
        try:
            from cuda.bindings import nvml

            nvml.init_v2()
            text = "-".join((uuid_hex[:8], uuid_hex[8:12], uuid_hex[12:16], uuid_hex[16:20], uuid_hex[20:]))
            try:
                self._handle = nvml.device_get_handle_by_uuid(f"GPU-{text}")
            except nvml.NvmlError:
                # The clocks are those of the whole card.
                slice_ = nvml.device_get_handle_by_uuid(f"MIG-{text}")
                self._handle = nvml.device_get_device_handle_from_mig_device_handle(slice_)
            nvml.device_get_current_clocks_event_reasons(self._handle)
            self._nvml = nvml
        except Exception:  # noqa: BLE001 - NVML is a witness, not a requirement: containers and old bindings lack it
            self._nvml = None

    @property
    def available(self) -> bool:
        """Whether NVML answers."""
        return self._nvml is not None

    def reasons(self) -> frozenset[str]:
        """Name what holds the clocks down now."""
        if self._nvml is None:
            return frozenset()
        bits = int(self._nvml.device_get_current_clocks_event_reasons(self._handle))
        return frozenset(name for bit, name in _REASONS.items() if bits & bit)

    def processes(self) -> int:
        """Count the processes that have a context on the GPU; none where NVML does not say."""
        if self._nvml is None:
            return 0
        try:
            return len(self._nvml.device_get_compute_running_processes_v3(self._handle))
        except Exception:  # noqa: BLE001 - not every card or container lets us ask
            return 0


@dataclass(frozen=True)
class Span:
    """What the GPU's own clocks say of the time between two stamps."""

    elapsed_ns: float
    sm_clock_hz: float


class Stamps:
    """Kernels that note cycles and nanoseconds on every SM, before and after a group, inside the stream.

    The SM clock is the median over the SMs of cycles by ``clock64`` over nanoseconds by ``globaltimer``, as NVBench
    does for one SM: the truth, where NVML's clock is a sample of another moment.
    """

    def __init__(self, helpers: Helpers, memory: Memory) -> None:
        sm_count = helpers.gpu.sm_count
        self._bytes = 16 * sm_count
        self._sides = [memory.allocate(f"stamps {side}", self._bytes) for side in ("before", "after")]
        for address in self._sides:
            fill_bytes(address, 0, self._bytes)
        self._kernels = [
            helpers.kernel("stamp", sm_count, 32, [("pointer", address), ("int32", sm_count)])
            for address in self._sides
        ]

    def add_before(self, graph: Graph) -> None:
        """Append the first stamp."""
        graph.kernel(self._kernels[0])

    def add_after(self, graph: Graph) -> None:
        """Append the second stamp."""
        graph.kernel(self._kernels[1])

    def read(self) -> Span:
        """Return what lay between the last two stamps; wait for the stream first."""
        before, after = (self._read(address) for address in self._sides)
        pairs = [(b, a) for b, a in zip(before, after, strict=True) if b[1] and a[1] > b[1]]
        if not pairs:
            return Span(0.0, 0.0)
        elapsed = statistics.median(after[1] - before[1] for before, after in pairs)
        clock = statistics.median((after[0] - before[0]) / (after[1] - before[1]) for before, after in pairs)
        return Span(float(elapsed), 1e9 * clock)

    def _read(self, address: int) -> list[tuple[int, int]]:
        raw = bytearray(self._bytes)
        check(cu.cuMemcpyDtoH(raw, address, self._bytes))
        return list(struct.iter_unpack("<QQ", raw))
