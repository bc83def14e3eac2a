"""scripts/rivals: which functions there are, how tensors reach them, how the library is found; it is not built here."""

from __future__ import annotations

import inspect
import itertools
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.kernel.baselines import parse_baseline
from tuner.kernel.functions import BaselineKind, arguments_for, load_function
from tuner.kernel.load import load_kernel
from tuner.kernel.reference import numpy_of
from tuner.kernel.roofline import ARCHITECTURES

GPU = ARCHITECTURES[90]
SCRIPT = Path(__file__).parents[2] / "scripts" / "rivals" / "cccl.py"
RIVALS = {
    "thrust_vector_add": "vector_add",
    "thrust_saxpy": "saxpy",
    "thrust_transform": "transform",
    "cub_transform": "transform",
    "cub_sum": "reduce",
}


@pytest.fixture
def cccl() -> Any:
    load_function("cub_sum", SCRIPT)
    return sys.modules["baseline_cccl"]


@pytest.mark.parametrize(("name", "kernel_name"), RIVALS.items())
def test_each_gets_what_its_kernel_has(name: str, kernel_name: str, cccl: Any) -> None:
    baseline = parse_baseline(f"{SCRIPT}:{name}")
    assert baseline.kind is BaselineKind.PYTHON
    kernel = load_kernel(kernel_name)
    known = dict.fromkeys([*kernel.present(kernel.problem()), *kernel.scalars, *kernel.sizes, "stream"], 1)
    arguments_for(load_function(name, SCRIPT), known, name)
    (output,) = (tensor.name for tensor in kernel.tensors.values() if tensor.role != "input")
    assert output in inspect.signature(getattr(cccl, name)).parameters
    assert f"| {kernel_name}" in cccl.__doc__
    assert name in cccl.__doc__


def test_the_library_has_all_of_them(cccl: Any) -> None:
    source = cccl.SOURCE.read_text()
    assert set(re.findall(r"int (\w+)_##NAME\(", source)) == set(RIVALS)
    assert set(re.findall(r"^RIVALS\(\w+, (\w+)\)$", source, re.MULTILINE)) == {
        "float32",
        "float16",
        "bfloat16",
    }
    defined = {name for name, value in vars(cccl).items() if inspect.isfunction(value)}
    assert {name for name in defined if name.startswith(("thrust_", "cub_"))} == set(RIVALS)


MODELS = SCRIPT.with_name("models.py")


@pytest.mark.parametrize(
    ("kernel_name", "named"),
    [("transpose", ()), ("permute", ("axes",)), ("rope", ("style",)), ("reduce_axis", ("op", "over"))],
)
def test_what_torch_does_for_models_is_what_their_kernels_do(
    kernel_name: str, named: tuple[str, ...]
) -> None:
    torch = pytest.importorskip("torch")
    load_function("transpose_eager", MODELS)
    module, kernel, rng = sys.modules["baseline_models"], load_kernel(kernel_name), np.random.default_rng(0)
    for chosen in itertools.product(*(kernel.options[name] for name in named)):
        sizes = {size: 3 + i for i, size in enumerate(kernel.sizes)}
        problem = kernel.problem(sizes, {"": "float32"}, dict(zip(named, chosen, strict=True)))
        names = kernel.environment(problem, GPU)
        inputs = {
            tensor.name: rng.standard_normal([int(dim.evaluate(names)) for dim in tensor.shape])
            for tensor in kernel.present(problem).values()
            if tensor.role == "input"
        }
        function = getattr(module, "_".join([kernel_name, *map(str, chosen), "eager"]))
        found = function(**{name: torch.from_numpy(array) for name, array in inputs.items()})
        results = found if isinstance(found, tuple) else (found,)
        for made, right in zip(results, numpy_of(kernel, problem).values(), strict=True):
            np.testing.assert_allclose(made.numpy(), right.evaluate({**problem.sizes, **inputs})[0])
