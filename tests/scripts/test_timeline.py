"""scripts/measuring/timeline.py: marks become code that compiles, and cost nothing where they stay comments."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest

from scripts.measuring import timeline
from tuner.children.nvrtc import compile_source
from tuner.core.errors import TunerError
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


@pytest.mark.parametrize("consumers", [1, 2])
def test_marks_become_code_that_compiles(consumers: int) -> None:
    source, entry = source_of("wgmma_split_k", {"m": 512, "n": 512, "k": 65536}, **DEEP, consumers=consumers)
    marked, names = timeline.with_marks(source, 128)
    assert {"begin", "end"} < set(names) and "// mark" not in marked
    assert all(f"mark({slot});" in marked for slot in range(len(names)))
    plain, timed = (compile_source(text, entry, HOPPER.arch) for text in (source, marked))
    assert plain.resources.spill_bytes == timed.resources.spill_bytes == 0
    for compiled in (plain, timed):
        assert not re.search(r"C75\d\d", compiled.log)  # matrix instructions that wait for each other


def test_skinny_products_have_marks_too() -> None:
    source, entry = source_of("wgmma_skinny_m", {"m": 16, "n": 8192, "k": 8192})
    marked, names = timeline.with_marks(source, 128)
    assert {"begin", "end"} < set(names)
    assert compile_source(marked, entry, HOPPER.arch).resources.spill_bytes == 0


def test_a_kernel_without_marks_is_refused() -> None:
    with pytest.raises(SystemExit, match="marks"):
        timeline.with_marks(source_of("naive", {"m": 64, "n": 64, "k": 64})[0], 4)


def test_the_table_is_in_the_order_of_time_without_marks_that_no_block_came_by() -> None:
    times = np.array([[5.0, 0.0, np.nan, 1.0], [6.0, 0.1, np.nan, 1.1], [9.0, 0.2, np.nan, 1.2]])
    _, data = timeline.table(["end", "begin", "never", "bytes"], [(12.0, times, 1.7)] * 3)
    assert list(data["marks"]) == ["begin", "bytes", "end"]
    assert data["marks"]["bytes"] == [1.0, 1.1, 1.2]


def test_the_table_has_the_first_block_the_median_and_the_last() -> None:
    times = np.array([[0.0, 5.0], [0.1, 6.0], [0.2, 9.0]])
    text, data = timeline.table(["begin", "end"], [(12.0, times, 1.7)] * 3)
    assert data == {
        "time_us": 12.0, "ghz": 1.7, "marks": {"begin": [0.0, 0.1, 0.2], "end": [5.0, 6.0, 9.0]},
    }  # fmt: skip
    assert text.splitlines()[-1].split() == ["end", "5.00", "6.00", "9.00"]


class Here:
    """A lab without a GPU: what comes before anything is run."""

    gpu = HOPPER

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--size", "m=512,n=1024,k=65536", "--config", "wgmma_split_k block_n=128 split_k=8 stages=6"],
            "clusters that wait for each other are on the GPU at once",
        ),
        (["--size", "m=64,n=64,k=512", "--config", "mma_sync_split_k"], "2 launches"),
        (["--size", "m=64", "--config", "naive", "--option", "layout=x"], "layout"),
    ],
)
def test_what_cannot_be_timed_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.setattr(timeline, "Lab", Here)
    monkeypatch.setattr(sys, "argv", ["timeline.py", "--dtype", "float16", *words])
    with pytest.raises(TunerError) as refused:
        timeline.main()
    assert said in str(refused.value)
