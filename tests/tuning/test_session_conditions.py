"""How a run takes its times: as it is asked, and kept, calibrated and shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.faults.stub_device import StubDevice, good, time_of
from tests.sessions import run, run_stopped
from tuner.core.conditions import Calibration, Conditions, Mode, Regime
from tuner.database.database import Database
from tuner.kernel.spec import KernelSpec
from tuner.report.progress import heading
from tuner.report.result_record import result_as_json
from tuner.report.summary import summary


def test_conditions_are_asked_for_and_kept(database: Database, kernel: KernelSpec) -> None:
    device = StubDevice()
    result = run(kernel, database, device, mode=Mode.WARM, regime=Regime.SUSTAINED)
    warm = Conditions(Mode.WARM, Regime.SUSTAINED)
    assert device.conditions == result.state.run.conditions == warm
    assert database.run(result.state.run.id).conditions == warm
    assert result.state.conditions_why == "as asked"
    assert f"timed      {warm}; noise floor 0.5 %; race of" in summary(result, Path("x.db"), full=True)
    assert f"timed {warm}: as asked" in heading(result.state, full=True)


def test_resumed_run_keeps_its_conditions(database: Database, kernel: KernelSpec) -> None:
    run_stopped(kernel, database, 5, StubDevice(), mode=Mode.WARM)
    device = StubDevice()
    result = run(kernel, database, device, mode=Mode.ROTATING, resume=True)
    assert device.conditions.mode is result.state.run.conditions.mode is Mode.WARM


def test_other_conditions_teach_nothing(database: Database, kernel: KernelSpec) -> None:
    run(kernel, database, StubDevice(), from_scratch=False, mode=Mode.WARM)
    result = run(kernel, database, StubDevice(), from_scratch=False)
    assert result.state.known_before == 0
    assert result.state.best_before is None


def test_calibration_is_kept_and_shown(database: Database, kernel: KernelSpec) -> None:
    class Calibrated(StubDevice):
        def _prepare(self, *arguments: Any) -> None:
            super()._prepare(*arguments)
            rate = self.gpu.memory_bytes_per_s
            noise = {str(Conditions()): 0.0021}
            self.calibration = Calibration(noise, copy_bytes_per_s=0.9 * rate, notes=("clocks are locked",))

    result = run(kernel, database, Calibrated())
    stored = database.run(result.state.run.id)
    assert stored.calibration is not None
    assert stored.calibration == result.state.run.calibration
    assert result.finish is not None
    assert result.finish.noise_floor == 0.0021
    text = " ".join(summary(result, Path("x.db"), full=True).split())
    assert "of the measured copy rate" in text
    assert "noise floor 0.21 %" in text
    assert "note: clocks are locked" in heading(result.state)
    data = result_as_json(result)
    light, ceiling = data["winner"]["speed_of_light"], data["winner"]["of_ceiling"]
    assert ceiling == pytest.approx(light / 0.9)
    assert data["race"]["noise_floor"] == 0.0021
    assert (data["mode"], data["regime"]) == ("cold", "rested")


def test_clock_and_cap_are_kept(database: Database, kernel: KernelSpec) -> None:
    device = StubDevice(answer=lambda c: replace(good(time_of(c)), sm_clock_hz=1.5e9, capped_samples=3))
    result = run(kernel, database, device)
    (trial, *_) = database.trials(result.state.run.id)
    assert (trial.sm_clock_hz, trial.capped_samples) == (1.5e9, 3)
    assert "3 of the winner's 12 samples at the power limit" in " ".join(
        summary(result, Path("x.db"), full=True).split()
    )
