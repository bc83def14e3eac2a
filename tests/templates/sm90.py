"""Hopper kernels on the CPU: what is rendered, compiled for the emulator with ``sm90.hpp``."""

from __future__ import annotations

import functools
import json
import math
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.compiled_once import KEPT
from tests.on_host import numbers_of, of_slices
from tuner.core.model import Configuration, Gpu, Problem, Value, digest
from tuner.inspect.emulator.building import UNSEEN, compile_cpp
from tuner.inspect.emulator.building import machine as emulator_folder
from tuner.inspect.emulator.host import HostArray, HostKernel, Schedule
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import invalid_reason, make_plan, tensors_of
from tuner.kernel.reference import numpy_of
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.runtime.launches import Launch, TensorMap
from tuner.runtime.structs import leaves

GEMM = load_kernel("gemm")
HOPPER = ARCHITECTURES[90]
LAYOUTS = ("nn", "nt", "tn", "tt")
HERE = Path(__file__).parent


@functools.cache
def machine() -> Path:
    """Return ``sm90.cpp`` compiled, once for all kernels.

    It is not in the emulator's folder, which another worker that begins at the same time replaces by its own.
    """
    files = [HERE / name for name in ("sm90.hpp", "sm90_state.hpp", "sm90.cpp")]
    fast = "-O1"  # it makes all products, and compiles for seconds
    kept = KEPT / f"sm90-{digest([fast, emulator_folder().name, *(file.read_text() for file in files)])}.o"
    if not kept.is_file():
        new = kept.with_name(f"{kept.name}-{os.getpid()}")
        compile_cpp("-c", UNSEEN, fast, f"-I{emulator_folder()}", "-o", new, files[-1])
        new.rename(kept)
    return kept


def problem(m: int, n: int, k: int, layout: str = "nn", dtype: str = "bfloat16") -> Problem:
    """Return a product."""
    return GEMM.problem({"m": m, "n": n, "k": k}, {"": dtype}, {"layout": layout})


def chosen(name: str, values: Mapping[str, Value]) -> Configuration:
    """Return a variant's default configuration with other values."""
    return Configuration.of(name, {**GEMM.variants[name].defaults, **values})


def drawn(name: str, of: Problem, count: int, **fixed: Value) -> list[Configuration]:
    """Draw configurations of a variant that a search may try, with some values given."""
    [space] = SearchSpace.from_kernel(
        GEMM, of, HOPPER, [name], {key: [value] for key, value in fixed.items()}
    ).variants
    rows = random.Random(f"{fixed} {of}").sample(range(len(space)), count)
    return [space.configuration(row) for row in rows]


def slices_of_c(configuration: Configuration) -> int:
    """Return how many slices of a tile's accumulators a warpgroup can leave to others in a divided round."""
    values = configuration.values
    groups = values["consumers"] if values["schedule"] == "cooperative" else 1
    sides = [values["block_m"], values["block_n"]]
    m_side, n_side = sides[::-1] if values["swap_ab"] else sides
    return m_side // groups // 64 * -(-n_side // (64 if configuration.variant == "wgmma_padded" else 16))


def plain_source(of: Problem, configuration: Configuration, gpu: Gpu = HOPPER) -> str:
    """Return the last launch's source, whose kernel may then stand in a namespace."""
    *_, (source, _) = render(GEMM, of, gpu, configuration)
    assert 'extern "C" __global__' in source
    return source.replace('extern "C" __global__', "static __global__")


def together(sources: Sequence[str], codes: Sequence[str], folder: Path, once: str = "") -> HostKernel:
    """Compile kernels side by side, each with code behind it that defines ``void test(const int* in, int* out)``.

    ``once`` stands before all of them, so that it is compiled once.
    Its arguments are the kernel's number, and two arrays.
    """
    spaces = [
        f"namespace of_{i} {{\n{one}{code}}}\n"
        for i, (one, code) in enumerate(zip(sources, codes, strict=True))
    ]
    cases = "".join(f"if (number == {i}) return of_{i}::test(in, out);\n" for i in range(len(sources)))
    entry = f'extern "C" __global__ void run(int number, const int* in, int* out) {{\n{cases}}}\n'
    source = f'#include "sm90_state.hpp"\n{once}{"".join(spaces)}{entry}'
    return HostKernel(source, "run", folder, [HERE], [machine()])


def tensor_maps(launch: Launch) -> list[tuple[str, TensorMap]]:
    """Return a launch's tensor maps with the matrices' names, in order."""
    return [
        (name, TensorMap(**json.loads(str(text)))) for kind, name, text in launch.arguments if kind == "map"
    ]


