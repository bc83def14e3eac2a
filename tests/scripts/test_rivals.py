"""scripts/rivals: which functions there are, how tensors reach them, how the library is found; it is not built here."""

from __future__ import annotations

import inspect
import itertools
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tuner.gpu.arrays import DeviceArray, TensorView
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


def test_a_call_goes_to_the_function_of_its_dtype(cccl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[str, list[Any]]] = []

    class Library:
        def __getattr__(self, name: str) -> Any:
            if "int8" in name:
                raise AttributeError(name)
            return lambda *arguments: given.append((name, [argument.value for argument in arguments])) or 0

    monkeypatch.setattr(cccl, "_library", Library)
    array = DeviceArray(TensorView(4096, (8,), "float16"))
    torch_like = SimpleNamespace(dtype="torch.bfloat16", data_ptr=lambda: 512)
    cupy_like = SimpleNamespace(dtype=SimpleNamespace(name="float32"), data=SimpleNamespace(ptr=256))
    cccl.cub_sum(array, array, 8, 77)
    cccl.thrust_saxpy(2.5, torch_like, torch_like, 8, 77)
    cccl.cub_transform(cupy_like, cupy_like, 8, 77)
    assert given == [
        ("cub_sum_float16", [4096, 4096, 8, 77]),
        ("thrust_saxpy_bfloat16", [2.5, 512, 512, 8, 77]),
        ("cub_transform_float32", [256, 256, 8, 77]),
    ]
    with pytest.raises(cccl.RivalError, match="cub_sum is not built for int8"):
        cccl.cub_sum(DeviceArray(TensorView(4096, (8,), "int8")), array, 8, 77)


def test_an_error_has_its_name(cccl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    library = SimpleNamespace(
        cub_sum_float16=lambda *_: 2, error_name=lambda error: b"cudaErrorMemoryAllocation"
    )
    monkeypatch.setattr(cccl, "_library", lambda: library)
    array = DeviceArray(TensorView(4096, (8,), "float16"))
    with pytest.raises(cccl.RivalError, match="cub_sum: cudaErrorMemoryAllocation"):
        cccl.cub_sum(array, array, 8, 77)


def test_the_library_is_built_once(tmp_path: Path, cccl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = tmp_path / "nvcc"
    nvcc.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho built > "$2"\n')
    nvcc.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    path = cccl.build(tmp_path / "kept", 90)
    assert path.read_text() == "built\n" and path.name.endswith("-90.so")
    nvcc.unlink()
    assert cccl.build(tmp_path / "kept", 90) == path


def test_without_nvcc_it_says_so_in_one_line(
    tmp_path: Path, cccl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cccl.shutil, "which", lambda *_, **__: None)
    with pytest.raises(cccl.RivalError, match="need nvcc") as caught:
        cccl.find_nvcc()
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho 'cccl.cu(1): error: no such thing' >&2\nexit 1\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(
        cccl.RivalError, match=r"^nvcc cannot compile cccl.cu: cccl.cu\(1\): error: no such thing$"
    ):
        cccl.build(tmp_path / "there", 90)
    assert not list((tmp_path / "there").iterdir())


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
