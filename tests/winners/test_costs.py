"""Costs of a kernel's file: summands with factors that are fitted to times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.faults.kernels import write_kernel
from tuner.core.errors import KernelError
from tuner.core.model import Configuration, Problem
from tuner.kernel.load import load_kernel, read_kernel
from tuner.kernel.roofline import ARCHITECTURES
from tuner.winners.fitting import Cost, fit_factors, summands_at

GPU = ARCHITECTURES[90]
GEMM = load_kernel("gemm")


def gemm(m: int, n: int, k: int) -> Problem:
    return GEMM.problem({"m": m, "n": n, "k": k}, {"": "bfloat16"}, {"layout": "nt"})


def test_factors_are_found_and_a_cost_is_the_time() -> None:
    one = Configuration.of("wgmma", GEMM.variants["wgmma"].defaults)
    problems = [gemm(2**i, 64 * j, 128 * j) for i in range(5, 13) for j in (3, 8, 21, 55)]
    summands = np.concatenate([summands_at(GEMM, problem, GPU, [one]) for problem in problems])
    factors = np.asarray([2e-5, 1e-5, 0.0, 0.0, 3.0, 2500.0])
    times = summands @ factors
    found = fit_factors(summands, times, np.zeros(len(times)))
    assert found.min() >= 0
    assert summands @ found == pytest.approx(times, rel=0.05)
    cost = Cost(GEMM, problems[0], GPU, one, factors)
    for problem, time in zip(problems, times, strict=True):
        assert cost.at(problem) / 1024 == pytest.approx(time, rel=0.002)


def test_factors_of_few_times_stay_near_those_of_the_variant() -> None:
    summands = np.asarray([[1.0, 5.0, 1.0], [2.0, 5.0, 1.0]])
    prior = np.asarray([3.0, 1.0, 10.0])
    found = fit_factors(summands, summands @ prior, np.zeros(2), prior)
    assert found == pytest.approx(prior, rel=1e-6)


@pytest.mark.parametrize(
    ("costs", "count"), [('plain = "n"', 1), ('plain = ["n", "ceil_div(n, block_size)"]', 2)]
)
def test_a_variant_has_a_term_or_several(costs: str, count: int, tmp_path: Path) -> None:
    kernel = read_kernel(write_kernel(tmp_path, extra=f"[costs]\n{costs}\n"))
    (summands,) = kernel.costs.values()
    assert len(summands) == count


def test_a_wrong_term_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="tiles"):
        read_kernel(write_kernel(tmp_path, extra='[costs]\nplain = ["n", "tiles"]\n'))
    with pytest.raises(KernelError, match="costs"):
        read_kernel(write_kernel(tmp_path, extra="[costs]\nplain = [1, true]\n"))
