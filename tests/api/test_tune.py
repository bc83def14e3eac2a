"""A call of ``tuner.tune`` from its arguments to its result."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tuner
from tests.api.conftest import KERNEL, STENCIL, STENCIL_CALL, Tune, X
from tuner.api import tune as module
from tuner.core.errors import TunerError, UsageError
from tuner.tuning import session

TEMPLATE = "template <int BLOCK, int TILE> " + STENCIL.replace('extern "C" ', "")
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
FILTERED = "#define SIDE 3\n__constant__ float w[SIDE * SIDE];\n" + STENCIL.replace("0.5f *", "w[4] *")


def test_five_lines(tune: Tune, capfd: pytest.CaptureFixture[str]) -> None:
    result = tune()
    assert result.best.keys() == {"BLOCK", "TILE"}
    assert result.best["BLOCK"] * result.best["TILE"] <= 512  # type: ignore[operator]
    assert result.confirmed
    assert [trial["trial"] for trial in result.trials] == [1, 2, 3, 4, 5]
    assert result.time_us == pytest.approx(min(trial["time_us"] for trial in result.trials), rel=1e-3)
    if result.speedup is not None:
        assert result.speedup.low <= result.speedup <= result.speedup.high
    assert "winner" in repr(result)
    shown = result._repr_html_()
    picture = shown.partition("base64,")[2].partition('"')[0]
    assert shown.startswith("<pre>") and b"best so far" in base64.b64decode(picture)
    assert len(picture) < 100_000  # of a notebook
    assert capfd.readouterr() == ("", "")  # neither a terminal nor a notebook


def test_a_file_and_functions(tune: Tune, tmp_path: Path) -> None:
    (tmp_path / "own.cu").write_text(STENCIL)
    call = {
        **STENCIL_CALL,
        "grid": lambda n, BLOCK, TILE: -(-n // (BLOCK * TILE)),
        "block": lambda p: p.BLOCK,
    }
    call["where"] = lambda BLOCK, TILE: BLOCK * TILE <= 512
    result = tune(tmp_path / "own.cu", **{**call, "trials": 2})
    assert result.confirmed
    saved = result.save(tmp_path / "saved" / "stencil.toml")
    again = tune(str(saved), trials=1)
    assert again._state.run.kernel_digest == result._state.run.kernel_digest
    assert again._state.run.computation == result._state.run.computation


async def _coroutine(x: Any) -> Any:
    return x


def test_a_kernel_by_name(tune: Tune) -> None:
    """Whose values may be given once."""
    block_sizes = (size for size in (128, 256))
    result = tune(
        "vector_add",
        sizes={"n": 4096},
        params={"block_size": block_sizes},
        trials=np.int64(4),
        seed=np.int64(2),
        time_s=np.float32(60),
    )
    assert {trial["block_size"] for trial in result.trials} == {128, 256}
    assert result._state.run.problem.sizes == {"n": 4096}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"args": [X, X]}, ["takes 3 arguments", "const float* x, float* y, int n"]),
        ({"args": [list(X), X, 5000]}, ["x is a list", "pass an array"]),
        ({"args": [X[::2], X, 5000]}, ["x is not contiguous", "ascontiguousarray(x)"]),
        ({"args": [np.ma.masked_less(X, 0.5), X, 5000]}, ["x has masked elements", "x.filled(0)"]),
        ({"args": [X.astype(float), X, 5000]}, ["x is float64", "float*", "x.astype('float32')"]),
        ({"args": [np.zeros(4, "f4, f4"), X, 5000]}, ["x is void64; pass x.view('float32')"]),
        ({"args": [X, X, 5000.5]}, ["n is 5000.5", "whole number"]),
        ({"args": {"x": X, "y": X, "m": 5000}}, ["no argument 'm'", "choose from: x, y, n"]),
        ({"params": {"BLOCK": [64], "TILES": [1]}}, ["TILES", "did you mean TILE?"]),
        ({"params": {"BLOCK": [64, "128"]}}, ["BLOCK = [64, '128']", "one type"]),
        ({"kernel": "#define BLOCK 64\n" + STENCIL}, ["by #define BLOCK 64", "write #ifndef BLOCK"]),
        (
            {"kernel": "#ifdef FAST\n#define TILE 2\n#endif\n" + STENCIL, "compile_options": ["-DFAST=1"]},
            ["by #define TILE 2"],
        ),
        (
            {"kernel": "static const unsigned BLOCK = 64;\n" + STENCIL},
            ["by const unsigned BLOCK = 64", "out"],
        ),
        ({"outputs": ["z"]}, ["outputs names 'z'", "choose from: x, y"]),
        ({"outputs": ["x"]}, ["takes as const"]),
        ({"grid": None}, ["grid is missing"]),
        ({"grid": lambda m: -(-m // 4)}, ["grid", "m is a mapping of n, BLOCK, TILE"]),
        ({"where": lambda BLOCK, TILES: True}, ["wants 'TILES'", "did you mean TILE?"]),
        (
            {"grid": "ceil_div(m, BLOCK)"},
            ["grid = 'ceil_div(m, BLOCK)' uses unknown name 'm'", "choose from: BLOCK, TILE, input, n, cc"],
        ),
        ({"shared_memory": "BLOCK * k"}, ["shared_memory = 'BLOCK * k'"]),
        (
            {"kernel": TEMPLATE, "args": [X, X, 5000], "params": {"BLOCK": [64]}},
            ["params has no TILE", "such as entry='stencil<BLOCK, 4>'"],
        ),
        ({"repeat": "step"}, ["repeat is 'step'", "for example repeat={'step': 'log2(n)'}"]),
        ({"repeat": {"step": "q"}}, ["repeat = 'q' uses unknown name 'q'"]),
        ({"constants": {"w": X}}, ["no such __constant__; there is none to choose"]),
        (
            {"compile_options": ["-Iown"]},
            ["compile_options has '-Iown'", "headers lie beside the source's file"],
        ),
        ({"args": [np.full_like(X, np.nan), X, 5000]}, ["x has NaN", "pass numbers"]),
        ({"reference": lambda x, m: x}, ["the reference wants 'm'", "choose from: n, x, y"]),
        ({"reference": _coroutine}, ["the reference is async or a generator"]),
        ({"reference": lambda x: (yield x)}, ["the reference is async or a generator"]),
        ({"reference": X[:7]}, ["reference has y of shape (7,)", "pass (5000,)"]),
        ({"reference": "x + zeros(n + 1)"}, ["reference 'x + zeros(n + 1)'", "(5000,)", "(5001,)"]),
        ({"shapes": {"z": ("n",)}}, ["shapes names 'z'"]),
        ({"kernel": FILTERED}, ["nothing fills the __constant__ memory w", "pass constants={'w': ...}"]),
        ({"kernel": FILTERED, "constants": {"w": X[:5]}}, ["w has 5 numbers", "has 9", "pass as many"]),
        (
            {"args": [X.reshape(50, 100), X.reshape(50, 100), 5000], "shapes": {"x": (100, 50)}},
            ["shapes has (100, 50) for x, and its shape is (50, 100)"],
        ),
        ({"trials": 0}, ["trials is 0"]),
        ({"trails": 9}, ["tune has no argument 'trails'", "did you mean trials?"]),
        ({"kernel": 5}, ["kernel is 5", "source text"]),
        ({"kernel": np.zeros((2, 2))}, ["kernel is array([[0., 0.], [0., 0.]]);"]),
        ({"mode": "hot"}, ["mode is 'hot'", "cold"]),
        ({"params": "BLOCK=64"}, ["params is 'BLOCK=64'", "params={'BLOCK': [64, 128]}"]),
        ({"params": {"BLOCK": 64.5, "TILE": 1}}, ["block: BLOCK = 64.5", "whole number"]),
        ({"params": {"BLOCK": 8192, "TILE": 1}, "where": ()}, ["block of 8192", "limit", "1024"]),
        (
            {"params": {"BLOCK": [1024, 2048], "TILE": 1}, "block": ["BLOCK", 2], "where": ()},
            ["2048 threads"],
        ),
        ({"grid": "n - 5000"}, ["grid: n - 5000 = 0"]),
        ({"shared_memory": ["100", "200"]}, ["shared_memory has 2", "give one"]),
        ({"grid": [1, 1, 1, 1]}, ["grid has 4", "one to three"]),
        ({"shared_memory": 1 << 20}, ["shared memory", "GPUs allow at most"]),
        ({"where": lambda BLOCK: BLOCK > 4096}, ["no configuration is valid", "BLOCK > 4096"]),
        ({"sizes": {"n": "5000"}}, ["n='5000'", "whole number"]),
        ({"args": X}, ["args is", "args=[x, y, n]"]),
        ({"tolerance": -1}, ["tolerance = -1", "above 0"]),
        ({"compile_options": "--gpu-architecture=sm_90"}, ["--gpu-architecture=sm_90", "allowed"]),
        ({"default": {"BLOCK": 96}}, ["BLOCK=96"]),
        ({"seed": 2**31}, ["seed is 2147483648", "seed=1"]),
        ({"time_s": float("nan")}, ["time_s is nan", "time_s=60.0"]),
        ({"db": "a\0b"}, ["db is", "db='results/tuning.db'"]),
        ({"learn_from": [5]}, ["learn_from is 5", "learn_from=['other.json']"]),
        ({"args": [X, X, float("nan")]}, ["n is nan", "whole number"]),
        ({"outputs": {"y": "input"}}, ["outputs", "nothing", "outputs=['y']"]),
        ({"compile_options": 5}, ["compile_options is 5", "['--"]),
        ({"entry": 5}, ["entry is 5", "entry='"]),
        ({"name": "n" * 300}, ["cannot be a name", "64 at most"]),
        ({"grid": lambda n, BLOCK: np.array([n // BLOCK, 1])}, ["grid returns a", "tuple"]),
        ({"grid": lambda p: p}, ["grid returns {'n': n"]),
        ({"grid": [lambda n, BLOCK: n // BLOCK]}, ["grid has a function in a list", "one function"]),
        ({"reference": "~no such user/own.py:f"}, ["no file ~no such user/own.py"]),
        ({"kernel": "n" * 5000}, ["no kernel named 'nnn"]),
        ({"kernel": "gem"}, ["no kernel named 'gem'"]),
        ({"kernel": "int f(){return 3;}"}, ["__global__"]),
        ({"kernel": "own.cu"}, ["no file /", "/own.cu; give"]),
        ({"grid": "n \ud800"}, ["half of a character in ", "n \\ud800"]),
        ({"db": "\ud800"}, ["db is '\\ud800'", "for example"]),
        ({"sizes": [["n"]]}, ["sizes is [['n']]", "sizes={'n': 4096}"]),
        ({"shapes": {"x": ENDLESS}}, ["nested too deeply"]),
        ({"effort": Path("quick")}, ["effort is", "effort='quick'"]),
        ({"trials": np.zeros(0)}, ["trials is array([]", "trials=100"]),
        ({"trials": SimpleNamespace(size=1)}, ["trials is namespace(size=1)", "trials=100"]),
        (
            {"seed": SimpleNamespace(item=lambda: -3)},
            ["seed is -3", "seed=1"],
        ),  # as of torch, whose size is a method
        ({"device": np.array([["cuda", "cpu"]])}, ["device is array([[", "device='cuda:0'"]),
    ],
)
def test_refused_in_one_line(
    tune: Tune, changes: dict[str, object], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a device is looked for, and anything is written."""
    monkeypatch.setattr(module, "open_device", lambda *_: pytest.fail("a device is opened"))
    with pytest.raises(TunerError) as refused:
        tune(**{**STENCIL_CALL, **changes} if "stencil(" in str(changes.get("kernel")) else changes)
    (line,) = str(refused.value).splitlines()
    for word in words:
        assert word in line
    assert not [*Path().iterdir()]


