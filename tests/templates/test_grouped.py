"""Groups of rows, on the CPU: every tile finds its group, and ends where that does; empty groups have none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.on_host import product_of
from tests.templates.sm90 import HOPPER, Emulated
from tests.templates.test_sm90_kernel import few_sms
from tuner.core.model import Configuration, Value
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import Schedule
from tuner.kernel.load import load_kernel

GROUPED = load_kernel("grouped")
TURNS: dict[str, Value] = {"block_m": 128, "block_n": 128, "block_k": 64, "stages": 5, "schedule": "pingpong"}
PAIRS: dict[str, Value] = {
    "block_m": 64,
    "block_n": 128,
    "block_k": 64,
    "stages": 4,
    "consumers": 1,
    "cluster_m": 2,
}
CASES: dict[str, tuple[str, str, tuple[int, int, int, int], dict[str, Value]]] = {
    "taking turns": ("wgmma", "nt", (5, 500, 200, 104), TURNS),
    "pairs along m": ("wgmma", "nn", (40, 300, 136, 192), PAIRS),
    "mma_sync": ("mma_sync", "nn", (5, 100, 72, 40), {"block_m": 32, "block_n": 64, "block_k": 32}),
}


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("case", CASES)
def test_rows_are_multiplied_by_their_groups_matrix(case: str, tmp_path: Path) -> None:
    variant, layout, sizes, values = CASES[case]
    named_sizes = dict(zip(("groups", "m", "n", "k"), sizes, strict=True))
    of = GROUPED.problem(named_sizes, {"": "bfloat16"}, {"layout": layout})
    configuration = Configuration.of(variant, {**GROUPED.variants[variant].defaults, **values})
    if variant == "wgmma":
        emulated = Emulated(of, configuration, few_sms(of, configuration), tmp_path)
        assert np.array_equal(*emulated.run(Schedule(1, shuffled=True)))
        return
    assert np.array_equal(*product_of(GROUPED, of, HOPPER, configuration, tmp_path))
