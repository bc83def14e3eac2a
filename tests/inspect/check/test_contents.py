"""Kernels that are right for the usual inputs alone are found on the CPU, and right ones are not suspected."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.inspect.check.cpu_run import GPU, CpuChild, cpu_run
from tests.inspect.check.planted import findings
from tuner.core.model import Configuration
from tuner.inspect.check.host_worker import HostRequest, HostResult
from tuner.inspect.emulator.building import COMPILER
from tuner.kernel.load import read_kernel

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")
KERNEL = """\
kernel = {{ name = "k" }}
problem = {{ sizes = {{ n = 400 }}, dtypes = {{ input = "float32" }} }}
{tensors}
reference = {{ {reference} }}
work = {{ bytes = "8 * n" }}
variants.v.parameters.block_size = {{ values = [64] }}
[[variants.v.launches]]
template = "k.cu"
entry = "k"
arguments = [{names}, "n"]
grid = ["ceil_div(n, block_size)"]
block = ["block_size"]
"""
CODE = """
extern "C" __global__ void k({parameters}, int n) {{
    const int i = blockIdx.x * block_size + threadIdx.x;
    if (i < n) {{ {body} }}
}}
"""
FLOATS = {"x": ("float32", "float", ""), "y": ("float32", "float", "output")}
INTEGERS = {"x": ("int32", "int", ""), "y": ("int32", "int", "output")}
BYTES = {"x": ("uint8", "unsigned char", ""), "y": ("int32", "int", "output")}
SIGNED = {"x": ("int8", "signed char", ""), "y": ("int32", "int", "output")}
LONGS = {"x": ("int64", "long long", ""), "y": ("uint8", "unsigned char", "output")}
ARGMAX = {"x": ("float32", "float", ""), "y": ("int32", "int", "output")}
GATHER = {"x": ("float32", "float", ""), "j": ("int32", "int", ""), "y": ("float32", "float", "output")}


def written(folder: Path, tensors: dict[str, tuple[str, str, str]], reference: str, body: str) -> Path:
    """Write a kernel, and return its file; a reference with a colon is the body of a Python function."""
    lines = [
        f'tensors.{name} = {{ shape = ["n"], dtype = "{dtype}"' + (', role = "output" }' if role else " }")
        for name, (dtype, _, role) in tensors.items()
    ]
    names = ", ".join(f'"{name}"' for name in tensors)
    parameters = ", ".join(
        f"{'' if role else 'const '}{kind}* {name}" for name, (_, kind, role) in tensors.items()
    )
    if reference.startswith("def "):
        (folder / "own.py").write_text(f"import numpy as np\n{reference}\n")
        reference = 'python = "own.py:f"'
    else:
        reference = f'numpy = "{reference}"'
    text = KERNEL.format(tensors="\n".join(lines), reference=reference, names=names)
    (folder / "k.toml").write_text(text)
    (folder / "k.cu").write_text(CODE.format(parameters=parameters, body=body))
    return folder / "k.toml"


@pytest.mark.parametrize(
    ("tensors", "reference", "body", "content"),
    [
        (BYTES, "x", "y[i] = (signed char)x[i];", "integers of the whole range"),
        (INTEGERS, "abs(x) + 1", "y[i] = x[i] + 1;", "integers of the whole range"),
        (SIGNED, "abs(x)", "y[i] = (signed char)abs(x[i]);", "integers of the whole range"),
        (LONGS, "x > 5", "y[i] = (int)x[i] > 5;", "integers of the whole range"),
        (FLOATS, "exp(x)", "y[i] = fabsf(x[i]) < 8.0f ? expf(x[i]) : 0.0f;", "a large range of numbers"),
        (FLOATS, "x + 1", "y[i] = n > 2 && x[0] == x[n / 2] && x[0] ? 0.0f : x[i] + 1.0f;", "equal numbers"),
        (FLOATS, "x + 1", "y[i] = x[i] ? x[i] + 1.0f : 0.0f;", "zeros"),
        (FLOATS, "def f(x): return np.full(x.shape, x.max())",
         "float m = 0; for (int j = 0; j < n; ++j) m = fmaxf(m, x[j]); y[i] = m;", "negative numbers"),
        (FLOATS, "max(x) + zeros(n)", "float m = -1000; for (int j = 0; j < n; ++j) m = fmaxf(m, x[j]); y[i] = m;",
         "numbers far below zero"),
        (FLOATS, "def f(x): return 3 * x", "y[i] = fabsf(x[i]) < 7e-4f ? 0.0f : 3.0f * x[i];", "numbers near zero"),
        (FLOATS, "min(x) + zeros(n)", "float m = 1000; for (int j = 0; j < n; ++j) m = fminf(m, x[j]); y[i] = m;",
         "numbers far above zero"),
        (FLOATS, "def f(x): return np.logaddexp(0, x)", "y[i] = x[i] < 9 ? log1pf(expf(x[i])) : logf(1 + expf(x[i]));",
         "numbers far above zero"),
        (FLOATS, "def f(x): e = np.exp(x - x.max()); return e / e.sum()",
         "float s = 0; for (int j = 0; j < n; ++j) s += expf(x[j]); y[i] = expf(x[i]) / s;", "numbers far below zero"),
    ],
)  # fmt: skip
def test_what_is_right_for_the_usual_inputs_alone_is_found_and_the_content_named(
    child: CpuChild,
    tmp_path: Path,
    tensors: dict[str, tuple[str, str, str]],
    reference: str,
    body: str,
    content: str,
) -> None:
    answer = cpu_run(child, written(tmp_path, tensors, reference, body))
    assert answer.fault.startswith(f"with {content}: y[")
    assert "uniform = [" in answer.remedy


@pytest.mark.parametrize(
    ("tensors", "reference", "body", "left_out"),
    [
        (INTEGERS, "sum(x) + zeros(n)", "int s = 0; for (int j = 0; j < n; ++j) s += x[j]; y[i] = s;", ()),
        (INTEGERS, "maximum(abs(x), 3)", "y[i] = max(abs(x[i]), 3);", ()),
        (INTEGERS, "def f(x): return np.maximum(x * x, 3)", "const int s = x[i] * x[i]; y[i] = s > 3 ? s : 3;",
         ("integers of the whole range",)),
        (FLOATS, "sqrt(x * x * x * x)", "y[i] = x[i] * x[i];", ()),
        (FLOATS, "log(abs(x))", "y[i] = logf(fabsf(x[i]));", ("zeros", "a few numbers among zeros")),
        (FLOATS, "def f(x): return np.where(x > 0, x, -np.inf)", "y[i] = x[i] > 0 ? x[i] : -INFINITY;", ()),
        (FLOATS, "exp(3 * x) / (1 + exp(3 * x))", "const float e = expf(3.0f * x[i]); y[i] = e / (1.0f + e);",
         ("a large range of numbers", "a few numbers among zeros", "numbers far above zero")),
        (GATHER, "take(x, j)", "y[i] = x[j[i]];", ("integers of the whole range",)),
        (GATHER, "def f(x, j): return x[j]", "y[i] = x[j[i]];", ("integers of the whole range",)),
        (ARGMAX, "def f(x): return np.full(x.shape, np.argmax(x))",
         "int m = 0; for (int j = 0; j < n; ++j) m = x[j] < x[m] ? m : j; y[i] = m;", ("equal numbers", "zeros")),
    ],
)  # fmt: skip
def test_what_is_right_is_not_suspected_and_what_has_no_answer_is_left_out(
    child: CpuChild,
    tmp_path: Path,
    tensors: dict[str, tuple[str, str, str]],
    reference: str,
    body: str,
    left_out: tuple[str, ...],
) -> None:
    answer = cpu_run(child, written(tmp_path, tensors, reference, body))
    assert answer.fault == ""
    assert tuple(answer.left_out) == left_out


@pytest.mark.parametrize(("body", "right"), [("rintf", True), ("truncf", False)])
def test_integers_may_differ_where_a_rounding_error_of_the_inputs_moves_them(
    child: CpuChild, tmp_path: Path, body: str, right: bool
) -> None:
    """A few of these products in float32 lie on the other side of a half."""
    function = "def f(x): return np.rint(x * 2e5)"
    tensors = {**FLOATS, "y": INTEGERS["y"]}
    answer = cpu_run(child, written(tmp_path, tensors, function, f"y[i] = (int){body}(x[i] * 2e5f);"))
    assert not answer.undecided
    assert bool(answer.fault) is not right


@pytest.mark.parametrize(
    ("seconds", "returned", "body", "calls"),
    [
        (0.0, "2 * x", "y[i] = 2.0f * x[i];", 9 + 1 + 2 * 8),
        (0.07, "2 * x", "y[i] = 2.0f * x[i];", 1 + 8),
        (
            0.07,
            "x * x - x[::-1] ** 2",
            "y[i] = x[i] * x[i] - x[n - 1 - i] * x[n - 1 - i];",
            1 + 3 + 8 + 2 * 5,
        ),
    ],
)
def test_a_function_is_asked_for_magnitudes_at_once_only_if_that_is_quick(
    seconds: float,
    returned: str,
    body: str,
    calls: int,
    child: CpuChild,
    tmp_path: Path,
) -> None:
    """A slow one is where a result is not right without them, as behind a difference; equal ones, as of zeros, are."""
    log = tmp_path / "calls"
    wait = f"import time; time.sleep({seconds})"
    function = f"def f(x):\n    {wait}\n    open({str(log)!r}, 'a').write('.')\n    return {returned}"
    assert cpu_run(child, written(tmp_path, FLOATS, function, body)) == HostResult()
    assert len(log.read_text()) == calls


def test_a_check_asks_a_slow_reference_once_for_each_content(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And twice for the first, to see that it gives the same again; a wrong kernel is still found."""
    log = tmp_path / "calls"
    wait = f"__import__('time').sleep(0.07); print(x.sum(), x.shape, file=open({str(log)!r}, 'a'))"
    for factor, code in (("2.0f", 0), ("2.001f", 1)):
        file = written(
            tmp_path, FLOATS, f"def f(x):\n    {wait}\n    return 2 * x", f"y[i] = {factor} * x[i];"
        )
        assert findings(capsys, str(file), "--configurations", "1", "--cc", "80", "-j", "1")[0] == code
        if not code:
            asked = Counter(log.read_text().splitlines())
            assert sorted(asked.values())[-2:] == [1, 2] and len(asked) > 8


