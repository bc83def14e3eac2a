"""What only a GPU can show of the language: absent tensors, memory that stays zero, verdicts on expressions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.core.errors import DeviceError
from tuner.core.model import Configuration, Status, Trial
from tuner.devices.local import LocalDevice
from tuner.kernel.load import read_kernel
from tuner.kernel.spec import KernelSpec

TOML = """\
[kernel]
name = "map"

[problem]
sizes = { n = 1048579 }
dtypes = { input = ["float32", "float16"], output = "input" }
options = { op = { expression = "x + 0.5 * (20 - x)", of = ["x", "y", "z"] } }

[tensors]
x = { shape = ["n"], dtype = "input", when = "uses(op, 'x')" }
y = { shape = ["n"], dtype = "input", when = "uses(op, 'y')" }
z = { shape = ["n"], dtype = "input", when = "uses(op, 'z')" }
out = { shape = ["n"], dtype = "output", role = "output" }

[reference]
numpy = "op"
reduction = "max(operations(op), 1)"

[reference.cuda]
template = "reference.cu.j2"
entry = "reference"
arguments = ["x", "y", "z", "out", "out_magnitude", { value = "n", dtype = "int64" }]
grid = ["ceil_div(n, 256)"]
block = ["256"]

[work]
flops = "operations(op) * n"
bytes = "2 * n * itemsize(input)"

[variants.map]
scratch.ticket = { shape = ["1"], dtype = "uint32", zeroed = "once" }

[variants.map.parameters]
fault = { values = ["none", "forgets_the_ticket", "half", "off", "null"] }

[[variants.map.launches]]
template = "map.cu.j2"
entry = "map"
arguments = ["x", "y", "z", "out", "ticket", { value = "n", dtype = "int64" }]
grid = ["ceil_div(n, 256)"]
block = ["256"]
"""

SOURCE = """\
{% include "common/types.cuh.j2" %}
using T = {{ input | c_type }};

extern "C" __global__ void map(const T* xs, const T* ys, const T* zs, T* out, unsigned int* ticket, long long n) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
{% for name in ["x", "y", "z"] %}
{% if op | uses(name) %}
    const float {{ name }} = i < n ? to_float({{ name }}s[i]) : 0.0f;
{% else %}
    if ({{ name }}s != nullptr) __trap();
{% endif %}
{% endfor %}
    float value = i < n ? {{ op | cuda }} : 0.0f;
{% if fault == "half" %}
    value = to_float(from_float<half_t>(value));
{% elif fault == "off" %}
    value *= 1.0001f;
{% elif fault == "null" %}
    if (i == 7) value = to_float(zs[0]);
{% endif %}
{% if fault == "forgets_the_ticket" %}
    {# Right in the first run, and in all others nothing is left to do: the outputs are still those of the first. #}
    if (*reinterpret_cast<volatile unsigned int*>(ticket) >= gridDim.x) return;
{% endif %}
    if (i < n) out[i] = from_float<T>(value);
    __syncthreads();
    if (threadIdx.x == 0 && atomicAdd(ticket, 1u) == gridDim.x - 1) {
        {{ "" if fault == "forgets_the_ticket" else "*ticket = 0;" }}
    }
}
"""

REFERENCE = """\
{% include "common/types.cuh.j2" %}
using T = {{ input | c_type }};

extern "C" __global__ void reference(const T* xs, const T* ys, const T* zs, double* out, float* size, long long n) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i >= n) return;
{% for name in ["x", "y", "z"] if op | uses(name) %}
    const double {{ name }} = to_double({{ name }}s[i]);
{% endfor %}
    out[i] = {{ op | cuda_double }};
    size[i] = static_cast<float>({{ op | cuda_magnitude }});
}
"""


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    (tmp_path / "map.toml").write_text(TOML)
    (tmp_path / "map.cu.j2").write_text(SOURCE)
    (tmp_path / "reference.cu.j2").write_text(REFERENCE)
    return read_kernel((tmp_path / "map.toml").resolve())


def measured(device: LocalDevice, number: int, fault: str) -> Trial:
    device.submit(number, Configuration.of("map", {"fault": fault}))
    while not (trials := device.collect(1.0)):
        pass
    return trials[0]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    "op",
    [
        "x + 0.5 * (20 - x)",
        "y",
        "x * y + z",
        "maximum(x, 0) - minimum(y, 0.1)",
        "x / (1 + exp(-x))",
        "0.5 * x * (1 + tanh(0.7978846 * (x + 0.044715 * x ** 3)))",
        "where(x * y > 0.1, sqrt(abs(z)), log(abs(x) + 1))",
        "sin(10 * x) * cos(y) ** 5 + abs(z) ** 1.5",
        "1 / (x * y - z)",
        "(x * 100) ** 3",
        "exp(4 * x)",
        "1 / x",
    ],
)
def test_expressions_are_computed_and_verified(
    device: LocalDevice, kernel: KernelSpec, op: str, dtype: str
) -> None:
    """The references agree, a right kernel passes on two sets of inputs, and a wrong one does not."""
    problem = kernel.problem({"n": 1 << 20}, {"": dtype}, {"op": op})
    for seed in (1, 2):
        device.prepare(kernel, problem, seed=seed)
        found = measured(device, 0, "none")
        assert found.status is Status.OK, (found.status, found.error)
        assert measured(device, 1, "off").status is Status.WRONG_RESULT or dtype == "float16"
        if dtype == "float32" and op != "y":
            assert measured(device, 2, "half").status is Status.WRONG_RESULT


def test_memory_that_must_stay_zero_does(device: LocalDevice, kernel: KernelSpec) -> None:
    device.prepare(kernel, kernel.problem(), seed=1)
    assert measured(device, 0, "none").status is Status.OK
    found = measured(device, 1, "forgets_the_ticket")
    assert found.status is Status.WRONG_RESULT
    assert "scratch ticket is not zero after a run" in found.error
    assert measured(device, 2, "none").status is Status.OK


def test_an_absent_tensor_is_null(device: LocalDevice, kernel: KernelSpec) -> None:
    device.prepare(kernel, kernel.problem(), seed=1)
    assert measured(device, 0, "null").status is Status.MEMORY_FAULT
    device.prepare(kernel, kernel.problem(options={"op": "x + y + z"}), seed=1)
    assert measured(device, 1, "null").status is Status.WRONG_RESULT


@pytest.mark.parametrize("n", [1000, 1 << 21])
def test_a_reference_that_is_no_number_is_refused(device: LocalDevice, kernel: KernelSpec, n: int) -> None:
    """By NumPy and by CUDA, before any candidate is blamed for it."""
    for op, said in (("log(x)", "is not a number in"), ("1 / (x * y - x * y)", "rounding alone decides")):
        with pytest.raises(DeviceError, match=said):
            device.prepare(kernel, kernel.problem({"n": n}, options={"op": op}), seed=1)
