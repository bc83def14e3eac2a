"""A portfolio of gemm on a real GPU, from sizes to a call of one that was not measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tuner
from tests.gpu.test_command_line import tune

torch = pytest.importorskip("torch")

SIZES = "m=64..2048,n=512|1024,k=512|1024,samples=3"
TIME_S = 80
"""A time limit ends the turns of changes; the sizes and those between take half of it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("portfolio")
    command = [
        "portfolio",
        "--kernel",
        "gemm",
        "--dtype",
        "bfloat16",
        "--option",
        "layout=nt",
        "--problem",
        SIZES,
    ]
    command += ["--search", "0", "--cubins", "12", "--time", str(TIME_S), "--db", "p.db", "--json", "-q"]
    (answer,) = json.loads(tune(folder, *command).stdout)["portfolios"]
    assert 1 < answer["sizes"] <= 6  # as many between them; a GPU that others use, too, times fewer in time
    assert answer["kept_worst"] < 1.3
    again = json.loads(tune(folder, *command).stdout)
    assert again["portfolios"][0]["members"] == answer["members"]
    tune(folder, "bundle", "--kernel", "gemm", "--db", "p.db", "--few", "-o", "bundle")
    return folder


def test_a_size_that_was_not_measured_is_run_by_the_portfolio(folder: Path) -> None:
    op = tuner.load("gemm", bundle=folder / "bundle")
    plan = op.plan(m=700, n=768, k=640, dtypes={"input": "bfloat16"}, options={"layout": "nt"})
    assert plan.match == "portfolio"
    assert plan.expected_slowdown is not None and 1 <= plan.expected_slowdown < 3
    x = torch.randn(700, 640, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(768, 640, device="cuda", dtype=torch.bfloat16)
    torch.testing.assert_close(op(x, weight.T), x @ weight.T, rtol=2e-2, atol=2e-1)


def test_the_header_is_written_only_with_a_winner(folder: Path) -> None:
    done = tune(folder, "export", "--kernel", "gemm", "--db", "p.db", "-o", "tuned.hpp", status=1)
    assert "no confirmed winner" in done.stderr
