"""What the CPU run says of accesses to memory: outside, not written, not set; each with the element and the line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.commands import said_by
from tests.inspect.check.cpu_run import GPU, CpuChild, cpu_run
from tuner.inspect.emulator.building import COMPILER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")
KERNEL = """\
kernel = { name = "turned" }
problem = { sizes = { n = 40 }, dtypes = { input = "float32" } }
compile = { options = ["-DOFFSET=0", "--define-macro=TURN=63"] }
tensors.x = { shape = ["n"], dtype = "input" }
tensors.w = { shape = [4], dtype = "input" }
tensors.y = { shape = ["n"], dtype = "input", role = "output" }
reference = { numpy = "x + w[0]" }
variants.v.parameters.block_size = { values = [64] }
[[variants.v.launches]]
template = "k.cu"
entry = "k"
arguments = ["x", "w", "y", "n"]
grid = ["ceil_div(n, block_size)"]
block = ["block_size"]
shared_bytes = "256"
"""
CODE = """\
extern "C" __global__ void k(const float* x, const float* w, float* y, int n) {
    extern __shared__ float a[];
    const int t = threadIdx.x, i = blockIdx.x * block_size + t, j = i + TURN - 2 * t;
    a[TURN - t] = i < n ? x[i + OFFSET] + w[0] : 0;
    __syncthreads();
    if (j < n) y[j] = a[t];
}
"""
DECLARED = "    extern __shared__ float a[];\n"


def said(child: CpuChild, folder: Path, code: str, text: str = KERNEL) -> str:
    """Return what is wrong with a kernel on the CPU, and the remedy."""
    folder = folder / str(sum(1 for _ in folder.iterdir()))  # the child reads each file once
    folder.mkdir()
    (folder / "k.cu").write_text(code)
    (folder / "k.toml").write_text(text)
    answer = cpu_run(child, folder / "k.toml")
    return f"{answer.fault}; {answer.remedy}"


@pytest.mark.parametrize(
    ("right", "wrong", "what"),
    [
        ("x[i + OFFSET]", "x[i + 1]", "a read outside an array: x[40] of 40, k.cu:4"),
        ("if (j < n)", "if (j == 3) __trap(); if (j < n)", "it calls __trap, k.cu:6"),
        ("w[0]", "w[t / 9]", "a read outside an array: w[4] of 4, k.cu:4"),
        ("if (j < n) y[j] =", "y[j] =", " of 40, k.cu:6"),
        ("if (j < n) y[j]", "if (j < n - 2) y[j]", "y[38] is not written, expected"),
        ("y[j] = a[t]", "((unsigned short*)y)[2 * j] = a[t]", "y[0] is written in part, expected"),
        ("    __syncthreads();\n", "", "a in shared memory"),
        ("TURN - t] = i", "TURN + t] = i", "outside dynamic shared memory: byte "),
        ("n ? x", "n && t != 5 ? x", "y[5] is 0, expected"),
        ("if (j < n) y[j] =", "if (j >= n) return; y[j] = 0 * __shfl_up_sync(~0u, a[t], 1) +",
         "y[39] is nan, expected"),
        ("if (j < n) y[j] =", "if (j >= n) return; y[j] = 0 * __shfl_up_sync(~0u, a[t], 1) +",
         "; a lane reads what one shows that has ended, or that the mask leaves out"),
        ("y[j] = a", "y[j] += a", "] before anything is written there: outputs hold NaN"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(
    child: CpuChild, tmp_path: Path, right: str, wrong: str, what: str
) -> None:
    code = CODE.replace(right, wrong)
    assert code != CODE
    answer = said(
        child, tmp_path, code.replace(DECLARED, "    __shared__ float a[64];\n") if "a in" in what else code
    )
    assert what in answer


@pytest.mark.parametrize("option", ["-D N=0", "--define-macro=N=0"])
def test_a_macro_of_an_option_may_have_a_name_of_the_machine(
    child: CpuChild, tmp_path: Path, option: str
) -> None:
    text = KERNEL.replace("-DOFFSET=0", option)
    assert said(child, tmp_path, CODE.replace("OFFSET", "N"), text) == "; "


def test_options_have_the_values_of_parameters_and_of_the_gpu(child: CpuChild, tmp_path: Path) -> None:
    options = '["-DTURN={{ block_size - 1 }}", "-DOFFSET={{ sm_count - SMS }}"]'.replace(
        "SMS", str(GPU.sm_count)
    )
    head, tail = KERNEL.split('compile = { options = ["-DOFFSET=0", "--define-macro=TURN=63"] }\n')
    text = (head + tail).replace(
        "variants.v.parameters", f"variants.v.compile.options = {options}\nvariants.v.parameters"
    )
    assert said(child, tmp_path, CODE, text) == "; "
    assert "x[40] of 40" in said(child, tmp_path, CODE, text.replace("{{ sm_count -", "{{ 1 + sm_count -"))


@pytest.mark.parametrize(
    "declared",
    [
        "__shared__ extern float a[];",
        "extern volatile __shared__ float a[];",
        "extern __shared__ float __align__(16) a[];",
        "extern __attribute__((shared)) float a[];",
        "DYNAMIC float a[];",
        "ROOM(float, a)",
        "extern __shared__ float4 b[]; float* a = reinterpret_cast<float*>(b);",
        '#include "../room.cuh"\n',
    ],
)
def test_dynamic_shared_memory_in_every_spelling(child: CpuChild, tmp_path: Path, declared: str) -> None:
    (tmp_path / "room.cuh").write_text("#pragma once\nextern __shared__ float a[];\n")
    macros = "#define DYNAMIC extern __shared__\n#define ROOM(type, name) DYNAMIC type name[];\n"
    code = macros + CODE.replace(DECLARED, f"\n{declared}\n")
    assert said(child, tmp_path, code) == "; "


def test_dynamic_shared_memory_that_is_forgotten(child: CpuChild, tmp_path: Path) -> None:
    forgotten = KERNEL.replace('shared_bytes = "256"\n', "")
    assert "outside dynamic shared memory: byte " in said(child, tmp_path, CODE, forgotten)


def test_templates_namespaces_and_functions_share_dynamic_memory(child: CpuChild, tmp_path: Path) -> None:
    head = "namespace rooms { extern __shared__ float a[]; }\ntemplate <typename T> __device__ T* room() {"
    code = f"{head} extern __shared__ T b[]; return b; }}\n" + CODE.replace(DECLARED, "float* a = rooms::a;").replace(
        "y[j] = a[", "y[j] = room<float>()["
    )  # fmt: skip
    assert said(child, tmp_path, code) == "; "


def test_a_constant_that_is_filled_in_part_may_not_be_read_behind_that(
    child: CpuChild, tmp_path: Path
) -> None:
    filled = KERNEL.replace('"x", "w", "y"', '"x", "y"') + 'constants.c = "w"\n'
    code = "__constant__ float c[9];\n" + CODE.replace("const float* w, ", "").replace("w[0]", "c[0]")
    assert said(child, tmp_path, code, filled) == "; "
    wrong = code.replace("c[0]", "c[0] + 0 * c[4]")
    assert "a read outside an array: w[4] of 4, k.cu:5" in said(child, tmp_path, wrong, filled)


def test_a_copy_by_vectors_that_takes_what_is_behind_along(child: CpuChild, tmp_path: Path) -> None:
    code = CODE.replace("    if (j < n) y[j] = a[t];\n", "").replace(DECLARED, (
        "const float4* f = reinterpret_cast<const float4*>(x); float4* to = reinterpret_cast<float4*>(y);\n"
        "if (4 * threadIdx.x < n) to[threadIdx.x] = f[threadIdx.x];\n__shared__ float a[64];\n"
    ))  # fmt: skip
    text = KERNEL.replace('"x + w[0]"', '"1 * x"').replace("n = 40", "n = 37")
    assert "[37] of 37, k.cu:3" in said(child, tmp_path, code, text)


@pytest.mark.parametrize(
    ("shape", "requires"), [('["n"]', ""), ("[40]", 'variants.v.requires."this alone" = "n == 40"\n')]
)
def test_a_kernel_of_one_given_problem_is_run_at_it(
    shape: str, requires: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", np.arange(40, dtype=np.float32))
    text = KERNEL.replace(
        '["n"], dtype = "input" }\ntensors.w', f'{shape}, dtype = "input", init = "x.npy" }}\ntensors.w'
    )
    (tmp_path / "k.toml").write_text(
        text.replace("variants.v.parameters", f"{requires}variants.v.parameters")
    )
    (tmp_path / "k.cu").write_text(CODE.replace("x[i + OFFSET]", "x[i + 1]"))
    told = said_by(capsys, "check", str(tmp_path / "k.toml"), "--cc", "90", "-j", "1")
    assert told.code == 1 and "x[40] of 40, k.cu:4, at n=40" in told.out


def test_functions_of_cuda_that_a_kernel_may_call(child: CpuChild, tmp_path: Path) -> None:
    right = {
        "__byte_perm(0x33221100, 0x77665544, 0x7530)": "0x77553300",
        "__funnelshift_l(0x80000000, 1, 4)": "24",
        "__funnelshift_r(0, 1, 4)": "0x10000000",
        "__dp4a(0x01ff0203, 0x01010101, 10)": "15",
        "__sad(-2, 3, 4)": "9",
        "__umul24(3, 5)": "15",
        "__mul64hi(-1, 1)": "-1",
        "__match_any_sync(0xffffffff, threadIdx.x % 16)": "0x10001 << threadIdx.x % 16",
        "__match_all_sync(0xffffffff, 3, &one)": "0xffffffff",
        "__match_all_sync(0xffffffff, threadIdx.x, &none)": "0",
        "__reduce_and_sync(0xffffffff, 6 | threadIdx.x) & 7": "6",
        "__reduce_or_sync(0xffffffff, threadIdx.x % 3)": "3",
        "__reduce_xor_sync(0xffffffff, 1)": "0",
        "atomicAdd_block(&places[0], 0)": "0",
        "umin(3, 4) + umax(3, 4)": "7",
    }
    checks = "".join(f"if ({one} != {value}) right = 0;\n" for one, value in right.items())
    head = "    __shared__ int places[1]; places[0] = 0; __syncthreads(); if (n < 0) __trap();"
    code = CODE.replace(DECLARED, f"{DECLARED}{head} int right = 1, one, none;\n{checks}").replace(
        "y[j] = a[t]", "y[j] = a[t] / right"
    )
    assert said(child, tmp_path, code) == "; "


def test_lanes_that_end_behind_an_exchange_have_taken_part(child: CpuChild, tmp_path: Path) -> None:
    code = CODE.replace("if (j < n)", "int all; __match_all_sync(~0u, 3, &all); if (all && j < n)")
    assert said(child, tmp_path, code) == "; "


def test_code_for_newer_gpus_is_run_but_for_ptx(child: CpuChild, tmp_path: Path) -> None:
    body = "y[j] = a[t]"
    wholly = f"\n#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900)\n{body}\n#endif\n"
    older = f"\n#if __CUDA_ARCH__ < 800\n{body} + 1\n#elif defined(__CUDACC__)\n{body}\n#endif\n"
    ptx = f'\n#if __CUDA_ARCH__ >= 800\nasm("trap;");\n#else\n{body}\n#endif\n'
    comment = f"\n#if __CUDA_ARCH__ >= 800 // no asm\n{body}\n#endif\n"
    hint = f'{body};\n#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\nasm("discard;");\n#endif\n'
    for code in (wholly, older, ptx, comment, hint):
        assert said(child, tmp_path, CODE.replace(body, code)) == "; "


def test_code_with_ptx_for_newer_gpus_alone_is_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = "y[j] = a[t]"
    code = f'\n#if (__CUDA_ARCH__ >= 800)\n{{ asm("mov.u32 %0, %laneid;" : "=r"(n)); {body}; }}\n#endif\n'
    (tmp_path / "k.toml").write_text(KERNEL)
    (tmp_path / "k.cu").write_text(CODE.replace(body, code))
    told = said_by(capsys, "check", str(tmp_path / "k.toml"), "--cc", "90", "-j", "1")
    assert told.code == 0 and "code for newer GPUs alone, with PTX" in told.err


def test_a_variable_that_lives_on_is_as_it_was_or_is_state(child: CpuChild, tmp_path: Path) -> None:
    counts = "    atomicAdd(&of::count, 1);\n    __syncthreads();\n"
    code = "namespace of { static __device__ int count; }\n" + CODE.replace("    __syncthreads();\n", counts)
    said_of_it = (
        'it changes count, a variable that lives from launch to launch (state = ["count"] in its variant'
    )
    for begun in ("", " = {}"):
        assert said_of_it in said(child, tmp_path, code.replace("int count;", f"int count{begun};"))
    state = KERNEL.replace("variants.v.parameters", 'variants.v.state = ["count"]\nvariants.v.parameters')
    assert said(child, tmp_path, code, state) == "; "
    back = code.replace(counts, f"{counts}    if (t == 0) of::count = 0;\n")
    assert said(child, tmp_path, back) == "; "


@pytest.mark.parametrize(
    ("declared", "counts"),
    [
        ("__device__ int __align__(16) count = 0;", "atomicAdd(&count, 1);"),
        ("__device__ int count{0};", "atomicAdd(&count, 1);"),
        ("", "static __device__ int count; atomicAdd(&count, 1);"),
        ("__device__ void next() { static int count; atomicAdd(&count, 1); }", "next();"),
    ],
)
def test_a_variable_lives_on_however_it_is_declared(
    child: CpuChild, tmp_path: Path, declared: str, counts: str
) -> None:
    code = f"{declared}\n{CODE.replace(DECLARED, DECLARED + counts)}"
    assert "it changes count, a variable that lives from launch to launch" in said(child, tmp_path, code)


def test_a_static_variable_that_stays_is_none_that_lives_on(child: CpuChild, tmp_path: Path) -> None:
    comment = "    // as both places of the body's library have something that is completed\n"
    table = f"{DECLARED}{comment}    static const int none[2] = {{0, 0}};\n    n += none[0];\n"
    assert said(child, tmp_path, CODE.replace(DECLARED, table)) == "; "
