"""What a run does at the same time before its first trial, and beside its race."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.faults.stub_device import StubDevice
from tests.sessions import run
from tuner.core.errors import DeviceError
from tuner.core.model import Configuration, Problem
from tuner.database.database import Database
from tuner.kernel.spec import KernelSpec
from tuner.report.summary import summary


class Slow(StubDevice):
    """Is ready only once the first configurations are being compiled, and races once a fresh process is there."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead: list[Configuration] = []
        self.compiling, self.expected = threading.Event(), threading.Event()

    def _prepare(self, *arguments: Any) -> None:
        assert self.compiling.wait(100)
        super()._prepare(*arguments)

    def compile_ahead(
        self, kernel: KernelSpec, problem: Problem, configurations: Sequence[Configuration]
    ) -> None:
        self.ahead += configurations
        self.compiling.set()

    def expect_confirmation(self) -> None:
        self.expected.set()

    def submit(self, *arguments: Any) -> None:
        assert self.expected.is_set()  # it takes as long as a short race
        super().submit(*arguments)


def test_first_configurations_compile_while_the_gpu_is_made_ready(
    database: Database, kernel: KernelSpec
) -> None:
    device = Slow()
    result = run(kernel, database, device)
    assert device.ahead[0] == device.submitted[0] == result.state.space.default
    assert result.finish is not None and result.finish.exportable


def test_phases_are_told_from_their_beginning(database: Database, kernel: KernelSpec) -> None:
    result = run(kernel, database, StubDevice())
    spans = {name: (begin, end) for name, begin, end in result.stats["phases"]}
    assert list(spans) == [
        "space",
        "initial configurations",
        "search",
        "race",
        "fresh process",
        "edge-case sizes",
    ]
    assert all(0.0 <= begin <= end for begin, end in spans.values())
    assert spans["search"][1] <= spans["race"][0] <= spans["fresh process"][0]
    assert "seconds space 0.00 to" in " ".join(summary(result, Path("x.db"), full=True).split())


def test_a_gpu_that_cannot_be_made_ready_ends_a_run_before_it_is_recorded(
    database: Database, kernel: KernelSpec
) -> None:
    class Full(StubDevice):
        def _prepare(self, *arguments: Any) -> None:
            raise DeviceError("this problem does not fit")

    with pytest.raises(DeviceError, match="does not fit"):
        run(kernel, database, Full())
    assert list(database.select("SELECT id FROM runs")) == []
