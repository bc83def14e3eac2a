"""scripts/measuring/timeline.py: marks become code that compiles, and cost nothing where they stay comments."""

from __future__ import annotations

import re

import numpy as np

from scripts.measuring import timeline
from tuner.children.nvrtc import compile_source
from tuner.core.model import Configuration, Value
from tuner.kernel.load import load_kernel
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES

GEMM = load_kernel("gemm")
HOPPER = ARCHITECTURES[90]
DEEP: dict[str, Value] = {"block_m": 128, "block_n": 128, "split_k": 8, "stages": 6, "gpc_locality": True}


def source_of(variant: str, sizes: dict[str, int], **values: Value) -> tuple[str, str]:
    problem = GEMM.problem(sizes, {"": "bfloat16"}, {})
    configuration = Configuration.of(variant, {**GEMM.variants[variant].defaults, **values})
    [(source, entry)] = render(GEMM, problem, HOPPER, configuration)
    return source, entry


def test_marks_become_code_that_compiles() -> None:
    source, entry = source_of("wgmma_split_k", {"m": 512, "n": 512, "k": 65536}, **DEEP)
    marked, names = timeline.with_marks(source, 128)
    assert {"begin", "end"} < set(names) and "// mark" not in marked
    assert all(f"mark({slot});" in marked for slot in range(len(names)))
    plain, timed = (compile_source(text, entry, HOPPER.arch) for text in (source, marked))
    assert plain.resources.spill_bytes == timed.resources.spill_bytes == 0
    for compiled in (plain, timed):
        assert not re.search(r"C75\d\d", compiled.log)  # matrix instructions that wait for each other


def test_the_table_has_the_first_block_the_median_and_the_last() -> None:
    times = np.array([[0.0, 5.0], [0.1, 6.0], [0.2, 9.0]])
    text, data = timeline.table(["begin", "end"], [(12.0, times, 1.7)] * 3)
    assert data == {
        "time_us": 12.0, "ghz": 1.7, "marks": {"begin": [0.0, 0.1, 0.2], "end": [5.0, 6.0, 9.0]},
    }  # fmt: skip
    assert text.splitlines()[-1].split() == ["end", "5.00", "6.00", "9.00"]
