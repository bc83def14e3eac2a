"""The measuring process itself, on a driver whose kernels do nothing, so that all is right: what it asks of a driver.

Times are of a busy host, so that none of them is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests import fake_driver
from tests.faults.kernels import write_kernel
from tuner.core.conditions import Calibration, Mode
from tuner.core.model import Status
from tuner.devices import local
from tuner.devices.base import Contestant, Device, RaceRequest
from tuner.devices.isolated import isolated
from tuner.devices.local import LocalDevice
from tuner.devices.started import Processes
from tuner.kernel.candidates import candidate_kernel
from tuner.kernel.default import default_configuration
from tuner.kernel.load import read_kernel
from tuner.kernel.spec import KernelSpec

BY_TIME = (Status.OK, Status.SLOW, Status.UNSTABLE, Status.REPEATS, Status.TOO_FAST, Status.CLOCK_MISMATCH)
"""What a candidate can be that does nothing, and whose process does not end."""
CALL = """\
from cuda.bindings import driver as cu


def candidate(x, y, stream):
    to, source = (one.__cuda_array_interface__["data"][0] for one in (y, x))
    cu.cuMemcpyDtoDAsync(to, source, 4, stream)
"""


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalDevice]:
    settings = fake_driver.environment(devices="NVIDIA H100:90:132:1048576", memory=str(1 << 30))
    for name in ("LD_LIBRARY_PATH", "FAKE_CUDA_DEVICES", "FAKE_CUDA_MEMORY"):
        monkeypatch.setenv(name, settings[name])
    known = Calibration({"rotating, rested": 0.1}, {"rotating": 10.0}, reference_ns=1.0)
    monkeypatch.setattr(LocalDevice, "known_calibration", lambda _: known)
    monkeypatch.setattr(local, "RECALIBRATE", 1e30)
    with closing(LocalDevice(Processes(0, 1, tmp_path / "cache"))) as device:
        yield device


def all_that_is_asked(device: Device, kernel: KernelSpec) -> None:
    problem, other = (kernel.problem({"n": n}) for n in (4096, 1000))
    configuration = default_configuration(kernel, problem, device.gpu)
    assert configuration is not None and isinstance(device, LocalDevice)
    device.prepare(kernel, problem, 1)
    device.submit(0, configuration)
    while not (trials := device.collect(1.0)):
        pass
    assert trials[0].status in BY_TIME and trials[0].verification and trials[0].verification.passed, trials
    device.race(RaceRequest([Contestant(configuration, 1e3)], 2, 2, 0, Mode.WARM))
    confirmed = device.confirm(configuration, 1e3)
    assert confirmed.status in BY_TIME, confirmed
    varied = device.verify_at(other, configuration, 100.0, contents=True)
    assert varied is not None and varied.status is Status.OK and not any(varied.contents.values()), varied
    assert len(varied.contents) == 9 and device._guard.restarts == 0


def test_a_kernel_is_measured_raced_and_confirmed(device: LocalDevice, tmp_path: Path) -> None:
    all_that_is_asked(device, read_kernel(write_kernel(tmp_path)))


def test_so_is_a_call_that_is_locked_in(device: LocalDevice, tmp_path: Path) -> None:
    """Nothing of what the process does itself counts as tampering."""
    task = read_kernel(write_kernel(tmp_path))
    (tmp_path / "mine.py").write_text(CALL)
    with isolated(device, [tmp_path / "mine.py"]) as locked_in:
        all_that_is_asked(locked_in, candidate_kernel(task, str(tmp_path / "mine.py")))
    assert device._guard.restarts == 0