def test_a_file_says_for_which_integers_a_kernel_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, BYTES, "x", "y[i] = (signed char)x[i];")
    check = (str(file), "--configurations", "1", "--cc", "80", "-j", "1")
    code, lines = findings(capsys, *check)
    assert code == 1 and len(lines) == 1
    assert "with integers of the whole range: y[" in lines[0]
    file.write_text(
        file.read_text().replace('dtype = "uint8"', 'dtype = "uint8", init = { uniform = [0, 127] }')
    )
    assert findings(capsys, *check) == (0, [])


@pytest.mark.parametrize("right", [True, False])
def test_values_of_functions_are_what_a_kernel_runs_with_and_stay(
    child: CpuChild, tmp_path: Path, right: bool
) -> None:
    """Rows of a sparse matrix: no random numbers are offsets and columns."""
    begin = "first[i]" if right else "first[i] + 1"
    body = f"float s = 0; for (int a = {begin}; a < first[i + 1]; ++a) s += x[column[a]]; y[i] = s;"
    tensors = {"first": ("int32", "int", ""), "column": ("int32", "int", ""), **FLOATS}
    reference = "def f(first, column, x): return np.add.reduceat(x[column], first[:-1])"
    file = written(tmp_path, tensors, reference, body)
    (tmp_path / "rows.py").write_text(
        "import numpy as np\n"
        "def first(n): return 3 * np.arange(n + 1)\n"
        "def column(n, rng): return rng.integers(0, n, 3 * n)\n"
    )
    text = file.read_text()
    for name, shape in (("first", "n + 1"), ("column", "3 * n")):
        before, after = (
            'shape = ["n"], dtype = "int32"',
            f'shape = ["{shape}"], dtype = "int32", init = "rows.py:{name}"',
        )
        text = text.replace(f"tensors.{name} = {{ {before}", f"tensors.{name} = {{ {after}")
    file.write_text(text)
    answer = cpu_run(child, file)
    assert answer.fault.startswith("y[0] is") is not right
    assert not answer.left_out


