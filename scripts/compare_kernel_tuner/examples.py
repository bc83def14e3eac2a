"""Kernel Tuner's own examples, run by Kernel Tuner and by this tuner: best times, seconds, lines changed.

    git clone https://github.com/KernelTuner/kernel_tuner && git -C kernel_tuner checkout 96a6abc1
    pip install kernel_tuner==1.5.0 scipy pandas
    scripts/run python scripts/compare_kernel_tuner/examples.py kernel_tuner/examples/cuda --out examples.json

Each script runs in a copy of the folder, once for each tool. For this tuner its imports are changed; SHRUNK says what
else is, for both, so that inputs fit a short lease. Of each space the same few values stay for both (--most), and all
of what is left is tried. Host code needs nvcc. A script that a tool cannot run is reported with its last line.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import math
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from scripts import harness

EXAMPLES = (
    "vector_add", "vector_add_metric", "vector_add_codegen", "vector_add_nvcuda", "matmul", "stencil", "spmv",
    "zeromeanfilter", "convolution", "sepconv", "reduction", "convolution_streams", "pnpoly", "expdist", "texture",
)  # fmt: skip
SHRUNK = {
    "reduction": [("size = 800000000", "size = 80000000"), ("range(5,16)", "range(8,10)")],
}
"""What is changed for both tools: 3.2 GB of input, and 12 runs, are more than a short lease has time for."""
IMPORTS = [
    (r"^(\s*)import kernel_tuner$", r"\1import tuner.compat.kernel_tuner as kernel_tuner"),
    (r"^(\s*)from kernel_tuner\b", r"\1from tuner.compat.kernel_tuner"),
    (r"^import pycuda\.driver as drv$", "import tuner.compat.pycuda_driver as drv"),
]
"""Lines that this tuner needs changed."""
THEIRS = [(r"-arch=sm_52", "-arch=native")]
"""What today's nvcc needs changed, which no longer compiles for that architecture."""
LIMIT_S = 90.0
PACKAGES = ("kernel-tune", "kernel_tuner", "cuda-bindings", "numpy")
COUNTED = 20_000
"""Combinations of which those are counted that meet the restrictions."""


def main() -> None:
    options = harness.parser(__doc__)
    add = options.add_argument
    add("folder", type=Path, help="examples/cuda of Kernel Tuner's repository.")
    add(
        "--examples",
        type=harness.listed(EXAMPLES),
        default="",
        help="Only these, once more; by default what --out has not.",
    )
    add("--sides", type=harness.listed(("ours", "theirs")), default=["ours", "theirs"])
    add("--most", type=int, default=8, help="Configurations of each space.")
    add("--seconds", type=float, default=0.0, help="Begin nothing new after so many; 0 for no limit.")
    add("--out", type=Path)
    add(
        "--run",
        nargs=3,
        metavar=("SIDE", "SCRIPT", "RESULT"),
        help="Run one script here, for this script itself.",
    )
    given = options.parse_args()
    if given.run:
        run_one(given.run[0], Path(given.run[1]), Path(given.run[2]), given.most)
        return
    began = time.monotonic()
    found: dict[str, dict[str, Any]] = {}
    if given.out and given.out.is_file():
        found = json.loads(given.out.read_text())["examples"]
    for name in given.examples or EXAMPLES:
        for side in given.sides:
            if side in found.get(name, {}) and not given.examples:
                continue
            if given.seconds and time.monotonic() - began > given.seconds:
                harness.say(f"{name} ({side}): not begun, the time is over")
                continue
            found.setdefault(name, {})[side] = one = run_apart(name, side, given.folder, given.most)
            harness.say(f"{name:20} {side:6} {shown(one)}")
            if given.out:
                data = {"most": given.most, "machine": harness.machine(*PACKAGES), "examples": found}
                harness.write_json(given.out, data)


def shown(one: Mapping[str, Any]) -> str:
    best = " ".join(
        f"{call['kernel']} {call['best_ms']:.4f} ms ({call['timed']})"
        for call in one["calls"]
        if call["best_ms"]
    )
    ended = "" if one["ended"] == "done" else f"  {one['ended']}"
    return f"{one['seconds']:6.1f} s  {one['lines']} lines  {best}{ended}"


