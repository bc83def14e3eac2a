"""References on the host, without a GPU: NumPy expressions, a user's Python function, golden files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.commands import said_by
from tests.kernel_files import GOOD, settled, write
from tuner.core.errors import KernelError, TunerError
from tuner.expressions.array import ArrayExpression
from tuner.kernel import python_reference
from tuner.kernel.functions import PythonFunction, load_function
from tuner.kernel.load import load_kernel
from tuner.kernel.python_reference import PROBES, Asked, expected_on_host, run_function
from tuner.kernel.reference import Expected, SettledReference, tolerance
from tuner.runtime.launches import Buffer

RNG = np.random.default_rng(3)
X, Y = Buffer("x", (50, 8), "float32", "input"), Buffer("y", (8, 50), "float32", "output", transposed=True)
INDEX, N = Buffer("i", (50,), "int32", "input"), Buffer("n", (50,), "int32", "output")
INPUTS = {"x": RNG.normal(size=(50, 8)).astype(np.float32).astype(np.float64), "i": np.arange(50.0)}
NUMBERS = {"rows": 50, "alpha": 0.5}


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., dict[str, Expected]]:
    """Write a reference file, and run its function ``f``."""

    def write_and_run(
        body: str, *outputs: Buffer, reduction: int = 1, limit_s: float = 60.0
    ) -> dict[str, Expected]:
        file = tmp_path / f"reference_{len(list(tmp_path.iterdir()))}.py"
        file.write_text(body)
        outputs = outputs or (Y,)
        return run_function(
            PythonFunction(file, "f"),
            (X, INDEX, *outputs),
            [output.name for output in outputs],
            INPUTS,
            NUMBERS,
            reduction=reduction,
            limit_s=limit_s,
        )

    return write_and_run


Run = Callable[..., dict[str, Expected]]


def test_function_gets_what_it_names(run: Run) -> None:
    body = """
def f(x, i, *, alpha, rows, other=3):
    assert x.dtype == 'float64' and x.shape == (50, 8) and not x.flags.writeable
    assert i.dtype == 'int64' and rows == 50 and other == 3
    return alpha * x[i]