def test_none_of_an_argument_says_nothing() -> None:
    """But of the reference, of which it says that there is none."""
    unsaid = dict.fromkeys(
        (
            "where",
            "outputs",
            "sizes",
            "shapes",
            "constants",
            "repeat",
            "entry",
            "name",
            "compile_options",
            "default",
        )
    )
    assert repr(tuner.Kernel(STENCIL, **{**KERNEL, **unsaid})) == repr(tuner.Kernel(STENCIL, **KERNEL))
    with pytest.raises(UsageError, match="no argument 'grdi'; did you mean grid"):
        tuner.Kernel(STENCIL, **{**KERNEL, "grdi": None})


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("2 * x", "outputs are y, z.*reference={'y': ..., 'z': ...}"),
        ({"y": "2 * x"}, "no z"),
        (X, "no z"),
        ({}, "no y and no z"),
        ([X, X, X], "3 values"),
    ],
)
def test_a_reference_is_of_every_output(reference: Any, words: str) -> None:
    source = STENCIL.replace("int n", "float* z, int n").replace("y[i] =", "z[i] = y[i] =")
    call = {**KERNEL, "args": [X, X, X, len(X)], "outputs": ["y", "z"]}
    with pytest.raises(UsageError, match=words):
        tuner.Kernel(source, **{**call, "reference": reference})
    tuner.Kernel(source, **{**call, "reference": {"z": X, "y": X}})


