"""Races, confirmations and other sizes on the device of this machine, with a measuring process that has no GPU."""

from __future__ import annotations

import os
import signal
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from tests.devices.fake_device import ask, prepared
from tests.devices.fake_measuring import limit_the_first_start, log, starts
from tests.faults.kernels import SOURCE, configuration, write_kernel
from tuner.children.compile_pool import CompilePool
from tuner.core.conditions import Mode
from tuner.core.files import TEMPORARY
from tuner.core.model import Configuration, Problem, Status
from tuner.devices.base import Contestant, RaceRequest
from tuner.devices.local import LocalDevice
from tuner.devices.started import Processes
from tuner.kernel.load import read_kernel
from tuner.tuning.confirmation import confirm

pytestmark = pytest.mark.usefixtures("quick")

FIELD = (("ok", 1), ("ok", 2), ("racehang", 1), ("ok", 3))


def statuses_at(device: LocalDevice, problems: list[Problem], one: Configuration) -> dict[int, Status]:
    answers = {
        problem.sizes["n"]: device.verify_at(problem, one, 60.0, contents=False) for problem in problems
    }
    return {n: answer.status for n, answer in answers.items() if answer is not None}


def test_race_confirmation_and_other_sizes(device: LocalDevice, tmp_path: Path) -> None:
    extra = '[variants.plain.constraints]\n"no tail" = "n % 64 == 0"\n'
    _, problem = prepared(device, tmp_path, extra=extra, faults=("ok", "edge"))
    a, b = (configuration("ok", block) for block in (32, 64))
    found = device.race(RaceRequest([Contestant(a, 1e5), Contestant(b, 1e5)], 3, 4, 0))
    assert [len(one.groups_ns) for one in found.timed.values()] == [3, 3], found.failures
    confirmed = device.confirm(a, 1e5)
    assert confirmed.status is Status.OK
    assert log(tmp_path)[-3:] == ["start", "setup 2", "measure scale__ok False"]
    sizes = [Problem("scale", {"n": n}, problem.dtypes, problem.options) for n in (1, 63, 64, 128)]
    assert statuses_at(device, sizes, a) == {64: Status.OK, 128: Status.OK}
    assert set(statuses_at(device, sizes, configuration("edge", 32)).values()) == {Status.WRONG_RESULT}
    assert "further contents" not in log(tmp_path)
    assert device.verify_at(sizes[2], a, 60.0, contents=True) is not None
    assert log(tmp_path)[-2:] == ["measure scale__ok True", "further contents"]


