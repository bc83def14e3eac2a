"""The measuring process hangs, dies or cannot start: one answer each, and the next candidate is measured."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.devices.fake_measuring import limit_the_first_start, log, starts, wait_until
from tests.devices.guards import Reply, assert_good_afterwards, measure, set_up, status_of, unanswered
from tests.faults.fake_worker import GPU
from tests.faults.processes import gone
from tuner.children.measuring import Candidate, Failed, Measure, Measured, Release, Released, SetupDone
from tuner.core.model import Status
from tuner.devices import guard as guard_module
from tuner.devices.guard import Guard
from tuner.kernel.roofline import ARCHITECTURES
from tuner.runtime.launches import Launch, Plan

WORKER = "tests.faults.fake_worker"


pytestmark = pytest.mark.usefixtures("quick")


def test_fake_gpu_is_the_typical_one() -> None:
    assert ARCHITECTURES[90] == GPU


def test_a_function_that_compiles_for_too_long(guard: Guard) -> None:
    guard.call(set_up())
    assert unanswered(guard.call(measure("compiling"))).status is Status.COMPILE_TIMEOUT


def test_hang_is_killed_after_the_time_allowed(guard: Guard, tmp_path: Path) -> None:
    guard.call(set_up())
    (pid,) = starts(tmp_path)
    assert not guard.working
    began = time.monotonic()
    reply = unanswered(guard.call(measure("hang")))
    assert time.monotonic() - began > 0.3
    assert reply.status is Status.HANG
    assert "killed" in reply.error
    assert gone(pid)
    assert_good_afterwards(guard)
    assert guard.restarts == 1
    assert log(tmp_path) == [
        "start", "setup 5", "measure scale__hang False", "start", "setup 5", "measure scale__ok False"
    ]  # fmt: skip


def test_waiting_for_the_gpu_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lasts as long as another tuner's turn, which is not the candidate's fault."""

    class Waiting(Guard):
        def _tell_waiting(self, what: str) -> None:
            super()._tell_waiting(what)
            now.append(now[-1] + 4.5)

    said: list[str] = []
    now = [0.0]
    monkeypatch.setattr(guard_module, "time", SimpleNamespace(monotonic=lambda: now[-1]))
    monkeypatch.setattr(guard_module, "START_S", 5.0)
    guard = Waiting(WORKER, [], said.append)
    try:
        guard.hello()
        guard.call(set_up())
        assert status_of(guard.call(measure("wait"))) is Status.OK
    finally:
        guard.close()
    assert now[-1] == 45.0
    assert said == ["waiting for the GPU: process 7 (tune) is using this GPU"], "it is said once"


def test_sticky_error_replaces_the_process(guard: Guard, tmp_path: Path) -> None:
    guard.call(set_up())
    answers: list[Reply] = []
    guard.submit(measure("sticky700"), answers.append)
    for block in range(4):
        guard.submit(measure("ok", block), answers.append)
    wait_until(lambda: len(answers) == 5)
    assert [status_of(a) for a in answers] == ["memory_fault", "ok", "ok", "ok", "ok"]
    assert isinstance(answers[0], Measured) and "700" in answers[0].measurement.error
    assert guard.restarts == 1
    assert len(starts(tmp_path)) == 2


@pytest.mark.parametrize(
    ("fault", "said"), [("die", "SIGSEGV"), ("leave", "exit status 7: last words of a library")]
)
def test_death_is_the_candidates(guard: Guard, fault: str, said: str) -> None:
    guard.call(set_up())
    reply = unanswered(guard.call(measure(fault)))
    assert reply.status is Status.WORKER_DIED
    assert said in reply.error
    assert_good_afterwards(guard)


def test_answer_that_nothing_asked_for_is_a_death(guard: Guard, tmp_path: Path) -> None:
    """A second answer is not taken for that of the next request."""
    guard.call(set_up())
    answers: list[Reply] = []
    for fault in ("twice", "ok"):
        guard.submit(measure(fault), answers.append)
    wait_until(lambda: len(answers) == 2)
    assert guard.call(Release()) == Released()
    assert len(answers) == 2
    assert len(starts(tmp_path)) == 2