class Emulated:
    """A configuration's last kernel, to be run whole.

    Args:
        gpu: with few SMs, so that blocks have several tiles.
        pitch: elements from row to row of C and of what has its shape, if they are slices of larger matrices.
    """

    def __init__(
        self, of: Problem, configuration: Configuration, gpu: Gpu, folder: Path, pitch: int = 0
    ) -> None:
        kernel = load_kernel(of.kernel)
        assert not (reason := invalid_reason(kernel, of, gpu, configuration)), reason
        self.problem, self.pitch = of, pitch
        plan, sources = make_plan(kernel, of, gpu, configuration), render(kernel, of, gpu, configuration)
        if pitch:
            sources, plan = of_slices(kernel, of, gpu, configuration, {"c": pitch, "residual": pitch})
        self.reference = numpy_of(kernel, of)["c"]
        self.tensors = tensors_of(kernel, of, gpu)
        self.launch: Launch = plan.launches[-1]
        self.report = HostArray(1, "int32", 4)
        self.memory = {b.name: HostArray(b.count, b.dtype, 256) for b in plan.scratch}
        for buffer in plan.scratch:
            if buffer.zeroed_once:
                self.memory[buffer.name].elements[:] = 0
        arguments = self.launch.arguments
        pointers = [
            leaf.name
            for leaf in leaves(a for a in arguments if a[0] != "map" and a[0] != "cluster_order")
            if leaf.kind == "buffer"
        ]
        self.names = sorted({*pointers, *(name for kind, name, _ in arguments if kind == "map")})
        *_, (source, entry) = sources
        cluster = math.prod(self.launch.cluster or (1,))
        eight = ", true" if of.dtypes["input"] == "float8_e4m3fn" else ""
        wrapper = f"""
struct Pointer {{
    void* at;
    template <typename Element> operator Element*() const {{ return static_cast<Element*>(at); }}
}};
extern "C" __global__ void run(int* report, {", ".join(f"void* {name}" for name in self.names)}) {{
    hopper::Running running({{{cluster}, {self.launch.shared_bytes}, MTile::K_MAJOR, NTile::K_MAJOR{eight}}});
    {entry}({", ".join(self._text(*one) for one in arguments)});
    *report = hopper::idle_arrivals;
}}
"""
        self.kernel = HostKernel(
            f'#include "sm90.hpp"\n{source}{wrapper}', "run", folder, [HERE], [machine()]
        )

    def _text(self, kind: str, name: str, value: Value) -> str:
        """Return an argument of the launch as C++."""
        if kind == "map":
            one = json.loads(str(value))
            keys = ("rows", "columns", "box_rows", "box_columns", "swizzle")
            if one["dtype"] == "float8_e4m3fn":  # in pairs
                one["columns"], one["box_columns"] = one["columns"] // 2, one["box_columns"] // 2
            numbers = ", ".join(map(str, (*(one[key] for key in keys), self.pitch if name == "c" else 0)))
            return f"hopper::map_of<TensorMap>({{static_cast<unsigned short*>({name}), {numbers}}})"
        if kind == "buffer":
            return f"Pointer{{{name}}}"
        if kind == "struct":
            return f"{{{', '.join(self._text(*field) for field in json.loads(str(value))[1])}}}"
        if kind == "cluster_order":  # any permutation is right
            order = random.Random(1).sample(range(self.launch.clusters), self.launch.clusters)
            return f"{{{{{', '.join(map(str, order))}}}}}"
        if kind == "stride":
            return str(value)
        assert kind == "scalar"
        return str(value) if name != "int64" else "nullptr"

    def run(self, schedule: Schedule) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return C of small integers as the kernel computes it, and as it is; bfloat16 holds both.

        Raises:
            KernelFault: a thread waits for ever, or touches memory that is not its own.
        """
        rng, names = np.random.default_rng(0), {"alpha": 0.5, "beta": 2.0}
        for buffer in self.tensors:
            if buffer.role != "input":
                continue
            names[buffer.name] = array = numbers_of(buffer, self.problem, rng)
            matrix = array.T if buffer.transposed else array
            padded = self.memory.get(f"{buffer.name}_padded")
            if padded is None:
                held = matrix
                if buffer.name == "residual" and self.pitch:
                    sides = [*[(0, 0)] * (matrix.ndim - 1), (0, self.pitch - matrix.shape[-1])]
                    held = np.pad(matrix, sides, constant_values=np.nan)
                self.memory[buffer.name] = HostArray(held.size, buffer.dtype, 16)
                self.memory[buffer.name].fill(held.ravel())
            else:
                behind = padded.elements.size // len(matrix) - matrix.shape[1]
                padded.fill(np.pad(matrix, ((0, 0), (0, behind))).ravel())
        expected = self.reference.evaluate({**self.problem.sizes, **names})[0].astype(np.float32)
        assert np.abs(expected).max() <= 256
        dtype = self.problem.dtypes["output"]
        n = expected.shape[-1]
        rows, pitch = expected.size // n, self.pitch or n
        c = self.memory["c"] = HostArray(rows * pitch, dtype, 2 if pitch % 8 else 16)
        arrays = [self.memory[name] for name in self.names]
        self.kernel(
            self.launch.grid, self.launch.block, self.launch.shared_bytes, schedule, self.report, *arrays
        )
        whole = c.numbers.reshape(rows, pitch)
        assert np.isnan(whole[:, n:]).all(), "something is written beside the slice"
        return whole[:, :n].reshape(expected.shape), expected
