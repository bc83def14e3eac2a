"""A device of this machine, on top of its guard: candidates that hang or die, and what is asked of several at once."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.devices.fake_device import WORKER, ask, prepared
from tests.devices.fake_measuring import log, starts
from tests.faults.fake_worker import REFERENCE_NS, STATUSES
from tests.faults.held import hold_compilers
from tests.faults.kernels import configuration, scale_kernel
from tuner.children.compile_pool import CompilePool
from tuner.core.errors import DeviceError
from tuner.core.model import Configuration, Status
from tuner.devices.base import Contestant, RaceRequest
from tuner.devices.local import LocalDevice
from tuner.devices.started import Processes
from tuner.kernel.load import read_kernel

pytestmark = pytest.mark.usefixtures("quick")

FAULTS = ("ok", "hang", "die", "sticky700", *STATUSES)


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


def test_device_that_cannot_be_restarted_says_so(
    device: LocalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(device, tmp_path, faults=("ok", "die"))
    monkeypatch.setenv("FAKE_START", "die")
    (outcome,) = ask(device, [configuration("die")])
    assert outcome.status is Status.WORKER_DIED
    device.submit(1, configuration("ok"))
    with pytest.raises(DeviceError, match="cannot be started"):
        for _ in range(1000):
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


def test_equal_machine_code_is_measured_once(tmp_path: Path, pool: CompilePool) -> None:
    file = scale_kernel(tmp_path, blocks=(32, 64), items=(1, 2, 3)).file
    template = next(tmp_path.glob("*.cu.j2"))
    file.write_text(file.read_text().replace("block_size * items", "block_size"))
    source = template.read_text().replace("items", "(items - items + 1)")
    template.write_text(f"{source}// {{{{ items }}}}\n")
    kernel = read_kernel(file)
    device = LocalDevice(Processes(0, None, tmp_path / "cache", WORKER, pool))
    try:
        device.prepare(kernel, kernel.problem(), 1)
        outcomes = ask(device, [configuration("ok", block, n) for block in (32, 64) for n in (1, 2, 3)])
        assert len({outcome.samples_ns for outcome in outcomes}) == 2
        assert sum(line.startswith("measure") for line in log(tmp_path)) == 2
    finally:
        device.close()


def test_setup_that_is_killed_once_is_repeated(
    device: LocalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = scale_kernel(tmp_path)
    os.kill(starts(tmp_path)[0], signal.SIGKILL)
    monkeypatch.setenv("FAKE_SETUP", "die_once")
    device.prepare(kernel, kernel.problem(), 1)
    (outcome,) = ask(device, [configuration()])
    assert outcome.status is Status.OK
