"""`tune check` goes by the machine code: parameters that do nothing, and launches that no driver accepts."""

from __future__ import annotations

import re
from concurrent.futures import Future
from pathlib import Path

import pytest

from tests.inspect.check.planted import findings
from tuner.children.compilation import Compilation, CompileRequest, RenderRequest
from tuner.children.compile_pool import CompilePool
from tuner.core.model import Status
from tuner.inspect.check import compiling

pytestmark = pytest.mark.usefixtures("forked_children")

KERNEL = """\
kernel = { name = "twice" }
problem = { sizes = { n = 5000 }, dtypes = { input = "float32" } }
tensors.x = { shape = ["n"], dtype = "input" }
tensors.y = { shape = ["n"], dtype = "input", role = "output" }
reference = { numpy = "2 * x" }
work = { bytes = "8 * n" }
@COMPILE@
[variants.v.parameters]
block = { values = [@BLOCKS@] }
@PARAMETERS@
[[variants.v.launches]]
template = "@FILE@"
entry = "twice"
arguments = ["x", "y", "n"]
grid = ["ceil_div(n, block)"]
block = ["block"]
@LAUNCH@
"""
FACTOR = "factor = { values = [1, 2] }"
CODE = """\
extern "C" __global__ void @BOUND@ twice(const float* x, float* y, int n) {
@BODY@
    const int i = blockIdx.x * block + threadIdx.x;
    if (i < n) y[i] = factor * x[i];
}
"""


def kernel(
    folder: Path,
    before: str = "",
    *,
    body: str = "",
    parameters: str = FACTOR,
    options: str = "",
    file: str = "twice.cu",
    code: str = CODE,
    bound: str = "",
    launch: str = "",
    header: str = "",
    blocks: str = "64, 128",
) -> Path:
    """Write a kernel that multiplies with a parameter, and return its file."""
    path = folder / "twice.toml"
    compile_ = f"[compile]\noptions = [{options}]" if options else ""
    text = KERNEL.replace("@COMPILE@", compile_).replace("@PARAMETERS@", parameters).replace("@FILE@", file)
    path.write_text(text.replace("@LAUNCH@", launch).replace("@BLOCKS@", blocks))
    (folder / file).write_text(before + code.replace("@BODY@", body).replace("@BOUND@", bound))
    (folder / "old.h").write_text(header)
    return path


def found(capsys: pytest.CaptureFixture[str], path: Path, *more: str) -> list[str]:
    """Return what check finds, without the folder."""
    _, lines = findings(capsys, str(path), "-j", "1", "--no-cpu", *more)
    return [line.removeprefix(f"{path.parent}/") for line in lines]


