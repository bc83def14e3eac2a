"""Arguments that C calls as expressions, files or Python call something else."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuner
from tests.api.conftest import Tune
from tuner.api import folder
from tuner.core.errors import UsageError
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import load_kernel

N = 4096
X = np.linspace(-1.0, 1.0, N, dtype=np.float32)


def called(pointer: str, output: str, size: str, number: str) -> dict[str, Any]:
    """Return a call of a kernel with parameters of these names."""
    source = f"""__global__ void scale(const float *{pointer}, float *{output}, int {size}, float {number}) {{
        const int i_ = blockIdx.x * BLOCK + threadIdx.x;
        if (i_ < {size}) {output}[i_] = {number} * {pointer}[i_];
    }}"""
    return {
        "kernel": source,
        "args": {pointer: X, output: np.zeros_like(X), size: N, number: 3.0},
        "params": {"BLOCK": [64, 128]},
        "grid": f"ceil_div({size}, BLOCK)",
        "block": "BLOCK",
        "where": "BLOCK in (64, 128)",
        "outputs": [output],
        "reference": f"{number} * {pointer}",
    }


@pytest.mark.parametrize(
    "names",
    [
        ("in", "out", "n", "by"),
        ("input", "output", "data", "element"),
        ("kernel_dtype", "data", "input", "element"),
        ("min", "max", "cc", "registers"),
        ("lambda", "np", "Path", "stream"),
        ("is", "problem", "sizes", "out"),
        ("in_", "in", "min", "min_"),
        ("e", "pi", "sum", "T"),
        ("a" * 70, "b" * 70, "def", "self"),
    ],
    ids=lambda names: f"{names[0][:6]}-{names[2]}",
)
def test_any_argument_may_be_called_anything(names: tuple[str, str, str, str], tmp_path: Path) -> None:
    call = called(*names)
    file = tuner.Kernel(**call).save(tmp_path / "scale.toml")
    spec = load_kernel(str(file))
    assert [len(spec.tensors), list(spec.problem().sizes.values()), len(spec.scalars)] == [2, [N], 1]
    (role,) = tomllib.loads(file.read_text())["problem"]["dtypes"]
    assert role not in {*spec.tensors, *spec.sizes, *spec.scalars}


def test_functions_may_use_the_names_of_c(tune: Tune) -> None:
    call = called("is", "in", "min", "cc")
    call["grid"] = lambda min, BLOCK: -(-min // BLOCK)
    for reference in (lambda is_, cc: {"in": cc * is_}, lambda cc_, is_, min: is_[:min] * cc_):
        result = tune(**{**call, "reference": reference, "trials": 1})
        assert result.confirmed and result.run.problem.sizes == {"min_": N}


def test_saving_overwrites_no_file_of_the_users(tmp_path: Path) -> None:
    kernel = tuner.Kernel(
        "__global__ void twice(float* y, int n) { int i = blockIdx.x * B + threadIdx.x; if (i < n) y[i] *= 2; }",
        [np.ones(64, np.float32), 64],
        {"B": [32, 64]},
        grid="ceil_div(n, B)",
        block="B",
    )
    own = tmp_path / "mine" / "twice.cu"
    own.parent.mkdir()
    own.write_text("// mine")
    with pytest.raises(UsageError, match="is another file"):
        kernel.save(own.with_suffix(".toml"))
    assert own.read_text() == "// mine" and [*own.parent.iterdir()] == [own]
    assert kernel.save(tmp_path / "new" / "twice.toml") == kernel.save(tmp_path / "new" / "twice.toml")


def test_what_is_saved_is_the_file_and_what_it_needs(tmp_path: Path) -> None:
    """Of a folder with other kernels and files; of a built-in kernel the file alone."""
    saved = tuner.Kernel("vector_add").save(tmp_path / "saved" / "add.toml")
    assert [*saved.parent.iterdir()] == [saved] and load_kernel(str(saved)).name == "vector_add"
    files = {
        "twice.toml": """kernel = { name = "twice", summary = "doubles" }
problem = { sizes = { n = 64 }, dtypes = { input = "float32" } }
tensors.x = { shape = ["n"], dtype = "input", init = "values.py:x" }
tensors.y = { shape = ["n"], dtype = "input", role = "output" }
reference.python = "checks/own.py:twice"
compile.include = ["include"]
variants.main.parameters.BLOCK = { values = [32, 64] }
[[variants.main.launches]]
template = "src/twice.cu"
entry = "twice"
arguments = ["x", "y", "n"]
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
""",
        "src/twice.cu": """#include "by.cuh"
#include "factor.h"
__global__ void twice(const float* x, float* y, int n) {}
""",
        "src/by.cuh": '#include "deep/er.cuh"\n',
        "src/deep/er.cuh": "// needed",
        "src/other.cu": "// not needed",
        "include/factor.h": "// needed",
        "values.py": "import numpy as np\nfrom pathlib import Path\n\n\ndef x(n):\n"
        "    return np.resize(np.load(Path(__file__).with_name('x.npy')), n)\n",
        "checks/own.py": "import helper\n\n\ndef twice(x):\n    return helper.twice(x)\n",
        "checks/helper.py": "def twice(x):\n    return 2 * x\n",
        "checks/another.py": "not needed",
        "notes.txt": "not needed",
        "other.toml": "not needed",
    }
    for name, text in files.items():
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / name).write_text(text)
    np.save(tmp_path / "mine" / "x.npy", X[:64])
    saved = tuner.Kernel(tmp_path / "mine" / "twice.toml").save(tmp_path / "new" / "two.toml")
    inside = {str(path.relative_to(saved.parent)) for path in saved.parent.rglob("*") if path.is_file()}
    needed = {name for name, text in files.items() if "not needed" not in text} - {"twice.toml"}
    assert inside == {*needed, "two.toml", "x.npy"}
    assert load_kernel(str(saved)).digest == load_kernel(str(tmp_path / "mine" / "twice.toml")).digest
    (tmp_path / "mine" / "src" / "by.cuh").write_text('#include "../../outside.cuh"')
    (tmp_path / "outside.cuh").write_text("")
    with pytest.raises(UsageError, match=r"twice\.toml needs .*outside\.cuh, outside of its folder"):
        tuner.Kernel(tmp_path / "mine" / "twice.toml").save(tmp_path / "third" / "two.toml")
    assert not (tmp_path / "third").exists()


def test_two_kernels_are_saved_into_one_folder(tmp_path: Path) -> None:
    """Each with its values, at any size; and again, where nothing has changed."""
    files, kernels = [], []
    for number, name in enumerate(("once", "twice"), 1):
        kernels.append(
            tuner.Kernel(
                f"__global__ void {name}(const float* x, float* y, int n) {{ y[blockIdx.x * B + threadIdx.x] = *x; }}",
                [np.arange(64, dtype=np.float32) * number, np.ones(64, np.float32), 64],
                {"B": [32, 64]},
                grid="ceil_div(n, B)",
                block="B",
                reference=lambda x: x[0] + 0 * x,
            )
        )
        files += [kernels[-1].save(tmp_path / f"{name}.toml") for _ in range(2)]
    values = [load_kernel(str(file)).tensors["x"].file for file in (files[0], files[2])]
    assert [path.relative_to(tmp_path) for path in values if path] == [
        Path("inputs.py"),
        Path("twice/inputs.py"),
    ]
    for file, kernel in zip((files[0], files[2]), kernels, strict=True):
        with folder.written(kernel._described) as described:  # type: ignore[arg-type]
            assert KernelIdentity(load_kernel(str(file))).computation == KernelIdentity(described).computation
