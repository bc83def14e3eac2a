"""scripts/gpu_faults.py on the fake measuring process: what passes, what fails, and what is reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import gpu_faults as script
from tests.faults import planted
from tests.faults.kernels import configuration, scale_kernel
from tuner.children.compile_pool import CompilePool
from tuner.core.model import Configuration, Status
from tuner.devices.local import LocalDevice
from tuner.devices.requests import Requests
from tuner.devices.started import Processes
from tuner.kernel.roofline import ARCHITECTURES

FAULTS = ("ok", "sticky700", "sticky716", "hang", "oom", "wrong", "die")
LAUNCH_S = 0.2
"""What the fake process announces."""


def chosen(fault: str, copy: int) -> Configuration:
    return configuration(fault, 32 * (1 + copy % 8), 1 + copy // 8)


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalDevice]:
    device = LocalDevice(Processes(0, 2, tmp_path_factory.mktemp("cache"), "tests.faults.fake_worker"))
    yield device
    device.close()


@pytest.fixture
def bench(tmp_path: Path, device: LocalDevice) -> script.Bench:
    kernel = scale_kernel(tmp_path, faults=FAULTS, blocks=range(32, 257, 32), items=range(1, 9))
    lines: list[str] = []
    bench = script.Bench(device, kernel, chosen, LAUNCH_S, lines.append)
    bench.begin()
    return bench


def said(bench: script.Bench) -> str:
    return "\n".join(bench.say.__self__)  # type: ignore[attr-defined]


def test_faults_that_ruin_the_context_are_counted(bench: script.Bench) -> None:
    passed = script.fatal(bench, 6, ["sticky700", "sticky716"])
    assert passed, said(bench)
    assert "PASS  classified: 6 of 6" in said(bench)


def test_a_fault_with_another_status_fails(bench: script.Bench) -> None:
    assert not script.fatal(bench, 3, ["sticky700", "die", "wrong"])
    assert "FAIL  classified: 1 of 3" in said(bench)
    assert "FAIL  new processes: 2 of 3" in said(bench)


def test_wrong_kernels_that_pass_fail_the_campaign(bench: script.Bench) -> None:
    assert script.late(bench, ["wrong"]), said(bench)
    assert not script.late(bench, ["sticky700"])


@pytest.mark.parametrize("fault", ["ok", "stack_overflow", *list(planted.LATE)[:1]])
def test_planted_kernels_compile(tmp_path: Path, fault: str) -> None:
    kernel = planted.write_planted_kernel(tmp_path, 2)
    pool = CompilePool(1, None)
    try:
        requests = Requests(kernel, ARCHITECTURES[90], pool)
        compilation = requests.compile(kernel.problem(), planted.planted(fault, 1))
    finally:
        pool.close()
    assert compilation.status is Status.OK, compilation.error
