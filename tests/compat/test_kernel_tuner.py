"""Kernel Tuner's scripts with another import, on the fake device."""

from __future__ import annotations

import importlib
import itertools
import json
import math
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import tuner.compat.kernel_tuner as kernel_tuner
from tests.fake_arrays import Exported
from tests.fake_driver.programs import run_program
from tuner.api import tune as module
from tuner.compat.kernel_tuner.definition import define
from tuner.compat.kernel_tuner.file_utils import store_metadata_file, store_output_file
from tuner.compat.kernel_tuner.util import get_best_config, get_config_string
from tuner.core.errors import NoGpuError, TunerError
from tuner.expressions.arithmetic import parse
from tuner.formats.foreign import read_results
from tuner.kernel.load import load_kernel

SCALE = """
__global__ void scale(float *y, float *x, float by, int n) {
    const int i = (blockIdx.x * block_size_x + threadIdx.x) * tile;
    #pragma unroll loop_unroll_factor
    for (int j = i; j < i + tile; ++j) if (j < n) y[j] = by * x[j];
}
"""
N = 4096
X = np.linspace(0, 1, N, dtype=np.float32)
ARGUMENTS = [np.zeros_like(X), X, np.float32(3), np.int32(N)]
PARAMETERS = {"block_size_x": [32, 64, 128], "tile": [1, 2], "loop_unroll_factor": [0, 1], "unused": [7, 8]}
FEW = {"block_size_x": [32, 64], "tile": [1], "loop_unroll_factor": [0]}


NO_GPU = NoGpuError("this machine has no NVIDIA GPU", "or without device='cuda'")
pytestmark = pytest.mark.usefixtures("forked_children")


def test_without_a_gpu_a_script_is_told_what_it_can_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "open_device", Mock(side_effect=NO_GPU))
    with pytest.raises(NoGpuError) as caught:
        kernel_tuner.tune_kernel("scale", SCALE, N, ARGUMENTS, {"block_size_x": [32, 64], "tile": [1]})
    assert "no NVIDIA GPU; run it on a machine with one; `tune doctor`" in str(caught.value)
    assert "device=" not in str(caught.value) and "Kernel(" not in str(caught.value)


def defined(
    source: Any = SCALE,
    size: Any = N,
    params: Any = PARAMETERS,
    divisors: Any = (None, None, None),
    **options: Any,
) -> Any:
    restrictions = options.pop("restrictions", None)
    return define(
        options.pop("name", "scale"), source, size, ARGUMENTS, params, divisors, restrictions, options
    )


