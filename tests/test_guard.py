"""The measuring process hangs, dies or cannot start: one answer each, and the next candidate is measured."""

from __future__ import annotations

import os
import queue
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.fake_worker import GPU, REFERENCE_NS, STATUSES
from tests.faults.held import hold_compilers
from tests.faults.kernels import SOURCE, configuration, scale_kernel
from tests.faults.processes import gone
from tuner.compile.pool import CompilePool
from tuner.conditions import Conditions, Mode, Regime
from tuner.devices import guard as guard_module
from tuner.devices.base import Contestant, Outcome
from tuner.devices.guard import Guard, Unanswered
from tuner.devices.local import LocalDevice
from tuner.errors import DeviceError
from tuner.hardware.roofline import ARCHITECTURES
from tuner.hardware.workload import Batch, Limits
from tuner.kernel.load import read_kernel
from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration, Problem, Status
from tuner.protocol.measuring import Failed, Measure, Measured, Release, Released, Setup, SetupDone
from tuner.protocol.problem import Candidate, ProblemSetup, ReferenceData
from tuner.runtime.launches import Launch, Plan

WORKER = "tests.faults.fake_worker"


def measure(fault: str = "ok", block: int = 32) -> Measure:
    plan = Plan((Launch((1, 1, 1), (block, 1, 1), 0, ()),), ())
    return Measure(Candidate(plan, (f"cubin {fault}".encode(),), (f"scale__{fault}",)))


def set_up(seed: int = 5, regime: Regime = Regime.RESTED) -> Setup:
    problem = ProblemSetup((), ReferenceData("float32"))
    return Setup(problem, None, seed, Conditions(regime=regime), Batch(1, 1), Limits(0.0, 0.0, 0.0))


Reply = Measured | Unanswered


def status_of(reply: Reply) -> Status:
    return reply.measurement.status if isinstance(reply, Measured) else reply.status


def unanswered(reply: object) -> Unanswered:
    assert isinstance(reply, Unanswered), reply
    return reply


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(guard_module, "GRACE_S", 0.2)
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    (tmp_path / "once").mkdir()
    monkeypatch.setenv("FAKE_ONCE", str(tmp_path / "once"))


@pytest.fixture
def guard() -> Iterator[Guard]:
    guard = Guard(WORKER, [])
    guard.hello()
    yield guard
    guard.close()


def log(tmp_path: Path) -> list[str]:
    return [line.partition(" ")[2] for line in (tmp_path / "log").read_text().splitlines()]


def starts(tmp_path: Path) -> list[int]:
    lines = (tmp_path / "log").read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line.endswith(" start")]


def assert_good_afterwards(guard: Guard) -> None:
    reply = guard.call(measure("ok", 64))
    assert isinstance(reply, Measured) and reply.measurement.status is Status.OK, reply


def test_fake_gpu_is_the_typical_one() -> None:
    assert ARCHITECTURES[90] == GPU


def test_hang_is_killed_after_the_time_allowed(guard: Guard, tmp_path: Path) -> None:
    guard.call(set_up())
    (pid,) = starts(tmp_path)
    began = time.monotonic()
    answers: queue.SimpleQueue[Reply] = queue.SimpleQueue()
    assert not guard.working
    guard.submit(measure("hang"), answers.put)
    while not guard.working:
        time.sleep(0.01)
    reply = unanswered(answers.get())
    assert reply.status is Status.HANG
    assert "killed" in reply.error
    assert 0.3 < time.monotonic() - began < 3.0
    assert gone(pid)
    assert_good_afterwards(guard)
    assert guard.restarts == 1
    assert log(tmp_path) == [
        "start", "setup 5", "measure scale__hang False", "start", "setup 5", "measure scale__ok False"
    ]  # fmt: skip


