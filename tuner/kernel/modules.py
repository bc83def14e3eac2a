"""torch modules as tasks and candidates: a file with ``Model``, ``get_init_inputs`` and ``get_inputs``, as KernelBench
has them, and one with ``ModelNew``.

Both are built from the same initial inputs after the same seed; ``ModelNew`` gets the weights of ``Model`` whose names
and shapes are its own.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tuner.kernel.contents import Array
from tuner.kernel.functions import load_function

MODEL, MODEL_NEW = "Model", "ModelNew"
FILE = "reference_module.py"
"""The file with ``Model``, beside the task's own functions."""
SEED = 0
UNIT = 2.0**-24
"""Unit roundoff of float32."""
PROBES = 4
REDUCTION, TOLERANCE = 64, 4
"""Of a module's reference: an element may be off by 300 UNIT of its magnitude, all of them in their norm by 88. torch's
float32 on a CPU took at most a twentieth of that with 16 modules and five contents; tf32 was beyond it, 9 times or
more in products."""


def inputs_of(file: Path) -> list[Any]:
    """Return what a module's file gives as inputs, on the CPU."""
    torch = importlib.import_module("torch")
    torch.manual_seed(SEED)
    return list(load_function("get_inputs", file)())


def build(name: str, file: Path, model_file: Path) -> Any:
    """Return a module on the CPU.

    Args:
        name: of its class.
        file: that has the class.
        model_file: has ``Model``, whose initial inputs and weights it gets.
    """
    torch = importlib.import_module("torch")
    initial = load_function("get_init_inputs", model_file)()
    torch.manual_seed(SEED)
    module = load_function(name, file)(*initial)
    if name != MODEL:
        weights, own = build(MODEL, model_file, model_file).state_dict(), module.state_dict()
        same = {key: value for key, value in weights.items() if key in own and value.shape == own[key].shape}
        module.load_state_dict(same, strict=False)
    return module


@functools.lru_cache(maxsize=4)
def _on_host(file: Path, dtype: str) -> Any:
    return build(MODEL, file, file).to(getattr(importlib.import_module("torch"), dtype))


def expected(file: Path, *arrays: Array) -> dict[str, Array | tuple[Array, Array]]:
    """Return what ``Model`` gives for arrays, in float64 on the CPU, by the names of its outputs.

    A number comes with its magnitude, of which rounding errors are a share: how it responds to errors of inputs and
    weights (also of one sign where each input is of one number, as the rounding errors of a sum of equal terms are),
    and how far torch's own float32 is off, there and in the mean. A layer that cancels what the layer before has
    rounded is not exact, although inputs say so: a GELU of -4, or a mean taken off. Integers on which float32 and
    float64 agree have none: they are exact.
    """
    torch = importlib.import_module("torch")
    wide, narrow, random = _on_host(file, "float64"), _on_host(file, "float32"), np.random.default_rng(0)
    weights = {name: one.numpy() for name, one in wide.state_dict().items()}

    def run(module: Any, dtype: str, *signs: float) -> list[Array]:
        def tensor(array: Array) -> Any:
            if array.dtype.kind == "f":
                errors = UNIT * random.choice(signs, array.shape) if signs else 0.0
                array = (array * (1.0 + errors)).astype(dtype)
            return torch.from_numpy(np.array(array))  # the module may write to it

        state = {name: tensor(one) for name, one in weights.items()}
        with torch.no_grad():
            value = torch.func.functional_call(module, state, tuple(map(tensor, arrays)))
        several = value if isinstance(value, list | tuple) else [value]
        return [np.atleast_1d(one.numpy()) for one in several]  # a loss has no dimension, and a tensor one

    values, rounded = run(wide, "float64"), run(narrow, "float32")
    responses = [run(wide, "float64", -1.0, 1.0) for _ in range(PROBES)]
    equal = all(array.size and array.min() == array.max() for array in arrays)
    of_one_sign = run(wide, "float64", 1.0) if equal else values
    outputs: dict[str, Array | tuple[Array, Array]] = {}
    for number, value in enumerate(values):
        outputs[f"y{number}"] = value
        if value.dtype.kind == "f":
            error = np.abs(rounded[number] - value)
            response = np.sqrt(np.mean([(one[number] - value) ** 2 for one in responses], axis=0))
            response = np.maximum(response, np.abs(of_one_sign[number] - value))
            outputs[f"y{number}"] = value, (response + error + np.sqrt(np.mean(error**2))) / UNIT
        elif np.array_equal(value, rounded[number]):
            outputs[f"y{number}"] = value, np.zeros(value.shape)
    return outputs


def on_gpu(name: str, file: Path, model_file: Path) -> Callable[..., Any]:
    """Return a module's call on tensors of the GPU; what it returns is contiguous."""
    torch = importlib.import_module("torch")
    module = build(name, file, model_file).cuda()

    def call(*tensors: Any) -> Any:
        with torch.no_grad():
            value = module(*tensors)
        if isinstance(value, list | tuple):
            return tuple(one.contiguous() for one in value)
        return value.contiguous()

    return call
