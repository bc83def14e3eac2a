"""A device of this machine, on top of its guard: candidates that hang or die, and what is asked of several at once."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.devices.fake_measuring import limit_the_first_start, log, log_into, starts
from tests.faults.fake_worker import REFERENCE_NS, STATUSES
from tests.faults.held import hold_compilers
from tests.faults.kernels import SOURCE, configuration, scale_kernel, write_kernel
from tuner.children.compile_pool import CompilePool
from tuner.core.conditions import Mode
from tuner.core.errors import DeviceError
from tuner.core.files import TEMPORARY
from tuner.core.model import Configuration, Problem, Status, Trial
from tuner.devices.base import Contestant, RaceRequest
from tuner.devices.local import LocalDevice
from tuner.kernel.load import read_kernel
from tuner.kernel.spec import KernelSpec
from tuner.tuning.confirmation import confirm

WORKER = "tests.faults.fake_worker"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log_into(tmp_path, monkeypatch)


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


def ask(device: LocalDevice, configurations: list[Configuration]) -> list[Trial]:
    for number, item in enumerate(configurations):
        device.submit(number, item)
    found: list[Trial] = []
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
        assert outcome.status == wanted.get(fault, "ok"), outcome
        assert bool(outcome.error) == (fault != "ok")


def test_equal_machine_code_is_measured_once_and_a_parameter_without_effect_is_said(
    tmp_path: Path, pool: CompilePool
) -> None:
    file = scale_kernel(tmp_path, blocks=(32, 64), items=(1, 2, 3)).file
    template = next(tmp_path.glob("*.cu.j2"))
    file.write_text(file.read_text().replace("block_size * items", "block_size"))
    source = template.read_text().replace("items", "(items - items + 1)")
    template.write_text(f"{source}// {{{{ items }}}}\n")
    kernel, said = read_kernel(file), list[str]()
    device = LocalDevice(0, cache=tmp_path / "cache", worker=WORKER, pool=pool, say=said.append)
    try:
        device.prepare(kernel, kernel.problem(), 1)
        outcomes = ask(device, [configuration("ok", block, n) for block in (32, 64) for n in (1, 2, 3)])
        assert len({outcome.samples_ns for outcome in outcomes}) == 2
        assert sum(line.startswith("measure") for line in log(tmp_path)) == 2
        for _ in range(2):
            device.confirm(configuration(), 1e5)
    finally:
        device.close()
    assert [line for line in said if "changed neither" in line] == [
        "items of plain changed neither machine code nor launches: tune check says more"
    ]


def test_answer_that_is_not_understood_is_an_answer(device: LocalDevice, tmp_path: Path) -> None:
    """A newer measuring process may say other things, if the tuner was installed anew during a run."""
    prepared(device, tmp_path, faults=("ok", "nonsense"))
    (outcome,) = ask(device, [configuration("nonsense")])
    assert outcome.status is Status.WORKER_DIED
    assert "nonsense" in outcome.error
    (outcome,) = ask(device, [configuration("ok")])
    assert outcome.status is Status.OK


def test_good_times_do_not_depend_on_the_bad_neighbours(device: LocalDevice, tmp_path: Path) -> None:
    prepared(device, tmp_path, faults=FAULTS)
    good = [configuration("ok", block, items) for block in (32, 64, 128, 256) for items in (1, 2, 3, 4)]
    alone = {o.configuration: o.samples_ns for o in ask(device, good)}
    prepared(device, tmp_path, faults=FAULTS)
    mixed = [
        item
        for pair in zip(good, [configuration(f) for f in (*FAULTS[1:], *FAULTS[1:])], strict=True)
        for item in pair
    ]
    after = {o.configuration: o.samples_ns for o in ask(device, mixed)}
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
    assert len({outcome.samples_ns for outcome in outcomes}) == 1
    assert [outcome.measure_s > 0 for outcome in outcomes] == [True, False]
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
    assert outcome.status is Status.OK
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
    assert outcome.status is Status.OK


def test_plan_that_cannot_be_launched_costs_one_trial(device: LocalDevice, tmp_path: Path) -> None:
    prepared(device, tmp_path, blocks=(64, 2048))
    bad, good = ask(device, [configuration("ok", 2048), configuration("ok", 64)])
    assert bad.status is Status.INVALID_CONFIG
    assert "2048" in bad.error
    assert good.status is Status.OK


def test_constraints_on_what_the_compiler_says(device: LocalDevice, tmp_path: Path) -> None:
    extra = '[variants.plain.constraints]\n"few registers" = "registers < 2"\n'
    prepared(device, tmp_path, extra=extra)
    (outcome,) = ask(device, [configuration()])
    assert outcome.status is Status.INVALID_CONFIG
    assert outcome.error == "few registers"
    assert outcome.resources is not None and outcome.resources.registers > 1


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
    device = LocalDevice(0, cache=tmp_path / "cache", worker="tests.faults.asking_worker", pool=pool)
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
    _, problem = prepared(device, tmp_path)
    confirm(device, problem, configuration(), raced_ns, max_error, lambda _: None)
    search, *confirming = starts(tmp_path)
    device.processes.alone()
    assert confirming and not any(Path(f"/proc/{pid}").exists() for pid in confirming)
    assert Path(f"/proc/{search}").exists()


def test_a_race_in_another_mode_needs_no_other_setup(device: LocalDevice, tmp_path: Path) -> None:
    prepared(device, tmp_path)
    assert not device.race(RaceRequest([Contestant(configuration(), 1e5)], 3, 4, 0, Mode.WARM)).failures
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
    assert statuses_at(device, sizes, configuration("ok", 64)) == {64: Status.OK}


def test_what_is_prepared_is_not_prepared_again(device: LocalDevice, tmp_path: Path) -> None:
    kernel, problem = prepared(device, tmp_path)
    ask(device, [configuration()])
    assert device.busy.spans
    device.prepare(kernel, problem, 1)
    assert log(tmp_path).count("setup 1") == 1
    assert not device.busy.spans
    assert ask(device, [configuration()])[0].status is Status.OK
    device.submit(7, configuration("ok", 64))
    device.prepare(kernel, problem, 1)  # what was pending is not answered any more
    assert ask(device, [configuration("ok", 128)])[0].configuration == configuration("ok", 128)
    assert log(tmp_path).count("setup 1") == 2
    device.confirm(configuration(), 1e5)  # frees the problem's memory
    device.prepare(kernel, problem, 1)
    assert ask(device, [configuration()])[0].status is Status.OK
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
    assert outcomes[0].status is Status.OK
    assert log(tmp_path)[-1] == "measure scale__ok False against 123"


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


def test_device_that_cannot_be_restarted_says_so(
    device: LocalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(device, tmp_path, faults=("ok", "die"))
    monkeypatch.setenv("FAKE_START", "die")
    (outcome,) = ask(device, [configuration("die")])
    assert outcome.status is Status.WORKER_DIED
    device.submit(1, configuration("ok"))
    with pytest.raises(DeviceError, match="cannot be started"):
        for _ in range(100):
            device.collect(0.1)
    with pytest.raises(DeviceError, match="cannot be started"):
        device.race(RaceRequest([Contestant(configuration(), 1e5)], 1, 1, 0))


def test_drift_across_a_restart_reaches_the_outcome(
    device: LocalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(device, tmp_path, faults=("ok", "die"))
    monkeypatch.setenv("FAKE_REFERENCE_NS", str(REFERENCE_NS * 1.1))
    found = [
        ask(device, [asked])[0].drifted
        for asked in (configuration("ok", 32), configuration("die"), configuration("ok", 64), configuration())
    ]
    assert found == [False, False, True, False]


def test_race_that_has_not_begun_is_tried_again(
    device: LocalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(device, tmp_path)
    os.kill(starts(tmp_path)[0], signal.SIGSTOP)
    limit_the_first_start(tmp_path, monkeypatch)
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


def test_race_names_the_contestant_that_does_not_compile(device: LocalDevice, tmp_path: Path) -> None:
    prepared(device, tmp_path, source="{% if block_size == 64 %}?{% endif %}" + SOURCE)
    contestants = [Contestant(configuration("ok", block), 1e5) for block in (32, 64, 128)]
    found = device.race(RaceRequest(contestants, 2, 4, 0))
    assert list(found.failures) == [1] and list(found.timed) == [0, 2]


def test_process_killed_in_a_race_fails_no_contestant(device: LocalDevice, tmp_path: Path) -> None:
    prepared(device, tmp_path, faults=("ok", "raceonce"))
    contestants = [Contestant(configuration(fault), 1e5) for fault in ("ok", "raceonce")]
    found = device.race(RaceRequest(contestants, 2, 4, 0))
    assert not found.failures
    assert device._guard.restarts == 1


def test_setup_that_is_killed_once_is_repeated(
    device: LocalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = scale_kernel(tmp_path)
    os.kill(starts(tmp_path)[0], signal.SIGKILL)
    monkeypatch.setenv("FAKE_SETUP", "die_once")
    device.prepare(kernel, kernel.problem(), 1)
    (outcome,) = ask(device, [configuration()])
    assert outcome.status is Status.OK


def test_setup_that_fails_is_one_line(
    device: LocalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = scale_kernel(tmp_path)
    os.kill(starts(tmp_path)[0], signal.SIGKILL)
    monkeypatch.setenv("FAKE_SETUP", "refuse")
    with pytest.raises(DeviceError, match=r"scale n=1024 float32.*does not fit"):
        device.prepare(kernel, kernel.problem(), 1)
