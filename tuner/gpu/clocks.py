"""What the GPU's clocks did while a group of samples was taken, from NVML; silent where NVML is absent."""

from __future__ import annotations

from typing import Any

# Bits of nvmlClocksEventReasons: https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
_REASONS = {0x4: "power_cap", 0x8: "hw_slowdown", 0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "power_brake"}


class Clocks:
    """Reads the clock event reasons of one GPU."""

    def __init__(self, uuid_hex: str) -> None:
        self._nvml: Any = None
        try:
            from cuda.bindings import nvml

            nvml.init_v2()
            text = "-".join((uuid_hex[:8], uuid_hex[8:12], uuid_hex[12:16], uuid_hex[16:20], uuid_hex[20:]))
            self._handle = nvml.device_get_handle_by_uuid(f"GPU-{text}")
            nvml.device_get_current_clocks_event_reasons(self._handle)
            self._nvml = nvml
        except Exception:  # noqa: BLE001 - NVML is a witness, not a requirement: MIG, containers and old bindings lack it
            self._nvml = None

    @property
    def available(self) -> bool:
        """Whether NVML answers."""
        return self._nvml is not None

    def reasons(self) -> tuple[str, ...]:
        """Name what holds the clocks down now."""
        if self._nvml is None:
            return ()
        bits = int(self._nvml.device_get_current_clocks_event_reasons(self._handle))
        return tuple(name for bit, name in _REASONS.items() if bits & bit)
