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
from tuner.kernel.roofline import ARCHITECTURES

FAULTS = ("ok", "sticky700", "sticky716", "hang", "oom", "wrong", "die")
LAUNCH_S = 0.2
"""What the fake process announces."""


def chosen(fault: str, copy: int) -> Configuration:
    return configuration(fault, 32 * (1 + copy % 8), 1 + copy // 8)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[script.Bench]:
    kernel = scale_kernel(tmp_path, faults=FAULTS, blocks=range(32, 257, 32), items=range(1, 9))
    device = LocalDevice(0, 2, tmp_path / "cache", worker="tests.faults.fake_worker")
    lines: list[str] = []
    bench = script.Bench(device, kernel, chosen, LAUNCH_S, lines.append)
    bench.begin()
    yield bench
    device.close()


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


def test_hangs_are_dead_soon_after_their_deadline(
    bench: script.Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "DEAD_S", 100.0)  # of a busy machine
    script.hangs(bench, 2)  # the fake's times differ from copy to copy, so that one of its verdicts may fail
    assert "PASS  classified: 2 of 2" in said(bench)
    assert "PASS  dead after the deadline" in said(bench)
    assert "PASS  correct before and afterwards: 2 of 2" in said(bench)


def test_allocations_end_no_process(bench: script.Bench) -> None:
    assert script.allocations(bench, 12, "oom"), said(bench)
    assert "PASS  without a new process: 0 new" in said(bench)
    assert not script.allocations(bench, 1, "die")


def test_wrong_kernels_that_pass_fail_the_campaign(bench: script.Bench) -> None:
    assert script.late(bench, ["wrong"]), said(bench)
    assert not script.late(bench, ["sticky700"])


def test_a_section_that_stops_does_not_stop_the_others(
    bench: script.Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(bench: script.Bench, scale: float) -> bool:
        raise RuntimeError("stopped")

    monkeypatch.setattr(
        script,
        "SECTIONS",
        {"a": ("stops", stop), "b": ("goes on", lambda bench, _: script.late(bench, ["wrong"]))},
    )
    assert not script.campaign(bench, ["a", "b"], 1.0)
    assert "RuntimeError" in said(bench)
    assert "PASS  caught: 1 of 1" in said(bench)


@pytest.mark.parametrize("fault", ["ok", "hang", "scratch", "stack_overflow", *list(planted.LATE)[:3]])
def test_planted_kernels_compile(tmp_path: Path, fault: str) -> None:
    kernel = planted.write_planted_kernel(tmp_path, 2)
    pool = CompilePool(1, None)
    try:
        requests = Requests(kernel, ARCHITECTURES[90], pool)
        compilation = requests.compile(kernel.problem(), planted.planted(fault, 1))
    finally:
        pool.close()
    assert compilation.status is Status.OK, compilation.error
