"""Products with an expression before rounding, on the CPU: the references agree, and short forms are near enough."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.on_host import HostConfiguration
from tests.templates.sm90 import HOPPER
from tuner.core.model import Configuration, Problem
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import HostArray, HostKernel, Schedule, launch_arguments
from tuner.kernel.golden import disagreement
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import reference_launch, tensors_of
from tuner.kernel.reference import Expected, numpy_of, settle_reference
from tuner.kernel.render import render_launch
from tuner.kernel.roofline import ARCHITECTURES

LINEAR = load_kernel("linear")
SMOOTH = "alpha * gelu(x + bias) + silu(residual)"
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs g++")


def problem(m: int, n: int, k: int, layout: str, dtype: str, op: str) -> Problem:
    return LINEAR.problem({"m": m, "n": n, "k": k}, {"": dtype}, {"layout": layout, "op": op})


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
