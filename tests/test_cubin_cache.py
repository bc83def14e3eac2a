"""Cubins on disk: what was not read for longest goes first, and a full disk leaves nothing half written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner.compile.cache import CubinCache
from tuner.compile.nvrtc import Cubin
from tuner.model import Resources


def compiled(size: int) -> Cubin:
    return Cubin(bytes(size), "scale", Resources(), "")


def test_what_was_not_read_for_longest_goes_first(tmp_path: Path) -> None:
    cache = CubinCache(tmp_path)
    keys = [cache.key(f"source {i}", "scale", [], "13.0", "") for i in range(6)]
    for age, key in enumerate(keys):
        cache.put(key, compiled(10_000))
        (path,) = tmp_path.glob(f"??/{key[2:]}.cubin")
        os.utime(path, (1e9 - age, 1e9 - age))
    assert cache.get(keys[5]) is not None  # the oldest is read again
    cache.trim(35_000)
    assert [cache.get(key) is not None for key in keys] == [True, True, False, False, False, True]
    cache.trim(35_000)
    assert len(list(tmp_path.glob("??/*"))) == 3


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    cache = CubinCache(tmp_path)
    monkeypatch.setattr(Path, "replace", full)
    cache.put("0" * 64, compiled(100))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    monkeypatch.undo()
    cache.put("0" * 64, compiled(100))
    assert cache.get("0" * 64) is not None
