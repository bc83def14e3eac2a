"""The kernels that work on rows, on the GPU: rows unlike others are as torch has them, and every variant compiles."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.stored_winners import results, store_defaults
from tests.templates.sources import GENERATIONS, compiled
from tuner.devices.local import LocalDevice
from tuner.kernel.load import load_kernel
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace

torch = pytest.importorskip("torch")
KERNELS = ("softmax", "norm", "gated", "cross_entropy", "quantize")
CONFIGURATIONS = 3
_LENGTH = {"quantize": "groups"}


@pytest.mark.parametrize("cc", GENERATIONS)
@pytest.mark.parametrize("name", KERNELS)
def test_a_sample_of_every_variant_compiles(name: str, cc: int) -> None:
    kernel, gpu, rng = load_kernel(name), ARCHITECTURES[cc], random.Random(f"{name} {cc}")
    for dtype in ("bfloat16", "float16", "float32"):
        for columns in (1023, 4096, 32_768):
            problem = kernel.problem({"rows": 1000, _LENGTH.get(name, "columns"): columns}, {"": dtype})
            for variant in kernel.usable_variants(problem, gpu)[0]:
                [space] = SearchSpace.from_kernel(kernel, problem, gpu, [variant.name]).variants
                compiled(kernel, space.configuration(rng.randrange(len(space))), problem, gpu)


def special_rows(columns: int) -> Any:
    rows = torch.randn(8, columns, dtype=torch.float64) * 3
    rows[1] = -0.75
    rows[2, columns // 2] = torch.inf
    rows[3, ::3] = -torch.inf
    rows[4] = -torch.inf
    rows[5, -1] = torch.nan
    rows[6] = torch.finfo(torch.bfloat16).min
    rows[7] = -80.0
    rows[7, columns // 3] = 10.0
    return rows


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
@pytest.mark.parametrize("columns", [65, 4096, 20_001, 262_144])
def test_softmax_of_special_rows_is_torchs(
    device: LocalDevice, tmp_path: Path, columns: int, op: str, dtype: str
) -> None:
    x = special_rows(columns).to("cuda", getattr(torch, dtype))
    expected = getattr(torch, op)(x.double(), 1).to(x.dtype).double()
    problem = load_kernel("softmax").problem({"rows": 8, "columns": columns}, {"": dtype}, {"op": op})
    bound = 2.0 * torch.finfo(x.dtype).eps if dtype != "float32" else 2e-5
    tiny = torch.finfo(x.dtype).smallest_normal * torch.finfo(x.dtype).eps
    least = 2e-5 if op == "log_softmax" else 2 * tiny  # the logarithm of a share of nearly 1
    for found in results(device.gpu, tmp_path, problem, lambda softmax: softmax(x), CONFIGURATIONS):
        torch.testing.assert_close(found.double(), expected, rtol=bound, atol=least, equal_nan=True)


@pytest.mark.parametrize("columns", [129, 4096, 50_000])
@pytest.mark.parametrize("offset", [0, 63])
def test_a_causal_softmax_is_torchs(device: LocalDevice, tmp_path: Path, columns: int, offset: int) -> None:
    rows = 300
    x = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
    last = torch.arange(rows, device="cuda") % (columns - offset) + offset
    hidden = torch.arange(columns, device="cuda") > last.unsqueeze(1)
    expected = torch.softmax(x.double().masked_fill(hidden, -torch.inf), 1)
    x[hidden] = torch.nan
    problem = load_kernel("softmax").problem({"rows": rows, "columns": columns}, {}, {"mask": "causal"})
    for found in results(device.gpu, tmp_path, problem, lambda op: op.torch()(x, offset=offset), 2):
        torch.testing.assert_close(found.double(), expected, rtol=2.0**-7, atol=1e-30)


@pytest.mark.parametrize("by", ["row", "group"])
def test_quantised_rows_are_torchs(device: LocalDevice, tmp_path: Path, by: str) -> None:
    kernel = load_kernel("quantize")
    problem = kernel.problem({"rows": 37, "groups": 24}, {"input": "bfloat16"}, {"by": by})
    store_defaults(tmp_path / "w.db", kernel, [problem], device.gpu)
    quantize = tuner.load("quantize", db=tmp_path / "w.db").torch()
    x = torch.randn(37, 24 * 128, device="cuda", dtype=torch.bfloat16)
    parts = x.float().unflatten(1, (-1, 128 if by == "group" else 24 * 128))
    wanted = parts.abs().amax(2) / 448
    out, scale = quantize(x)
    torch.testing.assert_close(scale, wanted, rtol=1e-6, atol=0)
    found = out.float().view_as(parts)
    torch.testing.assert_close(found, (parts / wanted.unsqueeze(2)), rtol=2.0**-4, atol=2.0**-9)
    torch.library.opcheck(quantize.overload, (x,))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured, _ = quantize(x)
    captured.view(torch.uint8).zero_()
    graph.replay()
    assert torch.equal(captured.view(torch.uint8), out.view(torch.uint8))