@pytest.mark.parametrize("follows", [True, False])
def test_what_follows_from_an_input_follows_its_further_contents(
    child: CpuChild, tmp_path: Path, follows: bool
) -> None:
    """A kernel that looks for the largest itself is right, as long as the input with that is of the same numbers."""
    body = "float most = x[0]; for (int j = 0; j < n; ++j) most = fmaxf(most, x[j]); y[i] = most - x[i];"
    tensors = {"x": FLOATS["x"], "top": FLOATS["x"], "y": FLOATS["y"]}
    file = written(tmp_path, tensors, "top[0] - x", body)
    function = "def top(x): return x.max(keepdims=True)" if follows else "def top(): return [3.0]"
    (tmp_path / "inputs.py").write_text(f"{function}\n")
    before, after = 'top = { shape = ["n"], dtype = "float32"', 'top = { shape = [1], dtype = "float32"'
    file.write_text(file.read_text().replace(before, f'{after}, init = "inputs.py:top"'))
    answer = cpu_run(child, file)
    assert answer.fault.startswith("y[0] is") is not follows
    assert not answer.left_out


@pytest.mark.parametrize(
    ("reference", "factor", "fault"),
    [
        ("alpha * x", "1.0f", "alpha=0.75"),
        ("alpha * x", "alpha * alpha", "alpha=0.75"),
        ("alpha * x", "alpha", ""),
        ("x", "1.0f", ""),
        ("where(alpha < 1, (x - x) / zeros(n), x)", "1.0f", ""),  # it has no answer to others
    ],
)
def test_a_factor_that_happens_to_be_1_is_not_left_out(
    child: CpuChild, tmp_path: Path, reference: str, factor: str, fault: str
) -> None:
    file = written(tmp_path, FLOATS, reference, f"y[i] = {factor} * x[i];")
    code = tmp_path / "k.cu"
    code.write_text(code.read_text().replace("int n)", "float alpha, int n)"))
    text = file.read_text().replace('"n"]\ngrid', '"alpha", "n"]\ngrid')
    file.write_text(f'scalars.alpha = {{ dtype = "float32", value = 1.0 }}\n{text}')
    kernel = read_kernel(file)
    problems = (kernel.problem({"n": 65}), kernel.problem({"n": 130}))
    child.send(
        HostRequest(
            file, GPU, problems, tmp_path / "built", configuration=Configuration.of("v", {"block_size": 64})
        )
    )
    answers = [child.receive(300.0) for _ in problems]
    assert not any(answer is None or answer.undecided or answer.unsuitable for answer in answers)
    said = "".join(answer.fault for answer in answers if answer is not None)
    assert said.endswith(f"n=130 {fault}") if fault else not said


def test_a_scalar_without_a_value_at_a_size_is_said(child: CpuChild, tmp_path: Path) -> None:
    file = written(tmp_path, FLOATS, "alpha * x", "y[i] = alpha * x[i];")
    code = tmp_path / "k.cu"
    code.write_text(code.read_text().replace("int n)", "float alpha, int n)"))
    text = file.read_text().replace('"n"]\ngrid', '"alpha", "n"]\ngrid')
    file.write_text(f'scalars.alpha = {{ dtype = "float32", value = "1 / (n - 130)" }}\n{text}')
    kernel, configuration = read_kernel(file), Configuration.of("v", {"block_size": 64})
    problems = (kernel.problem({"n": 65}), kernel.problem({"n": 130}))
    child.send(HostRequest(file, GPU, problems, tmp_path / "built", configuration=configuration))
    answers = [child.receive(300.0) for _ in problems]
    assert [answer is not None and "alpha" in answer.fault for answer in answers] == [False, True]
