"""Processes that are started before the device that has them."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest

from tests.devices.fake_measuring import log_into, starts, wait_until
from tuner.core.errors import DeviceError
from tuner.devices import started
from tuner.devices.guard import Guard
from tuner.devices.isolated import expect_isolated, isolated
from tuner.devices.local import LocalDevice
from tuner.devices.started import Processes

WORKER = "tests.faults.fake_worker"


@pytest.fixture(autouse=True)
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_into(tmp_path, monkeypatch)
    monkeypatch.setattr(started, "has_gpu", lambda: True)
    monkeypatch.setattr(started.Processes.__init__, "__defaults__", (WORKER, None))


def test_a_device_has_the_processes_that_were_begun_for_it(tmp_path: Path) -> None:
    unusable = tmp_path / "file"
    unusable.write_text("")
    started.begin(0, 1, unusable / "cubins")
    assert started.begun(1, 1, unusable / "cubins") is None
    said: list[str] = []
    processes = started.begun(0, 1, unusable / "cubins")
    with closing(LocalDevice(processes, said.append)) as device:
        assert device.gpu.name == "NVIDIA H200"
        assert len(starts(tmp_path)) == 1
        assert len(said) == 1 and str(unusable) in said[0]  # of the cache, which cannot be used
    assert started.begun(0, 1, unusable / "cubins") is None


def test_what_was_begun_for_nothing_is_ended(tmp_path: Path) -> None:
    started.begin(0, 1, None)
    (processes,) = started._begun.values()
    processes.guard.hello()
    started.discard()
    wait_until(lambda: not processes.guard._thread.is_alive())
    assert not started._begun


def test_processes_end_at_the_same_time_and_a_new_one_waits_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Guard] = []
    may_end, together = threading.Event(), threading.Barrier(2)

    def close(self: Guard) -> None:
        may_end.wait(100)
        if ended:
            together.wait(100)  # fails where one waits for the other's end
        whole(self)
        ended.append(self)

    whole = Guard.close
    monkeypatch.setattr(Guard, "close", close)
    processes = started.Processes(0, 1, None, WORKER)
    processes.fresh()
    processes.end_fresh()
    assert not ended
    threading.Timer(0.15, may_end.set).start()
    processes.fresh()
    assert len(ended) == 1
    processes.close()
    assert len(ended) == 3


def test_processes_begin_before_it_is_known_into_what_they_are_locked(tmp_path: Path) -> None:
    with closing(LocalDevice(Processes(0, 1, tmp_path / "cubins", WORKER))) as device:
        expect_isolated(device)
        wait_until(lambda: len(starts(tmp_path)) == 3)
        with isolated(device, [tmp_path]) as lent:
            lent.processes.fresh()  # the one that measures and this one, no other
            assert len(starts(tmp_path)) == 3
        expect_isolated(device)
        wait_until(lambda: len(starts(tmp_path)) == 5)
    assert not [pid for pid in starts(tmp_path) if Path(f"/proc/{pid}").exists()]


def test_where_cuda_does_not_start_behind_landlock_the_rest_of_the_jail_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(LocalDevice(Processes(0, 1, tmp_path / "cubins", WORKER))) as device:
        monkeypatch.setenv("FAKE_START", "locked")
        with isolated(device, [tmp_path]) as lent:
            assert lent is not device and lent.gpu == device.gpu
            assert "NO_DEVICE" in lent.notes[-1]
            lent.calibration = None
            lent.calibrate()  # which no other process takes over
            assert lent.known_calibration() is None and device.known_calibration() is not None
        monkeypatch.setenv("FAKE_START", "die_locked_once")  # an accident, no fault of Landlock's
        with isolated(device, [tmp_path]) as lent:
            assert len(lent.notes) == 1
        monkeypatch.setenv("FAKE_START", "refuse")
        with pytest.raises(DeviceError, match="no CUDA GPU"), isolated(device, [tmp_path]):
            pass
