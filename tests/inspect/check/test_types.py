"""Every dtype on the CPU: a right kernel has no finding, a wrong one has one; and what no launch can pass."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.commands import said_by
from tests.inspect.check.cpu_run import CpuChild, cpu_run
from tests.inspect.check.planted import PLANTED, findings
from tuner.inspect.check.host_worker import HostResult
from tuner.inspect.emulator.building import COMPILER
from tuner.runtime.dtypes import DTYPES

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")
KERNEL = """\
kernel = { name = "kind" }
problem = { sizes = { n = 300 }, dtypes = { input = "DTYPE" } }
tensors.x = { shape = ["n"], dtype = "input" }
tensors.y = { shape = ["n"], dtype = "input", role = "output" }
reference = { numpy = "NUMPY" }
"""
VARIANT = """\
[variants.NAME.parameters]
block_size = { values = [64] }
[[variants.NAME.launches]]
template = "NAME.cu"
entry = "kind"
arguments = ["x", "y", "n"]
grid = ["ceil_div(n, block_size)"]
block = ["block_size"]
"""
HEADERS = dict.fromkeys(("float16", "bfloat16"), "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n")
HEADERS["float8_e4m3fn"] = "#include <cuda_fp8.h>\n"
CODE = """\
extern "C" __global__ void kind(const input_type* x, input_type* y, int n) {
    const int i = blockIdx.x * block_size + threadIdx.x;
    if (i < n) y[i] = EXPRESSION;
}
"""
# Of each kind of dtype: the reference, what is right in C++, and what is wrong.
KINDS = {
    "float": ("-x", "-x[i]", "x[i]"),
    "bfloat": (
        "-x",
        "__hgt(x[i], 0) ? -__habs(x[i]) : __hmax2(__float2bfloat162_rn(0), -__bfloat162bfloat162(x[i])).x",
        "hrint(-x[i])",
    ),
    "float8": ("-x", "input_type(-float(x[i]))", "x[i]"),
    "int": ("3 * x - 1", "3 * x[i] - 1", "3 * x[i]"),
    "uint": ("3 * x - 1", "3 * x[i] - 1", "3 * x[i] + 1"),
    "bool": ("x == 0", "!x[i]", "x[i]"),
    "complex": (
        "conj(x) * x * x",
        "{x[i].x * (x[i].x * x[i].x + x[i].y * x[i].y), x[i].y * (x[i].x * x[i].x + x[i].y * x[i].y)}",
        "{x[i].y, x[i].x}",
    ),
}


COMPARED = ("float16", "bfloat16", "uint16", "bool", "complex64")
"""The others have tests of their own, here or in test_contents.py, or are like one of these."""


def written(folder: Path, dtype: str, *variants: str) -> Path:
    """Write a kernel of a dtype with variants, of ``right`` and ``wrong``, and return its file."""
    numpy, *expressions = KINDS[DTYPES[dtype].kind]
    text = KERNEL.replace("DTYPE", dtype).replace("NUMPY", numpy)
    code = HEADERS.get(dtype, "") + CODE
    for name, expression in zip(("right", "wrong"), expressions, strict=True):
        (folder / f"{name}.cu").write_text(code.replace("EXPRESSION", expression))
    text += "".join(VARIANT.replace("NAME", name) for name in variants)
    (folder / "k.toml").write_text(text)
    return folder / "k.toml"


@pytest.mark.parametrize("dtype", COMPARED)
def test_each_dtype_is_compared_as_what_it_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, dtype: str
) -> None:
    file = written(tmp_path, dtype, "right", "wrong")
    status, lines = findings(capsys, str(file), "--cc", "90")
    assert status == 1 and len(lines) == 1, lines
    assert " wrong, at n=" in lines[0] and "as wrong block_size=64" in lines[0]


def test_golden_files_are_compared_at_their_size(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = written(tmp_path, "int64", "right")
    text = file.read_text().replace('numpy = "3 * x - 1"', 'golden.y = "y.npy"')
    file.write_text(
        text.replace('dtype = "input" }', 'dtype = "input", init = { range = ["2**60", 1] } }', 1)
    )
    golden = 3 * (np.arange(300) + 2**60) - 1
    np.save(tmp_path / "y.npy", golden)
    assert findings(capsys, str(file), "--cc", "90") == (0, [])
    golden[299] += 1
    np.save(tmp_path / "y.npy", golden)
    status, (line,) = findings(capsys, str(file), "--cc", "90")
    assert status == 1 and "y[299] is" in line and "at n=300" in line


def changed(file: Path, old: str, new: str) -> Path:
    """Return the file of a kernel with other code in another folder: a child reads each file once."""
    folder = file.parent / "changed"
    shutil.copytree(file.parent, folder)
    code = folder / "right.cu"
    code.write_text(code.read_text().replace(old, new))
    return folder / file.name


def test_pairs_and_fours_of_float8_round_as_on_a_gpu(child: CpuChild, tmp_path: Path) -> None:
    file = written(tmp_path, "float8_e4m3fn", "right")
    file.write_text(file.read_text().replace('"-x"', '"96 * x"').replace("= 300", "= 512"))
    file.write_text(
        file.read_text().replace(
            "{ values = [64] }", '{ values = [64] }\n[variants.right]\nrequires = "n % 4 == 0"'
        )
    )
    code = file.with_name("right.cu")
    four = """if (4 * i >= n) return;
        float4 v = float4(((const __nv_fp8x4_e4m3*)x)[i]);
        ((__nv_fp8x2_e4m3*)y)[2 * i] = __nv_fp8x2_e4m3(float2{96 * v.x, 96 * v.y});
        y[4 * i + 2].__x = __nv_cvt_float_to_fp8(96 * v.z, __NV_SATFINITE, __NV_E4M3);
        y[4 * i + 3] = input_type(96.0 * v.w);"""
    code.write_text(code.read_text().replace("if (i < n) y[i] = input_type(-float(x[i]));", four))
    assert cpu_run(child, file) == HostResult()
    assert cpu_run(child, changed(file, "96 * v.y", "96 * v.x")).fault


def test_conversions_to_integers_round_as_their_names_say(child: CpuChild, tmp_path: Path) -> None:
    file = written(tmp_path, "float64", "right")
    text = file.read_text().replace('numpy = "-x"', 'python = "r.py:f"')
    file.write_text(text.replace('dtype = "input" }', 'dtype = "input", init = { uniform = [-3, 3] } }', 1))
    (tmp_path / "r.py").write_text(
        "import numpy as np\n\n\ndef f(x):\n    v = 7 * x\n    near = v.astype(np.float32)\n"
        "    return 7 * np.rint(v) + 50 * np.floor(v) + 400 * np.ceil(abs(near)) + 3000 * np.trunc(near), abs(x)\n"
    )
    code = file.with_name("right.cu")
    value = """7 * __double2int_rn(7 * x[i]) + 50.0 * __double2ll_rd(7 * x[i])
        + 400.0 * __float2uint_ru(fabsf(7 * x[i])) + 3000.0 * __half2int_rz(__int2half_rn(__float2int_rz(7 * x[i])))
        + __hiloint2double(__double2hiint(x[i]), __double2loint(x[i])) - x[i] * CUDART_ONE"""
    headers = "#include <math_constants.h>\n#include <vector_types.h>\n#include <cuda_fp16.h>\n"
    code.write_text(headers + code.read_text().replace("-x[i]", value))
    assert cpu_run(child, file) == HostResult()
    assert cpu_run(child, changed(file, "_ru(", "_rd(")).fault


def test_a_wide_integer_is_compared_in_full(child: CpuChild, tmp_path: Path) -> None:
    file = written(tmp_path, "uint64", "right")
    text = file.read_text().replace('dtype = "input" }', 'dtype = "input", init = { uniform = [RANGE] } }', 1)
    ends = "18446744073709551000, 18446744073709551615"
    if "18446744073709551615" in text.replace("RANGE", ends):  # beyond what TOML has
        ends = "9223372036854770000, 9223372036854775807"
    file.write_text(text.replace("RANGE", ends).replace("3 * x - 1", "x + x"))
    code = file.with_name("right.cu").read_text()
    file.with_name("right.cu").write_text(code.replace("3 * x[i] - 1", "x[i] + x[i]"))
    assert cpu_run(child, file) == HostResult()
    assert " is 1844674407370" in cpu_run(child, changed(file, "x[i] + x[i]", "x[i] + x[i] + 1")).fault


@pytest.mark.parametrize(
    ("right", "wrong", "found"),
    [
        ("", "", ""),
        ('dtype = "int16"', 'dtype = "int64"', "a struct of 48 bytes, but the parameter is an object of 40"),
        ('"scaled", "y", {', '"y", "scaled", {', " wrong, at n="),
    ],
)  # fmt: skip
def test_structs_by_value_are_what_their_fields_say(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, right: str, wrong: str, found: str
) -> None:
    for name in ("parts.toml", "parts.cu"):
        shutil.copy(PLANTED / name, tmp_path)
    file = tmp_path / "parts.toml"
    text = file.read_text()
    assert right in text
    file.write_text(text.replace(right, wrong, 1))
    status, lines = findings(capsys, str(file), "--cc", "90", "--configurations", "1")
    assert (status, len(lines)) == ((1, 1) if found else (0, 0)), lines
    assert all(found in line for line in lines)


@pytest.mark.parametrize(
    ("parameter", "argument", "said"),
    [
        (
            "cudaTextureObject_t t",
            '"x"',
            "texture and surface objects cannot be passed: let the kernel take a pointer",
        ),
        (
            "struct { int a; cudaTextureObject_t b; } t",
            '{ fields = ["n", "x"] }',
            "a texture or surface among its members; texture",
        ),
        ("int a, Pair b", '"n"', "takes 5 parameters, and the launch passes 4; pass a struct by value as"),
        ("struct { int a; float b; } t", '"n"', "pass a struct by value as { fields = [...] }"),
        ("const float* const* t", '"x"', "is a pointer to pointers; let the kernel take one array"),
        ("bool t", '"n"', 'a bool is passed as { value = "...", dtype = "bool" }'),
        (
            "bool t, uchar4 u, unsigned short v, Nothing w",
            '{ value = "1", dtype = "bool" }, { value = "16843009", dtype = "uint32" }, '
            '{ value = "n", dtype = "uint16" }, { value = "0", dtype = "uint8" }',
            "",
        ),
        ("int t", '{ value = "2.5" }', "2.5 is not a whole number; give it dtype"),
        ("unsigned char t", '{ value = "300", dtype = "uint8" }', "300 does not fit uint8"),
        (
            "const int& t",
            '"n"',
            "is a reference; its address would be one of the CPU's: let the kernel take a value",
        ),
        ("const Pair& t", '{ fields = ["n", "n"] }', "a struct of 8 bytes, but the parameter is a reference"),
    ],
)
def test_what_is_passed_by_value_has_a_remedy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, parameter: str, argument: str, said: str
) -> None:
    file = written(tmp_path, "float32", "right")
    file.write_text(file.read_text().replace('"n"]\ngrid', f'"n", {argument}]\ngrid'))
    code = file.with_name("right.cu")
    members = re.search("{.*}", parameter) or re.search("{.*}", "{ int a; float b; }")
    assert members is not None
    text = code.read_text().replace("int n)", f"int n, {parameter.replace(f'struct {members[0]}', 'Pair')})")
    code.write_text(f"struct Nothing {{}};\nstruct Pair {members[0]};\n{text}")
    status, lines = findings(capsys, str(file), "--cc", "90", "--no-cpu")
    assert (status, len(lines)) == ((1, 1) if said else (0, 0)), lines
    assert all(said in line for line in lines)


def test_random_integers_that_may_be_indices_have_a_remedy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = written(tmp_path, "int32", "right")
    code = file.with_name("right.cu")
    code.write_text(code.read_text().replace("y[i]", "y[x[i]]"))
    _, (line,) = findings(capsys, str(file), "--cc", "90")
    assert " outside an array: y[" in line and line.endswith('init = { uniform = [0, "SIZE - 1"] }')
    code.write_text(code.read_text().replace("y[x[i]] =", "y[i] = x[n + i] +"))
    assert "SIZE - 1" not in findings(capsys, str(file), "--cc", "90")[1][0]


@pytest.mark.parametrize(("dtype", "taken"), [("int32", "64-bit"), ("int64", "")])
def test_integers_that_a_tensor_does_not_have_are_noted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, dtype: str, taken: str
) -> None:
    file = written(tmp_path, dtype, "right")
    code = file.with_name("right.cu")
    code.write_text(code.read_text().replace("const input_type* x", "const long long* x"))
    notes = json.loads(said_by(capsys, "check", str(file), "--cc", "90", "--no-cpu", "--json").out)["notes"]
    said = f"argument 1 of kind is the tensor x of {dtype}, taken as a pointer to a {taken} integer"
    assert notes == ([said] if taken else [])


def test_a_complex_tensor_may_be_taken_as_its_floats(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = written(tmp_path, "complex64", "right")
    code = file.with_name("right.cu")
    own = "const input_type* x = reinterpret_cast<const input_type*>(parts);"
    text = code.read_text().replace("const input_type* x", "const float* parts")
    code.write_text(text.replace("{\n", f"{{ {own}\n", 1))
    assert findings(capsys, str(file), "--cc", "90", "--no-cpu") == (0, [])


def test_parameters_are_compared_where_a_part_alone_compiles(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = written(tmp_path, "float32", "right")
    code = file.with_name("right.cu")
    old = "texture<float, 1> old;\n__global__ void other(float* y) { *y = tex1Dfetch(old, 0); }\n"
    code.write_text(old + code.read_text().replace("int n)", "long long n)"))
    _, (line,) = findings(capsys, str(file), "--cc", "90", "--no-cpu")
    assert "argument 3 of kind is a number of int32, but the parameter is a 64-bit integer" in line


def test_headers_of_cuda_are_there_and_come_before_parameters(
    child: CpuChild, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = written(tmp_path, "float32", "right")
    code, text = file.with_name("right.cu").read_text(), file.read_text()

    def write(name: str, value: str, *headers: str) -> None:
        """Let the kernel have a parameter of a name that headers have, too."""
        file.write_text(text.replace("block_size = {", f"{name} = {{ values = [64] }}\nblock_size = {{"))
        body = code.replace("-x[i]", value).replace(
            "const int i", f"__shared__ float room[{name}]; const int i"
        )
        file.with_name("right.cu").write_text("".join(f"#include <{one}>\n" for one in headers) + body)

    write(
        "T",
        "cuda::std::complex<float>(-x[i], uchar(1)).real() * cuda::std::array<ptrdiff_t, 1>{1}[0] * std::sqrtf(1)"
        " * -(thrust::complex<float>(0, 1) * thrust::complex<float>(0, 1)).real()",
        *("cuda/std/complex", "cuda/std/array", "thrust/complex.h", "device_functions.h", "cmath"),
    )
    assert cpu_run(child, file) == HostResult()
    write(
        "lanes",
        "0; if (i >= n) return; __pipeline_memcpy_async(&room[threadIdx.x], &x[i], 4, i % 2 * 4); "
        "__pipeline_commit(); __pipeline_wait_prior(0); y[i] = -room[threadIdx.x] - (i % 2 ? x[i] : 0)",
        "cuda_pipeline.h",
    )
    report = said_by(capsys, "check", str(file), "--cc", "90", "--json")
    assert json.loads(report.out)["findings"] == [] and "not run on the CPU" not in report.out


def test_other_dtypes_and_options_are_run_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = written(tmp_path, "float32", "right")
    text, code = file.read_text(), file.with_name("right.cu")
    several = 'options = { turned = ["yes", "no"] }, dtypes = { input = ["float32", "float64"] }'
    text = text.replace('dtypes = { input = "float32" }', several)
    file.write_text(text.replace('"-x"', "\"-x if turned == 'yes' else x\""))
    code.write_text(code.read_text().replace("-x[i]", "sizeof(*x) == 8 ? x[i] : -x[i]"))
    assert ", float64 runs on the CPU" in findings(capsys, str(file), "--cc", "90")[1][0]
    code.write_text(code.read_text().replace("sizeof(*x) == 8 ? x[i] : ", ""))
    assert ", turned=no runs on the CPU" in findings(capsys, str(file), "--cc", "90")[1][0]


@pytest.mark.parametrize(
    ("file", "before", "of_x", "said"),
    [
        (
            "right.cu:2: ",
            "#include <torch/extension.h>\n",
            "torch::PackedTensorAccessor32<float, 1>",
            "let it take pointers, sizes and CUDA's types",
        ),
        ("right.cu:1: ", "", "const __nv_bfloat16*", "is undefined; include cuda_bf16.h"),
        (
            "thrust/swap.h:1: ",
            '#include "thrust/swap.h"\n',
            "const element*",
            "of Thrust NVRTC compiles pair.h",
        ),
    ],
    ids=["torch", "bfloat16", "thrust"],
)
def test_what_a_source_lacks_or_cannot_have_has_a_remedy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, file: str, before: str, of_x: str, said: str
) -> None:
    kernel = written(tmp_path, "float32", "right")
    code = kernel.with_name("right.cu")
    (tmp_path / "thrust").mkdir()
    (tmp_path / "thrust" / "swap.h").write_text("using element = std::nowhere;\n")
    code.write_text(before + code.read_text().replace("const input_type*", of_x))
    _, (line,) = findings(capsys, str(kernel), "--cc", "90", "--no-cpu")
    assert file in line and said in line
