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

from tuner.kernel.functions import load_function

MODEL, MODEL_NEW = "Model", "ModelNew"
FILE = "reference_module.py"
"""The file with ``Model``, beside the task's own functions."""
SEED = 0


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
def _on_host(file: Path) -> Any:
    return build(MODEL, file, file).double()


def expected(file: Path, *arrays: Any) -> Any:
    """Return what ``Model`` gives for arrays, in float64 on the CPU: an array, or several."""
    torch = importlib.import_module("torch")
    with torch.no_grad():
        # It may write to its inputs.
        value = _on_host(file)(*(torch.from_numpy(array.copy()) for array in arrays))
    if isinstance(value, list | tuple):
        return tuple(one.numpy() for one in value)
    return value.numpy()


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