def test_waiting_for_the_gpu_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lasts as long as another tuner's turn, which is not the candidate's fault."""
    said: list[str] = []
    guard = Guard(WORKER, [], said.append)
    try:
        guard.hello()
        guard.call(set_up())
        monkeypatch.setattr(guard_module, "START_S", 0.6)  # the fake one waits for 1 s
        assert status_of(guard.call(measure("wait"))) is Status.OK
    finally:
        guard.close()
    assert said == ["waiting for the GPU: process 7 (tune) is using this GPU"], "it is said once"


@pytest.mark.parametrize("code", [700, 719])
def test_sticky_error_replaces_the_process(guard: Guard, tmp_path: Path, code: int) -> None:
    guard.call(set_up())
    answers: list[Reply] = []
    guard.submit(measure(f"sticky{code}"), answers.append)
    for block in range(4):
        guard.submit(measure("ok", block), answers.append)
    _wait(lambda: len(answers) == 5)
    assert [status_of(a) for a in answers] == ["memory_fault", "ok", "ok", "ok", "ok"]
    assert isinstance(answers[0], Measured) and str(code) in answers[0].measurement.error
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


def test_malformed_answer_is_a_death_that_names_the_path(guard: Guard, tmp_path: Path) -> None:
    guard.call(set_up())
    reply = unanswered(guard.call(measure("nonsense")))
    assert reply.status is Status.WORKER_DIED
    assert "missing required field `status` - at `$.measurement`" in reply.error
    assert gone(starts(tmp_path)[0])
    assert_good_afterwards(guard)


def test_answer_that_nothing_asked_for_is_a_death(guard: Guard, tmp_path: Path) -> None:
    """A second answer is not taken for that of the next request."""
    guard.call(set_up())
    answers: list[Reply] = []
    for fault in ("twice", "ok"):
        guard.submit(measure(fault), answers.append)
    _wait(lambda: len(answers) == 2)
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


def test_fault_that_comes_once_is_still_one_trial(guard: Guard) -> None:
    guard.call(set_up())
    assert unanswered(guard.call(measure("die_once"))).status is Status.WORKER_DIED
    assert status_of(guard.call(measure("die_once"))) is Status.OK


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
    _wait(lambda: len(answers) == len(faults), 60.0)
    wanted = {
        "die": "worker_died",
        "leave": "worker_died",
        "unborn": "worker_died",
        "hang": "hang",
        "sticky700": "memory_fault",
    }
    assert answers == [(i, wanted.get(fault, "ok")) for i, fault in enumerate(faults)]


def test_innocent_that_waits_is_not_blamed(guard: Guard) -> None:
    """What waits behind two killers in a row has not been tried, however often its process was replaced."""
    guard.call(set_up())
    answers: list[Reply] = []
    for fault in ("die", "die", "die", "die", "ok"):
        guard.submit(measure(fault), answers.append)
    _wait(lambda: len(answers) == 5)
    assert [status_of(a) for a in answers] == [Status.WORKER_DIED] * 4 + [Status.OK]


def test_killed_from_outside_while_idle(guard: Guard, tmp_path: Path) -> None:
    guard.call(set_up())
    os.kill(starts(tmp_path)[0], signal.SIGKILL)
    time.sleep(0.2)
    assert_good_afterwards(guard)


def test_stopped_process_that_never_begins_is_replaced(
    guard: Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard.call(set_up())
    monkeypatch.setattr(guard_module, "START_S", 0.7)
    os.kill(starts(tmp_path)[0], signal.SIGSTOP)
    assert_good_afterwards(guard)
    assert guard.restarts == 1


def test_new_setup_is_the_one_repeated(guard: Guard, tmp_path: Path) -> None:
    guard.call(set_up(1))
    guard.call(set_up(2))
    guard.call(measure("die"))
    assert_good_afterwards(guard)
    assert [line for line in log(tmp_path) if line.startswith("setup")] == ["setup 1", "setup 2", "setup 2"]


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


def test_setup_that_was_refused_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SETUP", "refuse")
    guard = Guard(WORKER, [])
    try:
        guard.hello()
        reply = guard.call(set_up())
        assert isinstance(reply, Failed) and "does not fit" in reply.error
        os.kill(starts(tmp_path)[0], signal.SIGKILL)
        assert guard.call(Release()) == Released()
        assert len(starts(tmp_path)) == 2
        assert log(tmp_path).count("setup 5") == 1
    finally:
        guard.close()


# -- what a restart hides


def drifted(guard: Guard, fault: str = "ok") -> bool:
    reply = guard.call(measure(fault))
    assert isinstance(reply, Measured)
    return reply.measurement.drifted


@pytest.mark.parametrize(("factor", "told"), [(1.03, True), (0.97, True), (1.015, False), (1.0, False)])
def test_drift_across_a_restart_is_told_once(
    guard: Guard, monkeypatch: pytest.MonkeyPatch, factor: float, told: bool
) -> None:
    guard.call(set_up())
    assert not drifted(guard)
    monkeypatch.setenv("FAKE_REFERENCE_NS", str(REFERENCE_NS * factor))
    guard.call(measure("die"))
    assert drifted(guard) is told
    assert not drifted(guard)
    guard.call(measure("die"))
    assert not drifted(guard), "the newest process is compared with the one before"


def test_drift_is_told_with_the_next_time_there_is(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed before it was timed says nothing about the GPU, and a further restart forgets nothing."""
    guard.call(set_up())
    monkeypatch.setenv("FAKE_REFERENCE_NS", str(REFERENCE_NS * 1.1))
    for fault in ("die", "hang", "sticky700"):
        reply = guard.call(measure(fault))
        assert isinstance(reply, Unanswered) or not reply.measurement.drifted
    assert drifted(guard)


