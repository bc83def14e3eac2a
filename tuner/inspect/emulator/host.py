"""Runs rendered kernels on the CPU, in an order drawn from a seed: every thread is a fiber (``machine.cpp``).

No GPU is needed, only g++. What is run is the template's own code, but for the bodies of functions that hold PTX, and
what the kernel's file passes to its launches. This finds wrong indices, lost elements, accesses beside an array or not
aligned, missing barriers and waits, and results that depend on the order of blocks; not what only a GPU can get wrong,
such as a missing fence.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.children.cubin import function_name
from tuner.children.headers import header_folders, hosts_of_cuda, included
from tuner.inspect.emulator.accesses import Row, Told
from tuner.inspect.emulator.building import LINKED, NotForHost, compile_cpp, machine
from tuner.inspect.emulator.source import BESIDE, arch_of, dynamic_names, for_host, macros, shared_places
from tuner.inspect.emulator.symbols import RENDERED, Lasting, Symbols
from tuner.kernel.contents import NAN, encoded, from_bits, in_memory
from tuner.runtime.expressions import round_up
from tuner.runtime.launches import Launch
from tuner.runtime.structs import leaves, stored

PLAIN = "math_constants.h"
"""A header of CUDA that a compiler of the host takes as it is."""
_LIBCUXX = "cuda/std/"
_NOT_FOUND = re.compile(r"undefined symbol: (\w+)")


class KernelFault(Exception):  # noqa: N818 - what a kernel did, not a fault of the tuner
    """A kernel did what it may not, or waits for ever."""


@dataclass(frozen=True)
class Schedule:
    """The order in which threads and blocks run."""

    seed: int = 0
    resident: int = 1 << 20
    """Blocks that are there at once."""
    shuffled: bool = False
    """Whether blocks start in any order."""
    cooperative: bool = True
    """Whether the whole grid may meet."""
    poison: int = NAN
    """What each byte of shared memory holds before it is written."""


class HostArray:
    """An array whose accesses are looked at, in the midst of memory that may not be touched.

    Args:
        count: number of elements.
        dtype: ``elements`` holds the bits of those that NumPy lacks, and the bytes of bool.
        alignment: bytes of which the address is a multiple, and as a rule of no larger power of two.
        name: what a message calls it.
        poison: what each byte holds before it is written: as a rule elements are NaNs.
    """

    _REACH = 16 << 20
    """Bytes before and behind it where nothing else lies: what is touched there is meant for it."""
    _numbers = itertools.count()

    def __init__(
        self, count: int, dtype: str, alignment: int = 1, name: str = "an array", poison: int = NAN
    ) -> None:
        self.dtype = dtype
        self.name = name
        element = np.dtype(in_memory(dtype))
        size = count * element.itemsize
        room = round_up(size + 256, mmap.PAGESIZE)
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
        middle[start : start + size] = poison
        self.set = np.zeros(size, np.uint8)
        """1 for each byte that something has written."""

    @property
    def numbers(self) -> npt.NDArray[Any]:
        """A copy of what it holds; dtypes that NumPy lacks as float32."""
        return from_bits(self.elements.copy(), self.dtype)

    def fill(self, numbers: npt.NDArray[Any]) -> None:
        """Store numbers, rounded to the dtype."""
        self.elements[:] = encoded(numbers, self.dtype)
        self.set[:] = 1

    def row(self, start: int, first: int, end: int) -> Row:
        """Return it as the machine is told of it, at an address and between others where nothing else lies."""
        elements = self.elements
        return Row(self.name, start, (first, end), elements.nbytes, elements.itemsize, self.set.ctypes.data)

    @property
    def written(self) -> npt.NDArray[np.bool_]:
        """Whether something has written each element, all of it."""
        return np.asarray(self.set.reshape(-1, self.elements.itemsize).all(axis=1))

    def is_set(self, index: int) -> bool | None:
        """Return whether something has written an element; None where that is so of a part of its bytes."""
        size = self.elements.itemsize
        written = self.set[index * size :][:size]
        return bool(written.all()) if written.all() or not written.any() else None

    def check(self) -> None:
        """Compare the guard zones around the array with their filler: writes that no access hook reported.

        Raises:
            KernelFault: one of them was written to.
        """
        for where, part in zip(
            ("before the first element", "after the last element"), self._beside, strict=True
        ):
            if not (part == self._filler).all():
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
        options: for NVRTC, of which macros are kept.
        place: name of the file and line that a line of the source comes from, where the source does not say it.
        cc: compute capability times ten, but for code with PTX.

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
        cc: int = 75,
    ) -> None:
        places = "".join(
            f'extern "C" EMULATOR_SEEN void* variable_{number}() {{ return (void*)&({name}); }}\n'
            f'extern "C" EMULATOR_SEEN unsigned long bytes_{number}() {{ return sizeof({name}); }}\n'
            for number, name in enumerate(map(function_name, variables))
        )
        # As when they are compiled for a GPU, they come before the macros of parameters.
        names = included(source, include)[1]
        ours = [
            name for name in names if name.startswith(_LIBCUXX) or (machine() / "include" / name).is_file()
        ]
        before = "".join(f"#include <{name}>\n" for name in ours)
        text = (
            f'#include "cuda.hpp"\n{before}{BESIDE}#define __CUDA_ARCH__ {arch_of(source, cc)}\n'
            f'{macros(options)}#line 1 "{RENDERED}"\n{for_host(source)}\n'
            f'#line 1 "launch"\n{places}'
            f'extern "C" EMULATOR_SEEN void body(void** arguments) {{ emulator::call({entry}, arguments); }}\n'
        )
        folder.mkdir(parents=True, exist_ok=True)
        file, library, headers = folder / "kernel.cpp", folder / "kernel.so", folder / "headers"
        given = dict.fromkeys(hosts_of_cuda(source, include), "")
        for name in (name for name in names if name.startswith(_LIBCUXX)):
            own = name.removeprefix(_LIBCUXX)
            given[name] = f"#include <{own}>\nnamespace cuda {{ namespace std = ::std; }}\n"
        for of in header_folders():
            if (plain := of / PLAIN).is_file():
                given[PLAIN] = plain.read_text(encoding="utf-8")
        for name, text_of in given.items():
            (headers / name).parent.mkdir(parents=True, exist_ok=True)
            (headers / name).write_text(text_of, encoding="utf-8")
        folders = [f"-I{path}" for path in (machine(), *include, machine() / "include", headers)]
        words = [*LINKED, *folders, "-o", library, file, *objects]
        dynamic = dynamic_names(source)
        while True:
            file.write_text(text + shared_places(dynamic), encoding="utf-8")
            compile_cpp(*words, machine() / "behind.o", machine() / "machine.so", "-lgcc")
            try:
                self._library = ctypes.CDLL(str(library))
                break
            except OSError as error:  # names of dynamic shared memory that macros or namespaces hide
                missing = _NOT_FOUND.search(str(error))
                if missing is None or missing[1] in dynamic:
                    raise NotForHost(str(error)) from None
                dynamic.append(missing[1])
        self._library.launch.restype = ctypes.c_char_p
        self._variables = {name: number for number, name in enumerate(variables)}
        self._symbols = Symbols(library, place)
        self.lasting = Lasting(self._library, self._symbols, source, variables)
        self._filled: dict[str, tuple[HostArray, int, int]] = {}
        """The array that has filled a variable, and the variable's address and bytes."""
        self.told = Told((), self._symbols, 0)
        """What the last run has told."""

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
        most: int = 0,
    ) -> None:
        """Run it to its end.

        Args:
            grid, block, shared_bytes: of the launch.
            schedule: the order of its threads.
            arguments: arrays, and the bytes of numbers and structs.
            others: arrays whose addresses are in structs.
            most: accesses that are recorded.

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
        rows = [one.row(one.elements.ctypes.data, *one.reach) for one in passed]
        rows += [array.row(start, start, start + room) for array, start, room in self._filled.values()]
        self.told = Told(rows, self._symbols, shared_bytes, most)
        flags = schedule.resident, schedule.shuffled, schedule.cooperative, schedule.seed, schedule.poison
        library, places = self._library, (ctypes.c_void_p * 2)()
        library.tell_places(places)
        fault = library.launch(
            library.body,
            pointers,
            places,
            *dimensions,
            *map(ctypes.c_uint, (shared_bytes, *flags)),
            ctypes.byref(self.told.seen),
        )
        if fault is not None:
            raise KernelFault(self.told.fault(fault.decode()))
        for array in passed:
            array.check()


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