TEMPLATE = CODE.replace("block +", "{{ block }} +")
WRONG = {
    "in the source": ({"before": "\n#define factor 2\n"}, "twice.cu:2: factor is defined again"),
    "in a header": ({"before": '#include "old.h"\n', "header": "//\n\n#define factor 2\n"}, "old.h:3: factor is def"),
    "after #undef": ({"before": "#undef factor\n#define factor 2\n"}, "twice.cu:1: factor is undefined here"),
    "a block": ({"before": "#define block 128\n", "blocks": "64, 128"}, "twice.cu:1: block is defined again"),
    "as a question": (
        {"code": CODE.replace("factor", "2"), "before": "#ifdef factor\n#endif\n"},
        "twice.cu:1: factor is defined for each of its values; write #if factor",
    ),
    "a dtype": ({"before": "#define input_type double\n"}, "twice.cu:1: input_type is defined again"),
    "an option": ({"options": '"-Dfactor=2"'}, "twice.toml:8: options define factor"),
    "a type": ({"before": "typedef double input_type;\n", "body": "input_type z = n; n = z;"}, "input_type is a macro"),
    "no option": ({"options": '"-Ufactor"'}, "twice.toml:8: options define factor"),
    "a local variable": (
        {"file": "twice.cu.j2", "code": TEMPLATE, "body": "const int factor = 2;"},
        "twice.cu.j2:2: factor is declared here",
    ),
    "a template's own option": (
        {
            "file": "twice.cu.j2", "code": TEMPLATE, "options": '"-Dfactor=2"',
            "before": "#ifndef factor\n#define factor {{ factor }}\n#endif\n",
        },
        "twice.toml:8: options define factor",
    ),
    "unused": ({"code": CODE.replace("factor", "2")}, "parameter factor changes neither"),
    "times nothing": (
        {"code": CODE.replace("factor", "2"), "launch": 'shared_bytes = "0 * factor"'},
        "parameter factor changes neither",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_parameter_that_does_nothing_is_found_with_its_cause(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planted, said = WRONG[name]
    (line,) = found(
        capsys, kernel(tmp_path, **{"blocks": "64", **planted}), "--configurations", "1", "--cc", "90"
    )
    assert said in line


RIGHT = {
    "guarded": {"before": "#ifndef factor\n#define factor 2\n#endif\n"},
    "limited": {
        "before": "#if factor > 2\n#undef factor\n#define factor 2\n#endif\n",
        "parameters": "factor = { values = [1, 2, 3] }",
    },
    "in the launch": {"code": CODE.replace("factor", "2"), "launch": 'shared_bytes = "4 * factor"'},
    "beside one value": {
        "blocks": "64, 128",
        "code": CODE.replace("factor *", "(block == 128 ? factor : 2) *"),
    },
    "in a template": {"file": "twice.cu.j2", "code": TEMPLATE.replace("factor", "{{ factor }}")},
    "for one dtype": {
        "code": CODE.replace("factor *", "(sizeof(input_type) == 2 ? factor : 2) *"),
    },
    "for one GPU": {
        "body": "#if __CUDA_ARCH__ == 890\n    n -= factor;\n#endif",
        "code": CODE.replace("factor *", "2 *"),
    },
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_parameter_that_does_something_somewhere_is_not_found(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kernel(tmp_path, **{"blocks": "64", **RIGHT[name]})
    if name == "for one dtype":
        text = path.read_text().replace('input = "float32"', 'input = ["float32", "float16"]')
        path.write_text(text)
        source = tmp_path / "twice.cu"
        source.write_text(
            source.read_text().replace("float*", "input_type*").replace("extern", "#include <cuda_fp16.h>\nextern", 1)
            .replace("* x[i]", "* float(x[i])")
        )  # fmt: skip
    assert found(capsys, path, "--configurations", "1", "--cc", "90") == []


def test_a_kernel_without_parameters_has_no_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kernel(tmp_path, parameters="", code=CODE.replace("block +", "64 +").replace("factor", "2"))
    text = path.read_text().replace('"block"', '"64"').replace("n, block", "n, 64")
    path.write_text(re.sub(r"\[variants.v.parameters\]\nblock.*", '[variants.v]\nsummary = "one"', text))
    assert found(capsys, path, "--cc", "90") == []


def test_a_parameter_of_a_large_space_may_matter_beside_one_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = "\n".join(f"p{i} = {{ values = [0, 1, 2, 3] }}" for i in range(3))
    code = CODE.replace("factor *", "(p2 == 3 ? factor : 2) * (p0 + p1 + 1) *")
    path = kernel(tmp_path, parameters=f"{FACTOR}\n{others}", code=code)
    assert found(capsys, path, "--configurations", "1", "--cc", "90") == []


LIMITS = {
    "threads": ({"bound": "__launch_bounds__(64)"}, "a block of 128 threads", "at most 64 threads"),
    "block": ({"bound": "__block_size__((64, 1, 1))"}, "128 x 1 x 1", "64 x 1 x 1"),
    "cluster": ({"bound": "__cluster_dims__(3, 1, 1)"}, "a grid of", "__cluster_dims__ 3 x 1 x 1"),
    "static": (
        {"body": "__shared__ float s[15000 + factor]; s[threadIdx.x] = x[n]; __syncthreads(); y[n] = s[n];"},
        "bytes of static shared memory, of at most 49152", "shared_bytes",
    ),
    "both": (
        {
            "body": "__shared__ float s[10000]; s[n % 64] = x[0]; __syncthreads(); y[0] = s[n];",
            "launch": 'shared_bytes = "200000"',
        },
        "too much shared memory, 40000 static and 200000 dynamic bytes", "232448",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_a_launch_that_no_driver_accepts_is_found_once(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planted, *said = LIMITS[name]
    lines = found(
        capsys,
        kernel(tmp_path, **planted),
        "--configurations",
        "6",
        "--cc",
        "80" if name == "static" else "90",
    )
    assert len(lines) == 1 and all(text in lines[0] for text in said), lines
    assert lines[0].startswith("twice.toml:11: ")


def test_more_registers_than_there_are_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = """
    float a[200];
    for (int k = 0; k < 200; ++k) a[k] = x[n + k];
    for (int r = 0; r < n; ++r)
        for (int k = 0; k < 200; ++k) a[k] = a[k] * a[(k + 1) % 200] + factor;
    for (int k = 0; k < 200; ++k) y[k] = a[k];"""
    path = kernel(tmp_path, body=body)
    path.write_text(path.read_text().replace("[64, 128]", "[1024]"))
    (line,) = found(capsys, path, "--configurations", "1", "--cc", "90")
    assert "too many registers" in line and "1024 threads" in line


@pytest.mark.parametrize("slow", [("block=64",), ("block=64", "block=128")])
def test_what_takes_long_to_compile_is_no_fault_unless_all_does(
    slow: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Pool(CompilePool):
        def submit(self, request: CompileRequest, *, ahead: bool = False) -> Future[Compilation]:
            if isinstance(request, RenderRequest) and str(request.configuration).endswith(slow):
                future: Future[Compilation] = Future()
                future.set_result(Compilation(Status.COMPILE_TIMEOUT, "not compiled after 60 s"))
                return future
            return super().submit(request, ahead=ahead)

    monkeypatch.setattr(compiling, "CompilePool", Pool)
    path = kernel(tmp_path, parameters="", code=CODE.replace("factor", "2"))
    code, _ = findings(capsys, str(path), "-j", "1", "--no-cpu", "--cc", "90")
    assert code == (len(slow) > 1)
