"""What NVML and the stamps say about a GPU's clocks and processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from cuda import bindings

from tuner.gpu.clocks import Clocks, Span, Stamps


class Nvml:
    """As much of NVML as is asked; ``bits`` are those of the whole card."""

    class NvmlError(Exception):
        pass

    def __init__(self, bits: int = 0, processes: Sequence[int] | None = (), uuids: Mapping[str, str] = {}):
        self.bits, self.found, self.uuids = bits, processes, uuids

    def init_v2(self) -> None:
        pass

    def device_get_handle_by_uuid(self, uuid: str) -> str:
        if uuid not in self.uuids:
            raise self.NvmlError
        return self.uuids[uuid]

    def device_get_device_handle_from_mig_device_handle(self, handle: str) -> str:
        assert handle == "slice"
        return "card"

    def device_get_current_clocks_event_reasons(self, handle: str) -> int:
        assert handle == "card"
        return self.bits

    def device_get_compute_running_processes_v3(self, handle: str) -> Sequence[int]:
        if self.found is None:
            raise self.NvmlError
        return self.found


UUID = "0123456789abcdef0123456789abcdef"
TEXT = "01234567-89ab-cdef-0123-456789abcdef"


@pytest.mark.parametrize("uuids", [{f"GPU-{TEXT}": "card"}, {f"MIG-{TEXT}": "slice"}])
def test_clocks_of_a_card_or_of_the_card_of_a_slice(
    uuids: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bindings, "nvml", Nvml(0x4 | 0x40 | 0x1, [1, 2], uuids), raising=False)
    clocks = Clocks(UUID)
    assert clocks.available
    assert clocks.reasons() == {"power_cap", "hw_thermal"}  # 0x1 is an idle GPU
    assert clocks.processes() == 2


@pytest.mark.parametrize("nvml", [Nvml(), SimpleNamespace(), None])
def test_nvml_that_does_not_answer_is_silent(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bindings, "nvml", nvml, raising=False)
    clocks = Clocks(UUID)
    assert (clocks.available, clocks.reasons(), clocks.processes()) == (False, frozenset(), 0)


@pytest.mark.parametrize(
    ("before", "after", "span"),
    [
        # Cycles and nanoseconds of each SM; one runs ahead, as they do on a GPU with a higher boost for some.
        ([(10, 100), (20, 100), (0, 200)], [(2010, 1100), (2020, 1100), (9000, 1300)], Span(1000.0, 2e9)),
        ([(0, 0), (20, 100)], [(9, 1), (1520, 1100)], Span(1000.0, 1.5e9)),  # no block came by the first
        ([(0, 0)], [(0, 0)], Span(0.0, 0.0)),
        ([(5, 100)], [(5, 100)], Span(0.0, 0.0)),
    ],
)
def test_stamps(
    before: list[tuple[int, int]], after: list[tuple[int, int]], span: Span, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamps = Stamps.__new__(Stamps)
    stamps._sides = [0, 1]
    monkeypatch.setattr(stamps, "_read", lambda side: (before, after)[side])
    found = stamps.read()
    assert found.elapsed_ns == span.elapsed_ns
    assert found.sm_clock_hz == pytest.approx(span.sm_clock_hz)


def test_processes_that_cannot_be_counted_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bindings, "nvml", Nvml(0, None, {f"GPU-{TEXT}": "card"}), raising=False)
    clocks = Clocks(UUID)
    assert (clocks.available, clocks.processes()) == (True, 0)
