"""Times the winners in a database against what a user would otherwise call, interleaved in one process.

    scripts/run python scripts/compare_libraries.py --db results/tuning.db --out results/evidence/libraries.json

For every exportable winner of vector_add, saxpy and gemm: torch.add, torch.add with alpha, or torch.mm (cuBLAS; tf32
off; torch must be installed), and for vector_add and saxpy also the kernel's own plain configuration of 16-byte vectors
and 256 threads. All run inside the same CUDA graphs on the same buffers; groups are taken in turn, in shuffled rounds.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from pathlib import Path
from typing import Any

from tuner.compile_pool import CompilePool
from tuner.database import Database
from tuner.gpu.baselines import Captured, torch_stream, torch_tensor
from tuner.gpu.buffers import Helpers, ProblemData
from tuner.gpu.clocks import Clocks
from tuner.gpu.driver import Context
from tuner.gpu.timing import ColdGraph, Limits, Timer, group_size, load
from tuner.kernel_file import load_kernel
from tuner.model import Configuration, Gpu, Problem, Status
from tuner.plan import make_plan, tensors_of
from tuner.race import NOISE_FLOOR
from tuner.roofline import roof_of
from tuner.stats import paired_ratio, verdict

PLAIN = {
    "vector_add": {"float32": 4, "float16": 8, "bfloat16": 8},
    "saxpy": {"float32": 4, "float16": 8, "bfloat16": 8},
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--db", type=Path, default=Path("results/tuning.db"))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    context = Context(0)
    gpu = context.describe()
    helpers = Helpers(context, gpu.arch, None)
    timer = Timer(context, Clocks(gpu.uuid), gpu.uuid)
    pool = CompilePool(2)
    rows = []
    with Database.open(arguments.db, write=False) as database:
        for stored in database.best().rows:
            if stored.run.replayed or stored.run.problem.kernel not in ("vector_add", "saxpy", "gemm"):
                continue
            rows.append(
                _compare(
                    context,
                    helpers,
                    timer,
                    pool,
                    gpu,
                    stored.run.problem,
                    stored.winner.configuration,
                    arguments.rounds,
                )
            )
            print(_line(rows[-1]), flush=True)
    pool.close()
    if arguments.out:
        arguments.out.write_text(
            json.dumps({"gpu": gpu.name, "driver": gpu.driver, "rows": rows}, indent=1) + "\n"
        )


def _compare(
    context: Context, helpers: Helpers, timer: Timer, pool: CompilePool, gpu: Gpu, problem: Problem,
    winner: Configuration, rounds: int,
) -> dict[str, Any]:  # fmt: skip
    kernel = load_kernel(problem.kernel)
    roof = roof_of(kernel, problem, gpu)
    limits = Limits(0.0, roof.flops, roof.peak_flops)
    data = ProblemData(helpers, tensors_of(kernel, problem, gpu), 1, gpu.l2_bytes, gpu.sm_count)
    configurations = {"winner": winner}
    width = PLAIN.get(problem.kernel, {}).get(problem.dtype)
    if width:
        first = kernel.variants["vectorized"]
        plain = {**first.defaults, "block_size": 256, "vector_width": width, "items_per_thread": 1}
        configurations["plain"] = Configuration.of("vectorized", plain)
    timed: dict[str, Any] = {}
    for name, configuration in configurations.items():
        compilation = pool.compile(kernel.file, problem, gpu, configuration)
        assert compilation.status is Status.OK, compilation.error
        plan = make_plan(kernel, problem, gpu, configuration)
        timed[name] = load(data, compilation.cubins, compilation.entries, plan.launches, plan.scratch)
    with torch_stream(context):
        call = _torch_call(problem, data)
        for _ in range(3):
            call()
        context.synchronize()
        timed["torch"] = Captured(context, call)
    graphs = {}
    for name, item in timed.items():
        probe = ColdGraph(data, item, 2)
        probe.run(context)
        graphs[name] = ColdGraph(data, item, group_size(min(probe.run(context))))
        probe.close()
    samples: dict[str, list[list[float]]] = {name: [] for name in graphs}
    draw = random.Random(0)
    for _ in range(rounds):
        for name in draw.sample(list(graphs), len(graphs)):
            estimate = samples[name][-1][0] if samples[name] else 1e6
            group, _ = timer.group(data, graphs[name], heavy=limits.heavy(estimate))
            samples[name].append(group)
    medians = {name: [statistics.median(group) for group in groups] for name, groups in samples.items()}
    others = {}
    for name in graphs:
        if name != "winner":
            ratio = paired_ratio(medians[name], medians["winner"], 0)
            word = verdict(paired_ratio(medians["winner"], medians[name], 0), NOISE_FLOOR)
            others[name] = {"speedup": ratio.median, "low": ratio.low, "high": ratio.high, "winner_is": word}
    for graph in graphs.values():
        graph.close()
    for item in timed.values():
        item.close()
    data.close()
    times = {name: statistics.median(values) for name, values in medians.items()}
    return {
        "problem": problem.to_json(),
        "configuration": str(winner),
        "time_us": {name: time / 1e3 for name, time in times.items()},
        "tflops": {name: roof.flops / time / 1e3 for name, time in times.items()},
        "gbytes_per_s": {name: roof.bytes / time for name, time in times.items()},
        "winner_over": others,
    }


def _torch_call(problem: Problem, data: ProblemData) -> Any:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    tensors = {t.name: torch_tensor(data.memory.addresses[t.name], t.shape, t.dtype) for t in data.tensors}
    if problem.kernel == "vector_add":
        return lambda: torch.add(tensors["a"], tensors["b"], out=tensors["c"])
    if problem.kernel == "saxpy":
        return lambda: torch.add(tensors["y"], tensors["x"], alpha=2.5, out=tensors["y"])
    b = tensors["b"].T if problem.options.get("layout") == "nt" else tensors["b"]
    return lambda: torch.mm(tensors["a"], b, out=tensors["c"])


def _line(row: dict[str, Any]) -> str:
    problem = Problem.from_json(row["problem"])
    parts = [f"{name} {time:.2f} us" for name, time in row["time_us"].items()]
    parts += [
        f"{o['speedup']:.4f}x as fast as {name} ({o['low']:.4f} to {o['high']:.4f}): {o['winner_is']}"
        for name, o in row["winner_over"].items()
    ]
    return f"{problem}: " + ", ".join(parts)


if __name__ == "__main__":
    main()
