"""What `tune` finds beside what the autotuners of Triton and Helion find, each from nothing, timed in one comparison.

    scripts/run python scripts/compare_triton/compare.py --out results/evidence/triton.json

Needs a GPU, torch and Triton; Helion, where it is installed, takes part. Each problem: `tune` with an empty database
and no cached cubin; the others' first calls in fresh processes with empty caches; then all and torch by `tune bench`,
in turn, outputs verified. Triton's lists of configurations are in kernels.py; a user would write them by hand. Helion's
kernels are in helion_kernels.py; its search has an effort (its own default, full, takes minutes).

``--built`` compares the search instead of the kernels: `tuner.tune` and Triton's autotuner choose among the same
configurations of the same Triton kernels, each in a fresh process with empty caches, in both orders.

A problem that ``--out`` has is not measured again: with ``--seconds`` it can be started again for the others. Exit
status 1 if one is left.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts import harness
from scripts.harness import output_of, say

HERE = Path(__file__).resolve().parent

SOFTMAX = HERE.parents[1] / "docs" / "examples" / "softmax" / "softmax.toml"
PROBLEMS = (
    ("gemm", "product", {"m": 4096, "n": 4096, "k": 4096}, "bfloat16"),
    ("gemm", "product", {"m": 16, "n": 8192, "k": 8192}, "bfloat16"),
    ("gemm", "product", {"m": 333, "n": 6144, "k": 4096}, "bfloat16"),
    (str(SOFTMAX), "softmax", {"rows": 8192, "columns": 4096}, "bfloat16"),
    (str(SOFTMAX), "softmax", {"rows": 16384, "columns": 2048}, "float16"),
)
FIRST_CALL = """
import sys, time, torch
sys.path.insert(0, sys.argv[1])
kernels = __import__(sys.argv[5])
dtype, shapes = getattr(torch, sys.argv[3]), eval(sys.argv[4])
tensors = [torch.randn(shape, device="cuda").to(dtype) for shape in shapes]
torch.cuda.synchronize()
began = time.monotonic()
getattr(kernels, sys.argv[2])(*tensors)
torch.cuda.synchronize()
seconds = time.monotonic() - began
tuned = getattr(kernels, "_" + sys.argv[2])
if sys.argv[5] == "kernels":
    print(seconds, len(tuned.configs), tuned.best_config, sep="\\t")
else:
    print(seconds, tuned.bind(tuple(tensors))._config, sep="\\t")
"""

BUILT = """
import json, sys, time, torch, tuner
sys.path.insert(0, sys.argv[1])
import kernels
function, dtype, shapes, folder = sys.argv[2], getattr(torch, sys.argv[3]), eval(sys.argv[4]), sys.argv[5]
tensors = [torch.randn(shape, device="cuda").to(dtype) for shape in shapes]
build, params = kernels.BUILT[function]
outputs = ["c" if function == "product" else "y"]
how = {"db": folder + "/tuning.db", "effort": "quick", "quiet": True}
began = time.monotonic()
result = tuner.tune(build, tensors, params, outputs=outputs, **how)
seconds = time.monotonic() - began
result.save(folder + "/built.toml")
print(json.dumps({"seconds": seconds, "trials": len(result.trials), "best": result.best, "verdict": result.verdict}))
"""


def shapes_of(sizes: dict[str, int]) -> list[tuple[int, ...]]:
    """Return the shapes of the tensors that a Triton function takes."""
    if "rows" in sizes:
        return [(sizes["rows"], sizes["columns"])] * 2
    m, n, k = (sizes[name] for name in "mnk")
    return [(m, k), (k, n), (m, n)]


PROBLEM_S = 75.0
"""What one takes, most of it Triton's compiler: none is begun that there is no time for."""


def tune(environment: Mapping[str, str], *words: str) -> Any:
    """Return what a command of the tuner prints as JSON."""
    return json.loads(harness.tune(*words, "--json", "--quiet", environment=environment)[0])


def first_call(environment: Mapping[str, str], words: Sequence[str], kernels: str) -> list[str]:
    """Return what a first call in a fresh process says: seconds, and what was found."""
    said = output_of([sys.executable, "-c", FIRST_CALL, *words, kernels], environment)
    return said.splitlines()[-1].split("\t")


def by_triton(environment: Mapping[str, str], words: Sequence[str]) -> dict[str, Any]:
    seconds, count, best = first_call(environment, words, "kernels")
    return {"seconds": float(seconds), "configurations": int(count), "best": best.strip()}