def test_a_script_gets_what_it_reads(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = {"GB/s": f"{N} * 8 / 1e6 / time", "double": lambda p: 2 * p["GB/s"]}
    results, env = kernel_tuner.tune_kernel(
        "scale", SCALE, N, ARGUMENTS, PARAMETERS, grid_div_x=["block_size_x", "tile"],
        restrictions=["block_size_x * tile >= 64", lambda p: p["tile"] == 1 or p["block_size_x"] < 128],
        answer=[3 * X, None, None, np.int32(N)], metrics=metrics, strategy="genetic_algorithm", verbose=True,
        compiler_options=["-arch", "sm_52"], iterations=3,
    )  # fmt: skip
    said = capsys.readouterr().out
    assert "-arch=sm_52 is left out" in said and "unused is not varied" in said
    assert "strategy genetic_algorithm: all 8 configurations are tried\n" in said
    assert {(one["block_size_x"], one["tile"]) for one in results} == {(64, 1), (128, 1), (32, 2), (64, 2)}
    assert list(results[0])[:4] == list(PARAMETERS)
    best = env["best_config"]
    assert best in results and best["double"] == 2 * best["GB/s"]
    assert abs(np.median(best["times"]) / best["time"] - 1) < 0.01
    assert best["time"] <= 1.03 * get_best_config(results, "time")["time"]
    assert get_best_config(results, "GB/s", True) == get_best_config(results, "time")
    assert get_config_string(best, ["tile", "time"], {"time": "ms"}).startswith(
        f"tile={best['tile']}, time=0."
    )
    assert env["checked_against"] == "reference" and env["device_name"] and env["total_compile_time"] > 0
    json.dumps([results, env])
    store_output_file("folder/out", results, PARAMETERS)
    store_metadata_file("folder/out-metadata")
    read = read_results(Path("folder/out.json"))
    assert list(read.parameters) == list(PARAMETERS) and len(read.rows) == len(results)
    assert json.loads(Path("folder/out-metadata.json").read_text())["metadata"]["operating_system"]
    kernel = load_kernel(env["kernel_file"])
    assert {name: tensor.role for name, tensor in kernel.tensors.items()} == {"y": "inout", "x": "input"}


def test_without_an_answer_the_first_configuration_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    few = {**PARAMETERS, "block_size_x": [32]}
    budget = {"max_fevals": 2}
    results, env = kernel_tuner.tune_kernel("scale", SCALE, N, ARGUMENTS, few, strategy_options=budget)
    assert len(results) == 2 and all(one["time"] > 0 for one in results)
    assert env["checked_against"] == "default"
    kernel = load_kernel(env["kernel_file"])
    assert {name: tensor.role for name, tensor in kernel.tensors.items()} == {"y": "inout", "x": "input"}
    other = SCALE.replace("__global__ void scale", 'extern "C" __global__ void scale__wrong')
    assert "no configuration of scale__wrong succeeded; the first: wrong_result" in refused(
        lambda: kernel_tuner.tune_kernel("scale__wrong", other, N, ARGUMENTS, few, strategy_options=budget)
    )
    assert (
        "2 of 2 configurations give other results than the first; so they are timed"
        in capsys.readouterr().out
    )


def test_arrays_that_are_only_read_are_inputs() -> None:
    body = "float *p = b; a[0] += *c; p[1] = d[2] + d[3];"
    source = f"__global__ void scale(float *a, float *b, float *c, float *d) {{ {body} }}"
    assert defined(source, N, {"k": [1]}).written() == ["a", "b"]


def test_grids_blocks_and_macros() -> None:
    what = defined(divisors=(["block_size_x/32", "tile"], None, None), size=(N, 5))
    assert list(what.how["grid"]) == ["ceil_div(4096, (block_size_x // 32) * tile)", "5", "1"]
    assert list(what.how["block"]) == ["block_size_x", "1", "1"]
    counted = defined("grid_size_x", divisors=(["block_size_x", "tile"], None, None)).source
    assert counted.split("\n")[0] == (
        "#define grid_size_x (((4096) + (block_size_x * tile) - 1) / (block_size_x * tile))"
    )
    params = {"BLOCK_SIZE_X": [32, 64], "by": [1, 2], "t": np.arange(1, 3)}
    what = defined(
        "BLOCK_SIZE_X t by grid_size_x",
        lambda p: (p["t"] * 8, p["by"]),
        params,
        ([], lambda p: p["by"], None),
    )
    assert list(what.how["grid"]) == ["t * 8", "ceil_div(by, by)", "1"]
    assert list(what.how["block"]) == ["BLOCK_SIZE_X", "1", "1"]
    assert what.source.startswith("#define grid_size_x (t * 8)\n#line 1\n")
    named = defined("n m", N, {"n": [4], "m": [2]}, block_size_names=["n", "m"], smem_args={"size": "n*m*4"})
    assert list(named.how["block"]) == ["n", "m", "1"] and list(named.how["grid"]) == [
        "ceil_div(4096, n)",
        "1",
        "1",
    ]
    assert named.how["shared_memory"] == "n * m * 4"
    assert list(defined("k", "t * 2", {"t": [1]}, ([], [], [])).how["grid"]) == ["t * 2", "1", "1"]
    assert (
        defined("WIDTH k", N, {"k": [1]}, defines={"WIDTH": "k + 1"}).source
        == "#define WIDTH k + 1\n#line 1\nWIDTH k"
    )


def test_restrictions_may_name_what_a_function_takes() -> None:
    pairs = [(lambda size, tile: size * tile > 64, ["block_size_x", "tile"]), ["tile > 1", "tile < 4"]]
    assert defined(restrictions=pairs[:1]).how["where"] == ["block_size_x * tile > 64"]
    assert defined(restrictions=tuple(pairs[1])).how["where"] == pairs[1]
    assert list(defined(block_size_names="tile").how["block"]) == ["tile", "1", "1"]


@pytest.mark.parametrize(
    "text",
    [
        "sum([block_size_x, tile, 2]) < 130", "all([tile > 0, any([tile == 1, tile > 2])])",
        "int(block_size_x / 32) % 2 == 0", "math.log2(max([block_size_x, tile])) < len([1, 2]) * 4",
    ],
)  # fmt: skip
def test_restrictions_may_call_what_python_has(text: str) -> None:
    (read,) = defined(restrictions=text).how["where"]
    for x, tile in itertools.product((16, 32, 48, 64, 128), (1, 2, 3)):
        values = {"block_size_x": x, "tile": tile}
        assert parse(read).holds(values) == eval(text, {"math": math}, values), values  # noqa: S307


def test_options_of_nvcc_are_taken_as_nvrtc_has_them(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "by.cuh").write_text("#define BY 3\n")
    given = ["-O3", "-Iown", "-Xptxas", "-v", "-std", "c++17", "-D", "X=2", "-maxrregcount", "32"]
    what = defined("#include <by.cuh>\n#include <cuda_fp16.h>\n" + SCALE, compiler_options=given)
    assert what.how["compile_options"] == ["-std=c++17", "-DX=2", "-maxrregcount=32"]
    assert what.notes[0].startswith("-O3 -Xptxas=-v is left out") and "#define BY 3" in what.source
    assert "#include <cuda_fp16.h>" in what.source and "#include <by.cuh>" not in what.source
    assert defined(compiler_options="-use_fast_math").how["compile_options"] == ["-use_fast_math"]


def test_sources_that_include_and_that_are_generated(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text('#include "b.cu"\n#include "c.cu"\nk')
    (tmp_path / "b.cu").write_text("int b;")
    assert defined(["a.cu", "b.cu"], N, {"k": [1]}).source == 'int b;\n#include "c.cu"\nk'
    params = {"k": [1, 2, 3], "text": ["x"]}
    made = defined(
        lambda p: f"made({'few' if p['k'] < 3 else 'many'}, {p['text']})", N, params, restrictions="k != 2"
    )
    lines = made.source.split("\n")
    assert lines[1:5] == ["#elif (k == 1)", "made(few, x)", "#elif (k == 3)", "made(many, x)"]
    assert "MiB" in refused(lambda: defined(lambda p: "x" * (3 << 20) + str(p["k"]), N, params))
    assert "cannot read" in refused(lambda: defined("missing.cu"))
    assert "kernel_source is OpenCL, which is not served" in refused(
        lambda: defined("__kernel void scale() {}")
    )
    assert "kernel_source fails: KeyError: 'm'" in refused(lambda: defined(lambda p: p["m"], N, params))


def refused(call: Any) -> str:
    with pytest.raises(TunerError) as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"texmem_args": {"tex": X}}, "texmem_args is not served; CUDA 12 has no texture references"),
        ({"observers": [object()]}, "observers is not served"),
        ({"simulation_mode": True}, "tune --device replay:"),
        ({"objectives": {"time": False}}, "give one objective"),
        ({"lang": "OpenCL"}, "lang='OpenCL' is not served"),
        ({"strategy": object()}, "a strategy of your own is not served"),
        ({"strategy": "genetic"}, "no strategy 'genetic'; choose from"),
        ({"restrictoins": []}, "there is no argument 'restrictoins'; did you mean"),
        ({"answer": [X]}, "answer has 1 parts, and arguments 4"),
        ({"answer": [X[:5], None, None, None]}, "answer[0] has 5 elements; give 4096"),
        ({"block_size_names": ["a", "b", "c", "d"]}, "block_size_names has 4 parts; give three at most"),
        ({"metrics": ["time"]}, "metrics is a list; give a dictionary"),
        ({"metrics": {"x": lambda p: p["energy"]}}, "metrics: x fails: KeyError: 'energy'; correct it"),
        (
            {"verify": lambda _, __: True, "device": 1},
            "what this process launches is on GPU 0; set CUDA_VISIBLE_DEVICES",
        ),
        (
            {"objective": "GB/s", "metrics": {"x": "time"}},
            "objective 'GB/s' is not measured; choose from: time, x",
        ),
        ({"restrictions": "tile > 4"}, "no configuration meets all restrictions"),
        ({"restrictions": "tile >"}, "cannot parse"),
        ({"restrictions": [None]}, "restrictions is None; give"),
        ({"kernel_name": 5}, "kernel_name is an int; give"),
        ({"kernel_source": []}, "kernel_source is an empty list; give"),
        ({"kernel_source": [SCALE, 5]}, "kernel_source has an int in it; give"),
        ({"problem_size": (8, 8, 8, 8)}, "problem_size has 4 parts; give three at most"),
        ({"arguments": None}, "arguments is None; give"),
        ({"tune_params": [32]}, "tune_params is a list; give"),
        ({"tune_params": {**PARAMETERS, "tile": []}}, "parameter tile has no values; give"),
        ({"tune_params": {5: [1]}}, "a parameter's name is an int; give"),
        ({"grid_div_x": [None]}, "grid_div is None; give"),
        ({"atol": "1e-3"}, "atol is a str; give"),
        ({"smem_args": {"bytes": 4}}, "smem_args has no 'bytes'"),
        ({"compiler_options": [5]}, "compiler_options has an int in it; give"),
        ({"strategy_options": [5]}, "strategy_options is a list; give"),
        ({"strategy_options": {"max_fevals": "5"}}, "max_fevals is '5'; give a number above 0"),
        ({"arguments": ARGUMENTS[:3]}, "takes 4 arguments, arguments has 3"),
        ({"tune_params": {"block_size_x": ["32"], "tile": [1]}}, "tune_params has block_size_x"),
        ({"cmem_args": {"w": X}}, "cmem_args names 'w'"),
        ({"grid_div_x": ["none"]}, "or add none to tune_params"),
        (
            {"kernel_source": f"__constant__ float w[4];\n{SCALE.replace('by *', 'w[0] *')}"},
            "pass cmem_args={'w'",
        ),
        ({"problem_size": ()}, "problem_size is empty; give"),
        ({"tune_params": {**PARAMETERS, "tile": [[1, 2]]}}, "parameter tile has a list as a value; give"),
        ({"atol": -1}, "atol is -1; give a number from 0 up"),
        ({"atol": float("nan")}, "atol is nan; give"),
        ({"answer": [X + 1j, None, None, None]}, "answer[0] is complex, and the argument float32; give real"),
        ({"verify": lambda _: True}, "verify cannot be called: too many positional arguments; let it take"),
        ({"metrics": {"x": lambda _: None}, "objective": "x"}, "objective x is None; let its metric return"),
    ],
)
def test_what_is_not_served_is_said_in_a_line(options: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"kernel_name": "scale", "kernel_source": SCALE, "problem_size": N}
    given |= {"arguments": ARGUMENTS, "tune_params": PARAMETERS} | options
    assert words in refused(lambda: kernel_tuner.tune_kernel(**given))


