"""Which dtypes are compared, and which is the truth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tuner.cli.filters import problem_filter
from tuner.cli.options import ProblemTexts
from tuner.cli.problems import make_choices, make_problems
from tuner.core.errors import UsageError
from tuner.core.model import Problem
from tuner.kernel.load import load_kernel
from tuner.kernel.spec import KernelSpec
from tuner.tuning.accuracy import dtypes_to_try, truth_of

GEMM = load_kernel("gemm")
HALF, SINGLE, BRAIN = (GEMM.problem({}, {"": dtype}) for dtype in ("float16", "float32", "bfloat16"))


def test_truth_is_the_widest_dtype_that_the_kernel_knows() -> None:
    for problem in (HALF, SINGLE, BRAIN):
        assert truth_of(GEMM, problem) == SINGLE
    wide = replace(GEMM, dtypes={**GEMM.dtypes, "input": ("bfloat16", "float64", "float32")})
    truth = truth_of(wide, replace(BRAIN, sizes={"m": 3, "n": 4, "k": 5}, options={"layout": "nt"}))
    assert truth.dtypes == {"input": "float64", "accumulate": "float32", "output": "float64"}
    assert (truth.sizes, truth.options) == ({"m": 3, "n": 4, "k": 5}, {"layout": "nt"})


def test_truth_widens_every_role_that_has_a_choice_and_keeps_whole_numbers() -> None:
    dtypes = {"input": ("float16", "float32"), "index": ("int8", "int32"), "output": ("bfloat16", "float16")}
    kernel = replace(GEMM, dtypes=dtypes)
    truth = truth_of(
        kernel, Problem("gemm", HALF.sizes, {"input": "float16", "index": "int32"}, HALF.options)
    )
    assert truth.dtypes == {"input": "float32", "index": "int32", "output": "float16"}


def test_dtypes_to_try() -> None:
    assert dtypes_to_try(GEMM, []) == ("float16", "bfloat16", "float32")
    assert dtypes_to_try(GEMM, ["float32", "float16", "float32"]) == ("float32", "float16")
    fixed = replace(GEMM, dtypes={"input": "float32"})
    assert dtypes_to_try(fixed, []) == ("float32",)
    with pytest.raises(UsageError, match="'flaot16'; did you mean float16"):
        dtypes_to_try(GEMM, ["float32", "flaot16"])
    mixed = replace(GEMM, dtypes={"input": ("float32", "int32")})
    assert dtypes_to_try(mixed, []) == ("float32",)
    with pytest.raises(UsageError, match="no floating-point dtype 'int32'"):
        dtypes_to_try(mixed, ["int32"])
    whole = replace(GEMM, dtypes={"input": ("int32",)})
    with pytest.raises(UsageError, match="no error to choose by"):
        dtypes_to_try(whole, [])


def choices(
    kernel: KernelSpec, dtypes: list[str], problems: list[str], presets: list[str]
) -> list[list[str]]:
    groups = make_choices(kernel, ProblemTexts(["k=64"], dtypes, presets=presets, problem_texts=problems))
    return [[f"{problem.sizes['m']} {problem.dtype}" for problem in group] for group in groups]


def test_choices_are_problems_times_dtypes() -> None:
    assert choices(GEMM, ["float32, float16", "input=bfloat16"], ["m=8", "m=16", "m=8"], []) == [
        ["8 float32", "8 float16", "8 bfloat16"],
        ["16 float32", "16 float16", "16 bfloat16"],
    ]
    assert choices(GEMM, [], [], []) == [["4096 float16", "4096 bfloat16", "4096 float32"]]
    # A row that names a dtype leaves no choice; and the same problem twice is tuned once.
    assert choices(GEMM, [], ["m=8,dtype=float32", "m=16"], [])[0] == ["8 float32"]
    assert choices(GEMM, ["float16", "bfloat16"], ["m=8,input=float32"], []) == [["8 float32"]]


def test_choices_heed_a_preset_with_a_dtype() -> None:
    kernel = replace(GEMM, presets={"own": {"m": 8, "input": "bfloat16"}})
    assert choices(kernel, [], [], ["own"]) == [["8 bfloat16"]]
    assert choices(kernel, ["float16", "float32"], [], ["own"]) == [["8 float16", "8 float32"]]


@pytest.mark.parametrize("text", ["input=float16,output=bfloat16", "float16, output=bfloat16"])
def test_one_option_names_the_dtypes_of_several_roles(text: str) -> None:
    both = ("float32", "float16", "bfloat16")
    kernel = replace(GEMM, dtypes={"input": both, "output": both})
    (problem,) = make_problems(kernel, ProblemTexts(dtypes=[text]))
    assert problem.dtypes == {"input": "float16", "output": "bfloat16"}
    (chosen,) = make_choices(kernel, ProblemTexts(dtypes=[f"float32,{text}"]))
    assert [one.dtypes for one in chosen] == [{**problem.dtypes, "input": "float32"}, problem.dtypes]
    assert problem_filter([text.replace("float16,", "float16,float32,")], [])(problem)
    assert not problem_filter([text.replace("float16,", "float32,")], [])(problem)
    with pytest.raises(UsageError, match="gives output twice"):
        make_problems(kernel, ProblemTexts(dtypes=[f"{text},output=float32"]))


@pytest.mark.parametrize("text", ["float32,", ",", "input=", "output=", "float32,,float16"])
def test_empty_dtype_is_refused(text: str) -> None:
    for make in (make_problems, make_choices):
        with pytest.raises(UsageError, match="--dtype"):
            make(GEMM, ProblemTexts(dtypes=[text]))


def test_row_with_a_dtype_that_has_no_errors_is_refused() -> None:
    kernel = replace(GEMM, dtypes={"input": ("float32", "int32")})
    with pytest.raises(UsageError, match="no floating-point dtype 'int32'"):
        make_choices(kernel, ProblemTexts(problem_texts=["m=8,dtype=int32"]))
