"""Runs rendered kernels on the CPU, in an order drawn from a seed: every thread is a fiber (``machine.cpp``).

No GPU is needed, only g++. What is run is the template's own code, but for the bodies of functions that hold PTX, and
what the kernel's file passes to its launches. This finds wrong indices, lost elements, accesses beside an array or not
aligned, missing barriers and waits, and results that depend on the order of blocks; not what only a GPU can get wrong,
such as a missing fence.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import mmap
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.children.cubin import function_name
from tuner.children.headers import hosts_of_cuda
from tuner.core import paths
from tuner.core.files import make_private, refusal
from tuner.core.model import digest
from tuner.kernel.contents import encoded, from_bfloat16, in_memory
from tuner.runtime.launches import Launch
from tuner.runtime.structs import leaves, stored

FILES = ("cuda.hpp", "intrinsics.hpp", "machine.cpp", "include")
COMPILER = shutil.which("g++")
STALE_S = 86400.0
_REFUSED = re.compile(r":\d+: (?:fatal )?error: ")
FLAGS = (
    *("-std=c++17", "-Og", "-fPIC", "-w", "-fno-strict-aliasing", "-fno-gnu-unique", "-U_FORTIFY_SOURCE"),
    *("-fsanitize=alignment", "-fsanitize-undefined-trap-on-error", "-D__CUDACC_RTC__"),
)
LINKED = ("-shared", "-nodefaultlibs", "-Wl,-Bsymbolic", "-fwhole-program")
"""Without the libraries of C++: the machine's brings them, and linking takes 6 ms, not 46. What a kernel does not call
is not compiled: gemm's takes 100 ms instead of 160, with -Og instead of -O1, which runs as fast."""
_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_ARCHITECTURE = re.compile(
    r"^#if __CUDA_ARCH__ [^\n]*\n(.*?)(?:^#else\n(.*?))?^#endif\n", re.MULTILINE | re.DOTALL
)
_DYNAMIC = re.compile(
    r"^([ \t]*)extern (?=[^\n]*__shared__)(?:(?:__shared__|(?:__align__|alignas)\(\d+\)) )+([\w ]+) (\w+)\[\];",
    re.MULTILINE,
)
_SHARED = re.compile(
    r"(?:\bstatic\s+)?\b__shared__\s+(?:static\s+)?((?:alignas\s*\((?:[^()]|\([^()]*\))*\)\s*)*)"
)
"""With what g++ has in another order: the emulator's word for it is a storage class."""
_C_VARIABLE = re.compile(r'extern\s+"C"\s+(?=__(?:constant|device)__)')
"""Before a variable C++ takes it for a declaration."""
_NAME = re.compile(r"(\w+)\)?(?:\[\w*\])*(?: = \w+)?(?:,|$)")
_FUNCTION = re.compile(
    r"^(?P<head>(?:template[ ]*<(?P<own>[^\n]*)>\n)?__device__ [^{;]*?(?P<name>\w+)(?P<given><[\w, ]+>)?"
    r"\((?P<parameters>[^{;]*)\) )\{(?:(?P<short> [^\n]*) \}|\n(?P<long>.*?)^\})$",
    re.MULTILINE | re.DOTALL,
)


class KernelFault(Exception):  # noqa: N818 - what a kernel did, not a fault of the tuner
    """A kernel did what it may not, or waits for ever."""


