"""Templates of the maps run on the CPU: rendered with host versions of what is PTX, compiled by g++, checked.

The TOML file is copied beside ``common/``, whose files take the place of the tuner's own because a kernel's folder is
searched first. What is checked is all else: indices, tails, the ring of stages, what the file passes to its launches.
See ``emulator.h`` for what the emulator does to make faults show.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner import paths
from tuner.kernel import KernelSpec
from tuner.kernel_file import load_kernel
from tuner.model import Configuration, Gpu, Problem, Value
from tuner.plan import NULL_POINTER, Launch, make_plan
from tuner.render import render

HERE = Path(__file__).parent
COMPILER = shutil.which("g++")

MAIN = """
float to_float(float x) { return x; }

template <typename T, typename Expected>
void compare(const char* what, const T* out, long long n, float near, Expected expected) {
    for (long long i = 0; i < n; ++i) {
        const float want = expected(i), got = to_float(out[i]);  // that of the namespace of T, or of float
        if (!(std::fabs(got - want) <= near * (1.0f + std::fabs(want)))) {
            std::printf("%%s: element %%lld is %%g instead of %%g\\n", what, i, got, want);
            std::exit(1);
        }
    }
}

float value(int array, long long i) { return ((i * 2654435761ll + array * 40503ll) >> 7) %% 1000 * 0.01f; }

int main() {
%s
}
"""


@dataclass(frozen=True)
class Case:
    """A configuration, and the sizes at which it is run."""

    configuration: Configuration
    sizes: tuple[int, ...]


def host_kernel(name: str, folder: Path) -> KernelSpec:
    """Give a built-in kernel whose templates include the emulator's files."""
    shutil.copytree(paths.templates() / "common", folder / "common")
    shutil.copytree(HERE / "common", folder / "common", dirs_exist_ok=True)
    shutil.copy(paths.search_spaces() / f"{name}.toml", folder)
    return load_kernel(str(folder / f"{name}.toml"))


def emulate(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, cases: Sequence[Case], expected: str, folder: Path
) -> None:
    """Run the cases, each in a namespace of its own.

    Args:
        kernel: from :func:`host_kernel`.
        problem: for everything but the size ``n``.
        gpu: few SMs make persistent blocks loop.
        cases: what is run.
        expected: C++ over floats named like the tensors: what each element of the output is.
        folder: for the source and the program.
    """
    sources, calls = ['#include "emulator.h"'], []
    shown: dict[str, str] = {}
    for number, case in enumerate(cases):
        ((source, entry),) = render(kernel, problem, gpu, case.configuration)
        for cuda, host in (
            ('extern "C" __global__', "__global__"), ("extern __shared__", "extern"), ("__shared__", "static"),
        ):  # fmt: skip
            source = source.replace(cuda, host)
        sources.append(f"namespace k{number} {{\n{source}\n}}\n#undef LAUNCH_BOUNDS")
        shown[f"k{number}"] = f"{case.configuration} {problem}"
        for n in case.sizes:
            sized = kernel.problem({"n": n}, problem.dtypes, problem.options)
            (launch,) = make_plan(kernel, sized, gpu, case.configuration).launches
            calls.append(_call(f"k{number}", entry, kernel, sized, launch, expected))
    sources += [
        f"namespace k{number} {{ alignas(128) unsigned char dynamic_shared[1 << 18]; }}"
        for number in range(len(cases))
    ]
    sources.append(MAIN % "\n".join(calls))
    (folder / "run.cpp").write_text("\n".join(sources))
    assert COMPILER is not None
    flags = ["-std=c++17", "-O0", "-w", "-fno-strict-aliasing", f"-I{HERE}"]
    command = [COMPILER, *flags, str(folder / "run.cpp"), "-o", str(folder / "run")]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[:4000]
    ran = subprocess.run([str(folder / "run")], capture_output=True, text=True, check=False, timeout=300)
    if ran.returncode:
        said = ran.stdout.splitlines()
        case = next((shown[line.split(",")[0]] for line in said[::-1] if line.startswith("k")), "")
        raise AssertionError(f"{case}: ended with {ran.returncode}\n" + "\n".join(said[-2:]))


def _call(space: str, entry: str, kernel: KernelSpec, problem: Problem, launch: Launch, expected: str) -> str:
    """Write the code of one launch and of what is checked after it."""
    n, tensors = problem.sizes["n"], kernel.present(problem)
    (output,) = (name for name, tensor in tensors.items() if tensor.role != "input")
    lines, given = [], []
    for array, (name, tensor) in enumerate(tensors.items()):
        start = f"{space}::from_float<T>(value({array}, i))"
        lines.append(f"emulator::Memory of_{name}(n * sizeof(T), {launch.alignment});")
        lines.append(f"T* {name} = reinterpret_cast<T*>(of_{name}.start);")
        if tensor.role != "output":
            lines.append(f"for (long long i = 0; i < n; ++i) {name}[i] = {start};")
            given.append(f"const float {name} = {space}::to_float({start});")
    arguments = ", ".join(_argument(space, *argument) for argument in launch.arguments)
    near = "0.01f" if problem.dtypes["input"] == "bfloat16" else "1e-5f"
    lines += [
        f"std::memset({space}::dynamic_shared, 0xff, sizeof {space}::dynamic_shared);",
        f"emulator::body = [&] {{ {space}::{entry}({arguments}); }};",
        f"gridDim.x = {launch.grid[0]};",
        f"for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) emulator::run_block({launch.threads});",
        f'if ({space}::dynamic_shared[{launch.shared_bytes}] != 0xff) emulator::fail("more shared memory");',
        *(f"of_{name}.check();" for name in tensors),
        f"compare(what, {output}, n, {near}, [&](long long i) {{ {' '.join(given)} return {expected}; }});",
    ]
    body = "\n        ".join(lines)
    return f"""    {{
        const char* what = "{space}, n = {n}";
        std::puts(what), std::fflush(stdout);
        using T = {space}::T;
        const long long n = {n};
        {body}
    }}"""


def _argument(space: str, kind: str, name: str, value: Value) -> str:
    if kind == "buffer":
        return name
    if (kind, name, value) == NULL_POINTER:
        return "nullptr"
    return f"{space}::from_float<T>({value}f)" if "float" in name else f"{value}u"
