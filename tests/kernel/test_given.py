"""Values that a kernel's file gives to its tensors: arrays of files, and what Python functions return."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.edited_kernels import identity
from tests.kernel_files import GOOD, refusal, write
from tuner.core.errors import TunerError
from tuner.kernel.contents import Array
from tuner.kernel.given import Given
from tuner.kernel.load import read_kernel
from tuner.kernel.plan import tensors_of
from tuner.kernel.roofline import ARCHITECTURES

GPU = next(iter(ARCHITECTURES.values()))
FUNCTIONS = """
import numpy as np

def offsets(n): return 3 * np.arange(n)
def drawn(n, rng, alpha): return alpha * rng.random(n)
def seeded(n, seed): return np.full(n, seed)
def square(n): return [[0, 1, 2], [3, 4, 5]]
def raises(n): return n / 0
def nothing(n): pass
def longer(n): return np.zeros(n + 1)
def endless(n):
    while True: pass
def words(n): return "abc"
def unseeded(n): return np.random.rand(n)
def nan(n): return np.full(n, np.nan)
def large(n): return np.full(n, 1e39)
def halves(n): return np.full(n, 0.5)
def pair(n): return np.zeros(n), np.zeros(n)
def other(m): return m
def leaves(n): raise SystemExit(3)
"""
X = 'x = { shape = ["n"], dtype = "input" }'


def kernel_file(folder: Path, init: str, dtype: str = "input", shape: str = '["n"]', more: str = "") -> Path:
    assert X in GOOD
    (folder / "f.py").write_text(FUNCTIONS)
    return write(
        folder, GOOD.replace(X, f'x = {{ shape = {shape}, dtype = "{dtype}", init = {init}{more} }}')
    )


def values(file: Path, size: int = 6, seed: int = 5, **dtypes: str) -> Array:
    """Return what x holds."""
    kernel = read_kernel(file)
    tensors = tensors_of(kernel, kernel.problem({"n": size}, dtypes), GPU)
    return Given(tensors, {"n": size, "alpha": 2.0}, seed).values({})["x"]


@pytest.mark.parametrize(
    ("init", "dtype", "expected"),
    [
        ('"f.py:offsets"', "int32", [0, 3, 6, 9, 12, 15]),
        ('"f.py:seeded"', "int64", [5] * 6),
        ("{ range = [1, 2] }", "int8", [1, 3, 5, 7, 9, 11]),
        ('{ range = ["n", -0.5] }', "float32", [6, 5.5, 5, 4.5, 4, 3.5]),
        ('"a.npy"', "float32", [0, 1, 2, 3, 4, 5]),
        ('"a.npy"', "bfloat16", [0, 1, 2, 3, 4, 5]),
        ('"bits.npy"', "bfloat16", [1.0] * 6),
        ('"bits.npy"', "float32", [1.0] * 6),
    ],
)
def test_tensors_hold_what_the_file_says(
    tmp_path: Path, init: str, dtype: str, expected: list[float]
) -> None:
    np.save(tmp_path / "a.npy", np.arange(6, dtype=">f4"))
    np.save(tmp_path / "bits.npy", np.full(6, 0x3F80, "uint16").view("V2"))
    assert values(kernel_file(tmp_path, init, dtype)).tolist() == expected


def test_a_function_gets_scalars_and_random_numbers_of_the_problems_seed(tmp_path: Path) -> None:
    file = kernel_file(tmp_path, '"f.py:drawn"')
    one, again, other = (values(file, seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(one, again) and not np.array_equal(one, other)
    assert one.min() >= 0 and 1 < one.max() <= 2


OTHERS = """
import numpy as np

