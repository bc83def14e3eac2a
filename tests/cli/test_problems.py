"""What the command line says about problems: options that are expressions, and the commas in them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.commands import assert_refused, said_by
from tests.kernel_files import MAP, write
from tuner.cli.commands.inspection import show
from tuner.cli.filters import problem_filter
from tuner.cli.options import ProblemTexts
from tuner.cli.problems import assignments, make_problems, size_of
from tuner.core.errors import UsageError
from tuner.core.model import Problem
from tuner.kernel.baselines import baselines_of, launch_of, parse_baseline, settle_baseline, source_of
from tuner.kernel.load import read_kernel
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.spec import KernelSpec
from tuner.runtime.launch_limits import NULL_POINTER


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return read_kernel(write(tmp_path, MAP))


def test_a_size_that_is_too_large_to_compute_says_so() -> None:
    with pytest.raises(UsageError, match=r"size n=2\*\*70; give a whole number up to 2\*\*62"):
        size_of("n", "2**70")


def problems(kernel: KernelSpec, *options: str, row: str = "", file: Path | None = None) -> list[Problem]:
    return make_problems(
        kernel, ProblemTexts(options=options, problem_texts=[row] if row else [], problem_file=file)
    )


def test_commas_in_parentheses_belong_to_the_value() -> None:
    assert assignments(["a=1,b=f(x, g(y, z)),c=3"], "--option") == [
        ("a", "1"),
        ("b", "f(x, g(y, z))"),
        ("c", "3"),
    ]
    assert assignments(["a=where(x >= 0, 1, 2)"], "--option") == [("a", "where(x >= 0, 1, 2)")]
    assert assignments(["a=f(x, y"], "--option") == [("a", "f(x, y")]
    assert assignments(["a=x), b=1"], "--option") == [("a", "x)"), ("b", "1")]
    with pytest.raises(UsageError, match="write --option name=value"):
        assignments(["a=1,x"], "--option")


def test_a_size_needs_no_name_where_there_is_one(kernel: KernelSpec, tmp_path: Path) -> None:
    (one,) = make_problems(kernel, ProblemTexts(sizes=["2**12"]))
    assert one.sizes == {"n": 4096}
    (tmp_path / "two").mkdir()
    two = read_kernel(write(tmp_path / "two", MAP.replace("sizes = { n = ", "sizes = { m = 8, n = ")))
    with pytest.raises(UsageError, match="--size '4096'; write --size m=8,n="):
        make_problems(two, ProblemTexts(sizes=["4096"]))


@pytest.mark.parametrize(("name", "dtype"), [("half", "float16"), ("FP16", "float16"), ("float", "float32")])
def test_dtypes_have_the_names_that_people_give_them(kernel: KernelSpec, name: str, dtype: str) -> None:
    texts = (
        ProblemTexts(dtypes=[name]),
        ProblemTexts(dtypes=[f"input={name}"]),
        ProblemTexts(problem_texts=[f"dtype={name}"]),
    )
    for given in texts:
        assert make_problems(kernel, given)[0].dtype == dtype
    assert problem_filter([name], [])(make_problems(kernel, texts[0])[0])
    with pytest.raises(UsageError, match="has no dtype of input 'bfloat16'"):
        make_problems(kernel, ProblemTexts(dtypes=["bf16"]))


@pytest.mark.parametrize("text", ["maximum(x,0)", " maximum( x, 0.0 )", "maximum(x, (0))"])
def test_one_expression_is_one_problem(kernel: KernelSpec, text: str, tmp_path: Path) -> None:
    file = tmp_path / "problems.csv"
    file.write_text(f'n,op,order\n7,"{text}",down\n')
    wanted = {"order": "down", "op": "maximum(x, 0)"}
    assert [p.options for p in problems(kernel, f"op={text},order=down")] == [wanted]
    assert [p.options for p in problems(kernel, f"op={text}", "order=DOWN")] == [wanted]
    assert [p.options for p in problems(kernel, row=f"n=5,op={text},order=down")] == [wanted]
    assert [p.options for p in problems(kernel, file=file)] == [wanted]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("op=x +", "option op of map: cannot parse"),
        ("op=x ^ 2", "not allowed"),
        ("op=maximum(x, 0", "never closed"),
        ("op=w", "unknown name 'w'"),
        ("op=3", "uses none of x, y"),
        ("po=x", "map has no option 'po'"),
        ("order=x + 1", "no value of option order 'x + 1'"),
    ],
)
def test_wrong_expressions_are_named_in_one_line(kernel: KernelSpec, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        problems(kernel, text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_expression_without_what_the_kernel_computes_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, option, use in (("linear", "op=bias", "use x"), ("norm", "after=weight*2", "use n")):
        assert_refused(said_by(capsys, "show", name, "--option", option), 2, option.partition("*")[0], use)
    for name, option in (("linear", "op=x*2"), ("gated", "op=gate"), ("transform", "op=y")):
        assert said_by(capsys, "show", name, "--option", option).code == 0


def test_stored_problems_are_found_by_any_way_to_write_it(kernel: KernelSpec) -> None:
    stored = kernel.problem(options={"op": "x * y + 1"})
    for text, fits in (("op=(x*y)+1.0", True), ("op=x * y + 1", True), ("op=x*y", False), ("op=x+", False)):
        assert problem_filter([], [text])(stored) == fits
    assert problem_filter([], ["order=UP"])(stored)
    assert not problem_filter([], ["missing=1"])(stored)


def test_show_tells_expressions_absent_tensors_and_steps(kernel: KernelSpec) -> None:
    text = CliRunner().invoke(show, [str(kernel.file), "--full"]).stdout
    for line in (
        "  options  order: up, down\n",
        "  option   op: x + 0.5 * (20 - x), or any expression of x, y\n",
        "  absent   y: this problem has no such tensor\n",
        "  preset   product: op=x*y, order=down\n",
        "  ladder   1. plain, small: plain block_size=64  (first)\n",
        "  ladder   2. product: half input=float16 op=x * y order=down\n",
        "space for map n=1024 float32 order=up op=x + 0.5 * (20 - x) on NVIDIA H200",
    ):
        assert line in text
    asked = CliRunner().invoke(show, [str(kernel.file), "--option", "op=minimum(x, y)"]).stdout
    assert "absent" not in asked
    assert "op=minimum(x, y)" in asked


def test_show_as_json(kernel: KernelSpec) -> None:
    data = json.loads(CliRunner().invoke(show, [str(kernel.file), "--option", "op=y", "--json"]).stdout)
    assert data["problem"]["options"] == {"order": "up", "op": "y"}
    assert data["elements"] == {"op": ["x", "y"]}
    assert {t["name"]: (t["present"], t["when"]) for t in data["tensors"]} == {
        "x": (False, "uses(op, 'x')"),
        "y": (True, "uses(op, 'y')"),
        "out": (True, ""),
    }
    assert data["ladder"][1] == {
        "name": "product",
        "variant": "half",
        "parameters": {},
        "dtypes": {"input": "float16"},
        "options": {"op": "x * y", "order": "down"},
        "doc": "",
    }


# -- what it is compared with


def test_a_kernel_of_ones_own_sees_expressions_and_null_pointers(kernel: KernelSpec, tmp_path: Path) -> None:
    (tmp_path / "mine.cu").write_text("// tune: mine<<<ceil_div(n, 128), 128>>>(x, y, out, int64(n))\n")
    baseline = parse_baseline(str(tmp_path / "mine.cu"))
    problem = kernel.problem(options={"op": "x * x"})
    assert launch_of(baseline, kernel, problem, ARCHITECTURES[90]).arguments == (
        ("buffer", "x", 0), NULL_POINTER, ("buffer", "out", 0), ("scalar", "int64", 1024)
    )  # fmt: skip
    source, entry = source_of(baseline, kernel, problem, ARCHITECTURES[90])
    assert entry == "mine"
    assert (
        "#define op(x, y) ((((float)(x)) * ((float)(x))))\n#define op_uses_x 1\n#define op_uses_y 0\n"
        in source
    )
    wrong = parse_baseline(f"{tmp_path / 'mine.cu'}:mine<<<1, 32>>>(op)")
    with pytest.raises(UsageError, match=r"argument op is the text 'x \* x'"):
        launch_of(wrong, kernel, problem, ARCHITECTURES[90])


def test_a_librarys_call_needs_its_tensors(tmp_path: Path) -> None:
    calls = '[baselines]\ntorch = "torch.mul(x, y, out=out)"\n\n[work]'
    kernel = read_kernel(write(tmp_path, MAP.replace("[work]", calls)))
    (torch,) = baselines_of(kernel)
    both, one = kernel.problem(options={"op": "x * y"}), kernel.problem()
    assert settle_baseline(torch, kernel, both).text == "torch.mul(x, y, out=out)"
    with pytest.raises(UsageError, match=r"needs y, which map .* does not have"):
        settle_baseline(torch, kernel, one)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("4096,4096\n1,2\n", "line 1 has numbers and no names; name the columns"),
        ("64\n128\n", "line 1 has numbers and no names; name the columns"),
        ("n;op\n4096;x\n", "line 1 has ';' between its names; separate the columns by commas"),
        ("N\n4096\n", "no size, option or dtype 'N'; did you mean n?"),
    ],
)
def test_a_heading_that_is_none_is_said(kernel: KernelSpec, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "problems.csv"
    file.write_text(text)
    with pytest.raises(UsageError, match=re.escape(said)):
        problems(kernel, file=file)
