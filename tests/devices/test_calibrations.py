"""Calibrations: what they say about noise, where they are kept, and what disturbs them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.devices.calibrations import CALIBRATION, CARD, COLD, kept
from tests.faults.fake_worker import GPU
from tuner.core.conditions import SUSTAINED_NOISE, Calibration, Conditions, Mode, Regime
from tuner.devices import calibrations
from tuner.devices.calibrations import CalibrationCache
from tuner.gpu.calibration import LEAST_NOISE, SETTING_SHARE, Calibrator, _noise_floor
from tuner.gpu.listing import _notes

# -- the record


@pytest.mark.parametrize(
    ("conditions", "time_ns", "noise"),
    [
        # Where the code lies is 50 ns of a cold time: 1 % of 5 us, nothing of 1 ms.
        (COLD, 5e3, 0.01),
        (COLD, 1e6, 0.002),
        # In a batch it is less.
        (Conditions(Mode.ROTATING), 1e3, 0.005),
        (Conditions(Mode.WARM), 5e3, 0.004),
        # The power limit is not calibrated.
        (Conditions(Mode.ROTATING, Regime.SUSTAINED), 5e3, SUSTAINED_NOISE),
        (Conditions(Mode.COLD, Regime.SUSTAINED), 1e6, SUSTAINED_NOISE),
        (Conditions(Mode.COLD, Regime.SUSTAINED), 1e3, 0.05),
    ],
)
def test_noise_floor_by_conditions_and_time(conditions: Conditions, time_ns: float, noise: float) -> None:
    assert CALIBRATION.noise_floor(conditions, time_ns) == pytest.approx(noise)


def test_noise_floor_is_a_high_quantile_and_never_nothing() -> None:
    assert _noise_floor([0.0] * 12) == LEAST_NOISE
    assert _noise_floor([0.0] * 10 + [0.01] * 90) == pytest.approx(0.01)
    assert _noise_floor([0.004] * 99 + [0.5]) == pytest.approx(0.004)  # one accident in a hundred


def test_cache_gives_what_was_kept(tmp_path: Path) -> None:
    cache = CalibrationCache(tmp_path / "new" / "folder")
    assert cache.read(CARD) is None
    cache.write(CARD, CALIBRATION)
    assert cache.read(CARD) == CALIBRATION
    later = replace(CALIBRATION, reference_ns=1.0)
    cache.write(CARD, later)
    assert CalibrationCache(tmp_path / "new" / "folder").read(CARD) == later
    (path,) = kept(tmp_path / "new" / "folder")
    assert CARD.uuid in path.name


def test_what_others_may_have_disturbed_is_believed_for_a_while(tmp_path: Path) -> None:
    cache = CalibrationCache(tmp_path)
    cache.write(CARD, CALIBRATION, alone=False)
    assert cache.read(CARD) == CALIBRATION
    (path,) = kept(tmp_path)
    before = path.stat().st_mtime - calibrations.BESIDE_OTHERS_S - 1.0
    os.utime(path, (before, before))
    assert cache.read(CARD) is None
    cache.write(CARD, CALIBRATION, alone=False)
    undisturbed = replace(CALIBRATION, reference_ns=1.0)
    cache.write(CARD, undisturbed)
    assert cache.read(CARD) == undisturbed
    for path in kept(tmp_path):
        os.utime(path, (before, before))
    cache.write(CARD, CALIBRATION, alone=False)
    assert cache.read(CARD) == CALIBRATION  # the card has changed, perhaps


@pytest.mark.parametrize("changes", [{"driver": "13.1"}, {"uuid": "fedcba9876543210"}, {"clock_hz": 1.5e9}])
def test_another_card_or_driver_is_not_known(tmp_path: Path, changes: dict[str, Any]) -> None:
    cache = CalibrationCache(tmp_path)
    cache.write(CARD, CALIBRATION)
    other = replace(CARD, **changes)
    assert cache.read(other) is None
    cache.write(other, Calibration({}, reference_ns=1.0))
    assert cache.read(CARD) == CALIBRATION


@pytest.mark.parametrize(
    ("name", "changed"),
    [("render_helpers", lambda: "other"), ("render_ceilings", lambda cc: "other"), ("VERSION", -1)],
)
def test_other_kernels_are_another_calibration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, changed: Any
) -> None:
    cache = CalibrationCache(tmp_path)
    cache.write(CARD, CALIBRATION)
    monkeypatch.setattr(calibrations, name, changed)
    assert cache.read(CARD) is None


GOOD = CALIBRATION.to_json()


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\x00",
        b"[]",
        json.dumps(GOOD).encode()[:-20],
        json.dumps({**GOOD, "of_tomorrow": 1}).encode(),
        json.dumps({key: value for key, value in GOOD.items() if key != "reference_ns"}).encode(),
        json.dumps({**GOOD, "reference_ns": 0.0}).encode(),
        json.dumps({**GOOD, "reference_ns": float("nan")}).encode(),
        json.dumps({**GOOD, "noise": {"cold, rested": "little"}}).encode(),
        json.dumps({**GOOD, "noise": {"cold, rested": 0.0}}).encode(),
    ],
)
def test_damaged_file_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    cache = CalibrationCache(tmp_path)
    cache.write(CARD, CALIBRATION)
    (path,) = kept(tmp_path)
    path.write_bytes(content)
    assert cache.read(CARD) is None
    cache.write(CARD, CALIBRATION)
    assert cache.read(CARD) == CALIBRATION


@pytest.mark.parametrize("call", ["write_text", "replace"])
def test_full_or_read_only_disk_is_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    cache = CalibrationCache(tmp_path)
    cache.write(CARD, CALIBRATION)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(30, "read-only file system")

    monkeypatch.setattr(Path, call, refuse)
    cache.write(CARD, replace(CALIBRATION, reference_ns=1.0))
    assert cache.read(CARD) == CALIBRATION
    assert len(kept(tmp_path)) == 1  # no half of a file lies about
    monkeypatch.setattr(Path, "unlink", refuse)
    cache.write(CARD, replace(CALIBRATION, reference_ns=1.0))
    assert cache.read(CARD) == CALIBRATION


# -- notes


def notes(name: str = "NVIDIA H200", others: int = 0, *, nvml: bool = True) -> tuple[str, ...]:
    clocks: Any = SimpleNamespace(available=nvml)
    return _notes(name, clocks, others)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (notes(others=1), "another process has a context"),
        (notes("NVIDIA H200 MIG 1g.18gb"), "a MIG slice"),
        (notes(nvml=False), "NVML does not answer"),
    ],
)
def test_note_says_what_disturbs(found: list[str], said: str) -> None:
    (note,) = found
    assert note.startswith(said)


@pytest.mark.parametrize(
    ("clock_hz", "highest_hz", "said"),
    [
        (1.98e9, 1.98e9, ""),
        (1.001 * SETTING_SHARE * 1.98e9, 1.98e9, ""),
        (0.999 * SETTING_SHARE * 1.98e9, 1.98e9, "held at 1.92 of 1.98 GHz"),
        (0.0, 1.98e9, ""),  # not counted
        (1.2e9, 0.0, ""),  # the highest is unknown
    ],
)
def test_locked_clock_is_noted(clock_hz: float, highest_hz: float, said: str) -> None:
    calibrator = Calibrator.__new__(Calibrator)
    calibrator._gpu = replace(GPU, clock_hz=highest_hz)
    found = calibrator._clock_note(clock_hz)
    assert len(found) == bool(said)
    assert all(said in note for note in found)
