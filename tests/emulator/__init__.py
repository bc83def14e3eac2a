"""Runs rendered kernels on the CPU, in an order drawn from a seed: every thread is a fiber (``machine.cpp``).

No GPU is needed, only g++. What is run is the template's own code, but for the bodies of functions that hold PTX, and
what the kernel's file passes to its launches. This finds wrong indices, lost elements, accesses beside an array or not
aligned, missing barriers and waits, and results that depend on the order of blocks; not what only a GPU can get wrong,
such as a missing fence. Inputs are of float32, float16 and bfloat16.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import mmap
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.emulator.source import code_of
from tuner.kernel.launches import Launch, Plan
from tuner.kernel.plan import make_plan
from tuner.kernel.render import render
from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration, Gpu, Problem, Value

HERE = Path(__file__).parent
COMPILER = shutil.which("g++")
FLAGS = (
    *("-std=c++17", "-O1", "-fPIC", "-w", "-fno-strict-aliasing", "-fno-gnu-unique"),
    *("-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"),
)


@dataclass(frozen=True)
class Schedule:
    """The order in which threads and blocks run."""

    seed: int = 0
    resident: int = 1 << 20
    """Blocks that are there at once."""
    shuffled: bool = False
    """Whether blocks start in any order."""


class HostArray:
    """An array that ends where its pages end, but for what the alignment leaves; behind them nothing may be touched.

    Args:
        count: number of elements, which start as NaNs.
        dtype: of bfloat16, ``elements`` holds the bits.
        alignment: bytes of which the address is a multiple, and as a rule of no larger power of two.
    """

    _BESIDE = 0x5A

    def __init__(self, count: int, dtype: str, alignment: int = 1) -> None:
        self.dtype = dtype
        element = np.dtype(np.uint16 if dtype == "bfloat16" else dtype)
        size = count * element.itemsize
        room = -(-(size + 256) // mmap.PAGESIZE) * mmap.PAGESIZE
        whole = np.frombuffer(mmap.mmap(-1, room + mmap.PAGESIZE), np.uint8)
        behind = ctypes.c_void_p(whole.ctypes.data + room)
        assert ctypes.CDLL(None).mprotect(behind, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
        start = (room - size) // alignment * alignment
        self._beside = (whole[:start], whole[start + size : room])
        for part in self._beside:
            part[:] = self._BESIDE
        self.elements: npt.NDArray[Any] = whole[start : start + size].view(element)
        whole[start : start + size] = 0xFF

    @property
    def numbers(self) -> npt.NDArray[Any]:
        """A copy of what it holds; bfloat16 as float32."""
        if self.dtype == "bfloat16":
            return (self.elements.astype(np.uint32) << 16).view(np.float32)
        return self.elements.copy()

    def fill(self, numbers: npt.NDArray[Any]) -> None:
        """Store numbers, rounded to the dtype."""
        if self.dtype == "bfloat16":
            bits = numbers.astype(np.float32).view(np.uint32)
            numbers = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        self.elements[:] = numbers

    def check(self) -> None:
        """Require that nothing was written beside it."""
        assert all((part == self._BESIDE).all() for part in self._beside), "written beside an array"


class HostKernel:
    """A kernel compiled for the CPU.

    Args:
        source: CUDA C++ as it is rendered.
        entry: the kernel's name.
        folder: where it is built.
    """

    def __init__(self, source: str, entry: str, folder: Path) -> None:
        text = (
            f'#include "cuda.hpp"\n{_for_host(source)}\n'
            f'extern "C" void body(void** arguments) {{ emulator::call({entry}, arguments); }}\n'
        )
        folder.mkdir(parents=True, exist_ok=True)
        file, library = folder / f"{entry}.cpp", folder / f"{entry}.so"
        file.write_text(text)
        machine = _machine()
        _compile("-shared", f"-I{machine}", "-o", library, file, machine / "machine.o")
        self._library = ctypes.CDLL(str(library))
        self._library.launch.restype = ctypes.c_char_p

    def __call__(
        self,
        blocks: int,
        threads: int,
        shared_bytes: int,
        schedule: Schedule,
        *arguments: HostArray | np.generic,
        layers: int = 1,
    ) -> None:
        """Run it to its end, on a grid of ``blocks`` along x, as often along z as there are ``layers``.

        Raises:
            AssertionError: it did what it may not, or waits for ever.
        """
        values = [
            np.uint64(argument.elements.ctypes.data) if isinstance(argument, HostArray) else argument
            for argument in arguments
        ]
        stored = [np.array([value]) for value in values]
        head: tuple[int, ...] = (blocks, layers, threads, shared_bytes)
        head += (schedule.resident, int(schedule.shuffled), schedule.seed)
        pointers = (ctypes.c_void_p * len(stored))(*(value.ctypes.data for value in stored))
        fault = self._library.launch(self._library.body, pointers, *map(ctypes.c_uint, head))
        assert fault is None, fault.decode()
        for argument in arguments:
            if isinstance(argument, HostArray):
                argument.check()


class HostConfiguration:
    """All launches of a configuration, compiled for the CPU once, to be run at any sizes.

    Args:
        kernel: whose configuration it is.
        problem: for everything but the sizes.
        gpu: few SMs make persistent blocks loop.
        configuration: what is run.
        folder: where it is built.
        edit: what becomes of the sources before.
    """

    def __init__(
        self,
        kernel: KernelSpec,
        problem: Problem,
        gpu: Gpu,
        configuration: Configuration,
        folder: Path,
        edit: Callable[[str], str] = str,
    ) -> None:
        self.kernel, self.problem, self.gpu, self.configuration = kernel, problem, gpu, configuration
        sources = render(kernel, problem, gpu, configuration)
        self._kernels = [
            HostKernel(edit(source), entry, folder / str(number))
            for number, (source, entry) in enumerate(sources)
        ]

    def plan(self, sizes: Mapping[str, int]) -> Plan:
        """Return the launches at these sizes."""
        problem = self.kernel.problem(dict(sizes), self.problem.dtypes, self.problem.options)
        return make_plan(self.kernel, problem, self.gpu, self.configuration)

    def scratch(self, sizes: Mapping[str, int]) -> dict[str, HostArray]:
        """Return the memory between the launches: as it was left by others, or zero where the kernel asks for that."""
        memory = {}
        for buffer in self.plan(sizes).scratch:
            memory[buffer.name] = HostArray(buffer.count, buffer.dtype, 256)
            if buffer.zeroed_once:
                memory[buffer.name].elements[:] = 0
        return memory

    def run(self, sizes: Mapping[str, int], memory: Mapping[str, HostArray], schedule: Schedule) -> None:
        """Run all launches, on tensors and scratch by name.

        Raises:
            AssertionError: as :class:`HostKernel`; or what must be left as zeros is not.
        """
        plan = self.plan(sizes)
        for kernel, launch in zip(self._kernels, plan.launches, strict=True):
            arguments = _arguments(launch, memory)
            assert launch.grid[1] == 1
            x, z = launch.grid[0], launch.grid[2]
            kernel(x, launch.threads, launch.shared_bytes, schedule, *arguments, layers=z)
        for buffer in plan.scratch:
            left = memory[buffer.name].elements
            assert not buffer.zeroed_once or not left.any(), "the next launch finds it changed"


def _arguments(launch: Launch, memory: Mapping[str, HostArray]) -> list[HostArray | np.generic]:
    return [
        memory[name] if kind == "buffer" else _scalar(name, value) for kind, name, value in launch.arguments
    ]


def _scalar(dtype: str, value: Value) -> np.generic:
    if dtype == "bfloat16":
        return np.uint16(np.float32(value).view(np.uint32) >> np.uint32(16))  # the plan has rounded it
    scalar: np.generic = np.dtype(dtype).type(value)
    return scalar


def _compile(*words: object) -> None:
    done = subprocess.run(
        [str(COMPILER), *FLAGS, *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:4000]


@functools.cache
def _machine() -> Path:
    """Compile once what is the same for all kernels: it takes longer than any of them."""
    folder = Path(tempfile.mkdtemp(prefix="emulator-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for file in ("cuda.hpp", "machine.cpp"):
        shutil.copy(HERE / file, folder)
    _compile("-x", "c++-header", "-o", folder / "cuda.hpp.gch", folder / "cuda.hpp")
    _compile("-c", "-o", folder / "machine.o", folder / "machine.cpp")
    return folder


_ARCHITECTURE = re.compile(
    r"^#if __CUDA_ARCH__ [^\n]*\n(.*?)(?:^#else\n(.*?))?^#endif\n", re.MULTILINE | re.DOTALL
)
_DYNAMIC = re.compile(r"^( *)extern __shared__ (?:__align__\(\d+\) )?([\w ]+) (\w+)\[\];", re.MULTILINE)
_NAME = re.compile(r"(\w+)\)?(?:\[\w*\])*(?: = \w+)?(?:,|$)")
_FUNCTION = re.compile(
    r"^(?P<head>(?:template[ ]*<(?P<own>[^\n]*)>\n)?__device__ [^{;]*?(?P<name>\w+)(?P<given><[\w, ]+>)?"
    r"\((?P<parameters>[^{;]*)\) )\{(?:(?P<short> [^\n]*) \}|\n(?P<long>.*?)^\})$",
    re.MULTILINE | re.DOTALL,
)


def _for_host(source: str) -> str:
    """Let functions that hold PTX call their stand-ins in ``cuda.hpp``.

    Where the code depends on the architecture, the oldest GPU's is taken.
    """
    source = _ARCHITECTURE.sub(lambda match: match[2] or "", code_of(source))
    source = _DYNAMIC.sub(_dynamic, source)
    return _FUNCTION.sub(_without_ptx, source)


def _dynamic(declaration: re.Match[str]) -> str:
    """Let each block have its own, also where the name is one for all functions."""
    indented, kind, name = declaration.groups()
    memory = f"reinterpret_cast<{kind}*>(emulator::dynamic_shared())"
    return f"{indented}{kind}* const {name} = {memory};" if indented else f"#define {name} {memory}"


def _without_ptx(function: re.Match[str]) -> str:
    if not re.search(r"\basm\b", function["short"] or function["long"]):
        return function[0]
    names = _NAME.findall(function["parameters"])
    given = function["given"] or ""
    if function["own"]:
        given = f"<{', '.join(parameter.split()[-1] for parameter in function['own'].split(','))}>"
    return f"{function['head']}{{ return ptx::{function['name']}{given}({', '.join(names)}); }}"