def test_what_is_no_path_or_filter_is_refused(tune: Tune) -> None:
    result = tune(trials=2)
    results = tuner.open("results/tuning.db")
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: tuner.open(None), "path is None.*open"),  # type: ignore[arg-type]
        (lambda: tuner.open("a\0b"), "path is"),
        (lambda: result.save(None), "path is None.*save"),  # type: ignore[arg-type]
        (lambda: result.bundle(None), "path is None.*bundle"),  # type: ignore[arg-type]
        (lambda: result.export(None), "path is None.*export"),  # type: ignore[arg-type]
        (lambda: tuner.Kernel("vector_add").save(None), "path is None.*save"),  # type: ignore[arg-type]
        (lambda: results.best(size={"n": 5000}), "'size'.*did you mean sizes"),  # type: ignore[call-arg]
        (lambda: results.compare(sizes=["n"]), "sizes is"),  # type: ignore[arg-type]
        (lambda: results.query(status="goof"), "no status 'goof'.*ok"),
        (lambda: results.query(card="H200"), "'card'.*choose from.*gpu"),  # type: ignore[call-arg]
        (lambda: results.query(limit="a"), "limit is 'a'"),  # type: ignore[arg-type]
        (lambda: results.query(sort=5), "sort is 5"),  # type: ignore[arg-type]
        (lambda: results.query(gpu=5), "gpu is 5"),  # type: ignore[arg-type]
        (lambda: results.query(replayed="no"), "replayed is 'no'"),  # type: ignore[arg-type]
        (lambda: results.query("stencil", sql="SELECT 1"), "sql and .* exclude each other"),
        (lambda: results.query(sql="SELECT 1", limit=2), "sql and .* exclude each other"),
        (lambda: tune(trials=True), "trials is True; for example trials=100"),
        (lambda: results.query("stencill"), "no kernel 'stencill'.*did you mean stencil"),
        (lambda: results.best("stencil", gpu="h2OO"), "no GPU 'h2OO'.*choose from"),
        (lambda: results.best(mode="clod"), "mode is 'clod'; did you mean cold"),
        (lambda: results.compare(variant="mian"), "no variant 'mian'.*main"),
        (lambda: results.query(since="yesterday"), "^since 'yesterday' is not a time"),
    ]
    for call, words in refused:
        with pytest.raises(UsageError, match=words):
            call()
    assert results.best(sizes={"n": 5000}, since="1d") and len(results.query(limit=2)) == 2
    unsaid: dict[str, Any] = dict.fromkeys(("gpu", "sizes", "run", "since", "mode", "replayed"))
    assert len(results.best(**unsaid)) == 1 and len(results.query(sort=None, **unsaid)) == 2  # type: ignore[arg-type]
    assert not results.compare(**unsaid) and results.query(sql="SELECT 1 AS one", **unsaid) == [{"one": 1}]
    assert results.best(dtype="fp32") and not results.best("gemm") and not results.compare()


