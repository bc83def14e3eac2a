"""The maps run on the CPU, at sizes around their tiles: indices, tails, rings, what the launches are given."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.on_host import HostConfiguration
from tests.templates.machine_code import gpu
from tests.templates.sources import draw
from tuner.core.model import Configuration, Problem, Value
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import HostArray, KernelFault, Schedule
from tuner.inspect.emulator.source import code_of
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import scalars_of, tensors_of
from tuner.kernel.reference import numpy_of
from tuner.kernel.spec import KernelSpec
from tuner.runtime.dtypes import ITEMSIZE

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")

DEVICE = dataclasses.replace(gpu(90), sm_count=2)
"""Of few SMs, so that the blocks of a persistent grid have several tiles each."""
NEAR = {"float32": 1e-5, "bfloat16": 0.01}
MUTATIONS = [
    ("    }\n    __syncthreads();\n}", "    }\n}", "bulk ring"),
    ("wait_barrier(arrived + stage, parity)", "wait_barrier(arrived + stage, 0)", "bulk ring"),
    ("wait_copies<STAGES - 1>", "wait_copies<STAGES>", "staged"),
]  # fmt: skip
"""Faults of copies that are waited for: text, what stands there instead, and what must fail then."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A configuration, and the sizes at which it is run."""

    configuration: Configuration
    sizes: tuple[int, ...]


def case_of(configuration: Configuration, dtype: str, rng: random.Random) -> Case:
    """Choose sizes: one, one off the tile, and several times round the ring of every block, and a bit."""
    values = configuration.values
    if "tile_bytes" in values:
        tile = int(values["tile_bytes"]) // ITEMSIZE[dtype]
    else:
        tile = int(values.get("block_size", 1)) * int(values.get("vector_width", 1))
        tile *= int(values.get("items_per_thread", 1))
    blocks = DEVICE.sm_count * int(values.get("blocks_per_sm", 1)) or 2
    long = tile * blocks * (2 * int(values.get("stages", 1)) + 1 if "stages" in values else 2)
    sizes = {1, max(tile - 1, 1), tile, tile + 1, min(long, 1 << 15) + rng.randrange(tile)}
    return Case(configuration, tuple(sorted(sizes)))


def cases_of(
    kernel: KernelSpec, problem: Problem, variant: str, count: int, rng: random.Random, **fixed: Value
) -> list[Case]:
    found: list[Case] = []
    while len(found) < count:
        parameters = draw(kernel, kernel.variants[variant], problem, DEVICE, rng)
        if all(parameters[name] == value for name, value in fixed.items()):
            dtype = problem.dtypes["input"]
            found.append(case_of(Configuration.of(variant, parameters), dtype, rng))
    return found


def values(number: int, n: int) -> npt.NDArray[np.float32]:
    """Return the elements of an array."""
    scattered = np.arange(n, dtype=np.int64) * 2654435761 + number * 40503
    return ((scattered >> 7) % 1000).astype(np.float32) * np.float32(0.01)


def check(
    kernel: KernelSpec,
    problem: Problem,
    cases: Sequence[Case],
    folder: Path,
    edit: Callable[[str], str] = str,
) -> None:
    """Compare every element with the kernel's own NumPy reference."""
    ((output, reference),) = numpy_of(kernel, problem).items()
    scalars = {name: value for name, (_, value) in scalars_of(kernel, problem, DEVICE).items()}
    for number, case in enumerate(cases):
        host = HostConfiguration(kernel, problem, DEVICE, case.configuration, folder / str(number), edit)
        for n in case.sizes:
            (launch,) = host.plan({"n": n}).launches
            memory = {}
            for place, tensor in enumerate(tensors_of(kernel, problem, DEVICE)):
                memory[tensor.name] = HostArray(n, tensor.dtype, launch.alignment)
                if tensor.role != "output":
                    memory[tensor.name].fill(values(place, n))
            expected, _ = reference.evaluate({**scalars, **{name: m.numbers for name, m in memory.items()}})
            host.run({"n": n}, memory, Schedule(seed=n, resident=3))
            allowed = NEAR[problem.dtypes["input"]] * (1.0 + abs(expected))
            wrong = ~(abs(memory[output].numbers - expected) <= allowed)  # so that a NaN is wrong
            assert not wrong.any(), f"{case.configuration} {problem}: {wrong.sum()} of {n} are wrong"


@pytest.mark.parametrize(("name", "dtype"), (("saxpy", "bfloat16"),))
def test_every_element_once(name: str, dtype: str, tmp_path: Path) -> None:
    kernel, rng = load_kernel(name), random.Random(f"{name} {dtype}")
    problem = kernel.problem({"n": 1000}, {"": dtype})
    cases = [case for variant in kernel.variants for case in cases_of(kernel, problem, variant, 1, rng)]
    cases += cases_of(kernel, problem, "bulk", 1, rng, stages=1)
    check(kernel, problem, cases, tmp_path)


@pytest.mark.parametrize(("op", "dtype"), (("x * z + abs(y)", "bfloat16"), ("maximum(y, 3) / 2", "float32")))
def test_every_expression(op: str, dtype: str, tmp_path: Path) -> None:
    kernel, rng = load_kernel("transform"), random.Random(f"{op} {dtype}")
    problem = kernel.problem({"n": 1000}, {"": dtype}, {"op": op})
    variants = list(kernel.variants)[dtype == "float32" :: 2]  # the other half with the other expression
    cases = [case for variant in variants for case in cases_of(kernel, problem, variant, 1, rng)]
    cases += cases_of(kernel, problem, "bulk", 1, rng, stages=1)
    cases += cases_of(kernel, problem, "bulk", 1, rng, bulk_store=True)
    check(kernel, problem, cases, tmp_path)


@pytest.mark.parametrize(("right", "wrong", "what"), MUTATIONS)
def test_emulator_finds_faults(right: str, wrong: str, what: str, tmp_path: Path) -> None:
    """What the tests above say is worth something only if they can fail."""
    kernel, rng = load_kernel("transform"), random.Random(f"{right} {wrong}")

    times: list[int] = []

    def broken(source: str) -> str:
        code = code_of(source)
        times.append(code.count(right))
        return code.replace(right, wrong)

    problem = kernel.problem({"n": 1000}, {"": "float32"})
    variant, *words = what.split()
    fixed: dict[str, Value] = {"bulk_store": "store" in words} if variant == "bulk" else {}
    if variant == "bulk":
        fixed["stages"] = 3 if "ring" in words else 1
    for case in cases_of(kernel, problem, variant, 3, rng, **fixed):
        try:
            check(kernel, problem, [case], tmp_path / "wrong", broken)
        except (AssertionError, KernelFault) as fault:
            assert re.search("wrong|barrier|bulk|access|array|standstill|shared memory", str(fault))
            break
    else:
        pytest.fail("nothing is found in any of the cases")
    assert times and set(times) == {1}
