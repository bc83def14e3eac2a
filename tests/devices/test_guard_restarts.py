"""What the next measuring process is told, and where there is none."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.devices.fake_measuring import log, starts, wait_until
from tests.devices.guards import Reply, measure, set_up, unanswered
from tests.faults.processes import gone
from tuner.children.measuring import Measured
from tuner.core.errors import DeviceError
from tuner.core.model import Status
from tuner.devices import guard as guard_module
from tuner.devices.guard import Guard
from tuner.devices.local import LocalDevice
from tuner.devices.started import Processes

WORKER = "tests.faults.fake_worker"


pytestmark = pytest.mark.usefixtures("quick")


def drifted(guard: Guard, fault: str = "ok") -> bool:
    reply = guard.call(measure(fault))
    assert isinstance(reply, Measured)
    return reply.measurement.drifted


def test_a_new_process_is_told_what_the_reference_kernel_took(
    guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard.call(set_up())
    guard.call(measure("die"))
    assert not drifted(guard), "as the setup said"
    assert drifted(guard, "drift")
    guard.call(measure("die"))
    assert drifted(guard), "as the last candidate said"
    monkeypatch.setenv("FAKE_REFERENCE_NS", "1")
    guard.call(set_up(6))
    assert not drifted(guard), "another problem has no process before"


def test_process_that_cannot_come_back(guard: Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guard.call(set_up())
    monkeypatch.setenv("FAKE_START", "die")
    answers: list[Reply] = []
    for fault in ("die", "ok", "ok", "ok"):
        guard.submit(measure(fault), answers.append)
    wait_until(lambda: len(answers) == 4)
    failures = [unanswered(answer) for answer in answers]
    assert all(a.status is Status.WORKER_DIED for a in failures)
    assert all(a.fatal for a in failures[1:])
    assert "cannot be started" in failures[1].error
    assert "libfake.so" in failures[1].error
    assert unanswered(guard.call(measure())).fatal
    guard.close()
    assert gone(*starts(tmp_path))


def test_setup_that_fails_after_a_restart_leaves_no_process_behind(
    guard: Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard.call(set_up())
    monkeypatch.setenv("FAKE_SETUP", "refuse")
    guard.call(measure("die"))
    reply = unanswered(guard.call(measure()))
    assert reply.fatal
    assert "does not fit" in reply.error
    assert len(starts(tmp_path)) == 4
    assert gone(*starts(tmp_path))


@pytest.mark.parametrize(
    ("mode", "said"),
    [("refuse", "CUDA_ERROR_NO_DEVICE"), ("die", "libfake.so: cannot open"), ("hang", "does not start")],
)
def test_process_that_cannot_start(
    mode: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_START", mode)
    monkeypatch.setattr(guard_module, "START_S", 100.0 if mode != "hang" else 0.3)
    with pytest.raises(DeviceError, match=said) as caught:
        LocalDevice(Processes(0, 1, None, WORKER))
    assert "\n" not in str(caught.value)
    assert gone(*starts(tmp_path))


def test_guard_that_fails_itself_answers_every_request(guard: Guard) -> None:
    """A fault of our own must not become a wait for ever."""

    def careless(reply: Reply) -> None:
        raise KeyError("measurement")

    guard.call(set_up())
    guard.submit(measure(), careless)
    reply = unanswered(guard.call(measure()))
    assert reply.fatal
    assert "measurement" in reply.error


def test_close_kills_a_hang_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SETUP", "hang")
    guard = Guard(WORKER, [])
    guard.hello()
    guard.submit(set_up(), lambda reply: None)
    wait_until(lambda: "setup 5" in log(tmp_path))
    began = time.monotonic()
    guard.close()
    assert time.monotonic() - began < 60.0
    assert gone(*starts(tmp_path))