def test_a_call_that_fails_leaves_no_folder(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise TunerError("no result")

    with monkeypatch.context() as failing:
        failing.setattr(session, "tune", fail)
        with pytest.raises(TunerError, match="no result"):
            tune()
    assert not Path("results/kernels").exists()
    file = tune(trials=1).file
    monkeypatch.setattr(session, "tune", fail)
    with pytest.raises(TunerError, match="no result"):
        tune()
    assert file.is_file()


@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="there is a GPU here")
def test_errors_of_the_engine_name_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = {}
    for name, how in {
        "sizes": {"sizes": {"m": 5, "n": 5, "k": 5}},
        "options": {"sizes": {"m": 5, "n": 5, "k": 5}, "options": {"layout": "tt"}},
        "mode": {"mode": "warm"},
        "sampler": {"sampler": "none:None"},
        "device": {"device": "cuda:7"},
    }.items():
        with pytest.raises(TunerError) as refused:
            tuner.tune("gemm", **{"device": "replay", "quiet": True, **how})  # type: ignore[arg-type]
        said[name] = str(refused.value)
    assert "sizes={'m': 2048, 'n': 2048, 'k': 2048}" in said["options"]
    assert "options={'layout': 'nn'}" in said["options"]
    assert "leave out mode" in said["mode"] and "sampler none:None" in said["sampler"]
    assert "without device='cuda'" in said["device"]
    assert not any("--" in text for text in said.values()), said


