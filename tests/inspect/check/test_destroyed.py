"""An input that the kernel destroys: restored before each run, compared with nothing; to callers it is an inout."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import said_by
from tuner.core.errors import KernelError
from tuner.inspect.emulator.building import COMPILER
from tuner.kernel.load import read_kernel
from tuner.kernel.plan import tensors_of
from tuner.kernel.roofline import ARCHITECTURES
from tuner.winners.records import computation_of

KERNEL = """\
kernel = { name = "total" }
problem = { sizes = { n = 3000 }, dtypes = { input = "float32" } }
tensors.x = { shape = ["n"], dtype = "input", role = "destroyed" }
tensors.y = { shape = [1], dtype = "input", role = "output" }
variants.v.parameters.block_size = { values = [128, 64] }
@REFERENCE@
[[variants.v.launches]]
template = "k.cu"
entry = "total"
arguments = ["x", "y", "n"]
grid = [1]
block = ["block_size"]
"""
ON_HOST = 'reference = { numpy = "reshape(sum(x), (1,))", reduction = "n" }'
ON_GPU = """
[reference]
reduction = "n"
[reference.cuda]
template = "naive.cu"
entry = "naive"
arguments = ["x", "y", "y_magnitude", "n"]
grid = [1]
block = [1]
"""
CODE = """\
extern "C" __global__ void total(float* x, float* y, int n) {
    for (int left = n; left > 1; left = (left + 1) / 2) {
        for (int i = threadIdx.x; i < left / 2; i += block_size) x[i] += x[i + (left + 1) / 2];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[0] = x[0];
}
"""
NAIVE = """\
extern "C" __global__ void naive(float* x, double* y, float* magnitude, int n) {
    double sum = 0, size = 0;
    for (int i = 0; i < n; ++i) sum += x[i], size += fabs(x[i]), x[i] = 0;
    y[0] = sum;
    magnitude[0] = size;
}
"""


def written(folder: Path, text: str = KERNEL, reference: str = ON_HOST) -> Path:
    (folder / "k.cu").write_text(CODE)
    (folder / "naive.cu").write_text(NAIVE)
    path = folder / "k.toml"
    path.write_text(text.replace("@REFERENCE@", reference))
    return path


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize("reference", [ON_HOST, ON_GPU])
def test_it_may_be_written_to(reference: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check = ("check", str(written(tmp_path, reference=reference)), "--configurations", "1", "-j", "1")
    said = said_by(capsys, *check, "--cc", "90")
    assert said.code == 0, said
    if reference == ON_HOST:
        written(tmp_path, KERNEL.replace("destroyed", "input"))
        said = said_by(capsys, *check, "--cc", "90")
        assert said.code == 1 and "the input x is written to" in said.out


def test_to_callers_it_is_an_inout(tmp_path: Path) -> None:
    kernel = read_kernel(written(tmp_path))
    entries = computation_of(kernel, kernel.problem()).tensors
    assert [entry.role for entry in entries] == ["inout", "output"]
    assert [one.role for one in tensors_of(kernel, kernel.problem(), ARCHITECTURES[90])] == [
        "destroyed",
        "output",
    ]
    names = {"n": 1000, "input": "float32"}
    assert kernel.work.bytes.number(names) == 4 * 1000 + 4


def test_it_is_no_output(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=r"no tensor has role output or inout"):
        read_kernel(written(tmp_path, KERNEL.replace('"output"', '"input"'), 'reference = "default"'))
    with pytest.raises(KernelError, match=r"numpy\.x is not an output"):
        read_kernel(written(tmp_path, reference='reference = { numpy = { x = "x" } }'))
