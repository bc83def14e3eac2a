"""A torch program's products as a file of problems."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.program.two_layers import TwoLayers

torch = pytest.importorskip("torch")

import tuner  # noqa: E402
from tuner.cli.jobs import make_jobs  # noqa: E402
from tuner.cli.options import ProblemTexts  # noqa: E402
from tuner.core.errors import UsageError  # noqa: E402
from tuner.kernel.load import load_kernel  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_problems_are_written_the_heaviest_first(tmp_path: Path) -> None:
    x = torch.randn(10, 64)
    with tuner.record() as calls:
        TwoLayers(bias=True)(x)
        for _ in range(5):
            torch.mm(torch.randn(8, 64), torch.randn(64, 32))
            torch.mm(torch.randn(1, 64), torch.randn(64, 16))
    file = tmp_path / "problems.csv"
    calls.save(file)
    assert rows(file) == [
        {"m": "8", "n": "32", "k": "64", "layout": "nn", "dtype": "float32", "calls": "5"},
        {"m": "10", "n": "96", "k": "64", "layout": "nt", "dtype": "float32", "calls": "1"},
        {"m": "1", "n": "16", "k": "64", "layout": "nn", "dtype": "float32", "calls": "5"},
    ]
    calls.save(
        with_bias := tmp_path / "with_bias.csv", kernel="linear"
    )  # the layer with a bias is another kernel's
    ((row),) = rows(with_bias)
    assert (row["m"], row["n"], row["k"], row["op"], row["layout"]) == ("10", "64", "96", "x + bias", "nt")
    (job,) = make_jobs(load_kernel("linear"), ProblemTexts(problem_file=with_bias))
    assert str(job.choices[0]) == "linear m=10 n=64 k=96 float32 layout=nt op=x + bias"
    calls.time_ns = dict.fromkeys(calls.counts, 1000.0)
    calls.save(file)
    assert [(row["m"], row["time_us"]) for row in rows(file)] == [
        ("8", "1.000"),
        ("1", "1.000"),
        ("10", "1.000"),
    ]
    calls.time_ns = {}
    calls.time()
    assert [float(row["time_us"]) > 0 for row in rows(file)] == [True] * 3
    assert "torch us" in str(calls)
    with pytest.raises(UsageError, match="problem of saxpy; there are problems of: gemm"):
        calls.save(file, kernel="saxpy")


def test_the_tuner_reads_the_problems(tmp_path: Path) -> None:
    x = torch.randn(10, 64).bfloat16()
    with tuner.record() as calls:
        TwoLayers().bfloat16()(x)
        for _ in range(9):
            x @ torch.randn(64, 32).bfloat16()
            x.sum()
        eight, one = torch.ones(16, 64).to(torch.float8_e4m3fn), torch.ones(1)
        torch._scaled_mm(eight, eight.t(), one, one, out_dtype=torch.float16)
    kernel, file = load_kernel("gemm"), tmp_path / "problems.csv"
    calls.save(file)
    jobs = make_jobs(kernel, ProblemTexts(problem_file=file))
    assert [str(job.choices[0]) for job in jobs] == [
        "gemm m=10 n=32 k=64 bfloat16 layout=nn",
        "gemm m=10 n=64 k=96 bfloat16 layout=nt",
        "gemm m=10 n=96 k=64 bfloat16 layout=nt",
    ]
    assert str(jobs[0].worth) == "60.0 % of the operations, 9 calls"
    calls.save(file, kernel="reduce")
    (job,) = make_jobs(load_kernel("reduce"), ProblemTexts(problem_file=file))
    assert str(job.choices[0]) == "reduce n=640 bfloat16 op=sum"
    calls.save(file, kernel="scaled_mm")
    (job,) = make_jobs(load_kernel("scaled_mm"), ProblemTexts(problem_file=file))
    text = "scaled_mm m=16 n=16 k=64 float8_e4m3fn scales=tensor accumulation=promoted layout=nt"
    assert (str(job.choices[0]), job.choices[0].dtypes["output"]) == (text, "float16")
