"""Runs, trials, winners and benchmarks to fill databases with."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tuner.core.conditions import Calibration, Conditions, Mode, Regime
from tuner.core.errors import DatabaseError, SpaceError
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
from tuner.database.records import Benchmark, Metrics, Winner
from tuner.formats.foreign_recording import VARIANT
from tuner.formats.t1 import read_t1
from tuner.kernel.enumeration import enumerate_valid
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import builtin_kernels, load_kernel
from tuner.kernel.space import SearchSpace
from tuner.kernel.variant_space import VariantSpace


def t1_space(path: Path) -> SearchSpace:
    """Return all configurations that the conditions of a T1 file allow."""
    variant = read_t1(path)
    allowed = {name: list(range(len(p.values))) for name, p in variant.parameters.items()}
    valid = enumerate_valid(variant, allowed, {}, np.random.default_rng(0))
    if not len(valid.matrix):
        raise SpaceError(f"{path}: no configuration is valid ({valid.excluded_by})")
    return SearchSpace([VariantSpace(VARIANT, tuple(variant.parameters.values()), valid.matrix)], 0)


GPU = Gpu("NVIDIA H200", 90, 132, 60 << 20, 1 << 37, 232448, 233472, uuid="GPU-1", driver="580.95")
PROBLEM = Problem(
    "gemm",
    {"m": 4096, "n": 2048, "k": 1024},
    {"input": "float16", "accumulate": "float32", "output": "float16"},
    {"layout": "nn"},
)

WARM = Conditions(Mode.WARM)
HOT = Conditions(Mode.COLD, Regime.SUSTAINED)
CALIBRATION = Calibration(
    {"cold, rested": 0.002}, copy_bytes_per_s=3.9e12, event_ns=2800.0, notes=("no NVML",)
)


@cache
def identity_of(kernel: str) -> tuple[str, str]:
    """Return the digests of a built-in kernel's text and computation; of another kernel made-up ones."""
    if kernel not in builtin_kernels():
        return "d1", "c1"
    identity = KernelIdentity(load_kernel(kernel))
    return identity.text, identity.computation


def make_run(
    run_id: str = "a" * 32,
    problem: Problem = PROBLEM,
    gpu: Gpu = GPU,
    device: str = "cuda:0",
    conditions: Conditions = Conditions(),  # noqa: B008 - frozen
) -> Run:
    text, computation = identity_of(problem.kernel)
    return Run(
        run_id,
        problem,
        gpu,
        device,
        RunOptions(seed=7, sampler="tpe", trials=200, variants=("tiled",)),
        4,
        text,
        "gemm.toml",
        {"nvrtc": "13.5"},
        conditions,
        CALIBRATION,
        computation,
    )


def best_known(
    database: Database,
    gpu: str = GPU.name,
    conditions: Conditions = Conditions(),  # noqa: B008 - frozen
) -> tuple[Configuration, float] | None:
    """Return the best known of :data:`PROBLEM`, whatever has computed it."""
    run = make_run(gpu=replace(GPU, name=gpu), conditions=conditions)
    return database.best_known(replace(run, computation=""))


def make_trial(
    number: int, time_ns: float | None = None, status: Status = Status.OK, block: int = 64
) -> Trial:
    time_ns = 1000.0 + number if time_ns is None else time_ns
    return Trial(
        number=number,
        configuration=Configuration.of(
            "tiled", {"z_block": block + number, "double_buffer": True, "raster": "row"}
        ),
        status=status,
        time_ns=time_ns,
        ci_low_ns=time_ns - 0.5,
        ci_high_ns=time_ns + 0.5,
        samples_ns=(time_ns - 1.0, time_ns, time_ns + 1.5),
        resources=Resources(32, 1024, 0, 8, 4, 2),
        verification=Verification(True, mismatches=0, worst_ratio=0.25, norm_error=1e-4, message="é"),
        error="",
        sources=(f"// source {number}\n", "// second launch\n"),
        compile_log="ptxas info",
        compile_s=0.5,
        measure_s=0.25,
        tags=("noisy",),
        sm_clock_hz=1.755e9,
        capped_samples=2,
    )


def make_winner(trial: Trial, time_ns: float = 900.0, **changes: object) -> Winner:
    assert trial.id is not None
    winner = Winner(
        trial.id, trial.configuration, time_ns, trial.id, 1100.0, 1.2, 1.19, 1.21, "faster", 905.0, True,
        exportable=True, race={"rounds": [1, 2]},
    )  # fmt: skip
    return replace(winner, **changes)


def make_benchmark(contestant: str = "best", **changes: object) -> Benchmark:
    benchmark = Benchmark(
        bench="e" * 32,
        problem=PROBLEM,
        gpu=GPU,
        conditions=Conditions(),
        contestant=contestant,
        configuration=make_trial(0).configuration if contestant != "torch" else None,
        winner_id=None,
        kernel_digest="d1",
        computation="c1",
        time_ns=900.0,
        ci_low_ns=899.0,
        ci_high_ns=901.0,
        samples_ns=(899.5, 900.0, 901.0),
        ratio=1.25,
        ratio_low=1.24,
        ratio_high=1.26,
        verdict="faster",
        noise_floor=0.002,
        sm_clock_hz=1.755e9,
        tags=("capped",),
        versions={"torch": "2.9"},
    )
    return replace(benchmark, **changes)


def filled(path: Path, run: Run | None = None, count: int = 3) -> list[Trial]:
    run = run or make_run()
    with Database.open(path) as database:
        database.start_run(run)
        for number in range(count):
            database.record(run.id, make_trial(number), metrics=Metrics(100.0, 2000.0, 0.5))
        trials = database.trials(run.id)
        database.record_winner(run.id, make_winner(trials[0]))
        database.finish_run(run.id, "finished", {"occupied": 0.9})
    return trials


def file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def refused(path: Path, match: str | None = None, *, write: bool = True) -> None:
    """Check that a file cannot be opened, with one line and a remedy, and that nothing changes."""
    before = file_hash(path) if path.is_file() else None
    neighbours = sorted(path.parent.iterdir())
    with pytest.raises(DatabaseError, match=match) as caught:
        Database.open(path, write=write)
    assert "\n" not in str(caught.value)
    assert caught.value.remedy
    assert (file_hash(path) if path.is_file() else None) == before
    assert sorted(path.parent.iterdir()) == neighbours


def with_a_flipped_bit(sound: bytes, chance: random.Random) -> bytes:
    """Return a file's content with one bit wrong, somewhere behind its header."""
    data = bytearray(sound)
    data[chance.randrange(100, len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)
