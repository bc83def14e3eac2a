"""Runs a configuration of gemm on Hopper whole on the CPU: the emulator, with hopper.hpp in place of the hardware."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.sources import rendered
from tuner.emulator.host import HostArray, HostKernel, Schedule, launch_arguments
from tuner.kernel.launches import Launch
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.render import render
from tuner.model import Configuration, Gpu, Problem
from tuner.space.validity import invalid_reason

GEMM = load_kernel("gemm")
HARDWARE = (Path(__file__).parent / "hopper.hpp").read_text()
POINTERS = {"c": "T*", "partials": "float4*", "counters": "unsigned int*"}


@dataclass(frozen=True)
class Product:
    """C as a kernel computed it from small integers, as it is, and the scratch memory that was left."""

    computed: HostArray
    expected: HostArray
    scratch: dict[str, HostArray]


def product(of: Problem, gpu: Gpu, configuration: Configuration, folder: Path, seed: int = 0) -> Product:
    """Return what a configuration computes, of bfloat16.

    Raises:
        KernelFault: a block waits for ever, or touches memory that is not its own.
    """
    assert not invalid_reason(GEMM, of, gpu, configuration)
    m, n, k = (of.sizes[name] for name in "mnk")
    layout = str(of.options["layout"])
    plan = make_plan(GEMM, of, gpu, configuration)
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (k, n))
    memory = {name: HostArray(b.count, b.dtype, 256) for name, b in ((b.name, b) for b in plan.scratch)}
    scratch = dict(memory)
    for buffer in plan.scratch:
        if buffer.zeroed_once:
            memory[buffer.name].elements[:] = 0
    stored = {"a": a if layout[0] == "n" else a.T, "b": b if layout[1] == "n" else b.T}
    for name, matrix in stored.items():
        memory[name] = HostArray(matrix.size, "bfloat16", 16)
        memory[name].fill(matrix.ravel())
    memory["c"] = HostArray(m * n, "bfloat16", 16)
    *before, last = plan.launches
    sources = render(GEMM, of, gpu, configuration)
    for number, (launch, (source, entry)) in enumerate(zip(before, sources, strict=False)):
        host = HostKernel(source, entry, folder / str(number))
        host(
            launch.grid, launch.block, launch.shared_bytes, Schedule(seed), *launch_arguments(launch, memory)
        )
    source = _with_hardware(rendered(GEMM, of, gpu, configuration), last, layout, configuration)
    host = HostKernel(source, "run", folder / "last")
    arguments: list[HostArray | np.generic] = []
    for kind, name, value in last.arguments:
        if kind in ("map", "buffer"):
            arguments.append(memory[name])
        elif kind == "scalar":
            arguments.append(np.dtype(name).type(value))
    host(last.grid, last.block, last.shared_bytes, Schedule(seed, shuffled=True), *arguments)
    expected = HostArray(m * n, "bfloat16", 16)
    expected.fill((a @ b).ravel())
    return Product(memory["c"], expected, scratch)


def _with_hardware(code: str, launch: Launch, layout: str, configuration: Configuration) -> str:
    """Return a source with the hardware before it, and a kernel `run` behind it that makes the arguments."""
    swap_ab = bool(configuration.values.get("swap_ab", configuration.variant == "wgmma_skinny_m"))
    majors = (layout[0] == "n", layout[1] == "t")
    cluster = launch.cluster[0] if launch.cluster else 1
    constants = {
        "CLUSTER": cluster, "SHARED_BYTES": launch.shared_bytes,
        "M_K_MAJOR": int(majors[swap_ab]), "N_K_MAJOR": int(majors[not swap_ab]),
    }  # fmt: skip
    before = "".join(f"constexpr unsigned int {name} = {value};\n" for name, value in constants.items())
    parameters, lines, passed = [], [], []
    for number, (kind, name, value) in enumerate(launch.arguments):
        if kind == "map":
            one = json.loads(str(value))
            numbers = [one[key] for key in ("rows", "columns", "box_rows", "box_columns", "swizzle")]
            parameters.append(f"unsigned short* matrix_{number}")
            lines += [
                f"TensorMap argument_{number};",
                f"const hopper::Map map_{number}{{matrix_{number}, {', '.join(map(str, numbers))}}};",
                f"std::memcpy(&argument_{number}, &map_{number}, sizeof(map_{number}));",
            ]
        elif kind == "cluster_order":  # any permutation is right
            clusters = launch.grid[0] // cluster
            lines.append(f"ClusterOrder argument_{number};")
            lines += [f"argument_{number}.of[{i}] = {clusters - 1 - i};" for i in range(clusters)]
        elif kind == "buffer":
            parameters.append(f"{POINTERS[name]} argument_{number}")
        elif name == "int64":  # in place of scratch memory that is not there
            lines.append(f"constexpr std::nullptr_t argument_{number} = nullptr;")
            parameters.append("long long")
        else:
            parameters.append(f"int argument_{number}")
        passed.append(f"argument_{number}")
    body = "\n".join([*lines, f"gemm_wgmma({', '.join(passed)});"])
    run = f'extern "C" __global__ void run({", ".join(parameters)}) {{\n{body}\n}}\n'
    return f"namespace hopper {{\n{before}}}\n{HARDWARE}{code}{run}"