def test_what_a_script_half_says(capsys: pytest.CaptureFixture[str]) -> None:
    call: tuple[Any, ...] = "scale", SCALE, N, ARGUMENTS, FEW | {"tile": [1, 2]}
    budget = {"max_fevals": float("inf"), "popsize": 5, "max_feval": 2}
    where = """block_size_x == 32
        and tile == 1"""
    turned = np.repeat(3 * X, 2)[::2]
    how: Any = {"answer": [turned, None, None, None], "restrictions": where, "strategy_options": budget}
    kernel_tuner.tune_kernel(*call, **how)
    said = capsys.readouterr().out
    assert "strategy_options: left out: max_feval, popsize; did you mean max_fevals?" in said
    assert defined(compiler_options="-w -use_fast_math").how["compile_options"] == ["-w", "-use_fast_math"]
    assert "params has several values of block_size_x; give run_kernel one" in refused(
        lambda: kernel_tuner.run_kernel(*call)
    )


def test_a_cache_counts_for_what_it_is_of() -> None:
    call: dict[str, Any] = {
        "kernel_name": "scale", "kernel_source": SCALE, "problem_size": N, "arguments": ARGUMENTS, "cache": "seen",
    }  # fmt: skip
    first, env = kernel_tuner.tune_kernel(**call, tune_params=FEW | {"block_size_x": [32, 64]})
    again, recalled = kernel_tuner.tune_kernel(**call, tune_params=FEW | {"block_size_x": [64, 32]})
    assert len(again) == len(first) and recalled.keys() >= env.keys() - {"winner"}
    assert recalled["device_name"] == env["device_name"] and recalled["checked_against"] is None
    others, _ = kernel_tuner.tune_kernel(**call, tune_params=FEW | {"block_size_x": [128, 32]})
    assert sorted(one["block_size_x"] for one in others) == [32, 128]
    assert len(json.loads(Path("seen.json").read_text())["cache"]) == 3
    params = FEW | {"block_size_x": [32]}
    assert "seen.json is of the problem_size 4096; name another" in refused(
        lambda: kernel_tuner.tune_kernel(**call | {"problem_size": (N, 2)}, tune_params=params)
    )
    assert "seen.json is of the kernel scale; name another" in refused(
        lambda: kernel_tuner.tune_kernel(**call | {"kernel_name": "other"}, tune_params=params)
    )