def test_sizes_of_a_call_are_not_replaced_by_recorded_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path(__file__).resolve().parents[2] / "docs/examples/matmul"
    code = (folder / "tune.py").read_text().replace('"matmul.cu"', repr(str(folder / "matmul.cu")))
    assert "2048" in code
    with pytest.raises(TunerError, match=r"n=77 .*does not hold it.* sizes=\{'n': 2048\}"):
        exec(code.replace("2048", "77").replace('reduction="n"', 'reduction="n", device="replay"'), {})


@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="there is a GPU here")
def test_without_a_gpu_what_can_be_done_is_said() -> None:
    with pytest.raises(
        TunerError, match=r"`tune check` .* in it, after Kernel\(...\).save\('stencil.toml'\)$"
    ):
        tuner.tune(STENCIL, **{**STENCIL_CALL, "device": "auto"})


def test_a_kernel_says_what_it_is() -> None:
    params = {"BLOCK": (32 * number for number in (2, 4)), "TILE": 1}
    described = tuner.Kernel(STENCIL, **{**KERNEL, "params": params})
    assert repr(described) == "<kernel stencil n=5000; BLOCK in [64, 128]; TILE in [1]>"
    assert repr(tuner.Kernel("gemm")) == "<kernel gemm>"


def test_the_problem_may_decide_on_the_mode(tune: Tune) -> None:
    said, unsaid = (
        tune(name=name, trials=1, **how).run for name, how in (("a", {"mode": "auto"}), ("b", {}))
    )
    assert said.options == unsaid.options and said.conditions == unsaid.conditions


def test_equal_sizes_are_asked_for(tune: Tune) -> None:
    source = """extern "C" __global__ void copy(const float* a, float* b, int n, int m) {
        b[blockIdx.x * m + threadIdx.x] = a[blockIdx.x * m + threadIdx.x] * B;
    }"""
    a = np.ones((64, 64), np.float32)
    call = {
        "args": [a, a, 64, 64],
        "params": {"B": [1, 2]},
        "grid": "n",
        "block": "m",
        "trials": 2,
        "reference": "a",
    }
    with pytest.raises(TunerError, match=r"n and m are all 64, .*shapes=\{'\w+': \['n'"):
        tune(source, **call)
    assert tune(source, **call, shapes={"a": ("n", "m"), "b": ("n", "m")})._state.run.problem.sizes == {
        "n": 64,
        "m": 64,
    }
    alone = tune(source, **call, sizes=())
    assert alone._state.run.problem.sizes == {}
    assert "no other size was verified: no size says the 64 of a" in alone.verdict


def test_the_default_as_reference(tune: Tune) -> None:
    result = tune(reference="default", trials=2)
    assert result.checked_against == "default"
    assert "checked against the default only" in result.verdict and result.confirmed
    assert 'reference = "default"' in result.kernel.file.read_text()
    bounded = tune(reference="default", tolerance=4, reduction=3, trials=1)
    assert bounded.kernel.reference.default and bounded.kernel.reference.tolerance.number({}) == 4
    assert tune(reference=None, trials=1).checked_against == "nothing"


def test_a_result_without_a_winner_says_why(tune: Tune) -> None:
    said = str(tune(STENCIL.replace("0.5f *", "nowhere *"), **{**STENCIL_CALL, "trials": 2}))
    assert "compile_error" in said
    assert 'identifier "nowhere" is undefined' in said
    assert "tune trials" in said