def x(n): return np.arange(n) / 3
def doubled(x): return 2 * x
def shifted(x, doubled, n): return x.dtype == "float64" and doubled - x + n
def inner(outer): return outer
def outer(inner): return inner
def changes(x): x[0] = 1
def result(y): return y
"""


def with_others(folder: Path, **inits: str) -> Given:
    (folder / "f.py").write_text(OTHERS)
    tensors = "".join(
        f'{name} = {{ shape = ["n"], dtype = "float16", init = "{init}" }}\n' for name, init in inits.items()
    )
    kernel = read_kernel(write(folder, GOOD.replace(X, tensors if "x" in inits else tensors + X)))
    return Given(tensors_of(kernel, kernel.problem({"n": 6}), GPU), {"n": 6}, 5)


def test_a_function_gets_what_other_inputs_hold_whatever_stands_first(tmp_path: Path) -> None:
    given = with_others(tmp_path, shifted="f.py:shifted", doubled="f.py:doubled", x="f.py:x")
    values = given.values({})
    assert np.abs(values["shifted"] - np.arange(6) / 3 - 6).max() < 1e-3
    # what the function gets of x is as float16 has it
    assert (values["doubled"] == 2 * values["x"].astype("float16").astype("float64")).all()
    assert given.fixed == {"x", "doubled", "shifted"} and not given.drawn_asked


def test_what_follows_from_a_drawn_input_follows_its_other_numbers(tmp_path: Path) -> None:
    given = with_others(tmp_path, x="normal", doubled="f.py:doubled", shifted="f.py:x")
    assert given.drawn_asked == ["x"] and given.fixed == {"shifted"}
    fixed = {"shifted": np.arange(6.0)}
    for number in (1.0, -3.0):
        values = given.again({"x": np.full(6, number)}, fixed)
        assert values["doubled"].tolist() == [2 * number] * 6 and values["shifted"] is fixed["shifted"]


@pytest.mark.parametrize(
    ("inits", "said"),
    [
        (
            {"inner": "inner", "outer": "outer"},
            "the functions of (inner, outer|outer, inner) ask for each other",
        ),
        ({"x": "x", "inner": "changes"}, r"f.py:9: ValueError: .*read-only; correct the function"),
        ({"x": "result"}, r"f.py:result wants 'y', which is not available"),
    ],
)
def test_inputs_that_cannot_follow_from_others_are_refused_in_one_line(
    tmp_path: Path, inits: dict[str, str], said: str
) -> None:
    with pytest.raises(TunerError, match=said) as caught:
        with_others(tmp_path, **{name: f"f.py:{of}" for name, of in inits.items()}).values({})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("init", ['"f.py:square"', '"a.npy"'])
def test_an_array_is_as_the_kernel_means_it_and_a_transposed_tensor_holds_its_transpose(
    tmp_path: Path, init: str
) -> None:
    np.save(tmp_path / "a.npy", np.arange(6, dtype="float32").reshape(2, 3))
    file = kernel_file(tmp_path, init, shape="[2, 3]", more=", transposed = 1")
    assert values(file).tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize(
    ("function", "dtype", "said"),
    [
        ("raises", "input", r"f.py:8: ZeroDivisionError: .*; correct the function"),
        ("longer", "input", r"f.py:10: longer returns shape \(7,\) for x; this problem needs \(6,\)"),
        ("endless", "input", r"f.py:12: endless has no result after 1 s; have it take less, or save"),
        ("unseeded", "input", r"unseeded returns another x for the same inputs; seed"),
        ("nan", "input", r"nan returns NaN in 6 of 6"),
        ("large", "input", r"large returns 1e\+39 in x\[0\], which is no number of float32"),
        ("halves", "int32", r"halves returns 0.5 in x\[0\], which is no number of int32"),
        ("pair", "input", r"pair returns two arrays"),
        ("other", "input", r"f.py:other wants 'm', which is not available; .*n, rng, seed"),
    ],
)  # fmt: skip
def test_a_function_that_gives_no_such_array_is_named_with_its_line(
    tmp_path: Path, function: str, dtype: str, said: str
) -> None:
    file = kernel_file(tmp_path, f'"f.py:{function}"', dtype)
    kernel = read_kernel(file)
    tensors = tensors_of(kernel, kernel.problem({"n": 6}), GPU)
    with pytest.raises(TunerError, match=said) as caught:
        Given(tensors, {"n": 6, "alpha": 2.0}, 5, limit_s=0.3).values({})
    assert "\n" not in str(caught.value)


def headed(shape: str) -> bytes:
    """Return a file of an array whose header says this shape."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(24)


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.zeros(7, "float32"), r"a.npy has shape \(7,\); this problem needs \(6,\)"),
        (np.zeros(6), "a.npy has float64, and this problem float32; save array.astype\\('float32'\\)"),
        (np.zeros(6, "complex64"), "has complex64"),
        (np.full(6, None), "a.npy is no array: .*Python objects"),
        (b"junk", "a.npy is no array"),
        *((headed(text), "a.npy is no array: [^<]*; save") for text in ("(-6,)", f"({2**62}, 4)", "print()")),
    ],
)
def test_an_array_that_does_not_fit_is_refused_in_one_line(
    tmp_path: Path, array: Array | bytes, said: str
) -> None:
    if isinstance(array, bytes):
        (tmp_path / "a.npy").write_bytes(array)
    else:
        np.save(tmp_path / "a.npy", array)
    with pytest.raises(TunerError, match=f"^scale.toml: tensors: x: init: .*{said}") as caught:
        values(kernel_file(tmp_path, '"a.npy"'))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("init", "dtype", "said"),
    [
        ('"a.npy"', "input", "no file a.npy; paths start at"),
        ('"f.py:"', "input", "name a file and its function"),
        ('"-inf"', "input", "init = '-inf'; choose from: "),
        ("{ range = [1] }", "input", "range has 1 numbers; write init = { range = [first, step] }"),
        ("{ range = [1, 2], uniform = [0, 1] }", "input", "unknown key 'uniform'"),
    ],
)
def test_an_init_that_cannot_be_is_refused_with_the_file(
    tmp_path: Path, init: str, dtype: str, said: str
) -> None:
    (tmp_path / "folder.npy").mkdir()
    assert said in refusal(kernel_file(tmp_path, init, dtype))