def test_another_setup_forgets_the_drift(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    guard.call(set_up())
    monkeypatch.setenv("FAKE_REFERENCE_NS", str(REFERENCE_NS * 1.1))
    guard.call(measure("die"))
    guard.call(set_up(6))
    assert not drifted(guard)


def test_sustained_times_know_no_drift(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    guard.call(set_up(regime=Regime.SUSTAINED))
    monkeypatch.setenv("FAKE_REFERENCE_NS", str(REFERENCE_NS * 1.1))
    guard.call(measure("die"))
    assert not drifted(guard)


def test_drift_that_the_process_told_is_not_told_again(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on with another reference: the one of the setup is no measure for the next process."""
    guard.call(set_up())
    monkeypatch.setenv("FAKE_REFERENCE_NS", str(REFERENCE_NS * 1.1))
    assert drifted(guard, "drift")
    guard.call(measure("die"))
    assert not drifted(guard)


def test_process_that_cannot_come_back(guard: Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guard.call(set_up())
    monkeypatch.setenv("FAKE_START", "die")
    answers: list[Reply] = []
    for fault in ("die", "ok", "ok", "ok"):
        guard.submit(measure(fault), answers.append)
    _wait(lambda: len(answers) == 4)
    failures = [unanswered(answer) for answer in answers]
    assert all(a.status is Status.WORKER_DIED for a in failures)
    assert all(a.fatal for a in failures[1:])
    assert "cannot be started" in failures[1].error
    assert "libfake.so" in failures[1].error
    assert unanswered(guard.call(measure())).fatal
    began = time.monotonic()
    guard.close()
    assert time.monotonic() - began < 2.0
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
    monkeypatch.setattr(guard_module, "START_S", 5.0 if mode != "hang" else 0.3)
    with pytest.raises(DeviceError, match=said) as caught:
        LocalDevice(0, jobs=1, worker=WORKER)
    assert "\n" not in str(caught.value)
    assert gone(*starts(tmp_path))


def test_module_that_does_not_exist() -> None:
    with pytest.raises(DeviceError, match=r"No module named tests\.faults\.missing"):
        LocalDevice(0, jobs=1, worker="tests.faults.missing")


def test_guard_that_fails_itself_answers_every_request(guard: Guard) -> None:
    """A fault of our own must not become a wait for ever."""

    def careless(reply: Reply) -> None:
        raise KeyError("measurement")

    guard.call(set_up())
    guard.submit(measure(), careless)
    reply = unanswered(guard.call(measure()))
    assert reply.fatal
    assert "measurement" in reply.error


def test_close_kills_a_hang_at_once(tmp_path: Path) -> None:
    guard = Guard(WORKER, [])
    guard.hello()
    guard.call(set_up())
    guard.submit(measure("hang"), lambda reply: None)
    time.sleep(0.1)
    began = time.monotonic()
    guard.close()
    assert time.monotonic() - began < 2.0
    assert gone(*starts(tmp_path))


# -- the device on top of it


FIELD = (("ok", 1), ("ok", 2), ("racehang", 1), ("ok", 3))
FAULTS = ("ok", "hang", "die", "sticky700", *STATUSES)


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SLEEP_S", "0.1")


class LastingPool(CompilePool):
    """Compilers that a device does not end with itself: starting them takes longer than most tests."""

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompilePool]:
    pool = LastingPool(2, tmp_path_factory.mktemp("cache") / "cubins")
    yield pool
    CompilePool.close(pool)


@pytest.fixture
def device(tmp_path: Path, pool: CompilePool) -> Iterator[LocalDevice]:
    device = LocalDevice(0, cache=tmp_path / "cache", worker=WORKER, pool=pool)
    yield device
    device.close()


def prepared(device: LocalDevice, folder: Path, **changes: Any) -> tuple[KernelSpec, Problem]:
    kernel = scale_kernel(folder, **changes)
    problem = kernel.problem()
    device.prepare(kernel, problem, 1)
    return kernel, problem


def ask(device: LocalDevice, configurations: list[Configuration]) -> list[Outcome]:
    for number, item in enumerate(configurations):
        device.submit(number, item)
    found: list[Outcome] = []
    deadline = time.monotonic() + 60.0
    while len(found) < len(configurations) and time.monotonic() < deadline:
        found += device.collect(0.5)
    assert device.collect(0.0) == []
    return sorted(found, key=lambda outcome: outcome.number)


def test_each_fault_has_its_status(device: LocalDevice, tmp_path: Path) -> None:
    prepared(device, tmp_path, faults=FAULTS, blocks=(32, 64), items=(1, 2))
    asked = [configuration(fault, block) for fault in FAULTS for block in (32, 64)]
    outcomes = ask(device, asked)
    assert [outcome.configuration for outcome in outcomes] == asked
    wanted = {
        "hang": "hang",
        "die": "worker_died",
        "sticky700": "memory_fault",
        **{f: s for f, (s, _) in STATUSES.items()},
    }
    for outcome in outcomes:
        fault = str(outcome.configuration.values["fault"])
        assert outcome.measurement.status == wanted.get(fault, "ok"), outcome
        assert bool(outcome.measurement.error) == (fault != "ok")


def test_answer_that_is_not_understood_is_an_answer(device: LocalDevice, tmp_path: Path) -> None:
    """A newer measuring process may say other things, if the tuner was installed anew during a run."""
    prepared(device, tmp_path, faults=("ok", "nonsense"))
    (outcome,) = ask(device, [configuration("nonsense")])
    assert outcome.measurement.status is Status.WORKER_DIED
    assert "nonsense" in outcome.measurement.error
    (outcome,) = ask(device, [configuration("ok")])
    assert outcome.measurement.status is Status.OK


def test_good_times_do_not_depend_on_the_bad_neighbours(device: LocalDevice, tmp_path: Path) -> None:
    prepared(device, tmp_path, faults=FAULTS)
    good = [configuration("ok", block, items) for block in (32, 64, 128, 256) for items in (1, 2, 3, 4)]
    alone = {o.configuration: o.measurement.samples_ns for o in ask(device, good)}
    prepared(device, tmp_path, faults=FAULTS)
    mixed = [
        item
        for pair in zip(good, [configuration(f) for f in (*FAULTS[1:], *FAULTS[1:])], strict=True)
        for item in pair
    ]
    after = {o.configuration: o.measurement.samples_ns for o in ask(device, mixed)}
    assert {c: after[c] for c in good} == alone


def test_equal_sources_are_measured_once(device: LocalDevice, tmp_path: Path) -> None:
    source = 'extern "C" __global__ void scale__ok(const float* x, float* y, long long n) {}\n'
    extra = (
        '[variants.other]\nsummary = "the same"\n[variants.other.parameters]\nfault = { values = ["ok"] }\n'
    )
    launch = (
        '[[variants.other.launches]]\ntemplate = "scale.cu.j2"\nentry = "scale__ok"\n'
        'arguments = ["x", "y", { value = "n", dtype = "int64" }]\ngrid = ["16"]\nblock = ["64"]\n'
    )
    prepared(device, tmp_path, source=source, blocks=(64,), extra=extra + launch)
    one, other = configuration("ok", 64, 1), Configuration.of("other", {"fault": "ok"})
    outcomes = ask(device, [one])
    outcomes += ask(device, [other])
    assert len({outcome.measurement.samples_ns for outcome in outcomes}) == 1
    assert [outcome.measurement.measure_s > 0 for outcome in outcomes] == [True, False]
    assert Counter(log(tmp_path))["measure scale__ok False"] == 1
    prepared(device, tmp_path, source=source, blocks=(64,), extra=extra + launch)
    assert len(ask(device, [one, other])) == 2  # at the same time
    assert Counter(log(tmp_path))["measure scale__ok False"] == 2
    ask(device, [one])  # the same once more is measured anew
    assert Counter(log(tmp_path))["measure scale__ok False"] == 3


def test_what_is_compiled_when_another_problem_is_prepared_is_not_measured(
    device: LocalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, _ = prepared(device, tmp_path)
    with monkeypatch.context() as patch:
        held = hold_compilers(device, patch)
        device.submit(0, configuration("ok", 32))
    device.prepare(kernel, kernel.problem({"n": 64}), 1)
    for go_on in held:
        go_on()
    (outcome,) = ask(device, [configuration("ok", 64)])
    assert (outcome.number, outcome.configuration) == (0, configuration("ok", 64))
    assert outcome.measurement.status is Status.OK
    assert Counter(log(tmp_path))["measure scale__ok False"] == 1


@pytest.mark.usefixtures("slowly")
def test_what_is_measured_when_another_problem_is_prepared_is_not_answered(
    device: LocalDevice, tmp_path: Path
) -> None:
    kernel, _ = prepared(device, tmp_path)
    device.submit(0, configuration("ok", 32))
    deadline = time.monotonic() + 60.0
    while "measure scale__ok False" not in log(tmp_path):
        assert time.monotonic() < deadline
    device.prepare(kernel, kernel.problem({"n": 64}), 1)
    (outcome,) = ask(device, [configuration("ok", 64)])
    assert (outcome.number, outcome.configuration) == (0, configuration("ok", 64))
    assert outcome.measurement.status is Status.OK


def test_plan_that_cannot_be_launched_costs_one_trial(device: LocalDevice, tmp_path: Path) -> None:
    prepared(device, tmp_path, blocks=(64, 2048))
    bad, good = ask(device, [configuration("ok", 2048), configuration("ok", 64)])
    assert bad.measurement.status is Status.INVALID_CONFIG
    assert "2048" in bad.measurement.error
    assert good.measurement.status is Status.OK


def test_constraints_on_what_the_compiler_says(device: LocalDevice, tmp_path: Path) -> None:
    extra = '[variants.plain.constraints]\n"few registers" = "registers < 2"\n'
    prepared(device, tmp_path, extra=extra)
    (outcome,) = ask(device, [configuration()])
    assert outcome.measurement.status is Status.INVALID_CONFIG
    assert outcome.measurement.error == "few registers"
    assert outcome.compilation.resources[0].registers > 1


def test_race_confirmation_and_other_sizes(device: LocalDevice, tmp_path: Path) -> None:
    extra = '[variants.plain.constraints]\n"no tail" = "n % 64 == 0"\n'
    _, problem = prepared(device, tmp_path, extra=extra, faults=("ok", "edge"))
    a, b = (configuration("ok", block) for block in (32, 64))
    found = device.race([Contestant(a, 1e5), Contestant(b, 1e5)], 3, 4, 0)
    assert [len(groups) for groups in found.samples_ns] == [2, 2, 2]
    assert found.failed is None
    confirmed = device.confirm(a, 1e5)
    assert confirmed.status is Status.OK
    assert log(tmp_path)[-3:] == ["start", "setup 2", "measure scale__ok False"]
    sizes = [Problem("scale", {"n": n}, problem.dtypes, problem.options) for n in (1, 63, 64, 128)]
    verified = device.verify_at(sizes, a)
    assert [(p.sizes["n"], m.status) for p, m in verified] == [(64, Status.OK), (128, Status.OK)]
    verified = device.verify_at(sizes, configuration("edge", 32))
    assert [m.status for _, m in verified] == [Status.WRONG_RESULT] * 2


def test_a_race_in_another_mode_needs_no_other_setup(device: LocalDevice, tmp_path: Path) -> None:
    prepared(device, tmp_path)
    found = device.race([Contestant(configuration(), 1e5)], 3, 4, 0, Mode.WARM)
    assert found.failed is None
    assert [line for line in log(tmp_path) if "setup" in line or "race" in line] == [
        "setup 1",
        "race warm in 1",
    ]


def test_other_sizes_that_have_no_grid_are_left_out(device: LocalDevice, tmp_path: Path) -> None:
    kernel = tmp_path / "scale.toml"
    prepared(device, tmp_path)
    text = kernel.read_text().replace("ceil_div(n, block_size * items)", "n // (block_size * items)")
    kernel.write_text(text)
    prepared_again = read_kernel(kernel)
    device.prepare(prepared_again, prepared_again.problem(), 1)
    sizes = [Problem("scale", {"n": n}, prepared_again.problem().dtypes, {"order": "up"}) for n in (1, 64)]
    verified = device.verify_at(sizes, configuration("ok", 64))
    assert [(p.sizes["n"], m.status) for p, m in verified] == [(64, Status.OK)]


def test_what_is_prepared_is_not_prepared_again(device: LocalDevice, tmp_path: Path) -> None:
    kernel, problem = prepared(device, tmp_path)
    ask(device, [configuration()])
    assert device.busy.spans
    device.prepare(kernel, problem, 1)
    assert log(tmp_path).count("setup 1") == 1
    assert not device.busy.spans
    assert ask(device, [configuration()])[0].measurement.status is Status.OK
    device.submit(7, configuration("ok", 64))
    device.prepare(kernel, problem, 1)  # what was pending is not answered any more
    assert ask(device, [configuration("ok", 128)])[0].configuration == configuration("ok", 128)
    assert log(tmp_path).count("setup 1") == 2
    device.confirm(configuration(), 1e5)  # frees the problem's memory
    device.prepare(kernel, problem, 1)
    assert ask(device, [configuration()])[0].measurement.status is Status.OK
    assert log(tmp_path).count("setup 1") == 3


def test_the_incumbent_is_asked_for_when_a_candidate_is_compiled(
    device: LocalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(device, tmp_path)
    held = hold_compilers(device, monkeypatch)
    best: list[float] = []
    device.submit(0, configuration(), lambda: best[0])
    best.append(123.0)
    held[0]()
    while not (outcomes := device.collect(1.0)):
        pass
    assert outcomes[0].measurement.status is Status.OK
    assert log(tmp_path)[-1] == "measure scale__ok False against 123"


def test_confirmation_without_a_second_process(
    device: LocalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU in exclusive mode refuses a second process: the run is not lost, its winner is not confirmed."""
    _, problem = prepared(device, tmp_path)
    monkeypatch.setenv("FAKE_START", "refuse")
    confirmed = device.confirm(configuration(), 1e5)
    assert confirmed.status is Status.WORKER_DIED
    assert "NO_DEVICE" in confirmed.error
    ((where, measurement),) = device.verify_at([problem], configuration())
    assert where == problem
    assert measurement.status is Status.UNVERIFIED


def test_device_that_cannot_be_restarted_says_so(
    device: LocalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(device, tmp_path, faults=("ok", "die"))
    monkeypatch.setenv("FAKE_START", "die")
    (outcome,) = ask(device, [configuration("die")])
    assert outcome.measurement.status is Status.WORKER_DIED
    device.submit(1, configuration("ok"))
    with pytest.raises(DeviceError, match="cannot be started"):
        for _ in range(100):
            device.collect(0.1)
    with pytest.raises(DeviceError, match="cannot be started"):
        device.race([Contestant(configuration(), 1e5)], 1, 1, 0)


def test_drift_across_a_restart_reaches_the_outcome(
    device: LocalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(device, tmp_path, faults=("ok", "die"))
    monkeypatch.setenv("FAKE_REFERENCE_NS", str(REFERENCE_NS * 1.1))
    found = [
        ask(device, [asked])[0].measurement.drifted
        for asked in (configuration("ok", 32), configuration("die"), configuration("ok", 64), configuration())
    ]
    assert found == [False, False, True, False]


def test_race_that_has_not_begun_is_tried_again(
    device: LocalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(device, tmp_path)
    os.kill(starts(tmp_path)[0], signal.SIGSTOP)
    monkeypatch.setattr(guard_module, "START_S", 0.7)
    found = device.race([Contestant(configuration(), 1e5)], 1, 1, 0)
    assert found.failed is None
    assert found.samples_ns


def test_race_names_the_contestant_that_hangs(
    device: LocalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(device, tmp_path, faults=("ok", "racehang"))
    contestants = [Contestant(configuration(fault, 32, items), 1e5) for fault, items in FIELD]
    found = device.race(contestants, 2, 4, 0)
    assert found.failed == 2
    assert "killed" in found.error
    found = device.race([c for i, c in enumerate(contestants) if i != 2], 2, 4, 0)
    assert found.failed is None
    assert [len(groups) for groups in found.samples_ns] == [3, 3]


def test_race_names_the_contestant_that_does_not_compile(device: LocalDevice, tmp_path: Path) -> None:
    prepared(device, tmp_path, source="{% if block_size == 64 %}?{% endif %}" + SOURCE)
    contestants = [Contestant(configuration("ok", block), 1e5) for block in (32, 64, 128)]
    assert device.race(contestants, 2, 4, 0).failed == 1


def test_process_killed_in_a_race_fails_no_contestant(device: LocalDevice, tmp_path: Path) -> None:
    prepared(device, tmp_path, faults=("ok", "raceonce"))
    contestants = [Contestant(configuration(fault), 1e5) for fault in ("ok", "raceonce")]
    found = device.race(contestants, 2, 4, 0)
    assert found.failed is None
    assert device._guard.restarts == 1


def test_setup_that_is_killed_once_is_repeated(
    device: LocalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = scale_kernel(tmp_path)
    os.kill(starts(tmp_path)[0], signal.SIGKILL)
    monkeypatch.setenv("FAKE_SETUP", "die_once")
    device.prepare(kernel, kernel.problem(), 1)
    (outcome,) = ask(device, [configuration()])
    assert outcome.measurement.status is Status.OK


def test_setup_that_fails_is_one_line(
    device: LocalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = scale_kernel(tmp_path)
    os.kill(starts(tmp_path)[0], signal.SIGKILL)
    monkeypatch.setenv("FAKE_SETUP", "refuse")
    with pytest.raises(DeviceError, match=r"scale n=1024 float32.*does not fit"):
        device.prepare(kernel, kernel.problem(), 1)


def _wait(done: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert done()
