"""What random inputs hold, and which other contents a reference has an answer to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kernel_files import GOOD, write
from tuner.core.errors import KernelError
from tuner.expressions.array_evaluation import BeyondIntegersError
from tuner.kernel.contents import Content, Tried, drawn, further_contents, not_varied
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import tensors_of
from tuner.kernel.reference import UNIT_ROUNDOFF
from tuner.kernel.roofline import ARCHITECTURES
from tuner.runtime.dtypes import DTYPES, ITEMSIZE
from tuner.runtime.launches import Buffer

GPU = next(iter(ARCHITECTURES.values()))
FLOATS, BYTES = Buffer("x", (400,), "float32", "input"), Buffer("b", (400,), "uint8", "input", "uniform")


@pytest.mark.parametrize("dtype", ITEMSIZE)
@pytest.mark.parametrize("content", Content)
def test_numbers_are_those_of_the_dtype(dtype: str, content: Content) -> None:
    numbers = drawn(Buffer("x", (40, 50), dtype, "input"), np.random.default_rng(1), content)
    assert numbers.shape == (40, 50)
    assert np.isfinite(numbers).all()
    if dtype in UNIT_ROUNDOFF:
        wide = content in (Content.LARGE, Content.FAR, Content.ABOVE, Content.SPARSE)
        assert np.ptp(numbers) > 8 if wide else np.abs(numbers).max() < 8
    else:
        lowest, highest = DTYPES[dtype].limits
        low, high = int(numbers.min()), int(numbers.max())
        assert numbers.dtype == ("uint64" if dtype == "uint64" else "int64")
        assert lowest <= low <= high <= highest
        if content in (Content.WHOLE, Content.SYMMETRIC):
            least = lowest if content is Content.WHOLE else -highest
            assert high == highest and low == (least if lowest else 0)
            assert len(np.unique(numbers)) > min(highest / 2, 200)
        if content is Content.HALF and lowest:
            assert high**2 < highest and 4 * (high + 1) ** 2 >= highest
        if content is Content.USUAL:
            assert (low, high < 128) == (0, True)
    if content in (Content.EQUAL, Content.ZEROS):
        assert len(np.unique(numbers)) == 1
    if content is Content.FAR and DTYPES[dtype].kind in ("float", "complex"):
        assert -(2.0**17) <= numbers.real.min() <= numbers.real.max() <= -32
    if content is Content.ABOVE and DTYPES[dtype].kind in ("float", "complex"):
        assert 32 <= numbers.real.min() <= numbers.real.max() <= 2.0**17
    if content is Content.NEGATIVE and DTYPES[dtype].kind not in ("uint", "bool"):
        assert max(numbers.real.max(), numbers.imag.max()) <= 0
        assert numbers.real.max() < 0 or DTYPES[dtype].kind == "float8"  # small ones are rounded to zero


@pytest.mark.parametrize("content", Content)
@pytest.mark.parametrize(
    ("dtype", "between"),
    [
        ("float32", (2.5, 3.0)),
        ("int64", (2**53, 2**53 + 3)),
        ("int8", (-3, 5)),
        ("uint64", (2**64 - 1, 2**64 - 1)),
    ],
)
def test_no_number_leaves_the_range_that_the_file_gives(
    dtype: str, between: tuple[float, float], content: Content
) -> None:
    tensor = Buffer("x", (500,), dtype, "input", "uniform", between=between)
    numbers = drawn(tensor, np.random.default_rng(0), content)
    assert between[0] <= numbers.min() <= numbers.max() <= between[1]
    if dtype == "int64" and content is Content.USUAL:
        assert sorted(set(numbers.tolist())) == [2**53 + i for i in range(4)]


def test_inputs_that_mean_something_are_not_varied() -> None:
    index, output = Buffer("i", (600,), "int32", "input", "index"), Buffer("y", (9,), "float32", "output")
    for tried in further_contents((FLOATS, index, output), lambda numbers: numbers, 0):
        assert tried.result is not None
        assert tried.result.keys() == {"x", "i"}
        np.testing.assert_array_equal(tried.result["i"], np.arange(600) % 251)
    assert not_varied((FLOATS, index, output), {}) == ""
    assert not_varied((index, output), {}) == "no input is random"
    assert not_varied((FLOATS, output), {"y": "y.npy"}) == "golden files are of one content"


def tried_with(tensors: tuple[Buffer, ...], refuses: Any, **given: Any) -> dict[str, Tried[Any]]:
    def compute(numbers: Mapping[str, Any]) -> Mapping[str, Any]:
        refuses(numbers)
        return numbers

    return {tried.content: tried for tried in further_contents(tensors, compute, 7, **given)}


def test_indices_keep_the_usual_numbers_and_the_others_do_not() -> None:
    def refuse(numbers: Mapping[str, Any]) -> None:
        if numbers["b"].max() > 127:
            raise KernelError("out of bounds", "no")

    tried = tried_with((FLOATS, BYTES), refuse)
    assert (tried[Content.WHOLE].result, tried[Content.WHOLE].why) == (None, "out of bounds")
    for content in (Content.LARGE, Content.EQUAL, Content.ZEROS, Content.NEGATIVE):
        assert tried[content].result["b"].max() > 4 and len(np.unique(tried[content].result["b"])) > 4
    assert not tried[Content.ZEROS].result["x"].any()
    assert tried_with((BYTES,), refuse).keys() == {Content.WHOLE}


def test_the_last_content_follows_from_no_seed() -> None:
    first, second = (tried_with((FLOATS,), lambda _: None, later=True) for _ in range(2))
    assert list(first)[-1] == Content.LATER
    assert (first[Content.LATER].result["x"] != second[Content.LATER].result["x"]).any()
    np.testing.assert_array_equal(first[Content.LARGE].result["x"], second[Content.LARGE].result["x"])
    assert Content.LATER not in tried_with((FLOATS,), lambda _: None)


def test_a_file_says_between_which_numbers_inputs_are(tmp_path: Any) -> None:
    given = 'x = { shape = ["n"], dtype = "INPUT", init = { uniform = [-1, "n // 2"] } }'

    def between(dtype: str, init: str = '[-1, "n // 2"]') -> Any:
        line = given.replace("INPUT", dtype).replace('[-1, "n // 2"]', init)
        kernel = load_kernel(
            str(write(tmp_path, GOOD.replace('x = { shape = ["n"], dtype = "input" }', line)))
        )
        return tensors_of(kernel, kernel.problem(), GPU)[0].between

    assert between("input") == (-1, 512)
    assert between("int64", '["-2 ** 62", "2**62 + 1"]') == (-(2**62), 2**62 + 1)
    for dtype, init, said in (
        ("int32", "[1, 0.5]", "tensors: x: init: uniform: 1 to 0.5 is no range of int32"),
        ("uint8", "[0, 256]", "0 to 256 is no range of uint8"),
        ("uint8", "[-1, -1]", "-1 is no number of uint8; write one of its dtype"),
        ("uint8", "[1]", "uniform has 1 numbers; write init = { uniform = \\[least, largest\\] }"),
        ("uint8", "[0, 'm']", "unknown name 'm'"),
    ):
        with pytest.raises(KernelError, match=said):
            between(dtype, init)
    text = ""
    for init, numbers in (("-inf", -np.inf), ("0.5", 0.5), ("true", 1.0), ("-2e30", np.float32(-2e30))):
        line = given[: given.index("{ uniform")].replace("INPUT", "input") + init + " }"
        text = GOOD.replace('x = { shape = ["n"], dtype = "input" }', line)
        kernel = load_kernel(str(write(tmp_path, text)))
        tensor = tensors_of(kernel, kernel.problem(), GPU)[0]
        assert set(drawn(tensor, np.random.default_rng(0), Content.NEGATIVE)) == {numbers}
        assert not_varied((tensor,), {}) == "no input is random"
    wrong = text.replace('"input", init = -2e30', '"int8", init = inf')
    kernel = load_kernel(str(write(tmp_path, wrong)))
    with pytest.raises(KernelError, match="init of x is no number of int8"):
        tensors_of(kernel, kernel.problem(), GPU)
    for init, said in (
        ("{ normal = [0, 1] }", "unknown key 'normal'"),
        ("nan", "init is not a number"),
        ("[1, 2]", r"init = \[1, 2\] is not text or a table or an integer"),
        ('"data.csv"', "init = 'data.csv'; choose from: normal, .*\"inputs.py:FUNCTION\""),
    ):
        line = given[: given.index("{ uniform")].replace("INPUT", "input") + init + " }"
        with pytest.raises(KernelError, match=said):
            load_kernel(str(write(tmp_path, GOOD.replace('x = { shape = ["n"], dtype = "input" }', line))))


@pytest.mark.parametrize("dtype", [name for name, dtype in DTYPES.items() if dtype.whole])
def test_whole_is_the_range_of_the_dtype_in_the_usual_numbers_too(dtype: str, tmp_path: Path) -> None:
    before, after = (
        'x = { shape = ["n"], dtype = "input"',
        f'x = {{ shape = ["n"], dtype = "{dtype}", init = "whole"',
    )
    kernel = load_kernel(str(write(tmp_path, GOOD.replace(before, after))))
    tensor, _ = tensors_of(kernel, kernel.problem({"n": 4096}), GPU)
    low, high = DTYPES[dtype].limits
    assert tensor.between == (low, high)
    numbers = drawn(tensor, np.random.default_rng(1)).astype(np.float64)
    counts, _ = np.histogram(numbers, 2 if dtype == "bool" else 4, (float(low), float(high)))
    assert counts.sum() == 4096 and counts.min() > 800


def test_whole_is_of_integers(tmp_path: Path) -> None:
    text = GOOD.replace('dtype = "input" }', 'dtype = "input", init = "whole" }', 1)
    kernel = load_kernel(str(write(tmp_path, text)))
    with pytest.raises(KernelError, match="init of x: float32 has no whole range; give"):
        tensors_of(kernel, kernel.problem(), GPU)


def test_a_number_and_a_range_are_real() -> None:
    for init, between in (("uniform", (0.5, 0.5)), ("range", (0.0, 0.5)), ("index", None)):
        tensor = Buffer("x", (9,), "complex64", "input", init, between=between)
        numbers = drawn(tensor, np.random.default_rng(0))
        assert numbers.dtype == np.complex128 and not numbers.imag.any() and numbers.real[1] >= 0.5


def test_a_range_of_large_integers_has_no_rounded_number() -> None:
    tensor = Buffer("x", (9,), "int64", "input", "uniform", between=(2**62 + 1, 2**62 + 2))
    for content in Content:
        numbers = drawn(tensor, np.random.default_rng(0), content)
        assert set(numbers.tolist()) <= {2**62 + 1, 2**62 + 2}


def test_numbers_without_room_are_drawn_with_half_of_the_bits() -> None:
    def refuse(numbers: Mapping[str, Any]) -> None:
        if numbers["i"].max() > 2**15:
            raise BeyondIntegersError("too large")

    tried = tried_with((Buffer("i", (500,), "int32", "input"),), refuse)
    assert tried[Content.WHOLE].why == "too large"
    assert tried[Content.HALF].result["i"].max() == 2**15 - 1
    assert tried[Content.NEGATIVE].result["i"].max() < 0
