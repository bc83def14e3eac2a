"""What a device compiles ahead of its submission: used once, forgotten, never for another problem."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.held import hold_compilers
from tests.faults.kernels import SOURCE, scale_kernel
from tests.sessions import plain
from tuner.children.compilation import Compilation, CompileRequest, ReadRequest
from tuner.children.compile_pool import CompilePool
from tuner.children.measuring import Measured
from tuner.core.model import Configuration, Measurement, Status, Trial
from tuner.devices.local import LocalDevice
from tuner.devices.requests import measurement_of
from tuner.devices.started import Processes


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalDevice]:
    device = LocalDevice(Processes(0, 1, tmp_path / "cache" / "cubins", "tests.faults.fake_worker"))
    kernel = scale_kernel(tmp_path / "kernel")
    device.prepare(kernel, kernel.problem(), 1)
    yield device
    device.close()


def wait_for(device: LocalDevice, configuration: Configuration) -> Compilation:
    deadline = time.monotonic() + 120
    while (compiled := device.compiled(configuration)) is None:
        assert time.monotonic() < deadline
        assert device.collect(60) == []  # it returns when something was compiled, not after a minute
    return compiled


def answer_of(device: LocalDevice) -> Trial:
    deadline = time.monotonic() + 120
    while not (outcomes := device.collect(1.0)):
        assert time.monotonic() < deadline
    return outcomes[0]


def test_what_was_compiled_ahead_is_not_compiled_again(
    local: LocalDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration = plain(64)
    local.compile(configuration)
    compiled = wait_for(local, configuration)
    assert compiled.status is Status.OK
    (resources,) = compiled.resources
    assert resources.registers > 0
    assert resources.active_blocks > 0
    monkeypatch.setattr(local._pool, "submit", lambda *arguments, **options: pytest.fail("compiled twice"))
    local.submit(3, configuration)
    outcome = answer_of(local)
    assert (outcome.number, outcome.status) == (3, Status.OK)
    assert outcome.compile_s > 0


def test_each_compiler_reads_the_kernel_before_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def submit(pool: CompilePool, request: CompileRequest, *, ahead: bool = False) -> Future[Compilation]:
        asked.append(type(request))
        return submitted(pool, request, ahead=ahead)

    submitted = CompilePool.submit
    monkeypatch.setattr(CompilePool, "submit", submit)
    kernel = scale_kernel(tmp_path / "kernel")
    device = LocalDevice(Processes(0, 3, tmp_path / "cache" / "cubins", "tests.faults.fake_worker"))
    with closing(device):
        device.prepare(kernel, kernel.problem(), 1)
        assert asked.count(ReadRequest) == 3
        device.prepare(kernel, kernel.problem(), 1)  # as it was
        assert asked.count(ReadRequest) == 3


def test_what_is_submitted_while_it_is_compiled_is_answered_once(local: LocalDevice) -> None:
    configurations = [plain(size) for size in (32, 64, 96)]
    for configuration in configurations:
        local.compile(configuration)
    for number, configuration in enumerate(configurations):
        local.submit(number, configuration)
    numbers: list[int] = []
    deadline = time.monotonic() + 120
    while len(numbers) < 3 and time.monotonic() < deadline:
        numbers += [outcome.number for outcome in local.collect(1.0)]
    assert sorted(numbers) == [0, 1, 2]
    assert local.collect(0.2) == []


def test_what_cannot_launch_is_known_before_it_is_submitted(local: LocalDevice) -> None:
    too_large = plain(2048)
    local.compile(too_large)
    assert wait_for(local, too_large).status is not Status.OK
    local.submit(0, too_large)
    assert not answer_of(local).status.ranked


def test_what_is_forgotten_can_be_submitted_all_the_same(local: LocalDevice) -> None:
    local.compile(plain(32))
    local.compile(plain(64))
    local.forget(plain(32))
    local.forget(plain(64))
    local.submit(0, plain(64))
    assert answer_of(local).status is Status.OK


def test_what_is_compiled_for_the_problem_before_is_not_tried_for_the_next(
    local: LocalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = scale_kernel(tmp_path / "sized", source=SOURCE + "// of {{ problem.n }} elements\n")
    large, small = kernel.problem({"n": 4096}), kernel.problem({"n": 64})
    local.prepare(kernel, large, 1)
    held = hold_compilers(local, monkeypatch)
    local.compile(plain(64))
    local.forget(plain(64))
    local.prepare(kernel, small, 1)
    local.compile(plain(64))
    local.submit(0, plain(64))
    for go_on in held:
        go_on()
    outcome = answer_of(local)
    assert outcome.status is Status.OK
    assert "// of 64 elements" in outcome.sources[0]
    assert local.collect(0.2) == []


def test_what_is_dropped_before_it_is_compiled_is_neither_measured_nor_answered(
    local: LocalDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = hold_compilers(local, monkeypatch)
    for number in range(3):
        local.submit(number, plain(32 * (number + 1)))
    assert local.drop() == [0, 1, 2]
    assert local.drop() == []
    for go_on in held:
        go_on()
    monkeypatch.undo()
    local.submit(3, plain(128))
    assert answer_of(local).number == 3
    assert local.collect(0.2) == []


def test_samples_for_which_nothing_waited_are_none_of_a_candidates_seconds() -> None:
    """They are taken while the compilers are behind, and said that these had time to spare."""
    answer = Measured(Measurement(Status.OK), (1.0, 3.0), refined_s=1.5)
    assert measurement_of(answer).measure_s == 0.5
