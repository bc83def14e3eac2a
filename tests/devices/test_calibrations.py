"""Calibrations: what they say about noise, where they are kept, and when the device takes a new one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults.fake_worker import GPU, REFERENCE_NS
from tests.faults.kernels import scale_kernel
from tuner.conditions import SUSTAINED_NOISE, Calibration, Conditions, Mode, Regime
from tuner.devices import calibrations
from tuner.devices.base import DEFAULT_NOISE_FLOOR
from tuner.devices.calibrations import CalibrationCache
from tuner.devices.local import RECALIBRATE, LocalDevice
from tuner.errors import DeviceError
from tuner.gpu.calibration import LEAST_NOISE, SETTING_SHARE, Calibrator, _noise_floor
from tuner.gpu.worker import _notes
from tuner.model import Gpu
from tuner.protocol.measuring import Hello

COLD = Conditions()
CALIBRATION = Calibration(
    noise={"cold, rested": 0.002, "rotating, rested": 0.003, "warm, rested": 0.004},
    short_noise_ns={"cold": 50.0, "rotating": 5.0},
    reference_ns=REFERENCE_NS,
    read_bytes_per_s=4.4e12,
    copy_bytes_per_s=4.2e12,
    matrix_flops=8e14,
    vector_flops=6e13,
    event_ns=1500.0,
    sm_clock_hz=1.98e9,
    measured="2026-11-20T12:00:00Z",
    notes=(
        "the SM clock is held at 1.20 of 1.98 GHz under light load: locked or limited by the GPU's owner",
    ),
)
CARD = replace(GPU, uuid="0123456789abcdef", driver="13.0")


# -- the record


@pytest.mark.parametrize("calibration", [CALIBRATION, Calibration({})])
def test_calibration_survives_json(calibration: Calibration) -> None:
    data = json.loads(json.dumps(calibration.to_json()))
    assert Calibration.from_json(data) == calibration


@pytest.mark.parametrize(
    ("conditions", "time_ns", "noise"),
    [
        # Where the code lies is 50 ns of a cold time: 1 % of 5 us, nothing of 1 ms.
        (COLD, 5e3, 0.01),
        (COLD, 25e3, 0.002),
        (COLD, 24e3, 50 / 24e3),
        (COLD, 1e6, 0.002),
        # In a batch it is less.
        (Conditions(Mode.ROTATING), 1e3, 0.005),
        (Conditions(Mode.ROTATING), 5e3, 0.003),
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


# -- the cache


def kept(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


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
        b"",
        b"\xff\xfe\x00",
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        json.dumps(GOOD).encode()[:-20],
        json.dumps({**GOOD, "of_tomorrow": 1}).encode(),
        json.dumps({key: value for key, value in GOOD.items() if key != "notes"}).encode(),
        json.dumps({key: value for key, value in GOOD.items() if key != "reference_ns"}).encode(),
        json.dumps({**GOOD, "reference_ns": 0.0}).encode(),
        json.dumps({**GOOD, "reference_ns": float("nan")}).encode(),
        json.dumps({**GOOD, "reference_ns": "long"}).encode(),
        json.dumps({**GOOD, "noise": [0.002]}).encode(),
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


def test_no_folder_keeps_nothing() -> None:
    cache = CalibrationCache(None)
    cache.write(CARD, CALIBRATION)
    assert cache.read(CARD) is None


def test_folder_that_cannot_be_made_is_harmless(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        cache = CalibrationCache(folder)
        cache.write(CARD, CALIBRATION)
        assert cache.read(CARD) is None


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


def test_a_gpu_of_ones_own_needs_no_notes() -> None:
    assert notes() == ()
    assert notes("NVIDIA RTX AMIGO 4000") == ()


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (notes(others=1), "another process has a context"),
        (notes(others=3), "3 other processes have a context"),
        (notes("NVIDIA H200 MIG 1g.18gb"), "a MIG slice"),
        (notes(nvml=False), "NVML does not answer"),
    ],
)
def test_note_says_what_disturbs(found: list[str], said: str) -> None:
    (note,) = found
    assert note.startswith(said)


def test_every_disturbance_has_its_note() -> None:
    assert len(notes("NVIDIA H200 MIG 1g.18gb", 2, nvml=False)) == 3


@pytest.mark.parametrize(
    ("clock_hz", "highest_hz", "said"),
    [
        (1.98e9, 1.98e9, ""),
        (1.001 * SETTING_SHARE * 1.98e9, 1.98e9, ""),
        (0.999 * SETTING_SHARE * 1.98e9, 1.98e9, "held at 1.92 of 1.98 GHz"),
        (1.2e9, 1.98e9, "held at 1.20 of 1.98 GHz"),
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


# -- the device


Open = Callable[..., LocalDevice]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    path = tmp_path / "log"
    monkeypatch.setenv("FAKE_LOG", str(path))
    return lambda: [line.partition(" ")[2] for line in path.read_text().splitlines()]


@pytest.fixture
def opened(tmp_path: Path, log: Callable[[], list[str]]) -> Iterator[Open]:
    """Opens devices on one cache; each has a new measuring process."""
    devices = []

    def open_one(*, cache: bool = True) -> LocalDevice:
        where = tmp_path / "cache" / "cubins" if cache else None
        devices.append(LocalDevice(0, jobs=1, cache=where, worker="tests.faults.fake_worker"))
        return devices[-1]

    yield open_one
    for device in devices:
        device.close()


def prepare(device: LocalDevice, folder: Path) -> Calibration:
    kernel = scale_kernel(folder / "kernel")
    device.prepare(kernel, kernel.problem(), 1)
    assert device.calibration is not None
    return device.calibration


Log = Callable[[], list[str]]


def test_card_is_calibrated_once(opened: Open, log: Log, tmp_path: Path) -> None:
    device = opened()
    assert device.known_calibration() is None
    assert device.noise_floor(1e6) == DEFAULT_NOISE_FLOOR
    first = prepare(device, tmp_path)
    assert log() == ["start", "calibrate", "setup 1"]
    assert device.noise_floor(1e6) == 0.002
    assert prepare(device, tmp_path) == first
    again = opened()
    assert prepare(again, tmp_path) == first
    assert log() == ["start", "calibrate", "setup 1", "setup 1", "start", "setup 1"]
    assert len(kept(tmp_path / "cache" / "calibrations")) == 1


def test_noise_floor_is_that_of_the_conditions(opened: Open, tmp_path: Path) -> None:
    device = opened()
    kernel = scale_kernel(tmp_path / "kernel")
    device.prepare(kernel, kernel.problem(), 1, Conditions(Mode.ROTATING, Regime.SUSTAINED))
    assert device.noise_floor(1e6) == SUSTAINED_NOISE


def test_without_a_cache_every_device_is_calibrated(opened: Open, log: Log, tmp_path: Path) -> None:
    for _ in range(2):
        prepare(opened(cache=False), tmp_path)
    assert log().count("calibrate") == 2
    assert not (tmp_path / "cache").exists()


def keep(tmp_path: Path, calibration: Calibration, gpu: Gpu = GPU) -> CalibrationCache:
    cache = CalibrationCache(tmp_path / "cache" / "calibrations")
    cache.write(gpu, calibration)
    return cache


@pytest.mark.parametrize("off", [1.005, -1.005])
def test_card_that_was_changed_is_calibrated_again(
    opened: Open, log: Log, tmp_path: Path, off: float
) -> None:
    old = replace(CALIBRATION, reference_ns=REFERENCE_NS / (1 + off * RECALIBRATE))
    cache = keep(tmp_path, old)
    found = prepare(opened(), tmp_path)
    # The calibration empties the process, so the problem is handed over once more.
    assert log() == ["start", "setup 1", "calibrate", "setup 1"]
    assert found.reference_ns == REFERENCE_NS
    assert not set(old.notes) & set(found.notes)  # the clocks are no longer held
    assert cache.read(GPU) == replace(found, notes=())


@pytest.mark.parametrize("off", [0.995, 0.0, -0.995])
def test_card_that_is_as_it_was_keeps_its_calibration(
    opened: Open, log: Log, tmp_path: Path, off: float
) -> None:
    old = replace(CALIBRATION, reference_ns=REFERENCE_NS / (1 + off * RECALIBRATE))
    keep(tmp_path, old)
    found = prepare(opened(), tmp_path)
    assert log() == ["start", "setup 1"]
    assert replace(found, notes=()) == replace(old, notes=())


def test_card_changed_during_a_session_is_noticed_at_the_next_problem(
    opened: Open, log: Log, tmp_path: Path
) -> None:
    device = opened()
    calibration = prepare(device, tmp_path)
    device.calibration = replace(calibration, reference_ns=1.1 * REFERENCE_NS)
    assert prepare(device, tmp_path).reference_ns == REFERENCE_NS
    assert log().count("calibrate") == 2


def test_damaged_calibration_is_taken_anew(opened: Open, log: Log, tmp_path: Path) -> None:
    keep(tmp_path, CALIBRATION)
    (path,) = kept(tmp_path / "cache" / "calibrations")
    path.write_text('{"noise": {}, "notes": []}')
    assert prepare(opened(), tmp_path).reference_ns == REFERENCE_NS
    assert log().count("calibrate") == 1


def test_calibration_asked_for_is_taken_whatever_is_known(opened: Open, log: Log, tmp_path: Path) -> None:
    cache = keep(tmp_path, CALIBRATION)
    device = opened()
    assert device.known_calibration() == CALIBRATION
    found = device.calibrate()
    assert found != CALIBRATION
    assert cache.read(GPU) == found
    prepare(device, tmp_path)
    assert log() == ["start", "calibrate", "setup 1"]


def test_cache_that_cannot_be_written_costs_no_run(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "calibrations").write_text("in the way")
    assert prepare(opened(), tmp_path).reference_ns == REFERENCE_NS


@pytest.mark.parametrize("known", [None, replace(CALIBRATION, reference_ns=2 * REFERENCE_NS)])
def test_gpu_that_cannot_be_calibrated_is_tuned_all_the_same(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: Calibration | None
) -> None:
    if known is not None:
        keep(tmp_path, known)
    monkeypatch.setenv("FAKE_CALIBRATION", "refuse")
    device = opened()
    said: list[str] = []
    device.say = said.append
    kernel = scale_kernel(tmp_path)
    device.prepare(kernel, kernel.problem(), 1)
    assert "this GPU cannot be calibrated: the GPU was busy" in said[-1] and "\n" not in said[-1]
    if known is None:
        assert device.calibration is None
        assert device.noise_floor(1e5) == DEFAULT_NOISE_FLOOR
    else:
        assert device.calibration is not None and device.calibration.noise == known.noise
    assert device.known_calibration() == known
    with pytest.raises(DeviceError, match="this GPU cannot be calibrated"):
        device.calibrate()
    monkeypatch.delenv("FAKE_CALIBRATION")
    assert prepare(opened(), tmp_path).reference_ns == REFERENCE_NS


def test_calibration_beside_others_is_not_kept(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_OTHERS", "2")
    device = opened()
    assert prepare(device, tmp_path).reference_ns == REFERENCE_NS
    assert device.known_calibration() is None


def test_notes_reach_the_device_and_the_calibration(opened: Open, tmp_path: Path) -> None:
    keep(tmp_path, CALIBRATION)
    device = opened()
    assert device.notes == ("NVML does not answer",)
    assert device.note == "NVML does not answer"
    wanted = (*CALIBRATION.notes, "NVML does not answer")
    assert prepare(device, tmp_path).notes == wanted
    assert prepare(device, tmp_path).notes == wanted  # once each
    # What is true of this process only is not kept for others.
    assert device.known_calibration() == CALIBRATION


def test_several_notes_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    hello = Hello(GPU, ("a MIG slice", "no NVML"))
    monkeypatch.setattr("tuner.devices.guard.Guard.hello", lambda self: hello)
    device = LocalDevice(0, jobs=1, worker="tests.faults.fake_worker")
    try:
        assert (device.notes, device.note) == (("a MIG slice", "no NVML"), "a MIG slice; no NVML")
    finally:
        device.close()