def test_request_that_cannot_be_written_is_answered(guard: Guard) -> None:
    guard.call(set_up())
    huge = Plan((Launch((2**70, 1, 1), (32, 1, 1), 0, ()),), ())
    reply = unanswered(guard.call(Measure(Candidate(huge, (b"",), ("scale__ok",)))))
    assert "cannot be sent" in reply.error
    assert not reply.fatal
    assert_good_afterwards(guard)
    assert guard.restarts == 0
    reply = unanswered(guard.call(set_up(2**70)))
    assert "cannot be sent" in reply.error


def test_death_before_it_began_is_retried_once(guard: Guard, tmp_path: Path) -> None:
    guard.call(set_up())
    assert status_of(guard.call(measure("unborn_once"))) is Status.OK
    assert unanswered(guard.call(measure("unborn"))).status is Status.WORKER_DIED
    assert_good_afterwards(guard)
    assert guard.restarts == 3
    assert log(tmp_path).count("setup 5") == 4


def test_every_request_is_answered_once_and_in_order(guard: Guard) -> None:
    guard.call(set_up())
    faults = ["ok", "die", "hang", "ok", "sticky700", "leave", "unborn", "ok", "die", "die", "ok"]
    answers: list[tuple[int, str]] = []

    def keep(i: int) -> Callable[[Reply], None]:
        return lambda reply: answers.append((i, status_of(reply)))

    for i, fault in enumerate(faults):
        guard.submit(measure(fault, i), keep(i))
    wait_until(lambda: len(answers) == len(faults))
    wanted = {
        "die": "worker_died",
        "leave": "worker_died",
        "unborn": "worker_died",
        "hang": "hang",
        "sticky700": "memory_fault",
    }
    assert answers == [(i, wanted.get(fault, "ok")) for i, fault in enumerate(faults)]


def test_stopped_process_that_never_begins_is_replaced(
    guard: Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard.call(set_up())
    os.kill(starts(tmp_path)[0], signal.SIGSTOP)
    limit_the_first_start(monkeypatch)
    assert_good_afterwards(guard)
    assert guard.restarts == 1


def test_setup_that_kills_is_answered_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SETUP", "die")
    guard = Guard(WORKER, [])
    try:
        guard.hello()
        assert unanswered(guard.call(set_up())).status is Status.WORKER_DIED
        monkeypatch.setenv("FAKE_SETUP", "")
        assert isinstance(guard.call(set_up()), SetupDone)
    finally:
        guard.close()


def test_setup_whose_reference_faults_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error ends the process, not the guard: the next problem gets a new process, when it is there."""
    monkeypatch.setenv("FAKE_SETUP", "fault")
    guard = Guard(WORKER, [])
    try:
        guard.hello()
        reply = guard.call(set_up())
        assert isinstance(reply, Failed) and "reference kernel failed" in reply.error
        assert gone(*starts(tmp_path))
        monkeypatch.setenv("FAKE_SETUP", "")
        assert isinstance(guard.call(set_up(6)), SetupDone)
        assert_good_afterwards(guard)
        assert [line for line in log(tmp_path) if "measure" not in line] == [
            "start", "setup 5", "start", "setup 6"
        ]  # fmt: skip
    finally:
        guard.close()


def test_what_waits_for_an_answer_gets_one_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SETUP", "hang")
    guard = Guard(WORKER, [])
    answers: queue.SimpleQueue[object] = queue.SimpleQueue()
    threading.Thread(target=lambda: answers.put(guard.call(set_up())), daemon=True).start()
    wait_until(lambda: guard.working)
    guard.close()
    assert unanswered(answers.get(timeout=100)).fatal


def test_innocent_that_waits_is_not_blamed(guard: Guard) -> None:
    """What waits behind two killers in a row has not been tried, however often its process was replaced."""
    guard.call(set_up())
    answers: list[Reply] = []
    for fault in ("die", "die", "die", "die", "ok"):
        guard.submit(measure(fault), answers.append)
    wait_until(lambda: len(answers) == 5)
    assert [status_of(a) for a in answers] == [Status.WORKER_DIED] * 4 + [Status.OK]


def test_killed_from_outside_while_idle(guard: Guard, tmp_path: Path) -> None:
    guard.call(set_up())
    os.kill(starts(tmp_path)[0], signal.SIGKILL)
    assert_good_afterwards(guard)


def test_new_setup_is_the_one_repeated(guard: Guard, tmp_path: Path) -> None:
    guard.call(set_up(1))
    guard.call(set_up(2))
    guard.call(measure("die"))
    assert_good_afterwards(guard)
    assert [line for line in log(tmp_path) if line.startswith("setup")] == ["setup 1", "setup 2", "setup 2"]
