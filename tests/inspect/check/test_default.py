"""Kernels whose results are compared with those of their default configuration, on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inspect.check.cpu_run import GPU, CpuChild, cpu_run
from tests.inspect.check.planted import findings
from tuner.core.errors import KernelError
from tuner.core.model import Configuration
from tuner.inspect.check.host_worker import HostResult
from tuner.inspect.emulator.building import COMPILER
from tuner.kernel.load import read_kernel
from tuner.kernel.reference import settle_reference

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")
KERNEL = """\
kernel = { name = "total" }
problem = { sizes = { n = 3000 }, dtypes = { input = "float32" } }
tensors.x = { shape = ["n"], dtype = "input" }
tensors.count = { shape = [1], dtype = "int32", role = "output" }
tensors.y = { shape = [1], dtype = "input", role = "output" }
reference = "default"
variants.v.parameters.block_size = { values = [64, 128, 256] }
variants.v.parameters.missing = { values = [0, 1] }
variants.v.constraints."a block is not larger than the problem" = "block_size <= n"
[[variants.v.launches]]
template = "k.cu"
entry = "total"
arguments = ["x", "count", "y", "n"]
grid = [1]
block = ["block_size"]
"""
CODE = """\
extern "C" __global__ void total(const float* x, int* count, float* y, int n) {
    __shared__ float parts[block_size];
    float sum = 0;
    for (int i = threadIdx.x; i < n - missing; i += block_size) sum += x[i];
    parts[threadIdx.x] = sum;
    __syncthreads();
    for (int s = block_size / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) parts[threadIdx.x] += parts[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[0] = parts[0], count[0] = n;
}
"""


def written(folder: Path, code: str = CODE, reference: str = 'reference = "default"') -> Path:
    (folder / "k.cu").write_text(code)
    (folder / "k.toml").write_text(KERNEL.replace('reference = "default"', reference))
    return folder / "k.toml"


def result(child: CpuChild, file: Path, size: int = 3000, **values: int) -> HostResult:
    configuration = Configuration.of("v", {"block_size": 64, "missing": 0, **values})
    return cpu_run(child, file, read_kernel(file).problem({"n": size}), configuration)


def test_another_order_of_summing_up_is_right_with_all_contents_and_another_sum_is_not(
    child: CpuChild, tmp_path: Path
) -> None:
    file = written(tmp_path)
    right = result(child, file, block_size=256)
    assert right == HostResult()
    assert result(child, file, block_size=128, missing=1).fault.startswith("y[0] is ")


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        (
            "y[0] = parts[0], count",
            "count",
            r"the default configuration leaves NaN in 1 of 1 elements of y ([0])",
        ),
        (
            "y[0] = parts[0]",
            "y[0] = sqrtf(-1.0f)",
            r"the default configuration computes NaN in 1 of 1 elements of y ([0])",
        ),
        ("y[0] = parts[0]", "y[1] = parts[0]", "a write"),
    ],
)
def test_a_default_that_is_wrong_itself_is_no_reference(
    child: CpuChild, tmp_path: Path, was: str, now: str, said: str
) -> None:
    assert said in result(child, written(tmp_path, CODE.replace(was, now)), block_size=128).fault


OWN = """
[reference.cuda]
template = "naive.cu"
entry = "naive"
arguments = ["x", "count", "y", "n"]
grid = [1]
block = [1]
"""
NAIVE = """
extern "C" __global__ void naive(const float* x, int* count, float* y, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    *y = sum, *count = n;
    static_assert(block_size == 64, "parameters have their defaults");
}
"""


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("", "", ""),
        ("*count = n", "*count = n + 1", "count[0] is 3000, expected 3001"),
        ("i < n", "i < n - 9", "y[0] is "),
        ("*y = sum, ", "", "the CUDA reference leaves NaN in 1 of 1 elements of y ([0])"),
    ],
)
def test_a_naive_kernel_of_the_same_signature_is_the_reference(
    child: CpuChild, tmp_path: Path, was: str, now: str, said: str
) -> None:
    file = own_kernel(tmp_path, NAIVE.replace(was, now))
    answer = result(child, file, block_size=256)
    assert answer.fault.startswith(said) if said else answer == HostResult()


MAGNITUDES = """reference.numpy = { y = "zeros(1) + sum(x)", count = "zeros(1) + n" }
reference.reduction = "1"
reference.cuda.template = "naive.cu"
reference.cuda.entry = "naive"
reference.cuda.arguments = ["x", "count", "count_magnitude", "y", "y_magnitude", "n"]
reference.cuda.grid = [1]
reference.cuda.block = [1]
"""
WITH_MAGNITUDE = """
extern "C" __global__ void naive(const float* x, double* count, float* exact, double* y, float* size, int n) {
    double sum = 0, all = 0;
    for (int i = 0; i < n; i++) sum += x[i], all += fabs(x[i]);
    *y = sum, *size = FACTOR * all, *count = n, *exact = 0;
}
"""


@pytest.mark.parametrize(("factor", "right"), [(100, True), (1, False)])
def test_magnitudes_of_a_cuda_reference_count(
    child: CpuChild, tmp_path: Path, factor: int, right: bool
) -> None:
    """Of numbers of one sign, where nothing cancels, a sum that is off by 33 units of rounding shows."""
    code = CODE.replace("y[0] = parts[0]", "y[0] = parts[0] * 1.000002f")
    file = written(tmp_path, code, MAGNITUDES)
    (tmp_path / "naive.cu").write_text(WITH_MAGNITUDE.replace("FACTOR", str(factor)))
    fault = result(child, file).fault
    assert not fault if right else "y[0] is " in fault


def own_kernel(folder: Path, naive: str = NAIVE) -> Path:
    """Return a kernel's file whose reference is a naive kernel that writes float and int, and no magnitude."""
    file = written(folder, reference="")
    (folder / "naive.cu").write_text(naive)
    file.write_text(file.read_text() + OWN)
    return file


def test_check_compiles_a_naive_kernel_and_finds_one_that_writes_doubles(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = str(own_kernel(tmp_path)), "--cc", "90", "--configurations", "1", "--no-cpu"
    assert findings(capsys, *arguments) == (0, [])
    (tmp_path / "naive.cu").write_text(NAIVE.replace("float* y", "double* y"))
    status, lines = findings(capsys, *arguments)
    assert status == 1 and any("argument 3 of naive is" in line for line in lines), lines


def test_where_the_default_is_not_valid_nothing_says_what_is_right(child: CpuChild, tmp_path: Path) -> None:
    answer = result(child, written(tmp_path), 32, block_size=128)
    assert answer == HostResult(undecided="no default configuration is valid")


def test_check_says_what_results_were_compared_with(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, lines = findings(capsys, str(written(tmp_path)), "--cc", "90", "--configurations", "0")
    assert (status, lines) == (0, [])


def test_the_bounds_are_wider_than_those_of_a_reference_and_the_file_may_set_them(tmp_path: Path) -> None:
    def allowed(reference: str) -> float:
        kernel = read_kernel(written(tmp_path, reference=reference))
        return settle_reference(kernel, kernel.problem(), GPU).tolerance_of("float32").coefficient

    numpy = "reference.numpy = { y = 'sum(x)', count = 'n' }"
    own, one = allowed("reference = 'default'"), allowed(numpy)
    assert own > 100 * one
    kernel = read_kernel(own_kernel(tmp_path))
    assert settle_reference(kernel, kernel.problem(), GPU).tolerance_of("float32").coefficient == own
    assert allowed("reference = { default = true, reduction = 1 }") == pytest.approx(2 * one)
    assert allowed("reference = { default = true, tolerance = 3 }") == pytest.approx(3 * own)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("reference = 'best'", "reference = 'best' is no table; choose from: default"),
        ("reference = { default = true, numpy = { y = 'sum(x)' } }", "beside another reference"),
        ("reference = { default = 1 }", "default = 1 is not true or false"),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, reference: str, said: str) -> None:
    with pytest.raises(KernelError) as caught:
        read_kernel(written(tmp_path, reference=reference))
    assert said in str(caught.value)