def test_an_answer_is_for_an_array_of_any_library() -> None:
    arguments = [Exported(X.ctypes.data, X.shape, device=(1, 0)), *ARGUMENTS[1:]]
    call = (SCALE, N, arguments, PARAMETERS)
    assert "answer[0] has 5 elements; give 4096" in refused(
        lambda: kernel_tuner.tune_kernel("scale", *call, answer=[X[:5], None, None, None])
    )


def test_other_parts_of_kernel_tuner_are_named() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"does not serve observers; docs/kernel-tuner\.md"):
        importlib.import_module("tuner.compat.kernel_tuner.observers")
    with pytest.raises(AttributeError, match=r"does not serve tune_cache; docs/kernel-tuner\.md"):
        kernel_tuner.tune_cache  # noqa: B018
    assert kernel_tuner.strategies.minimize == "minimize"


ON_A_DRIVER = """
import os, sys
import numpy as np
from tests.compat.test_kernel_tuner import ARGUMENTS, N, PARAMETERS, SCALE
from tests.fake_driver.programs import run_program
from tests.faults import tune_fake
import tuner.compat.kernel_tuner as kernel_tuner
from tuner.api import tune as module
module.open_device = tune_fake.open_fake
os.chdir(sys.argv[1])
divided = {"grid_div_x": ["block_size_x", "tile"], "quiet": True}
params = {"block_size_x": 64, "tile": 2, "loop_unroll_factor": 1}
after = kernel_tuner.run_kernel("scale", SCALE, N, ARGUMENTS, params, **divided)
assert after[2:] == ARGUMENTS[2:] and all(a is not b and np.array_equal(a, b) for a, b in zip(after, ARGUMENTS[:2]))
assert not os.path.exists("results")
seen = []
def verify(answer, results, atol=None):
    seen.append((answer[0], results[0].shape, atol))
    return len(seen) > 1
values = {"block_size_x": [32, 64, 128], "tile": [1], "loop_unroll_factor": [0]}
judged = {"answer": [5], "verify": verify, "atol": 2.0}
results, env = kernel_tuner.tune_kernel("scale", SCALE, N, ARGUMENTS, values, **judged, **divided)
assert seen == [(5, (N,), 2.0)] * 2
(wrong,) = [one for one in results if "time" not in one]
assert wrong["status"] == "wrong_result" and env["best_config"]["time"] <= max(one.get("time", 0) for one in results)
print(wrong["block_size_x"], env["best_config"]["block_size_x"])
"""


def test_a_kernel_is_launched_once_and_judged(tmp_path: Path) -> None:
    ((blocks,), lines) = run_program(ON_A_DRIVER, tmp_path / "log", tmp_path, devices="NVIDIA H200:90:132")
    launches = [line for line in lines if "kernel" in line]
    assert [one["block"][0] for one in launches] == [64, *map(int, blocks.split())]
    assert launches[0]["grid"] == [N // 128, 1, 1]
