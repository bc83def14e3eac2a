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
import itertools
import mmap
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
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
    *(
        "-fsanitize=alignment,thread",
        "-fsanitize-undefined-trap-on-error",
        "-fno-extern-tls-init",
        "-g1",
        "-gdwarf-4",
    ),
    "-D__CUDACC_RTC__",
)
UNSEEN = "-fno-sanitize=thread"
"""For what is no kernel: its accesses are not looked at."""
LINKED = ("-shared", "-nodefaultlibs", "-Wl,-Bsymbolic", "-fwhole-program")
"""Without the libraries of C++: the machine's brings them, and linking takes 6 ms, not 46. What a kernel does not call
is not compiled: gemm's takes 100 ms instead of 160, with -Og instead of -O1, which runs as fast."""
_OWN = {path.name for path in Path(__file__).parent.rglob("*.h*")}
_RENDERED = "rendered"
"""What the lines of a source belong to that does not name a file."""
_BEFORE = 'asm(".pushsection .tbss,\\"awT\\",%nobits\\n.zero 16384\\n.popsection");\n'
"""Room beside a library's shared variables, which is before them; in an object behind it."""
_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_ARCHITECTURE = re.compile(
    r"^#if __CUDA_ARCH__ [^\n]*\n(.*?)(?:^#else\n(.*?))?^#endif\n", re.MULTILINE | re.DOTALL
)
_SHARED = re.compile(r"\b__shared__\s+((?:alignas\s*\((?:[^()]|\([^()]*\))*\)\s*)+)")
"""With what g++ has in another order: the emulator's word for it is a storage class."""
_DYNAMIC = re.compile(
    r"\bextern\b[^;\"]*\b__shared__\b[^;\"]*?\b(\w+)\s*\[\s*\]\s*;|\b__shared__\s+extern\b[^;\"]*?\b(\w+)\s*\[\s*\]\s*;"
)
_NOT_FOUND = re.compile(r"undefined symbol: (\w+)")
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
    """An array whose accesses are looked at, in the midst of memory that may not be touched.

    Args:
        count: number of elements, which start as NaNs.
        dtype: ``elements`` holds the bits of bfloat16, and the bytes of bool.
        alignment: bytes of which the address is a multiple, and as a rule of no larger power of two.
        name: what a message calls it.
    """

    _REACH = 16 << 20
    """Bytes before and behind it where nothing else lies: what is touched there is meant for it."""
    _numbers = itertools.count()

    def __init__(self, count: int, dtype: str, alignment: int = 1, name: str = "an array") -> None:
        self.dtype = dtype
        self.name = name
        element = np.dtype(in_memory(dtype))
        size = count * element.itemsize
        room = -(-(size + 256) // mmap.PAGESIZE) * mmap.PAGESIZE
        whole = np.frombuffer(mmap.mmap(-1, room + 2 * self._REACH, mmap.MAP_PRIVATE), np.uint8)
        for beside in (whole.ctypes.data, whole.ctypes.data + self._REACH + room):
            if ctypes.CDLL(None).mprotect(ctypes.c_void_p(beside), ctypes.c_size_t(self._REACH), 0):
                raise OSError("mprotect has failed")
        middle = whole[self._REACH :][:room]
        start = (room - size) // alignment * alignment
        self._beside = (middle[:start], middle[start + size :])
        self._filler = next(self._numbers) % 251 + 1
        """Beside it, another number than beside other arrays: what is copied from one to the other shows."""
        for part in self._beside:
            part[:] = self._filler
        self.reach = (whole.ctypes.data, whole.ctypes.data + len(whole))
        """Addresses between which nothing else lies."""
        self.elements: npt.NDArray[Any] = middle[start : start + size].view(element)
        middle[start : start + size] = 0xFF
        self.set = np.zeros(size, np.uint8)
        """1 for each byte that something has written."""

    @property
    def numbers(self) -> npt.NDArray[Any]:
        """A copy of what it holds; bfloat16 as float32."""
        return from_bfloat16(self.elements) if self.dtype == "bfloat16" else self.elements.copy()

    def fill(self, numbers: npt.NDArray[Any]) -> None:
        """Store numbers, rounded to the dtype."""
        self.elements[:] = encoded(numbers, self.dtype)
        self.set[:] = 1

    def is_set(self, index: int) -> bool:
        """Return whether something has written an element."""
        size = self.elements.itemsize
        return bool(self.set[index * size :][:size].all())

    def check(self) -> None:
        """Require that nothing was written beside it, in a way that nobody has seen.

        Raises:
            KernelFault: something was.
        """
        for where, part in zip(
            ("before the first element", "after the last element"), self._beside, strict=True
        ):
            if not (part == self._filler).all():
                raise KernelFault(f"a write {where} of {self.name}")


Dimensions = int | tuple[int, int, int]


class _Access(ctypes.Structure):
    """As ``machine.cpp`` has it."""

    _fields_ = [
        ("at", ctypes.c_ulong), ("line", ctypes.c_ulong), ("thread", ctypes.c_uint), ("array", ctypes.c_short),
        ("bytes", ctypes.c_ushort), ("kind", ctypes.c_uint),
    ]  # fmt: skip


class _Seen(ctypes.Structure):
    """As ``machine.cpp`` has it."""

    _fields_ = [
        ("arrays", ctypes.c_void_p), ("count", ctypes.c_ulong), ("accesses", ctypes.c_void_p),
        ("most", ctypes.c_ulong), ("length", ctypes.c_ulong), ("fault", _Access), ("unset", _Access),
        ("base", ctypes.c_ulong), ("section", ctypes.c_ulong), ("dynamic", ctypes.c_ulong),
    ]  # fmt: skip


NOWHERE, DYNAMIC, STATIC = -3, -2, -1
"""Instead of an array's number, as in ``machine.cpp``: no array, dynamic and static shared memory."""


class HostKernel:
    """A kernel compiled for the CPU.

    Args:
        source: CUDA C++ as it is rendered.
        entry: the kernel's name, or a C++ name expression.
        folder: where it is built.
        include: folders of its own headers.
        objects: what is linked with it.
        variables: that :meth:`fill` fills, as C++ has them or mangled.
        options: for NVRTC, of which macros are kept.
        place: name of the file and line that a line of the source comes from, where the source does not say it.

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
        options: Sequence[str] = (),
        place: Callable[[int], str] = str,
    ) -> None:
        places = "".join(
            f'extern "C" EMULATOR_SEEN void* variable_{number}() {{ return (void*)&({name}); }}\n'
            f'extern "C" EMULATOR_SEEN unsigned long bytes_{number}() {{ return sizeof({name}); }}\n'
            for number, name in enumerate(map(function_name, variables))
        )
        text = (
            f'#include "cuda.hpp"\n{_BEFORE}#line 1 "{_RENDERED}"\n{for_host(source)}\n#line 1 "launch"\n{places}'
            f'extern "C" EMULATOR_SEEN void body(void** arguments) {{ emulator::call({entry}, arguments); }}\n'
        )
        folder.mkdir(parents=True, exist_ok=True)
        self._file, library = folder / "kernel.cpp", folder / "kernel.so"
        for name in hosts_of_cuda(source, include):
            empty = folder / "empty" / name
            empty.parent.mkdir(parents=True, exist_ok=True)
            empty.touch()
        folders = [f"-I{path}" for path in (machine(), *include, machine() / "include", folder / "empty")]
        words = [*LINKED, *_macros(options), *folders, "-o", library, self._file, *objects]
        dynamic = [name for pair in _DYNAMIC.findall(source) for name in pair if name]
        while True:
            self._file.write_text(text + _shared_places(dynamic))
            _compile(*words, machine() / "behind.o", machine() / "machine.so", "-lgcc")
            try:
                self._library = ctypes.CDLL(str(library))
                break
            except OSError as error:  # names of dynamic shared memory that macros or namespaces hide
                missing = _NOT_FOUND.search(str(error))
                if missing is None or missing[1] in dynamic:
                    raise NotForHost(str(error)) from None
                dynamic.append(missing[1])
        self._library.launch.restype = ctypes.c_char_p
        self._library.places.restype = ctypes.c_void_p
        self._variables = {name: number for number, name in enumerate(variables)}
        self._place = place
        self._filled: dict[str, tuple[HostArray, int, int]] = {}
        """The array that has filled a variable, and the variable's address and bytes."""
        self._seen, self._arrays = _Seen(), list[tuple[HostArray, int]]()

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
        self._filled[variable] = (array, place(), room())

    def __call__(
        self,
        grid: Dimensions,
        block: Dimensions,
        shared_bytes: int,
        schedule: Schedule,
        *arguments: HostArray | np.generic,
        others: Sequence[HostArray] = (),
        accesses: npt.NDArray[Any] | None = None,
    ) -> int:
        """Run it to its end, with other arrays that it reaches, and return how many accesses are in ``accesses``.

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
        passed = [*(argument for argument in arguments if isinstance(argument, HostArray)), *others]
        self._arrays = [(one, one.elements.ctypes.data) for one in passed]
        rows = [(start, *one.reach, one.elements.nbytes, one.set.ctypes.data) for one, start in self._arrays]
        for array, start, room in self._filled.values():
            self._arrays.append((array, start))
            rows.append((start, start, start + room, array.elements.nbytes, array.set.ctypes.data))
        table = np.array(rows, np.uint64)
        self._seen = seen = _Seen(arrays=table.ctypes.data, count=len(table))
        if accesses is not None:
            seen.accesses, seen.most = accesses.ctypes.data, len(accesses)
        numbers = (shared_bytes, schedule.resident, int(schedule.shuffled), schedule.seed)
        library = self._library
        fault = library.launch(
            library.body,
            pointers,
            ctypes.c_void_p(library.places()),
            *dimensions,
            *map(ctypes.c_uint, numbers),
            ctypes.byref(seen),
        )
        if fault is not None:
            where = self._where(seen.fault.line)
            said = self._outside(fault.decode(), seen.fault, shared_bytes)
            raise KernelFault(f"{said}, {where}" if where else said)
        for array in passed:
            array.check()
        return int(seen.length)

    def _outside(self, what: str, access: _Access, shared_bytes: int) -> str:
        """Return what a fault was, and which element it touched."""
        if access.array >= 0:
            array, start = self._arrays[access.array]
            first, end = access.at - start, array.elements.nbytes
            first = end if 0 <= first < end else first
            return (
                f"{what} an array: {array.name}[{first // array.elements.itemsize}] of {array.elements.size}"
            )
        if access.array == DYNAMIC:
            first = max(
                access.at - self._seen.dynamic,
                min(shared_bytes, access.at - self._seen.dynamic + access.bytes - 1),
            )
            return (
                f"{what} dynamic shared memory: byte {first} of the {shared_bytes} that the launch asks for"
            )
        return f"{what} shared memory" if access.array == STATIC else what

    @property
    def reads_unset(self) -> bool:
        """Whether the last run has read what nothing had written."""
        return bool(self._seen.unset.line)

    def unset(self) -> tuple[str, str]:
        """Return where the last run has first read what nothing had written, if that is known, and an array's name."""
        access = self._seen.unset
        where = self._where(access.line)
        name, what = "", "shared memory"
        if access.array >= 0:
            array, start = self._arrays[access.array]
            name = array.name
            what = f"{name}[{(access.at - start) // array.elements.itemsize}]"
        elif access.array == STATIC and (variable := self._shared_name(access.at - self._seen.section)):
            what = f"{variable} in shared memory"
        return f"{where} reads {what} before anything is written there" if where else "", name

    def _shared_name(self, offset: int) -> str:
        """Return the variable at a place of the segment of shared memory, as the kernel has it; empty if not known."""
        for line in _said_by("nm", "-C", "-S", str(self._file.with_suffix(".so"))):
            start, size, kind, name = [*line.split(maxsplit=3), "", "", "", ""][:4]
            if kind in "bBdD" and kind and int(start, 16) <= offset < int(start, 16) + int(size, 16):
                return name.rpartition("::")[2]
        return ""

    def _where(self, line: int) -> str:
        """Return file and line of an address in the code; empty if not known."""
        return self.lines([line - self._seen.base])[0] if line else ""

    def lines(self, offsets: Sequence[int]) -> list[str]:
        """Return file and line of places in the library, each behind a call; empty texts for what is not known."""
        words = [hex(offset - 1) for offset in offsets]
        told: list[list[str]] = []
        for text in _said_by("addr2line", "-a", "-i", "-e", str(self._file.with_suffix(".so")), *words):
            if text.startswith("0x"):
                told.append([])
            else:
                told[-1].append(text.partition(" (")[0])
        return [self._own_line(frames) for frames in told] or [""] * len(offsets)

    def _own_line(self, frames: Sequence[str]) -> str:
        """Return the first of some places that is not the emulator's."""
        for frame in frames:
            file, _, line = frame.rpartition(":")
            if not line.isdecimal() or Path(file).name in _OWN:
                continue
            if Path(file).name == _RENDERED:
                return self._place(int(line))
            return f"{Path(file).name}:{line}"
        return ""


def _said_by(*words: str) -> list[str]:
    """Return what a program of the compiler's prints; nothing if there is none."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError:
        return []
    return done.stdout.splitlines()


def _macros(options: Sequence[str]) -> list[str]:
    """Return those of NVRTC's options that define macros, as g++ has them."""
    return [one for one in options if re.match(r"-[DU]|--(?:un)?define-macro=", one)]


def _shared_places(dynamic: Sequence[str]) -> str:
    """Return code that tells where shared memory is; names of dynamic shared memory mean the same room."""
    room = "alignas(128) thread_local unsigned char emulator_dynamic[emulator::DYNAMIC_ROOM];\n"
    names = "".join(
        f'asm(".globl {name}\\n.type {name}, @tls_object\\n.set {name}, emulator_dynamic");\n'
        for name in dynamic
    )
    return (
        (f'extern "C" {{ EMULATOR_SEEN {room}}}\n{names}' if dynamic else "")
        + 'extern "C" EMULATOR_SEEN unsigned char* const* places() {\n'
        "    static unsigned char* both[2];\n    both[0] = &emulator::something;\n"
        + ("    both[1] = emulator_dynamic;\n" if dynamic else "")
        + "    return both;\n}\n"
    )


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
    _compile("-c", UNSEEN, f"-I{machine()}", "-o", to, source)
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
    (folder / "behind.cpp").write_text(_BEFORE)
    _compile("-c", "-o", folder / "behind.o", folder / "behind.cpp")
    _compile("-x", "c++-header", "-o", folder / "cuda.hpp.gch", folder / "cuda.hpp")
    _compile("-shared", UNSEEN, "-o", folder / "machine.so", folder / "machine.cpp", "-ldl")
    return folder


# -- CUDA C++ as the CPU's compiler takes it: without PTX, for the oldest GPU


def code_of(source: str, *, lines_stay: bool = False) -> str:
    """Return a source without its comments, and, unless its lines stay where they are, without empty lines."""
    without = _COMMENT.sub(lambda match: match[1] or "\n" * (lines_stay and match[0].count("\n")), source)
    if lines_stay:
        return without
    return "\n".join(line.rstrip() for line in without.splitlines() if line.strip()) + "\n"


def for_host(source: str) -> str:
    """Return a source whose functions that hold PTX call their stand-ins in ``cuda.hpp``; lines stay where they are.

    Where the code depends on the architecture, the oldest GPU's is taken.
    """
    source = _ARCHITECTURE.sub(_of_the_oldest, code_of(source, lines_stay=True))
    source = _SHARED.sub(r"\1__shared__ ", _C_VARIABLE.sub("", source))
    return _FUNCTION.sub(_without_ptx, source)


def _of_the_oldest(code: re.Match[str]) -> str:
    kept = code[2] or ""
    before = code[0][: code.start(2) - code.start()].count("\n") if kept else 0
    return "\n" * before + kept + "\n" * (code[0].count("\n") - before - kept.count("\n"))


def _without_ptx(function: re.Match[str]) -> str:
    body = function["short"] or function["long"]
    if not re.search(r"\basm\b", body):
        return function[0]
    names = _NAME.findall(function["parameters"])
    given = function["given"] or ""
    if function["own"]:
        given = f"<{', '.join(parameter.split()[-1] for parameter in function['own'].split(','))}>"
    lines = "\n" * function[0][len(function["head"]) :].count("\n")
    return f"{function['head']}{{ return ptx::{function['name']}{given}({', '.join(names)}); {lines}}}"
