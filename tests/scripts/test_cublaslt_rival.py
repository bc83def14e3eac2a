"""scripts/rivals/cublaslt.py: what it gets and chooses; where it runs, its products are verified."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.kernel.baselines import parse_baseline
from tuner.kernel.functions import BaselineKind, arguments_for, load_function
from tuner.kernel.load import load_kernel

SCRIPT = Path(__file__).parents[2] / "scripts" / "rivals" / "cublaslt.py"


@pytest.fixture
def rival() -> Any:
    load_function("cublaslt", SCRIPT)
    return sys.modules["baseline_cublaslt"]


def runner(rival: Any, number: int, true_ms: float, first_ms: float, noise: float) -> Any:
    draw = np.random.default_rng(number)
    heuristic = rival.Heuristic()
    heuristic.algorithm[0] = number
    return rival.Runner(heuristic, first_ms, lambda: true_ms * (1 + noise * float(draw.normal())))


def test_the_fastest_is_chosen(rival: Any) -> None:
    """The first time of each is noisy, and its order says nothing; a few percent are found in a few rounds."""
    times = [1.06, 1.0, 1.3, 1.04, 1.1, 1.2, 1.15, 1.08]
    field = [runner(rival, i, ms, ms * (1.2 if i == 1 else 1.0), 0.01) for i, ms in enumerate(times)]
    assert rival.choose(field).algorithm.algorithm[0] == 1


def test_it_gets_what_the_kernel_has(rival: Any) -> None:
    baseline = parse_baseline(f"{SCRIPT}:cublaslt")
    assert (baseline.kind, baseline.name) == (BaselineKind.PYTHON, "cublaslt.py:cublaslt")
    kernel = load_kernel("gemm")
    known = dict.fromkeys([*kernel.present(kernel.problem()), *kernel.scalars, *kernel.sizes, "stream"], 1)
    _, named = arguments_for(rival.cublaslt, known, "cublaslt")
    assert set(named) == {"a", "b", "c", "stream"}


def test_the_structure_is_the_librarys(rival: Any) -> None:
    """cublasLtMatmulHeuristicResult_t of cublasLt.h, CUDA 11 to 13."""
    layout = {name: getattr(rival.Heuristic, name).offset for name, _ in rival.Heuristic._fields_}
    assert layout == {"algorithm": 0, "workspace_bytes": 64, "state": 72, "waves": 76, "reserved": 80}
    assert ctypes.sizeof(rival.Heuristic) == 96
