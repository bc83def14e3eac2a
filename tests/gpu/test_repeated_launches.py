"""Launches in loops on a GPU: right, timed fresh and repeated alike, tuned, bundled and called."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tuner
from tests.kernel.test_repeated_launches import written
from tests.stored_winners import store_winners
from tuner.core.model import Configuration, Status
from tuner.devices.local import LocalDevice
from tuner.kernel.load import load_kernel, read_kernel

SORT = str(Path(__file__).parents[2] / "docs" / "examples" / "sort" / "sort.toml")
TILES = Configuration.of("tiles", {"block_size": 128, "items": 2, "tile": 1024})
STEPS = Configuration.of("steps", {"block_size": 256, "items": 4})


def test_buffers_that_take_turns_are_right_and_timed(device: LocalDevice, tmp_path: Path) -> None:
    kernel = read_kernel(written(tmp_path))
    configuration = Configuration.of("v", {"block": 64})
    for passes in (1, 2, 7):
        problem = kernel.problem({"n": 4099, "passes": passes})
        device.prepare(kernel, problem, seed=3)
        measured = device.confirm(configuration, 1e4)
        assert measured.status is Status.OK, measured.error
        answer = device.verify_at(problem, configuration, 60.0, contents=True)
        assert answer is not None and answer.status is Status.OK, answer


@pytest.mark.parametrize("configuration", [TILES, STEPS])
@pytest.mark.parametrize("n", [1, 1023, 1025, 1 << 16, 100003])
def test_a_sort_is_right_at_every_size(device: LocalDevice, configuration: Configuration, n: int) -> None:
    kernel = load_kernel(SORT)
    for dtype in ("float32", "int32"):
        problem = kernel.problem({"n": n}, {"input": dtype})
        device.prepare(kernel, kernel.problem({"n": 4096}, {"input": dtype}), seed=3)
        answer = device.verify_at(problem, configuration, 60.0, contents=True)
        assert answer is not None and answer.status is Status.OK, (n, dtype, answer)


def test_a_sort_is_tuned(tmp_path: Path) -> None:
    result = tuner.tune(SORT, trials=30, db=tmp_path / "t.db", quiet=True)
    assert result.confirmed, result.verdict


def test_a_bundle_is_called_at_other_sizes_in_streams_and_graphs(device: LocalDevice, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    kernel = load_kernel(SORT)
    store_winners(tmp_path / "w.db", kernel, [(kernel.problem({"n": 4096}), TILES)], device.gpu)
    command = ["bundle", "--kernel", SORT, "--db", tmp_path / "w.db", "-o", tmp_path / "b"]
    subprocess.run([sys.executable, "-m", "tuner", *command], check=True)
    for operation in (tuner.load("sort", bundle=tmp_path / "b"), tuner.load(SORT, db=tmp_path / "w.db")):
        for n in (4096, 1, 70001, 1 << 20):
            x = torch.randn(n, device="cuda")
            assert torch.equal(operation(x), x.sort()[0]), n
            assert torch.equal(operation.torch()(x), x.sort()[0]), n
        with torch.cuda.stream(torch.cuda.Stream()):
            graph, y = torch.cuda.CUDAGraph(), torch.empty_like(x)
            operation(x, out=y)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                operation(x, out=y)
            x.copy_(torch.randn(n, device="cuda"))
            graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(y, x.sort()[0])