def compared(
    kernel: str, function: str, sizes: dict[str, int], dtype: str, trials: int, effort: str
) -> dict[str, Any]:
    """Return how long each took to tune a problem, and the bench of what they found."""
    size = ",".join(f"{name}={value}" for name, value in sizes.items())
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "TRITON_CACHE_DIR": f"{folder}/triton",
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
            "HELION_CACHE_DIR": f"{folder}/helion",
            "HELION_AUTOTUNE_EFFORT": effort,
            "HELION_AUTOTUNE_PROGRESS_BAR": "0",
        }
        words = [str(HERE), function, dtype, repr(shapes_of(sizes))]
        found: dict[str, Any] = {"triton": by_triton(environment, words)}
        against = ["--against", f"{HERE / 'kernels.py'}:{function}", "--against", "torch"]
        if importlib.util.find_spec("helion"):
            seconds, best = first_call(environment, words, "helion_kernels")
            found["helion"] = {"seconds": float(seconds), "effort": effort, "best": best}
            against += ["--against", f"{HERE / 'helion_kernels.py'}:{function}"]
        problem = ["--kernel", kernel, "--size", size, "--dtype", dtype, "--db", f"{folder}/tuning.db"]
        began = time.monotonic()
        tune(environment, "run", *problem, "--trials", str(trials), "--no-cache")
        found["tune"] = {"seconds": time.monotonic() - began, "trials": trials}
        # Triton tunes again, with what it has compiled; Helion takes what it has found.
        bench = tune(environment, "bench", *problem, *against)
    versions = harness.versions("triton", "torch", "helion")
    about = {"versions": versions, "date": harness.today(), "bench": bench}
    return {"kernel": Path(kernel).stem, "sizes": sizes, "dtype": dtype, **found, **about}


def chosen(function: str, sizes: dict[str, int], dtype: str, first: str) -> dict[str, Any]:
    """Return how long `tuner.tune` and Triton's autotuner took to choose, and the bench of what they chose."""
    words = [str(HERE), function, dtype, repr(shapes_of(sizes))]
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for who in ("tune", "triton") if first == "tune" else ("triton", "tune"):
            environment = {**os.environ, "TRITON_CACHE_DIR": f"{folder}/{who}"}
            if who == "tune":
                found[who] = json.loads(output_of([sys.executable, "-c", BUILT, *words, folder], environment))
            else:
                found[who] = by_triton(environment, words)
        against = ["--against", f"{HERE / 'kernels.py'}:{function}"]
        bench = tune(environment, "bench", f"{folder}/built.toml", "--db", f"{folder}/tuning.db", *against)
    name = f"{function} in Triton, {first} first"
    versions = harness.versions("triton", "torch")
    return {"kernel": name, "sizes": sizes, "dtype": dtype, **found, "versions": versions, "bench": bench}


def main() -> int:
    options = harness.parser(__doc__)
    add = options.add_argument
    add("--trials", type=int, default=200)
    add("--helion-effort", default="quick", help="none, quick or full.")
    add("--built", action="store_true", help="The same configurations, built for `tuner.tune`.")
    add("--only", default="", help="Only problems of this function: product or softmax.")
    add("--first", help="With --built: tune or triton, to have this order alone.")
    add("--seconds", type=float, default=0.0, help="Begin nothing that may take longer.")
    add("--out", type=Path)
    arguments = options.parse_args()
    if importlib.util.find_spec("triton") is None:
        print("Triton is not installed: pip install triton", file=sys.stderr)
        return 2
    began, left = time.monotonic(), 0
    results = json.loads(arguments.out.read_text()) if arguments.out and arguments.out.is_file() else []
    done = [(one["kernel"], one["sizes"], one["dtype"]) for one in results]
    problems: Sequence[tuple[str, str, dict[str, int], str]] = PROBLEMS
    if arguments.built:
        firsts = [arguments.first] if arguments.first else ["tune", "triton"]
        orders = [f"{{}} in Triton, {first} first" for first in firsts]
        problems = tuple((order.format(one[1]), *one[1:]) for order in orders for one in PROBLEMS)
    for kernel, function, sizes, dtype in problems:
        if (Path(kernel).stem, sizes, dtype) in done or arguments.only not in function:
            continue
        if arguments.seconds and time.monotonic() - began + PROBLEM_S > arguments.seconds:
            left += 1
            continue
        say(f"{kernel} {sizes} {dtype}")
        try:
            results.append(
                chosen(function, sizes, dtype, kernel.split()[-2])
                if arguments.built
                else compared(kernel, function, sizes, dtype, arguments.trials, arguments.helion_effort)
            )
        except (RuntimeError, ValueError) as error:
            say(f"{function} {sizes} {dtype}: {error}")
            left += 1
            continue
        one = results[-1]
        shown = ("kernel", "sizes", "dtype", "tune", "triton", "helion")
        print(json.dumps({key: one[key] for key in shown if key in one}), flush=True)
        if arguments.out:
            harness.write_json(arguments.out, results)
    return int(left > 0)


if __name__ == "__main__":
    harness.run(main, gpu=True)