def run_apart(name: str, side: str, folder: Path, most: int) -> dict[str, Any]:
    """Run a script with one tool in a copy of the folder; return what it did."""
    with tempfile.TemporaryDirectory() as copy:
        here = Path(copy) / "cuda"
        shutil.copytree(folder, here)
        script, result = here / f"{name}.py", here / "result.json"
        text = before = script.read_text()
        for old, new in SHRUNK.get(name, ()):
            if old not in text:
                raise harness.CommandError(f"{name}.py has no {old!r}: is this commit 96a6abc1?")
            text = text.replace(old, new)
        for old, new in IMPORTS if side == "ours" else THEIRS:
            text = re.sub(old, new, text, flags=re.MULTILINE)
        script.write_text(text)
        changed = sum(a != b for a, b in zip(before.splitlines(), text.splitlines(), strict=True))
        command = [sys.executable, __file__, str(folder), "--most", str(most)]
        path = os.pathsep.join([str(harness.ROOT), *filter(None, sys.path)])
        began, ended = time.monotonic(), "done"
        try:
            done = subprocess.run(
                [*command, "--run", side, str(script), str(result)], cwd=here, capture_output=True, text=True,
                env={**os.environ, "PYTHONPATH": path}, check=False, timeout=LIMIT_S,
            )  # fmt: skip
            if done.returncode:
                ended = [f"exit status {done.returncode}", *(done.stdout + done.stderr).strip().splitlines()][
                    -1
                ]
        except subprocess.TimeoutExpired:
            ended = f"stopped after {LIMIT_S:g} s"
        calls = json.loads(result.read_text()) if result.is_file() else []
        return {"ended": ended, "seconds": time.monotonic() - began, "lines": changed, "calls": calls}


def run_one(side: str, script: Path, result: Path, most: int) -> None:
    """Run a script with a tool whose ``tune_kernel`` gets fewer values, and keep what it returns."""
    calls: list[dict[str, Any]] = []
    sys.path.insert(0, str(script.parent))
    tool = importlib.import_module("tuner.compat.kernel_tuner" if side == "ours" else "kernel_tuner")
    if side == "theirs":
        pycuda: Any = ModuleType("pycuda")
        pycuda.driver = page_locking()
        sys.modules |= {"pycuda": pycuda, "pycuda.driver": pycuda.driver}
    tool.tune_kernel = watched(tool.tune_kernel, calls, most)  # type: ignore[attr-defined]
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        result.write_text(json.dumps(calls, default=str))


def watched(tune: Callable[..., Any], calls: list[dict[str, Any]], most: int) -> Callable[..., Any]:
    """Return ``tune_kernel`` for fewer values, which says what it did."""

    def call(name: str, source: Any, size: Any, arguments: Any, params: Any, *rest: Any, **named: Any) -> Any:
        restrictions = rest[3] if len(rest) > 3 else named.get("restrictions")
        began = time.monotonic()
        results, env = tune(
            name, source, size, arguments, thinned(params, restrictions, most), *rest, **named
        )
        timed = [float(one["time"]) for one in results if isinstance(one.get("time"), float | np.floating)]
        best = env.get("best_config") or {}
        calls.append(
            {
                "kernel": name, "seconds": time.monotonic() - began, "tried": len(results), "timed": len(timed),
                "best_ms": best.get("time"), "best": {one: best.get(one) for one in params},
                "fastest_ms": min(timed, default=None),
            }
        )  # fmt: skip
        return results, env

    return call


def thinned(params: Mapping[str, Any], restrictions: Any, most: int) -> dict[str, Any]:
    """Return parameters with fewer values, until at most so many configurations meet the restrictions."""
    from tuner.compat.kernel_tuner.definition import configurations, text_of

    listed = restrictions if isinstance(restrictions, list) else [restrictions] if restrictions else []
    left = {name: list(values) for name, values in params.items()}
    where = [text_of("restrictions", one, left) for one in listed]

    def count(choices: Mapping[str, Any]) -> int:
        return sum(1 for _ in configurations(choices, where))

    def size(choices: Mapping[str, Any]) -> int:
        return math.prod(map(len, choices.values()))

    while size(left) > COUNTED or count(left) > most:
        # The middle half of the longest list: values at its ends are seldom good ones, or take long to compile.
        for name in sorted(left, key=lambda one: -len(left[one])):
            few = len(left[name])
            half = {**left, name: left[name][few // 4 : few // 4 + (few + 1) // 2]}
            if few > 1 and (size(half) > COUNTED or count(half)):
                left = half
                break
        else:
            break
    return left


def page_locking() -> Any:
    """Return what host examples take of PyCUDA, which has no wheels: this tuner's own, with pages locked at once."""
    from cuda.bindings import driver as cu

    kept: list[Any] = []

    def pagelocked_empty(shape: Any, dtype: Any, **_: Any) -> Any:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        _, address = cu.cuMemHostAlloc(size, 3)  # portable and mapped
        kept.append((ctypes.c_char * size).from_address(int(address)))
        return np.frombuffer(kept[-1], dtype).reshape(shape)

    cu.cuInit(0)
    cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(cu.cuDeviceGet(0)[1])[1])
    module = importlib.import_module("tuner.compat.pycuda_driver")
    module.pagelocked_empty = pagelocked_empty  # type: ignore[attr-defined]
    return module


if __name__ == "__main__":
    harness.run(main, gpu=True)