def test_a_kernel_is_another_with_other_values(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(6, "float32"))
    file = kernel_file(tmp_path, '"a.npy"')
    first = identity(file).computation
    np.save(tmp_path / "a.npy", np.ones(6, "float32"))
    assert identity(file).computation != first
    file = kernel_file(tmp_path, '"f.py:offsets"')
    first = identity(file).computation
    (tmp_path / "f.py").write_text(FUNCTIONS.replace("3 * np", "4 * np"))
    second = identity(file).computation
    (tmp_path / "f.py").write_text(FUNCTIONS.replace("3 * np", "4 * np") + "# for a reason\n")
    assert identity(file).computation == second != first


def test_an_output_takes_no_values(tmp_path: Path) -> None:
    text = GOOD.replace('role = "output"', 'role = "output", init = "f.py:offsets"')
    (tmp_path / "f.py").write_text(FUNCTIONS)
    assert 'give it role = "inout"' in refusal(write(tmp_path, text))


@pytest.mark.parametrize(
    ("init", "dtype"),
    [
        ("{ range = [0, 1000] }", "int8"),
        ("{ range = [0, 20000] }", "float16"),
        ("{ range = [0, -1] }", "uint32"),
        ("{ range = [0.5, 1] }", "int32"),
    ],
)
def test_a_range_stays_within_its_dtype(tmp_path: Path, init: str, dtype: str) -> None:
    with pytest.raises(TunerError, match="is no range of " + dtype):
        values(kernel_file(tmp_path, init, dtype))


def test_problems_of_another_size_have_no_such_array(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(6, "float32"))
    kernel = read_kernel(kernel_file(tmp_path, '"a.npy"'))
    assert kernel.of_one_size == "a.npy fits one size"
    assert not read_kernel(kernel_file(tmp_path, '"f.py:offsets"')).of_one_size
    assert not read_kernel(kernel_file(tmp_path, '"a.npy"', shape="[6]")).of_one_size
