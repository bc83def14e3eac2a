"""Products into slices of larger matrices: right, without a copy, and with nothing written beside them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuner
from tests.on_host import numbers_of
from tests.stored_winners import results, store_winners
from tuner.core.model import Problem
from tuner.devices.local import LocalDevice
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import tensors_of
from tuner.kernel.reference import numpy_of
from tuner.kernel.space import SearchSpace

torch = pytest.importorskip("torch")

WIDE, FIRST, BESIDE = 1536, 128, 77.0
CASES: dict[str, tuple[str, tuple[int, ...], dict[str, str], dict[str, str]]] = {
    "bfloat16": ("gemm", (336, 712, 264), {"": "bfloat16"}, {"layout": "nt"}),
    "float16, odd": ("gemm", (333, 709, 261), {"": "float16"}, {"layout": "nn"}),
    "float32": ("gemm", (336, 710, 264), {"": "float32"}, {"layout": "tn"}),
    "few rows": ("gemm", (4, 712, 1024), {"": "bfloat16"}, {"layout": "nt"}),
    "few columns": ("gemm", (712, 3, 1024), {"": "float16"}, {"layout": "nn"}),
    "a small k": ("gemm", (336, 708, 24), {"": "float16"}, {"layout": "tt"}),
    "bias": ("linear", (336, 712, 264), {"": "bfloat16"}, {"layout": "nt", "op": "relu(x + bias)"}),
    "residual, float32": (
        "linear", (336, 712, 264), {"": "float16", "output": "float32"}, {"layout": "nn", "op": "x - residual"},
    ),
    "odd rows": ("linear", (70, 61, 9), {"": "float16"}, {"layout": "nn", "op": "x - residual"}),
    "a batch": ("bmm", (3, 128, 200, 128), {"": "bfloat16"}, {"layout": "nt", "broadcast": "none"}),
    "a batch with a bias": (
        "baddbmm", (3, 128, 200, 128), {"": "float16"}, {"layout": "nn", "broadcast": "b", "op": "x + bias"},
    ),
    "a batch with a residual": (
        "baddbmm", (3, 128, 200, 128), {"": "bfloat16"}, {"layout": "nt", "broadcast": "none", "op": "x + residual"},
    ),
    "groups": ("grouped", (4, 400, 712, 256), {"": "bfloat16"}, {"layout": "nt"}),
    "scales": ("scaled_mm", (336, 712, 256), {"output": "bfloat16"}, {"scales": "blocks"}),
}  # fmt: skip


def problem_of(case: str) -> Problem:
    name, sizes, dtypes, options = CASES[case]
    kernel = load_kernel(name)
    return kernel.problem(dict(zip(kernel.sizes, sizes, strict=True)), dtypes, options)


def product(of: Problem, device: LocalDevice) -> tuple[list[Any], Any]:
    """Return inputs of small integers, a residual as a slice, and C, which every dtype holds."""
    kernel, rng = load_kernel(of.kernel), np.random.default_rng(0)
    inputs, named = [], {}
    for buffer in tensors_of(kernel, of, device.gpu):
        if buffer.role == "input":
            named[buffer.name] = array = numbers_of(buffer, of, rng)
            held = torch.from_numpy(np.ascontiguousarray(array.T if buffer.transposed else array)).cuda()
            held = held.to(getattr(torch, buffer.dtype))
            if buffer.name == "residual":
                whole = held.new_full((*held.shape[:-1], WIDE), float("nan"))
                whole[..., FIRST : FIRST + held.shape[-1]] = held
                held = whole[..., FIRST : FIRST + held.shape[-1]]
            inputs.append(held.T if buffer.transposed else held)
    expected = numpy_of(kernel, of)["c"].evaluate({**of.sizes, **named})[0].astype(np.float32)
    assert np.abs(expected).max() <= 256
    return inputs, torch.from_numpy(expected).cuda()


@pytest.mark.parametrize("case", CASES)
def test_only_the_slice_is_written(case: str, device: LocalDevice, tmp_path: Path) -> None:
    """By a configuration of each variant."""
    of = problem_of(case)
    inputs, expected = product(of, device)
    *rows, n = expected.shape

    def call(op: Any) -> Any:
        big = torch.full((*rows, WIDE), BESIDE, dtype=getattr(torch, of.dtypes["output"]), device="cuda")
        out = big[..., FIRST : FIRST + n]
        assert op(*inputs, out=out) is out
        return big.float()

    wanted = torch.full((*rows, WIDE), BESIDE, device="cuda")
    wanted[..., FIRST : FIRST + n] = expected
    found = list(results(device.gpu, tmp_path, of, call, 1))
    assert len(found) >= (1 if case in ("groups", "scales") else 2)
    for big in found:
        assert torch.equal(big, wanted)


@pytest.mark.parametrize(
    "case", [case for case, (*_, options) in CASES.items() if "residual" in options.get("op", "")]
)
def test_only_the_residual_is_a_slice(case: str, device: LocalDevice, tmp_path: Path) -> None:
    of = problem_of(case)
    inputs, expected = product(of, device)
    found = list(results(device.gpu, tmp_path, of, lambda op: op(*inputs).float(), 1))
    assert len(found) >= 2
    for c in found:
        assert torch.equal(c, expected)


def test_a_bundle_writes_beside_what_it_reads_in_a_graph(device: LocalDevice, tmp_path: Path) -> None:
    of = problem_of("bfloat16")
    (a, b), expected = product(of, device)
    (m, k), n = a.shape, b.shape[1]
    hopper, kernel = device.gpu.cc == 90, load_kernel("gemm")
    space = SearchSpace.from_kernel(kernel, of, device.gpu, ["wgmma" if hopper else "mma_sync"])
    store_winners(tmp_path / "w.db", kernel, [(of, space.default)], device.gpu)
    folder = str(tmp_path / "bundle")
    command = ["bundle", "--kernel", "gemm", "--db", str(tmp_path / "w.db"), "-o", folder, "--slices"]
    subprocess.run([sys.executable, "-m", "tuner", *command], check=True)
    op = tuner.load("gemm", bundle=folder)
    big = torch.full((m, WIDE), BESIDE, dtype=torch.bfloat16, device="cuda")
    whole = big.clone()
    op.warm([{**of.sizes, "dtypes": {"input": "bfloat16"}, "options": {"layout": "nt"}, "apart": True}])
    left, out = big[:, :k], big[:, k : k + n]
    left.copy_(a)
    # Only tensor maps read a slice: elsewhere the left operand is given whole.
    taken = left if hopper else a
    op(taken, b, out=out)
    out.fill_(BESIDE)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        op(taken, b, out=out)
    for _ in range(2):
        graph.replay()
    whole[:, :k], whole[:, k : k + n] = a, expected
    assert torch.equal(big, whole)