@pytest.mark.parametrize(
    ("setup", "limit_s", "said", "checked"),
    [
        ("undecided", 60.0, "not a number", False),
        ("hang", 0.3, "no answer within", False),
        ("die", 60.0, "ended", None),
    ],
)
def test_what_nothing_can_be_said_of_is_no_verdict(
    setup: str,
    limit_s: float,
    said: str,
    checked: bool | None,
    device: LocalDevice,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, problem = prepared(device, tmp_path)
    monkeypatch.setenv("FAKE_SETUP", setup)
    answer = device.verify_at(problem, configuration(), limit_s, contents=False)
    assert answer is not None and answer.status is Status.UNVERIFIED and said in answer.error
    assert (answer.verification.checked if answer.verification else None) is checked
    monkeypatch.delenv("FAKE_SETUP")
    device.end_confirmation()
    assert set(statuses_at(device, [problem], configuration()).values()) == {Status.OK}


def test_the_process_that_confirms_is_fresh_each_time_and_verifies_at_other_sizes(
    device: LocalDevice, tmp_path: Path
) -> None:
    _, problem = prepared(device, tmp_path)
    for _ in range(2):
        assert device.confirm(configuration(), 1e5).status is Status.OK
    assert device.verify_at(problem, configuration(), 60.0, contents=True) is not None
    assert log(tmp_path)[-3:] == ["measure scale__ok False", "measure scale__ok True", "further contents"]
    assert device.verify_at(problem, configuration(), 60.0, contents=False) is not None
    search, first, second = starts(tmp_path)
    lines = (tmp_path / "log").read_text().splitlines()
    assert f"{first} setup 3" not in lines and f"{second} setup 3" in lines
    assert not Path(f"/proc/{first}").exists() and Path(f"/proc/{second}").exists()
    device.end_confirmation()
    device.race(RaceRequest([Contestant(configuration(), 1e5)], 1, 1, 0))  # which needs its memory
    assert not Path(f"/proc/{second}").exists() and Path(f"/proc/{search}").exists()


def test_a_slow_reference_is_asked_once_for_each_content_of_a_run(
    pool: CompilePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a process ends, a winner is confirmed again, or others race: twice for the first, to see it repeat."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    calls = tmp_path / "calls"
    file = write_kernel(tmp_path, faults=("ok", "sticky700"))
    file.write_text(file.read_text().replace('numpy = "2 * x"', 'python = "own.py:f"'))
    wait = "import time\ndef f(x, n):\n    time.sleep(0.11)\n"
    (tmp_path / "own.py").write_text(
        f"{wait}    print(n, file=open({str(calls)!r}, 'a'))\n    return 2 * x\n"
    )
    kernel = read_kernel(file.resolve())
    device = LocalDevice(Processes(0, None, tmp_path / "cache", "tests.faults.asking_worker", pool))
    with closing(device):
        device.prepare(kernel, kernel.problem(), 1)
        assert device.host_s > 0.22
        assert [one.status for one in ask(device, [configuration("sticky700")])] == [Status.MEMORY_FAULT]
        for _ in range(2):
            assert device.confirm(configuration(), 1e5).status is Status.OK
            assert statuses_at(device, [kernel.problem({"n": 5})], configuration()) == {5: Status.OK}
        assert device.race(RaceRequest([Contestant(configuration(), 1e5)], 3, 4, 0)).timed
        (folder,) = {path.parent for path in tmp_path.glob(f"{TEMPORARY}*/*-*")}
    assert log(tmp_path).count("setup 1") == 3 and log(tmp_path).count("setup 2") == 2
    assert calls.read_text().split() == ["1024"] * 3 + ["5"]
    assert not folder.exists()


@pytest.mark.parametrize(("raced_ns", "max_error"), [(1e5, None), (1e9, None), (1e5, 0.0)])
def test_no_process_is_left_of_a_confirmation(
    device: LocalDevice, tmp_path: Path, raced_ns: float, max_error: float | None
) -> None:
    """Whether it is confirmed, takes another time than in the race, or is too inaccurate."""
    kernel, problem = prepared(device, tmp_path)
    confirm(device, kernel, problem, configuration(), raced_ns, lambda _: None, max_error=max_error)
    search, *confirming = starts(tmp_path)
    device.processes.alone()
    assert confirming and not any(Path(f"/proc/{pid}").exists() for pid in confirming)
    assert Path(f"/proc/{search}").exists()


def test_confirmation_without_a_second_process(
    device: LocalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU in exclusive mode refuses a second process: the run is not lost, its winner is not confirmed."""
    _, problem = prepared(device, tmp_path)
    monkeypatch.setenv("FAKE_START", "refuse")
    confirmed = device.confirm(configuration(), 1e5)
    assert confirmed.status is Status.UNSTABLE
    assert "NO_DEVICE" in confirmed.error
    measurement = device.verify_at(problem, configuration(), 60.0, contents=False)
    assert measurement is not None and measurement.status is Status.UNVERIFIED


def test_race_that_has_not_begun_is_tried_again(
    device: LocalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(device, tmp_path)
    os.kill(starts(tmp_path)[0], signal.SIGSTOP)
    limit_the_first_start(monkeypatch)
    found = device.race(RaceRequest([Contestant(configuration(), 1e5)], 1, 1, 0))
    assert found.timed[0].samples_ns and not found.failures


def test_race_names_the_contestant_that_hangs(
    device: LocalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(device, tmp_path, faults=("ok", "racehang"))
    contestants = [Contestant(configuration(fault, 32, items), 1e5) for fault, items in FIELD]
    found = device.race(RaceRequest(contestants, 2, 4, 0))
    assert list(found.failures) == [2]
    assert "killed" in found.failures[2]
    assert {i: len(one.groups_ns) for i, one in found.timed.items()} == {0: 2, 1: 2, 3: 2}


def test_process_killed_in_a_race_fails_no_contestant(device: LocalDevice, tmp_path: Path) -> None:
    prepared(device, tmp_path, faults=("ok", "raceonce"))
    contestants = [Contestant(configuration(fault), 1e5) for fault in ("ok", "raceonce")]
    found = device.race(RaceRequest(contestants, 2, 4, 0))
    assert not found.failures
    assert device._guard.restarts == 1


def test_other_sizes_that_have_no_grid_are_left_out(device: LocalDevice, tmp_path: Path) -> None:
    kernel = tmp_path / "scale.toml"
    prepared(device, tmp_path)
    text = kernel.read_text().replace("ceil_div(n, block_size * items)", "n // (block_size * items)")
    kernel.write_text(text)
    prepared_again = read_kernel(kernel)
    device.prepare(prepared_again, prepared_again.problem(), 1)
    sizes = [Problem("scale", {"n": n}, prepared_again.problem().dtypes, {"order": "up"}) for n in (1, 64)]
    assert statuses_at(device, sizes, configuration("ok", 64)) == {64: Status.OK}


def test_race_names_the_contestant_that_does_not_compile(device: LocalDevice, tmp_path: Path) -> None:
    prepared(device, tmp_path, source="{% if block_size == 64 %}?{% endif %}" + SOURCE)
    contestants = [Contestant(configuration("ok", block), 1e5) for block in (32, 64, 128)]
    found = device.race(RaceRequest(contestants, 2, 4, 0))
    assert list(found.failures) == [1] and list(found.timed) == [0, 2]


def test_a_race_in_another_mode_needs_no_other_setup(device: LocalDevice, tmp_path: Path) -> None:
    prepared(device, tmp_path)
    assert not device.race(RaceRequest([Contestant(configuration(), 1e5)], 3, 4, 0, Mode.WARM)).failures
    assert [line for line in log(tmp_path) if "setup" in line or "race" in line] == [
        "setup 1",
        "race warm in 1",
    ]
