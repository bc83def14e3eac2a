"""Products with an expression before rounding, on the CPU: every way to C applies it once, to the right elements."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.on_host import HostConfiguration, product_of
from tests.templates.sm90 import HOPPER, Emulated, chosen
from tests.templates.test_sm90_kernel import few_sms
from tuner.core.model import Configuration, Problem, Value
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import HostArray, HostKernel, Schedule, launch_arguments
from tuner.kernel.golden import disagreement
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import reference_launch, tensors_of
from tuner.kernel.reference import Expected, numpy_of, settle_reference
from tuner.kernel.render import render_launch
from tuner.kernel.roofline import ARCHITECTURES

LINEAR = load_kernel("linear")
EXACT = "relu(x * scale + bias) * row_scale - residual + row_bias * beta"
"""Of small integers it is one, which every dtype has."""
SMOOTH = "alpha * gelu(x + bias) + silu(residual)"
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs g++")


def problem(
    m: int, n: int, k: int, layout: str, dtype: str, op: str = EXACT, output: str = "input"
) -> Problem:
    dtypes = {"": dtype, "output": output}
    return LINEAR.problem({"m": m, "n": n, "k": k}, dtypes, {"layout": layout, "op": op})


HOPPER_CASES: dict[str, tuple[str, str, tuple[int, int, int], dict[str, Value]]] = {
    "overlapped, divided": (
        "wgmma", "nt", (336, 712, 264),
        {"block_k": 64, "stream_k": True, "block_m": 128, "block_n": 208, "stages": 4, "epilogue": "overlapped"},
    ),
    "in turn, swapped": (
        "wgmma", "nn", (336, 712, 200),
        {"epilogue": "serial", "block_k": 64, "schedule": "pingpong", "swap_ab": True, "block_m": 160, "block_n": 128,
         "stages": 5},
    ),
    "columns of half a line": (
        "wgmma", "nn", (336, 712, 200),
        {"epilogue": "serial", "block_k": 64, "block_m": 128, "block_n": 96, "stages": 4},
    ),
    "few rows, float32": (
        "wgmma_skinny_m", "nn", (20, 136, 200),
        {"block_m": 24, "block_n": 64, "block_k": 64, "stages": 3, "cluster_k": 2},
    ),
    "both divide k": (
        "wgmma_split_k", "tn", (104, 136, 456),
        {"block_m": 64, "block_n": 64, "block_k": 64, "stages": 3, "consumers": 1, "split_k": 2, "cluster_k": 2},
    ),
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("case", HOPPER_CASES)
def test_on_hopper_every_element_is_finished_once(case: str, tmp_path: Path) -> None:
    name, layout, sizes, values = HOPPER_CASES[case]
    output = "float32" if "float32" in case else "input"
    of, configuration = problem(*sizes, layout, "bfloat16", output=output), chosen(name, values)
    gpu = few_sms(of, configuration) if name in ("wgmma", "wgmma_padded") else HOPPER
    assert np.array_equal(*Emulated(of, configuration, gpu, tmp_path).run(Schedule(1, shuffled=True)))


def inputs(of: Problem) -> dict[str, npt.NDArray[np.float64]]:
    rng = np.random.default_rng(0)
    tensors = [buffer for buffer in tensors_of(LINEAR, of, HOPPER) if buffer.role == "input"]
    return {one.name: rng.normal(size=one.shape).astype(np.float16).astype(np.float64) for one in tensors}


def filled(of: Problem, named: dict[str, npt.NDArray[np.float64]]) -> dict[str, HostArray]:
    memory = {}
    for buffer in tensors_of(LINEAR, of, HOPPER):
        memory[buffer.name] = HostArray(buffer.count, buffer.dtype, 16, buffer.name)
        if buffer.name in named:
            memory[buffer.name].fill(named[buffer.name].ravel())
    return memory


def expected(
    of: Problem, named: Mapping[str, npt.NDArray[np.float64]]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64]]:
    """Return values and magnitudes of C."""
    layout = str(of.options["layout"])
    a, b = (named[x].T if layout["ab".index(x)] == "t" else named[x] for x in "ab")
    return numpy_of(LINEAR, of)["c"].evaluate({**named, "a": a, "b": b, "alpha": 0.5, "beta": 2.0})


OTHERS: dict[str, tuple[str, str, tuple[int, int, int], dict[str, Value]]] = {
    "register_tiled": (
        "float32",
        "nt",
        (35, 61, 19),
        {"block_m": 32, "block_n": 64, "thread_m": 4, "block_k": 8},
    ),
    "split_k": ("float32", "tn", (35, 61, 40), {"block_m": 32, "block_n": 64, "thread_n": 8, "block_k": 8}),
    "mma_sync": (
        "float16",
        "nn",
        (35, 72, 40),
        {"block_m": 32, "block_n": 64, "block_k": 32, "warps_m": 1, "warps_n": 2},
    ),
    "mma_sync_cluster_k, float32": (
        "float16",
        "nt",
        (35, 69, 141),
        {"block_m": 32, "warps_m": 1, "vector_width": 1, "cluster_k": 2},
    ),
    "gemv_dots_swap_ab": ("float32", "nn", (40, 3, 72), {"block_n": 3, "vector_width": 4}),
}


@needs_compiler
@pytest.mark.parametrize("variant", OTHERS)
def test_every_element_is_finished_once(variant: str, tmp_path: Path) -> None:
    dtype, layout, sizes, values = OTHERS[variant]
    variant, _, output = variant.partition(", ")
    of, gpu = (
        problem(*sizes, layout, dtype, output=output or "input"),
        ARCHITECTURES[80 if "cluster" not in variant else 90],
    )
    configuration = Configuration.of(variant, {**LINEAR.variants[variant].defaults, **values})
    assert np.array_equal(*product_of(LINEAR, of, gpu, configuration, tmp_path))


@needs_compiler
def test_the_references_agree_in_values_and_magnitudes(tmp_path: Path) -> None:
    of = problem(9, 70, 33, "nt", "float32", SMOOTH)
    launch = reference_launch(LINEAR, of, HOPPER)
    assert launch is not None and LINEAR.reference.cuda is not None
    source, entry = render_launch(LINEAR, LINEAR.reference.cuda, of, HOPPER, Configuration("", ()))
    named = inputs(of)
    memory = filled(of, named)
    memory["c"], memory["c_magnitude"] = HostArray(9 * 70, "float64", 16), HostArray(9 * 70, "float32", 16)
    HostKernel(source, entry, tmp_path)(
        launch.grid, launch.block, 0, Schedule(0), *launch_arguments(launch, memory)
    )
    value, magnitude = expected(of, named)
    bound = settle_reference(LINEAR, of, HOPPER).tolerance_of("float32")
    assert disagreement(bound, memory["c"].numbers.reshape(9, 70), Expected(value, magnitude)) is None
    np.testing.assert_allclose(memory["c_magnitude"].numbers.reshape(9, 70), magnitude, rtol=1e-5)


@needs_compiler
@pytest.mark.parametrize(
    ("op", "dtype"),
    [("gelu(x + bias)", "float16"), ("gelu_tanh(x)", "bfloat16"), ("silu(x + bias)", "float16")],
)
def test_short_forms_of_16_bits_stay_within_the_bound(op: str, dtype: str, tmp_path: Path) -> None:
    of, gpu = problem(35, 72, 8, "nn", dtype, op), ARCHITECTURES[80]
    values = {"block_m": 32, "block_n": 64, "block_k": 32, "warps_m": 1, "warps_n": 2}
    configuration = Configuration.of("mma_sync", {**LINEAR.variants["mma_sync"].defaults, **values})
    host = HostConfiguration(LINEAR, of, gpu, configuration, tmp_path)
    named = inputs(of)
    memory = filled(of, named)
    named = {
        name: memory[name].numbers.astype(np.float64).reshape(array.shape) for name, array in named.items()
    }
    host.run(of.sizes, {**memory, **host.scratch(of.sizes)}, Schedule(1, shuffled=True))
    value, magnitude = expected(of, named)
    bound = settle_reference(LINEAR, of, gpu).tolerance_of(dtype)
    allowed = bound.coefficient * magnitude + bound.unit * np.abs(value) + bound.tiny
    assert (np.abs(memory["c"].numbers.reshape(35, 72) - value) <= allowed).all()


@pytest.mark.parametrize(("op", "factor"), [("x + bias", 1.0), ("gelu(x)", 1.25), ("silu(x)", 1.25)])
def test_a_short_form_widens_the_bound(op: str, factor: float) -> None:
    bound = settle_reference(LINEAR, problem(9, 8, 8, "nt", "float16", op), HOPPER).tolerance_of("float16")
    assert bound.unit == pytest.approx(factor * 2.0**-11 * (1 + 2.0**-10))
