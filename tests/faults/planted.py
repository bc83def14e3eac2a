"""A kernel of a user's own, y = 2 x, with faults that cost the context, hang, ask for too much memory, or come late.

``fault`` chooses the fault, and ``copy`` makes each source another one: equal sources are measured once.
"""

from __future__ import annotations

from pathlib import Path

from tests.gpu.test_faults import REFERENCE
from tuner.core.model import Configuration, Status
from tuner.kernel.load import read_kernel
from tuner.kernel.spec import KernelSpec

RUINED = (Status.MEMORY_FAULT,)
WRONG = (Status.WRONG_AFTER_TIMING, Status.WRONG_RESULT)

FATAL = {
    "read_far_away": "value += x[i + (1ll << 42)];",
    "write_far_away": "y[i + (1ll << 42)] = value;",
    "read_null": "value += *reinterpret_cast<const volatile float*>(n - i - 1);",
    "write_null": "*reinterpret_cast<volatile float*>(n - i - 1) = value;",
    "misaligned_read": "value += *reinterpret_cast<const float*>(reinterpret_cast<const char*>(x) + 2);",
    "misaligned_write": "*reinterpret_cast<float*>(reinterpret_cast<char*>(y) + 2) = value;",
    "shared_far_away": "shared[static_cast<int>(n) << 4] = value; value += shared[threadIdx.x % 32];",
    "trap": "__trap();",
    "assertion": "assert(value != value);",
    "no_code_there": "reinterpret_cast<void (*)(float*)>(n << 20)(y);",
    "stack_overflow": "value += deep(value, static_cast<int>(n));",
}
"""What one thread does; each of them costs the process its context."""

FROM = (1, 2, 3, 5, 7, 9, 11)
"""Launches after which a kernel is wrong in one element; a candidate gets 12 samples at least."""
LATE = {
    **{f"wrong_from_{first}": f"if (launch >= {first} && i == n / 3) value += 1.0f;" for first in FROM},
    "wrong_last_element": "if (launch && i == n - 1) value += 1.0f;",
    "wrong_everywhere": "if (launch) value = -value;",
    "slightly_off": "if (launch) value *= 1.0f + 3e-6f;",
    "not_a_number": "if (launch && i == 7) value = __int_as_float(0x7fffffff);",
    "neighbours_value": "if (launch && i > 0) value = 2.0f * x[i - 1];",
    "writes_nothing": "if (launch) continue;",
    "every_other_block": "if (launch && blockIdx.x % 2) continue;",
    "adds_up": "if (y[i] == y[i]) value += y[i];",
    "wrong_over_a_result": "if (i == n / 2 && y[i] == y[i]) value += 1.0f;",
    "wrong_after_a_while": "if (late && i == 5) value += 1.0f;",
    "now_and_then": "if (launch && (clock64() + blockIdx.x) % 8 == 0) value += 1.0f;",
    "changes_an_input": "if (launch && i == n / 2) const_cast<float*>(x)[i] = 0.0f;",
    "writes_past_the_end": "if (launch && i == n - 1) y[n] = value;",
}
"""Right in the first launch, which is the one that is checked before timing."""

TOML = """\
[kernel]
name = "planted"

[problem]
sizes = { n = 16777219 }
dtypes = { input = ["float32"], output = "input" }

[tensors]
x = { shape = ["n"], dtype = "input" }
y = { shape = ["n"], dtype = "output", role = "output" }

[reference]
numpy = "2 * x"

[reference.cuda]
template = "reference.cu"
entry = "reference"
arguments = ["x", "y", "y_magnitude", { value = "n", dtype = "int64" }]
grid = ["ceil_div(n, 256)"]
block = ["256"]

[work]
flops = "n"
bytes = "2 * n * itemsize(input)"

[variants.plain.parameters]
fault = { values = [@FAULTS@] }
copy = { values = [@COPIES@] }

[variants.plain.scratch]
workspace = { shape = ["2**38 if fault == 'scratch' else 1"], dtype = "float32" }

[[variants.plain.launches]]
template = "planted.cu.j2"
entry = "planted"
arguments = ["x", "y", "workspace", { value = "n", dtype = "int64" }]
grid = ["ceil_div(n, 1024)"]
block = ["256"]
"""

SOURCE = """\
// copy {{ copy }}
__device__ unsigned long long blocks;
__device__ unsigned long long began;
{% if fault == "stack_overflow" %}
__device__ __noinline__ float deep(float value, int depth) {
    volatile float kept[64];
    kept[depth & 63] = value;
    return depth ? deep(kept[(depth * 7) & 63], depth - 1) + kept[depth & 63] : kept[0];
}
{% endif %}
extern "C" __global__ void planted(const float* x, float* y, float* workspace, long long n) {
    __shared__ float shared[32];
    __shared__ unsigned long long launch;
    __shared__ bool late;
    if (threadIdx.x == 0) {
        unsigned long long now;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        launch = atomicAdd(&blocks, 1ull) / gridDim.x;
        late = launch && now - began > 1000000ull;
        if (!launch) began = now;
    }
    if (threadIdx.x < 32) shared[threadIdx.x] = 0.0f;
    __syncthreads();
    for (int j = 0; j < 4; ++j) {
        const long long i = (blockIdx.x * 4ll + j) * 256 + threadIdx.x;
        if (i >= n) continue;
        float value = 2.0f * x[i];
@FATAL@
@LATE@
{% if fault == "hang" %}
        while (i == n - 1 && *const_cast<const volatile float*>(x) < 1e30f) {}
{% endif %}
        y[i] = value;
    }
}
"""


def write_planted_kernel(folder: Path, copies: int) -> KernelSpec:
    """Write the kernel with so many copies of each fault."""
    faults = ("ok", "hang", "scratch", *FATAL, *LATE)
    fatal = (
        f'{{% if fault == "{name}" %}}\n        if (i == n - 1) {{{{ "{{" }}}} {code} {{{{ "}}" }}}}\n{{% endif %}}'
        for name, code in FATAL.items()
    )
    late = (f'{{% if fault == "{name}" %}}\n        {code}\n{{% endif %}}' for name, code in LATE.items())
    toml = TOML.replace("@FAULTS@", ", ".join(f'"{fault}"' for fault in faults))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "planted.toml").write_text(toml.replace("@COPIES@", ", ".join(map(str, range(copies)))))
    source = SOURCE.replace("@FATAL@", "\n".join(fatal)).replace("@LATE@", "\n".join(late))
    (folder / "planted.cu.j2").write_text(source)
    (folder / "reference.cu").write_text(REFERENCE)
    return read_kernel((folder / "planted.toml").resolve())


def planted(fault: str, copy: int) -> Configuration:
    """Return a configuration of that kernel."""
    return Configuration.of("plain", {"fault": fault, "copy": copy})