"""
    (expected,) = run(body).values()
    np.testing.assert_array_equal(expected.value, 0.5 * INPUTS["x"])
    assert expected.magnitude.shape == (50, 8)


@pytest.mark.parametrize("k", [1, 256])
def test_right_kernels_pass_and_wrong_ones_fail_with_the_magnitude_of_a_function(
    tmp_path: Path, k: int
) -> None:
    a, b = (RNG.normal(size=shape).astype(np.float32) for shape in ((40, k), (k, 40)))
    inputs = {"a": a.astype(np.float64), "b": b.astype(np.float64)}
    tensors = [Buffer(n, v.shape, "float32", "input") for n, v in inputs.items()]
    tensors.append(Buffer("c", (40, 40), "float32", "output"))
    (tmp_path / "product.py").write_text("def f(a, b): return a @ b")
    expected = run_function(
        PythonFunction(tmp_path / "product.py", "f"), tensors, ["c"], inputs, {}, reduction=k
    )["c"]
    value, magnitude = ArrayExpression("a @ b").evaluate(inputs)
    assert 0.5 < np.median(expected.magnitude / magnitude) < 6.0
    total = np.zeros((40, 40), np.float32)
    for i in range(k):
        total += np.outer(a[:, i], b[i])
    bound = tolerance(k, "float32", "float32")
    allowed = bound.coefficient * expected.magnitude + bound.unit * np.abs(expected.value) + bound.tiny
    assert (np.abs(total - value) <= allowed).all()
    half = total.astype(np.float16).astype(np.float64)
    assert (np.abs(half - value) > allowed).any()


@pytest.mark.parametrize("said", ["a python function", "numpy"])
@pytest.mark.parametrize(
    ("text", "shapes", "least", "most"),
    [
        ("a @ b", ((64, 500), (500, 64), (64, 64)), 500, 4000),
        ("a + b", ((64, 64), (64, 64), (64, 64)), 3, 6),
        ("a * 2", ((64, 64), (1,), (64, 64)), 1, 1),
        ("a.sum() + 0 * b", ((300, 300), (1,), (1,)), 90000, 90001),
    ],
)
def test_terms_that_no_file_says_are_estimated(
    said: str, text: str, shapes: Sequence[tuple[int, ...]], least: int, most: int, tmp_path: Path
) -> None:
    inputs = {name: RNG.normal(size=shape) for name, shape in zip("ab", shapes, strict=False)}
    tensors = [Buffer(name, value.shape, "float32", "input") for name, value in inputs.items()]
    tensors.append(Buffer("c", shapes[2], "float32", "output"))
    (tmp_path / "f.py").write_text(f"def f(a, b): return {text}")
    expressions = {"c": text.replace("a.sum()", "sum(a)").replace("a.sum(axis=1)", "sum(a, axis=1)")}
    how = {"numpy": expressions} if said == "numpy" else {"python": PythonFunction(tmp_path / "f.py", "f")}
    reference = SettledReference("float32", **how)
    rough = expected_on_host(reference, tensors, inputs, {})["c"]
    known = expected_on_host(reference, tensors, inputs, {}, asked=Asked(probes=PROBES))["c"]
    if said == "numpy":
        assert (rough.probes, rough.terms) == (1, 1)
    assert known.probes == 0 and least <= known.terms <= most
    assert reference.tolerance_of("float32", known).reduction == known.terms


def test_where_rounding_decides_anything_may_be(run: Run) -> None:
    """A step that one input touches: both sides of it are right."""
    threshold = INPUTS["x"][0, 0]
    step = run(f"import numpy as np\ndef f(x): return np.where(x >= {float(threshold)!r}, 1.0, 0.0)")["y"]
    assert step.magnitude[0, 0] > 2**22
    assert (step.magnitude[1:] <= 1.0).all()


def test_function_is_called_a_few_times(run: Run, tmp_path: Path) -> None:
    count = tmp_path / "calls"
    count.write_text("")
    body = f"def f(x):\n    open({str(count)!r}, 'a').write('.')\n    return x"
    run(body)
    assert len(count.read_text()) == 2 + PROBES
    count.write_text("")
    run(body + ", abs(x)")
    assert len(count.read_text()) == 2


@pytest.mark.parametrize(
    ("body", "said"),
    {
        "syntax": ("def f(x):\n    return x +\n", ("reference_0.py:2", "SyntaxError")),
        "at import": ("\n\n1 / 0\n", ("reference_0.py:3", "ZeroDivisionError")),
        "missing": ("def g(x): return x\n", ("reference_0.py has no function 'f'", "g")),
        "argument": ("def f(x, yy): return x\n", ("reference_0.py:f", "'yy'")),
        "exception": ("def f(x):\n    y = x\n    return y[100000]\n", ("reference_0.py:3", "IndexError")),
        "writes": ("def f(x):\n    x[0] = 1\n    return x\n", ("reference_0.py:2", "read-only")),
        "shape": ("def f(x): return x[1:]\n", ("reference_0.py:1", "(49, 8)", "(50, 8)")),
        "nan": (
            "def f(x):\n    x = x.copy()\n    x[3, 4] = float('nan')\n    return x\n",
            ("NaN in 1 of 400", "3, 4"),
        ),
        "names": ("def f(x): return {'z': x}\n", ("returns z", "exactly y")),
        "random": ("import numpy\ndef f(x): return x + numpy.random.rand()\n", ("another y", "seed")),
        "magnitude": ("def f(x): return x, x\n", ("magnitude of y", "below 0")),
    }.values(),
)
def test_errors_name_file_and_line(body: str, said: tuple[str, ...], run: Run) -> None:
    with pytest.raises(TunerError) as caught:
        run(body)
    assert "\n" not in str(caught.value)
    for words in said:
        assert words in str(caught.value)


def test_integers_that_are_one_more_at_each_call_are_refused(run: Run) -> None:
    with pytest.raises(KernelError, match="another n for the same inputs; seed its random numbers"):
        run("calls = []\ndef f(i):\n    calls.append(i)\n    return i + len(calls)", N)


def test_several_outputs_are_a_dict_or_in_order(run: Run) -> None:
    for text in ("x, i", "[x, i]", "{'n': i, 'y': x}"):
        expected = run(f"def f(x, i): return {text}", Y, N)
        assert (expected["y"].value.dtype, expected["n"].value.dtype) == (np.float64, np.int64)
    with pytest.raises(KernelError, match=r"several outputs; return \{'y': ..., 'n': ...\}"):
        run("def f(x, i): return x, i, x", Y, N)


def test_endless_function_is_stopped_and_its_line_named(run: Run) -> None:
    with pytest.raises(
        TunerError, match=r"reference_0.py:[2-5]: f has no result after 1 s; use smaller sizes"
    ):
        run(
            "def f(x):\n  while True:\n    try:\n      sum(range(1000))\n    except Exception: pass",
            limit_s=0.3,
        )
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(run("def f(x): return x")))
    thread.start()
    thread.join(200)
    assert results


def test_every_kind_of_reference_in_the_meant_shape(tmp_path: Path) -> None:
    """The output lies transposed in memory; references do not see that."""
    file = tmp_path / "both.py"
    file.write_text("def f(x, i): return {'n': i}")
    np.save(tmp_path / "y.npy", INPUTS["x"])
    expression = settled(numpy={"y": ArrayExpression("2 * x")}, python=PythonFunction(file, "f"))
    expected = expected_on_host(expression, (X, INDEX, Y, N), INPUTS, NUMBERS)
    np.testing.assert_array_equal(expected["y"].value, 2 * INPUTS["x"])
    np.testing.assert_array_equal(expected["n"].value, INPUTS["i"])
    golden = expected_on_host(settled(golden={"y": tmp_path / "y.npy"}), (X, Y), INPUTS, NUMBERS)
    np.testing.assert_array_equal(golden["y"].value, INPUTS["x"])
    assert not expected_on_host(settled(), (X, Y), INPUTS, NUMBERS)
    narrow = settled(numpy={"y": ArrayExpression("max(x, axis=0)")})
    wide = Buffer("y", (50, 9), "float32", "output")
    with pytest.raises(KernelError, match=r"numpy reference of y has shape \(8,\), not \(50, 9\)"):
        expected_on_host(narrow, (X, wide), INPUTS, NUMBERS)
    with pytest.raises(KernelError, match="golden file"):
        expected_on_host(settled(golden={"n": tmp_path / "y.npy"}), (X, N), INPUTS, NUMBERS)


def test_file_names_a_function_and_loading_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")

    def load(python: str, numpy: str = "") -> PythonFunction | None:
        text = GOOD.replace('numpy = "alpha * x"', f"python = '{python}'\n{numpy}")
        return load_kernel(str(write(tmp_path, text))).reference.python

    assert load("own.py:f") == PythonFunction(tmp_path / "own.py", "f")
    assert not (tmp_path / "ran").exists()
    for wrong, said in {
        "own.py": "name a file and its function",
        "own:f": "name a file and its function",
        "own.py:f()": "name a file and its function",
        "other.py:f": "no file other.py",
        "x" * 5000 + ".py:f": "no file",
    }.items():
        with pytest.raises(KernelError, match=said):
            load(wrong)
    with pytest.raises(KernelError, match="same outputs are; leave one of them out"):
        load("own.py:f", 'numpy = "alpha * x"')


@pytest.mark.parametrize("command", ["show", "render"])
def test_looking_at_a_kernel_runs_nothing_of_its_function(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef f(x): return x\n")
    path = write(tmp_path, GOOD.replace('numpy = "alpha * x"', 'python = "own.py:f"'))
    said = said_by(capsys, command, str(path))
    assert said.code == 0, said
    assert not (tmp_path / "ran").exists()
    kernel = load_kernel(str(path))
    assert kernel.reference.python is not None
    load_function("f", kernel.reference.python.file)
    assert (tmp_path / "ran").exists()  # so that the test can fail


def test_a_function_that_counts_to_its_inputs_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_reference, "FURTHER_S", 0.2)
    (tmp_path / "own.py").write_text("def f(x): return [sum(1 for _ in range(n)) for n in x]")
    tensors = [Buffer("x", (3,), "int32", "input"), Buffer("y", (3,), "int32", "output")]
    reference = settled(python=PythonFunction(tmp_path / "own.py", "f"))
    with pytest.raises(TunerError, match="f has no result after 1 s"):
        expected_on_host(reference, tensors, {"x": np.full(3, 2**31 - 1)}, {}, asked=Asked(further=True))


def test_functions_and_files_give_integers(run: Run, tmp_path: Path) -> None:
    n, big = Buffer("n", (50,), "int64", "output"), 2**60
    expected = run(f"def f(i): return i + {big + 1}", n)["n"]
    assert expected.value.tolist() == [big + 1 + i for i in range(50)]
    with pytest.raises(KernelError, match="Python reference of n is a float above 2\\^53 in 50 of 50"):
        run(f"def f(i): return i + {float(big)}", n)
    narrow = Buffer("n", (50,), "uint8", "output")
    assert run("def f(i): return 100 * i", narrow)["n"].value.tolist() == [100 * i % 256 for i in range(50)]
    np.save(tmp_path / "n.npy", np.arange(50) + big + 1)
    golden = expected_on_host(settled(golden={"n": tmp_path / "n.npy"}), (X, n), INPUTS, NUMBERS)
    assert golden["n"].value.tolist() == [big + 1 + i for i in range(50)]


def test_function_may_say_its_magnitudes(run: Run) -> None:
    body = "def f(x): return x * x.sum(), 2 * abs(x)"
    given, estimated = run(body)["y"], run(body, reduction=0)["y"]
    np.testing.assert_array_equal(given.magnitude, 2 * np.abs(INPUTS["x"]))
    np.testing.assert_array_equal(estimated.magnitude, given.magnitude)
    assert given.terms == 1 and 100 < estimated.terms <= 400, "each element depends on all 400"


def test_cancelled_results_have_room(run: Run) -> None:
    """Where a difference is nearly nothing, a kernel may still be off by the rounding of both sides."""
    expected = run("def f(x): return x * x - x[:, ::-1] ** 2")["y"]
    sides = INPUTS["x"] ** 2 + INPUTS["x"][:, ::-1] ** 2
    assert (expected.magnitude > 0.2 * sides).all()
    assert (expected.magnitude < 10.0 * sides).all()
