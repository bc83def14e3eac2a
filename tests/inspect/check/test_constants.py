"""Variables of a kernel's code that its launches fill, on the CPU; and those that nothing fills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inspect.check.cpu_run import CpuChild, cpu_run
from tests.inspect.check.planted import findings
from tuner.core.errors import KernelError
from tuner.inspect.emulator.building import COMPILER
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import read_kernel

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")
KERNEL = """\
kernel = { name = "smooth" }
problem = { sizes = { n = 300 }, dtypes = { input = "float32" } }
tensors.x = { shape = ["n + 2"], dtype = "input" }
tensors.w = { shape = [3], dtype = "input" }
tensors.y = { shape = ["n"], dtype = "input", role = "output" }
reference = { numpy = "w[0] * x[:n] + w[1] * x[1:n + 1] + w[2] * x[2:]", reduction = 3 }
variants.v.parameters.block_size = { values = [64] }
[[variants.v.launches]]
template = "k.cu"
entry = "smooth"
arguments = ["x", "y", "n"]
grid = ["ceil_div(n, block_size)"]
block = ["block_size"]
"""
FILLED = 'constants = { "weights" = "w" }'
CODE = """\
__constant__ float weights[3];
extern "C" __global__ void smooth(const float* x, float* y, int n) {
    const int i = blockIdx.x * block_size + threadIdx.x;
    if (i < n) y[i] = weights[0] * x[i] + weights[1] * x[i + 1] + weights[2] * x[i + 2];
}
"""
DECLARED = "__constant__ float weights[3];"
OWN = (
    "namespace q { __device__ unsigned count; } __device__ unsigned one, two[2]; "
    "template <int K> __device__ int kept[2];"
)
WRITTEN = "atomicInc(&q::count, 7u); atomicInc(&::one, 7u); atomicInc(&(two[1]), 7u); kept<3>[i & 1] = i;"
"""What nothing fills, because the kernel writes it."""
DOUBLED = """
__constant__ float weights[3];
extern "C" __global__ void first(const float* x, float* y, int n) {
    const int i = blockIdx.x * block_size + threadIdx.x;
    if (i < n) y[i] = weights[0] * x[i];
}
extern "C" __global__ void second(const float* x, float* y, int n) {
    const int i = blockIdx.x * block_size + threadIdx.x;
    if (i < n) y[i] += weights[0] * x[i];
}
"""


def written(folder: Path, code: str = CODE, constants: str = FILLED, text: str = KERNEL) -> Path:
    (folder / "k.cu").write_text(code)
    (folder / "k.toml").write_text(f"{text}{constants}\n")
    return folder / "k.toml"


@pytest.mark.parametrize(
    ("declared", "name"),
    [
        (DECLARED, "weights"),
        ("__constant__ float weights[40];", "weights"),
        ("static __constant__ float weights[3];", "weights"),
        ('extern "C" __constant__ float weights[3];', "weights"),
        ("__device__ float weights[3];", "weights"),
        ("extern __constant__ float weights[3];", "weights"),
        ("extern __constant__ float weights[3];\nextern __constant__ float weights[3];", "weights"),
        ("extern __constant__ float weights[3];\n__constant__ float weights[3];", "weights"),
        ("namespace filters { __constant__ float weights[3]; } using filters::weights;", "filters::weights"),
        (
            "namespace filters { __constant__ float weights[3]; } using filters::weights;",
            "_ZN7filters7weightsE",
        ),
    ],
)
def test_a_variable_holds_the_input_that_its_launch_fills_it_from_also_where_that_is_varied(
    child: CpuChild, tmp_path: Path, declared: str, name: str
) -> None:
    code = CODE.replace(DECLARED, declared)
    answer = cpu_run(child, written(tmp_path, code, FILLED.replace("weights", name)))
    assert not answer.fault and not answer.left_out


def test_launches_fill_a_variable_each_for_itself(child: CpuChild, tmp_path: Path) -> None:
    """Each has the code to itself; integers are filled as their bytes are."""
    text = KERNEL.replace("tensors.y", 'tensors.v = { shape = [3], dtype = "int32" }\ntensors.y')
    text = text.replace('"w[0] * x[:n] + w[1] * x[1:n + 1] + w[2] * x[2:]"', '"(w[0] + v[2]) * x[:n]"')
    launch = text[text.index("[[variants") :]
    first = launch.replace('"smooth"', '"first"') + FILLED + "\n"
    second = launch.replace('"smooth"', '"second"').replace("k.cu", "k2.cu")
    (tmp_path / "k2.cu").write_text(
        DOUBLED.replace("float weights", "int weights").replace("+= weights[0]", "+= weights[2]")
    )
    file = written(tmp_path, DOUBLED, FILLED.replace('"w"', '"v"'), text.replace(launch, first + second))
    answer = cpu_run(child, file)
    assert not answer.fault


def test_a_tensor_that_is_larger_than_its_variable_is_not_copied(child: CpuChild, tmp_path: Path) -> None:
    code = CODE.replace(DECLARED, "__constant__ float weights[2];")
    assert "weights has 8 bytes, and w 12" in cpu_run(child, written(tmp_path, code)).fault


@pytest.mark.parametrize(
    ("constants", "said"),
    [
        (
            'constants.weights = "n"',
            "weights = 'n' is no input; choose from: w, x; of a number make an input",
        ),
        ('constants.weights = "y"', "weights = 'y' is no input"),
        ('constants."weights[0]" = "w"', "'weights[0]' is no variable"),
        ("constants.weights = 3", "weights = 3 is not text"),
    ],
)
def test_what_fills_nothing_is_refused_with_the_file(tmp_path: Path, constants: str, said: str) -> None:
    with pytest.raises(KernelError) as caught:
        read_kernel(written(tmp_path, constants=constants))
    assert f"launches[0]: constants: {said}" in str(caught.value)


@pytest.mark.parametrize(
    ("code", "constants", "found"),
    [
        (CODE.replace(DECLARED, "extern __constant__ float weights[];"), FILLED,
         "a kernel is compiled by itself; include the file that defines it"),
        (CODE, "", 'nothing fills the __constant__ weights, which smooth reads; add constants.weights = "TENSOR"'),
        (CODE.replace("    if", "#if block_size > 64\n    y[i] = x[i];\n#else\n    if").replace(";\n}", ";\n#endif\n}"),
         "", "nothing fills the __constant__ weights, which smooth reads; add constants.weights"),
        (CODE.replace("__constant__", "__device__"), "",
         "nothing fills the __device__ weights, which smooth reads; add constants.weights"),
        (CODE.replace(DECLARED, f"{DECLARED} __device__ int last[2];").replace("if (i", "last[i & 1] = i; if (i"),
         FILLED, ""),
        (CODE.replace(DECLARED, f"{DECLARED} {OWN}").replace("if (i", f"{WRITTEN} if (i"), FILLED, ""),
        (f"template <bool LAST> struct Tile {{ static constexpr bool LAST_ = LAST; }};\n"
         f"{CODE.replace('if (i < n)', 'if (i < n && !Tile<false>::LAST_)')}", FILLED, ""),
        (CODE.replace("float weights", "int weights"), FILLED,
         "constants.weights: the variable is of int32, and w of float32; give it such a tensor"),
        (CODE.replace(DECLARED, "__constant__ float* weights;"), "",
         "reads; nothing can fill a pointer: pass the array as an argument"),
        (CODE, 'constants.wieghts = "w"', "constants.wieghts: the code has no such __constant__"),
        (CODE.replace("[3];", "[2];", 1), FILLED, "constants.weights: the variable has 8 bytes, and the tensor 12"),
        (f'{CODE}__constant__ int more[2];\nextern "C" __global__ void other(int* x) {{ x[0] = more[1]; }}\n',
         FILLED, ""),
    ],
)  # fmt: skip
def test_variables_that_are_not_filled_and_those_that_cannot_be_are_found(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, code: str, constants: str, found: str
) -> None:
    file = written(tmp_path, code, constants)
    status, lines = findings(capsys, str(file), "--cc", "90", "--no-cpu", "--configurations", "1")
    said = [line for line in lines if "is passed to no launch" not in line]
    assert (status, len(said)) == ((1, 1) if found else (0, 0))
    assert all(found in line for line in said)


def test_what_fills_a_variable_is_part_of_a_kernels_code(tmp_path: Path) -> None:
    one, other = (KernelIdentity(read_kernel(written(tmp_path, constants=text))) for text in (FILLED, ""))
    assert one.computation == other.computation and one.code != other.code
