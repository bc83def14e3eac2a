"""When a device takes a new calibration, and what it does without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.devices.calibrations import CALIBRATION, kept
from tests.faults.fake_worker import GPU, REFERENCE_NS
from tests.faults.kernels import scale_kernel
from tuner.core.conditions import Calibration
from tuner.core.errors import DeviceError
from tuner.core.model import Gpu
from tuner.devices.base import DEFAULT_NOISE_FLOOR
from tuner.devices.calibrations import CalibrationCache
from tuner.devices.local import RECALIBRATE, LocalDevice
from tuner.devices.started import Processes

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
        devices.append(LocalDevice(Processes(0, 1, where, "tests.faults.fake_worker")))
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
    assert device.phases.seconds("calibration") > 0.0  # which a limit in time leaves out
    assert device.noise_floor(1e6) == 0.002
    assert prepare(device, tmp_path) == first
    again = opened()
    assert prepare(again, tmp_path) == first
    assert log() == ["start", "calibrate", "setup 1", "setup 1", "start", "setup 1"]
    assert len(kept(tmp_path / "cache" / "calibrations")) == 1


def test_noise_of_short_kernels_is_measured_for_a_short_problem(
    opened: Open, log: Log, tmp_path: Path
) -> None:
    device, kernel = opened(), scale_kernel(tmp_path / "kernel")
    device.prepare(kernel, kernel.problem({"n": 2**28}), 1)
    assert device.calibration is not None and not device.calibration.short_noise_ns
    device.prepare(kernel, kernel.problem({"n": 2**10}), 1)
    assert device.calibration.short_noise_ns
    device.prepare(kernel, kernel.problem({"n": 2**28}), 1)
    assert log().count("calibrate") == 2
    kept_one = opened().known_calibration()
    assert kept_one is not None and kept_one.short_noise_ns == device.calibration.short_noise_ns


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


@pytest.mark.parametrize("off", [0.995, -0.995])
def test_card_that_is_as_it_was_keeps_its_calibration(
    opened: Open, log: Log, tmp_path: Path, off: float
) -> None:
    old = replace(CALIBRATION, reference_ns=REFERENCE_NS / (1 + off * RECALIBRATE))
    keep(tmp_path, old)
    found = prepare(opened(), tmp_path)
    assert log() == ["start", "setup 1"]
    assert replace(found, notes=()) == replace(old, notes=())


def test_calibration_asked_for_is_taken_whatever_is_known(opened: Open, log: Log, tmp_path: Path) -> None:
    cache = keep(tmp_path, CALIBRATION)
    device = opened()
    assert device.known_calibration() == CALIBRATION
    found = device.calibrate()
    assert found != CALIBRATION
    assert cache.read(GPU) == found
    prepare(device, tmp_path)
    assert log() == ["start", "calibrate", "setup 1"]


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


def test_calibration_beside_others_is_not_kept_for_long(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_OTHERS", "2")
    device = opened()
    assert prepare(device, tmp_path).reference_ns == REFERENCE_NS
    assert device.known_calibration() is not None
    monkeypatch.setattr("tuner.devices.calibrations.BESIDE_OTHERS_S", -1.0)
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


def test_card_changed_during_a_session_is_noticed_at_the_next_problem(
    opened: Open, log: Log, tmp_path: Path
) -> None:
    device = opened()
    calibration = prepare(device, tmp_path)
    device.calibration = replace(calibration, reference_ns=1.1 * REFERENCE_NS)
    assert prepare(device, tmp_path).reference_ns == REFERENCE_NS
    assert log().count("calibrate") == 2