class NotForHost(Exception):  # noqa: N818 - a verdict on a source
    """A source that g++ does not compile: it needs more of CUDA than the emulator has."""


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
        dtype: ``elements`` holds the bits of bfloat16, and the bytes of bool.
        alignment: bytes of which the address is a multiple, and as a rule of no larger power of two.
        name: what a message calls it.
    """

    _BESIDE = 0x5A

    def __init__(self, count: int, dtype: str, alignment: int = 1, name: str = "an array") -> None:
        self.dtype = dtype
        self.name = name
        element = np.dtype(in_memory(dtype))
        size = count * element.itemsize
        room = -(-(size + 256) // mmap.PAGESIZE) * mmap.PAGESIZE
        whole = np.frombuffer(mmap.mmap(-1, room + mmap.PAGESIZE), np.uint8)
        behind = ctypes.c_void_p(whole.ctypes.data + room)
        if ctypes.CDLL(None).mprotect(behind, ctypes.c_size_t(mmap.PAGESIZE), 0):
            raise OSError("mprotect has failed")
        start = (room - size) // alignment * alignment
        self._beside = (whole[:start], whole[start + size : room])
        for part in self._beside:
            part[:] = self._BESIDE
        self.elements: npt.NDArray[Any] = whole[start : start + size].view(element)
        whole[start : start + size] = 0xFF

    @property
    def numbers(self) -> npt.NDArray[Any]:
        """A copy of what it holds; bfloat16 as float32."""
        return from_bfloat16(self.elements) if self.dtype == "bfloat16" else self.elements.copy()

    def fill(self, numbers: npt.NDArray[Any]) -> None:
        """Store numbers, rounded to the dtype."""
        self.elements[:] = encoded(numbers, self.dtype)

    def check(self) -> None:
        """Require that nothing was written beside it.

        Raises:
            KernelFault: something was.
        """
        for where, part in zip(
            ("before the first element", "after the last element"), self._beside, strict=True
        ):
            if not (part == self._BESIDE).all():
                raise KernelFault(f"a write {where} of {self.name}")


Dimensions = int | tuple[int, int, int]


class HostKernel:
    """A kernel compiled for the CPU.

    Args:
        source: CUDA C++ as it is rendered.
        entry: the kernel's name, or a C++ name expression.
        folder: where it is built.
        include: folders of its own headers.
        objects: what is linked with it.
        variables: that :meth:`fill` fills, as C++ has them or mangled.

    Raises:
        NotForHost: it does not compile.
    """

    def __init__(
        self,
        source: str,
        entry: str,
        folder: Path,
        include: Sequence[Path] = (),
        objects: Sequence[Path] = (),
        variables: Sequence[str] = (),
    ) -> None:
        places = "".join(
            f'extern "C" EMULATOR_SEEN void* variable_{number}() {{ return (void*)&({name}); }}\n'
            f'extern "C" EMULATOR_SEEN unsigned long bytes_{number}() {{ return sizeof({name}); }}\n'
            for number, name in enumerate(map(function_name, variables))
        )
        text = (
            f'#include "cuda.hpp"\n{for_host(source)}\n{places}'
            f'extern "C" EMULATOR_SEEN void body(void** arguments) {{ emulator::call({entry}, arguments); }}\n'
            'extern "C" EMULATOR_SEEN unsigned char* shared() { return &emulator::something; }\n'
        )
        folder.mkdir(parents=True, exist_ok=True)
        file, library = folder / "kernel.cpp", folder / "kernel.so"
        file.write_text(text)
        for name in hosts_of_cuda(source, include):
            empty = folder / "empty" / name
            empty.parent.mkdir(parents=True, exist_ok=True)
            empty.touch()
        folders = [f"-I{path}" for path in (machine(), *include, machine() / "include", folder / "empty")]
        _compile(*LINKED, *folders, "-o", library, file, *objects, machine() / "machine.so", "-lgcc")
        self._library = ctypes.CDLL(str(library))
        self._library.launch.restype = ctypes.c_char_p
        self._library.shared.restype = ctypes.c_void_p
        self._variables = {name: number for number, name in enumerate(variables)}

    def fill(self, variable: str, array: HostArray) -> None:
        """Fill a variable with an array's content.

        Raises:
            KernelFault: it has no room for that.
        """
        number, size_bytes = self._variables[variable], array.elements.nbytes
        place, room = (getattr(self._library, f"{what}_{number}") for what in ("variable", "bytes"))
        place.restype, room.restype = ctypes.c_void_p, ctypes.c_ulong
        if room() < size_bytes:
            raise KernelFault(f"{variable} has {room()} bytes, and {array.name} {size_bytes}")
        ctypes.memmove(place(), array.elements.ctypes.data, size_bytes)

    def __call__(
        self,
        grid: Dimensions,
        block: Dimensions,
        shared_bytes: int,
        schedule: Schedule,
        *arguments: HostArray | np.generic,
    ) -> None:
        """Run it to its end.

        Raises:
            KernelFault: it did what it may not, or waits for ever.
        """
        values = [
            np.uint64(argument.elements.ctypes.data) if isinstance(argument, HostArray) else argument
            for argument in arguments
        ]
        stored = [np.array([value]) for value in values]
        pointers = (ctypes.c_void_p * len(stored))(*(value.ctypes.data for value in stored))
        dimensions = [
            (ctypes.c_uint * 3)(*((given, 1, 1) if isinstance(given, int) else given))
            for given in (grid, block)
        ]
        numbers = (shared_bytes, schedule.resident, int(schedule.shuffled), schedule.seed)
        library = self._library
        fault = library.launch(
            library.body,
            pointers,
            ctypes.c_void_p(library.shared()),
            *dimensions,
            *map(ctypes.c_uint, numbers),
        )
        if fault is not None:
            raise KernelFault(fault.decode())
        for argument in arguments:
            if isinstance(argument, HostArray):
                argument.check()


def launch_arguments(launch: Launch, memory: Mapping[str, HostArray]) -> list[HostArray | np.generic]:
    """Return the arguments of a launch: tensors and scratch by name, and the bytes of numbers and structs."""
    addresses = {name: array.elements.ctypes.data for name, array in memory.items()}
    return [
        memory[argument[1]] if argument[0] == "buffer" else np.void(stored(argument, addresses))
        for argument in launch.arguments
    ]


def in_structs(launch: Launch, memory: Mapping[str, HostArray]) -> list[HostArray]:
    """Return the arrays whose addresses are in structs that a launch passes."""
    return [memory[leaf.name] for leaf in leaves(launch.arguments) if leaf.kind == "buffer"]


def compile_object(source: Path, to: Path) -> Path:
    """Compile C++ that begins with ``cuda.hpp``, to be linked with kernels, and return ``to``."""
    _compile("-c", f"-I{machine()}", "-o", to, source)
    return to


def _compile(*words: object) -> None:
    """Compile; a compiler that fails without naming an error, killed for want of memory perhaps, has a second try.

    Raises:
        NotForHost: it does not compile.
    """
    for _ in range(2):
        done = subprocess.run(
            [str(COMPILER), *FLAGS, *map(str, words)], capture_output=True, text=True, check=False
        )
        if not done.returncode:
            return
        if _REFUSED.search(done.stderr):
            break
    raise NotForHost(done.stderr[:4000] or f"{COMPILER} ended with status {done.returncode}")


@functools.cache
def machine() -> Path:
    """Return where the part that is the same for all kernels is compiled: in the cache, or if that cannot be, for now.

    It takes three seconds, which is longer than any kernel does.
    """
    version = subprocess.run([str(COMPILER), "--version"], capture_output=True, text=True, check=False).stdout
    folder = Path(__file__).parent
    files = [path for ending in ("hpp", "cpp", "h") for path in sorted(folder.rglob(f"*.{ending}"))]
    kept = paths.emulator() / digest([version, *FLAGS, *LINKED, *(path.read_text() for path in files)])
    if not refusal(kept.parent):
        if (kept / "machine.so").is_file():
            with contextlib.suppress(OSError):
                os.utime(
                    kept
                )  # what is used is not stale: another version would delete it from under its users
            return kept
        with contextlib.suppress(OSError):  # a full or read-only disk
            return _build_and_keep(kept)
    folder = Path(tempfile.mkdtemp(prefix="emulator-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return _build_machine(folder)


def _build_and_keep(kept: Path) -> Path:
    """Build it whole or not at all, and delete what is a day old: of other versions, or half built."""
    make_private(kept.parent.parent, kept.parent)
    for other in kept.parent.iterdir():
        if time.time() - other.stat().st_mtime > STALE_S:
            shutil.rmtree(other, ignore_errors=True)
    built = _build_machine(Path(tempfile.mkdtemp(prefix="new-", dir=kept.parent)))
    try:
        return built.rename(kept)
    except OSError:  # another process was faster
        shutil.rmtree(built)
        return kept


def _build_machine(folder: Path) -> Path:
    for name in FILES:
        source = Path(__file__).parent / name
        if source.is_dir():
            shutil.copytree(source, folder / name)
        else:
            shutil.copy(source, folder)
    _compile("-x", "c++-header", "-o", folder / "cuda.hpp.gch", folder / "cuda.hpp")
    _compile("-shared", "-o", folder / "machine.so", folder / "machine.cpp")
    return folder


# -- CUDA C++ as the CPU's compiler takes it: without PTX, for the oldest GPU


def code_of(source: str, *, lines_stay: bool = False) -> str:
    """Return a source without its comments, and, unless its lines stay where they are, without empty lines."""
    without = _COMMENT.sub(lambda match: match[1] or "\n" * (lines_stay and match[0].count("\n")), source)
    if lines_stay:
        return without
    return "\n".join(line.rstrip() for line in without.splitlines() if line.strip()) + "\n"


def for_host(source: str) -> str:
    """Return a source whose functions that hold PTX call their stand-ins in ``cuda.hpp``.

    Where the code depends on the architecture, the oldest GPU's is taken.
    """
    source = _ARCHITECTURE.sub(lambda match: match[2] or "", code_of(source))
    source = _C_VARIABLE.sub("", source)
    source = _SHARED.sub(r"\1__shared__ ", _DYNAMIC.sub(_dynamic, source))
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
