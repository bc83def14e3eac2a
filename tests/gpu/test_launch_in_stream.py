"""A launch in a stream computes what the same launch computes as a node of a graph, where it is timed."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from cuda.bindings import driver as cu

from scripts import same_bits
from tuner.children.compile_pool import CompilePool
from tuner.children.cubin_cache import CubinCache
from tuner.core.model import Configuration
from tuner.gpu.buffers import Helpers, ProblemData
from tuner.gpu.candidate import Loaded, load
from tuner.gpu.driver import Context, described
from tuner.inspect.tools.cases import Case, Unit, compile_cases
from tuner.kernel.load import load_kernel
from tuner.runtime.driver import check

PROBLEMS = {
    "gemm": ({"m": 256, "n": 384, "k": 8200}, "bfloat16"),
    "mean_matvec": ({"groups": 4, "vectors": 500, "length": 1111}, "float32"),
    "reduce": ({"n": 1 << 20}, "float32"),
}


def run_in_stream(context: Context, data: ProblemData, loaded: Loaded) -> None:
    """Run it as a program that calls it does."""
    data.poison()
    for address, size in loaded.zeroed:
        check(cu.cuMemsetD8Async(address, 0, size, context.stream))
    for kernel in loaded.kernels:
        kernel.launch(int(context.stream))
    context.synchronize()


def differs(context: Context, helpers: Helpers, unit: Unit) -> bool:
    """Return whether the two ways leave other bytes in an output; each way runs twice."""
    with (
        closing(ProblemData(helpers, unit.setup.tensors, 0)) as data,
        closing(load(data, unit.candidate)) as loaded,
    ):
        check(cu.cuCtxSynchronize())  # what fills the scratch runs on another stream
        results = []
        for run in (same_bits.run_once, run_in_stream) * 2:
            run(context, data, loaded)
            results.append([output.tobytes() for output in same_bits.outputs(data)])
        return any(result != results[0] for result in results) or loaded.scratch_not_zeroed() != ""


@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_both_ways_leave_the_same_bytes(name: str, tmp_path: Path) -> None:
    kernel, context = load_kernel(name), Context(0)
    gpu = described(context.device)
    sizes, dtype = PROBLEMS[name]
    problem = kernel.problem(sizes, {"": dtype})
    variants, _ = kernel.usable_variants(problem, gpu)
    cases = [Case(problem, Configuration.of(variant.name, variant.defaults)) for variant in variants]
    for extra in ({"stream_k": True}, {"split_k": 4, "cluster_m": 2, "gpc_locality": True}):
        cases += [
            Case(problem, Configuration.of(variant.name, {**variant.defaults, **extra}))
            for variant in variants
            if extra.keys() <= variant.parameters.keys()
        ]
    with closing(CompilePool(None, tmp_path)) as pool:
        units, _ = compile_cases(kernel, gpu, pool, cases, problem)
    assert len(units) >= len(variants) / 2
    helpers = Helpers(context, gpu, CubinCache(tmp_path))
    different = [str(unit.case) for unit in units if differs(context, helpers, unit)]
    assert not different
