"""What is written beside an allocation is seen, whatever it is, with host memory in place of a GPU's."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from tuner.gpu import memory
from tuner.gpu.memory import GUARD_BYTES, Memory
from tuner.kernel.contents import POISONS


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []

    def allocate(size_bytes: int) -> int:
        kept.append(np.zeros(size_bytes, np.uint8))
        return kept[-1].ctypes.data

    def download(to: bytearray, source: int, size_bytes: int) -> None:
        to[:size_bytes] = ctypes.string_at(source, size_bytes)

    monkeypatch.setattr(memory, "cu", SimpleNamespace(cuMemAlloc=allocate, cuMemcpyDtoH=download))
    monkeypatch.setattr(memory, "check", lambda result: result)
    monkeypatch.setattr(
        memory, "fill_bytes", lambda address, byte, count: ctypes.memset(address, byte, count)
    )


@pytest.mark.parametrize("byte", POISONS)
@pytest.mark.parametrize("size_bytes", [7, 64])
def test_a_write_of_any_byte_beside_an_allocation_is_seen_with_one_poison(size_bytes: int, byte: int) -> None:
    kept = Memory()
    kept.allocate_guarded("x", 24)
    address = kept.allocate_guarded("y", size_bytes)
    for offset in (-GUARD_BYTES, -1, size_bytes + 3, size_bytes + GUARD_BYTES - 1):
        seen = set()
        for poison in POISONS:
            kept.poison(poison)
            assert kept.trespass() == ""
            ctypes.memset(address + offset, byte, 1)
            seen.add(kept.trespass())
            ctypes.memset(address + offset, poison, 1)
        assert seen == {"", "y"}, offset


def test_what_lies_in_the_last_word_stays_for_checksums() -> None:
    kept = Memory()
    address = kept.allocate_guarded("x", 5)
    kept.poison(POISONS[1])
    assert ctypes.string_at(address + 5, 4) == bytes([POISONS[0]] * 3 + [POISONS[1]])
    ctypes.memset(address + 5, 0, 1)
    assert kept.trespass() == "x"
