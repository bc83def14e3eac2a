"""Every dtype, structs by value and variables that launches fill, on a GPU; and the examples that have them, tuned and
called from C++, Python, torch and graphs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuner
from scripts.calling.bundles import CppPlan, build, compilers
from tests.inspect.check.planted import PLANTED
from tests.inspect.check.test_types import written
from tests.stored_winners import store_winners
from tuner.core.errors import CallError
from tuner.core.model import Configuration, Status, Value
from tuner.devices.local import LocalDevice
from tuner.kernel.default import default_configuration
from tuner.kernel.load import load_kernel, read_kernel
from tuner.runtime.dtypes import DTYPES

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SIZES: dict[str, dict[str, int]] = {
    "convolution/convolution": {"height": 700, "width": 500},
    "cub_reduce/cub_reduce": {"rows": 300, "columns": 1000},
    "fft/fft_step": {"count": 1000, "stride": 33},
}
OPTIONS: dict[str, list[dict[str, Value]]] = {
    "convolution/convolution": [{"radius": 3}, {"radius": 1}],
    "cub_reduce/cub_reduce": [{}],
    "fft/fft_step": [{"radix": 4}, {"radix": 2}],
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_dtype_is_verified(device: LocalDevice, tmp_path: Path, dtype: str) -> None:
    kernel = read_kernel(written(tmp_path, dtype, "right", "wrong"))
    device.prepare(kernel, kernel.problem(), seed=3)
    for name, status in (("right", Status.OK), ("wrong", Status.WRONG_RESULT)):
        configuration = Configuration.of(name, {"block_size": 64})
        answer = device.verify_at(kernel.problem(), configuration, 60.0, contents=True)
        assert answer is not None and answer.status is status, (name, answer)


def test_structs_are_passed_by_value_and_in_time(device: LocalDevice) -> None:
    kernel = read_kernel(PLANTED / "parts.toml")
    configuration = Configuration.of("v", {"block_size": 64})
    device.prepare(kernel, kernel.problem(), seed=3)
    measured = device.confirm(configuration, 1e4)
    assert measured.status is Status.OK, measured.error
    answer = device.verify_at(kernel.problem({"n": 1023}), configuration, 60.0, contents=True)
    assert answer is not None and answer.status is Status.OK, answer


@pytest.mark.parametrize("name", SIZES)
def test_the_examples_are_tuned(tmp_path: Path, name: str) -> None:
    file = str(EXAMPLES / f"{name}.toml")
    result = tuner.tune(
        file, trials=20, db=tmp_path / "t.db", quiet=True, sizes=SIZES[name], options=OPTIONS[name][0]
    )
    assert result.confirmed, result.verdict


def inputs(torch: Any, name: str, option: Value) -> tuple[list[Any], Any]:
    """Return inputs of an example, and what it makes of them."""
    sizes = SIZES[name]
    if name == "convolution/convolution":
        border = 2 * int(option)
        x = torch.randn(sizes["height"] + border, sizes["width"] + border, device="cuda")
        weights = torch.randn(border + 1, border + 1, device="cuda")
        return [x, weights], torch.nn.functional.conv2d(x.double()[None], weights.double()[None, None])[0]
    if name == "cub_reduce/cub_reduce":
        x = torch.randn(sizes["rows"], sizes["columns"], device="cuda")
        return [x], x.double().sum(1)
    shape = (int(option), sizes["count"], sizes["stride"])
    x = torch.randn(shape, device="cuda", dtype=torch.complex64)
    kinds = (torch.arange(each, device="cuda", dtype=torch.float64) for each in shape[:2])
    turns = torch.exp(-2j * torch.pi * torch.outer(*kinds) / (shape[0] * shape[1]))
    return [x], (torch.fft.fft(x.to(torch.complex128), dim=0) * turns[:, :, None]).transpose(0, 1)


@pytest.mark.parametrize("name", SIZES)
def test_the_examples_are_called_from_every_language(device: LocalDevice, tmp_path: Path, name: str) -> None:
    torch = pytest.importorskip("torch")
    file = str(EXAMPLES / f"{name}.toml")
    kernel = load_kernel(file)
    problems = [kernel.problem(SIZES[name], options=options) for options in OPTIONS[name]]
    winners = [(each, default_configuration(kernel, each, device.gpu)) for each in problems]
    store_winners(tmp_path / "w.db", kernel, winners, device.gpu)  # type: ignore[arg-type]
    command = ["bundle", "--kernel", file, "--db", tmp_path / "w.db", "-o", tmp_path / "b"]
    subprocess.run([sys.executable, "-m", "tuner", *command], check=True)
    library = build("g++", compilers()["g++"], "c_interface.cpp", tmp_path / "launcher.so", shared=True)
    stream, close = torch.cuda.Stream(), torch.testing.assert_close
    for problem, options in zip(problems, OPTIONS[name], strict=True):
        option = next(iter(options.values()), 0)
        for way in (
            {"kernel": kernel.name, "bundle": tmp_path / "b"},
            {"kernel": file, "db": tmp_path / "w.db"},
        ):
            given, expected = inputs(torch, name, option)
            operation = tuner.load(**way, options=options)  # type: ignore[arg-type]
            for call in (operation, operation.torch()):
                close(call(*given), expected.to(given[0].dtype), rtol=1e-4, atol=1e-3)
        with torch.cuda.stream(stream):
            given, expected = inputs(torch, name, option)
            y = torch.empty_like(expected, dtype=given[0].dtype, memory_format=torch.contiguous_format)
            plan = CppPlan(library, tmp_path / "b", problem)
            plan.prepare(0, stream.cuda_stream)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                plan.run([*(each.data_ptr() for each in given), y.data_ptr()], 0, stream.cuda_stream)
            again, expected = inputs(torch, name, option)
            for mine, other in zip(given, again, strict=True):
                mine.copy_(other)
            graph.replay()
        torch.cuda.synchronize()
        close(y, expected.to(y.dtype), rtol=1e-4, atol=1e-3)
        plan.close()


def test_complex_numbers_that_are_not_in_memory_are_refused(tmp_path: Path, device: LocalDevice) -> None:
    torch = pytest.importorskip("torch")
    kernel = load_kernel(str(EXAMPLES / "fft" / "fft_step.toml"))
    problem = kernel.problem({"count": 8, "stride": 4})
    winner = default_configuration(kernel, problem, device.gpu)
    assert winner is not None
    store_winners(tmp_path / "w.db", kernel, [(problem, winner)], device.gpu)
    operation = tuner.load(str(kernel.file), db=tmp_path / "w.db")
    x = torch.randn(4, 8, 4, device="cuda", dtype=torch.complex64)
    with pytest.raises(CallError, match="resolve_conj"):
        operation(x.conj())
    close = torch.testing.assert_close
    close(operation(x.conj().resolve_conj()), operation.torch()(x.conj()))


def test_a_call_of_tune_takes_bool_complex_and_structs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = """
    struct Range { int count; float factor; };
    extern "C" __global__ void turn(const float2* x, float2* y, const bool* mask, bool twice, Range span) {
        int i = blockIdx.x * BLOCK + threadIdx.x;
        if (i < span.count) {
            float by = mask[i] ? (twice ? 2 : 1) * span.factor : 0;
            y[i] = make_float2(by * x[i].x, -by * x[i].y);
        }
    }"""
    n, rng = 1 << 16, np.random.default_rng(0)
    x = (rng.standard_normal(n) + 1j * rng.standard_normal(n)).astype(np.complex64)
    y, mask = np.zeros_like(x), rng.random(n) < 0.5
    span = np.array((n, 0.5), [("count", "i4"), ("factor", "f4")])[()]
    result = tuner.tune(
        source, [x, y, mask, True, span], {"BLOCK": [64, 256]}, grid="ceil_div(span_count, BLOCK)", block="BLOCK",
        outputs=["y"], reference=lambda x, mask: np.conj(x) * mask, quiet=True,
    )  # fmt: skip
    assert result.confirmed, result.verdict
    result(x, y, mask, False, span)
    np.testing.assert_allclose(y, 0.5 * np.conj(x) * mask, rtol=1e-6)
