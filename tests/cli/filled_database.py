"""A database with the runs of two problems, and the commands that read it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tests.stored import PROBLEM, identity_of
from tuner.core.conditions import Calibration, Conditions, Mode, Regime
from tuner.core.errors import TunerError
from tuner.core.model import (
    Configuration,
    Gpu,
    Problem,
    Resources,
    Run,
    RunOptions,
    Status,
    Trial,
    Verification,
)
from tuner.database.database import Database
from tuner.database.records import Metrics, Winner

GPU = Gpu("NVIDIA H200", 90, 132, 60 << 20, 1 << 37, 232448, 233472, driver="580.95")
GEMM = PROBLEM
SMALL = replace(GEMM, sizes={"m": 1, "n": 1, "k": 1})
ADD = Problem("vector_add", {"n": 1 << 20}, {"input": "float32", "output": "float32"})
COLD = Conditions()
WARM = Conditions(Mode.WARM)
HOT = Conditions(Mode.COLD, Regime.SUSTAINED)


def configured(kernel: str, number: int) -> Configuration:
    """Return the configuration of a trial: one of the kernel's."""
    if kernel == "vector_add":
        values = {
            "block_size": 64 << number,
            "vector_width": 4,
            "items_per_thread": 1,
            "arrangement": "striped",
        }
        others = {"min_blocks": 0, "load_hint": "none", "store_hint": "none"}
        return Configuration.of("vectorized", {**values, **others})
    tile = {"block_m": 128, "block_n": 64, "block_k": 16, "thread_m": 4, "thread_n": 4}
    return Configuration.of(
        "split_k", {"split_k": 2 << number, **tile, "vector_width": 4, "double_buffer": False}
    )


def fill(
    path: Path,
    run_id: str,
    problem: Problem,
    device: str = "cuda:0",
    exportable: bool = True,
    edges_verified: bool = True,
    log: str = "ptxas info: \x1b]0;title\x07",
    conditions: Conditions = COLD,
    time_ns: float = 190_000.0,
    options: RunOptions | None = None,
) -> None:
    calibration = Calibration({"cold, rested": 0.002}, notes=("clocks are held at 1.2 GHz \x1b[31m",))
    text, computation = identity_of(problem.kernel)
    run = Run(
        run_id * 32,
        problem,
        GPU,
        device,
        conditions=conditions,
        calibration=calibration,
        options=replace(options or RunOptions(), seed=1, sampler="tpe", trials=3),
        kernel_digest=text,
        computation=computation,
    )
    best_ns = time_ns
    with Database.open(path) as database:
        database.start_run(run)
        for number, status in enumerate((Status.OK, Status.OK, Status.HANG)):
            trial_ns = None if status is Status.HANG else best_ns + 100.0 + number
            stored = Trial(
                number,
                configured(problem.kernel, number),
                status,
                trial_ns,
                trial_ns and trial_ns - 300,
                trial_ns and trial_ns + 300,
                () if status is Status.HANG else (190_000.0,) * 9 + (190_200.0, 290_000.0),
                Resources(128, 4096, 0, 0, 16, 2),
                Verification(True, worst_ratio=0.2, norm_error=1e-4, true_error=4.5e-4),
                "no answer after 2 s \x1b[31m" if status is Status.HANG else "",
                (f"// source of {number}\n\t__global__ void f();\n",),
                log,
                tags=("noisy",),
                sm_clock_hz=0.0 if number else 1.7554e9,
                capped_samples=0 if number else 4,
            )
            database.record(run.id, stored, metrics=Metrics(361.4, 500.0, 0.365))
        first = database.trials(run.id)[0]
        assert first.id
        database.record_winner(
            run.id,
            Winner(
                first.id, first.configuration, best_ns, first.id + 1, 240_000.0, 1.263, 1.25, 1.27,
                "faster", 190_300.0, edges_verified, exportable, "" if exportable else "a fresh process took 300 us",
            ),
        )  # fmt: skip
        database.finish_run(run.id, "finished")


def two_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a database of two runs, one of them a replay, in its usual place below the working directory."""
    monkeypatch.chdir(folder)
    path = folder / "results" / "tuning.db"  # the default
    fill(path, "a", GEMM)
    fill(path, "b", ADD, device="replay:h200")
    return path


def call(command: click.Command, *arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(command, arguments)
    if result.exception is not None and not isinstance(result.exception, (TunerError, SystemExit)):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def fails(command: click.Command, *arguments: str) -> TunerError:
    result = call(command, *arguments, code=1)
    assert isinstance(result.exception, TunerError)
    assert "\n" not in str(result.exception)
    assert result.exception.remedy
    return result.exception
