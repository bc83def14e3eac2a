"""What a cubin says without being run: a kernel's machine code, its variables in global memory, and the launches that
it was compiled for."""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tuner.core.errors import KernelError, suggestion
from tuner.runtime.launches import Launch

_OF_DEBUGGING = [f"{kind}{name}" for kind in ("", ".rel", ".rela") for name in (".debug", ".nv_debug")]
_SAYS_NOTHING = (*_OF_DEBUGGING, ".line", ".note")
"""Beginnings of sections with lines, paths and the compiler's options."""
_NAMES, _SYMBOLS, _NO_BITS = 3, 2, 8
"""Types of sections: names differ between two instances of a template, and tables of symbols refer to names."""
_SYMBOL = struct.Struct("<IBBHQQ")
_OBJECT = 1
_VARIABLES = (".nv.global", ".nv.global.init")
"""Of ``__device__`` variables: without and with an initial value. Constant ones lie there, too."""
_CONSTANT = ".nv.constant3"
"""Of ``__constant__`` variables; others of the kind hold arguments, addresses and numbers of the compiler's."""
_MANGLED, _NAME_LENGTH = re.compile(r"_Z(N?)"), re.compile(r"L?(\d+)")
_NUMBER = re.compile(r"\d+")
"""Before a name in a mangled one: its length (Itanium C++ ABI, 5.1.2)."""
_INFO = ".nv.info."
_SIZED = 4
"""The format of an attribute whose value follows; any other has it in its last two bytes."""
_MAX_THREADS, _REQUIRED_THREADS, _CLUSTER = 0x05, 0x10, 0x3D


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    link: int
    """Number of the section with its names."""
    size: int
    data: bytes


def _sections(cubin: bytes) -> Iterator[_Section]:
    """Yield the sections of a 64-bit ELF file.

    Raises:
        struct.error: it is none.
    """
    table, size, count, names = struct.unpack_from("<Q10xHHH", cubin, 0x28)
    headers = [struct.unpack_from("<IIQQQQI", cubin, table + number * size) for number in range(count)]
    for name, kind, _, _, offset, length, link in headers:
        text = _text(cubin, headers[names][4] + name)
        data = b"" if kind == _NO_BITS else cubin[offset : offset + length]
        yield _Section(text, kind, link, length, data)


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode(errors="replace")


def machine_code(cubin: bytes, entry: str) -> str:
    """Return a digest of what a kernel does: of its code, constants and memory, not of lines, paths and names."""
    content = hashlib.sha256()
    for section in _sections(cubin):
        if section.kind not in (_NAMES, _SYMBOLS) and not section.name.startswith(_SAYS_NOTHING):
            content.update(f"{section.name.replace(entry, '')}\0{section.kind} {section.size}\0".encode())
            content.update(section.data)
    return content.hexdigest()


def kernels_of(cubin: bytes) -> list[str]:
    """Return the names of a cubin's kernels, as the driver finds them.

    Raises:
        struct.error, ValueError, IndexError: it is none.
    """
    prefix = ".text."
    return [one.name.removeprefix(prefix) for one in _sections(cubin) if one.name.startswith(prefix)]


@dataclass(frozen=True)
class Variable:
    """A variable of a cubin that is no kernel's own."""

    symbol: str
    """As the driver finds it."""
    size_bytes: int
    constant: bool
    """Whether it is ``__constant__``."""
    zero: bool
    """Whether it begins as zeros."""

    @property
    def name(self) -> str:
        """As C++ has it, with its namespaces."""
        return function_name(self.symbol)


def variables(cubin: bytes) -> list[Variable]:
    """Return the ``__constant__`` and ``__device__`` variables of a cubin.

    The latter are memory that lives, with what launches leave there, as long as the cubin is loaded.
    """
    found = []
    for symbol, kind, section, start, size in _symbols(cubin):
        place = section.name if section is not None else ""
        if section is not None and kind == _OBJECT and place in (*_VARIABLES, _CONSTANT):
            content = section.data[start : start + size]
            found.append(Variable(symbol, size, place == _CONSTANT, not any(content)))
    return found


def filled_variable(cubin: bytes, name: str, size_bytes: int) -> Variable:
    """Return the variable that a launch fills.

    Args:
        cubin: its code.
        name: of the variable, as C++ has it or mangled.
        size_bytes: of what it is filled with.

    Raises:
        KernelError: there is none, or it is smaller.
    """
    every = [one for one in variables(cubin) if not one.symbol.startswith(("$", "."))]
    found = [one for one in every if name.removeprefix("::") in (one.symbol, one.name)]
    if len(found) != 1:
        others = suggestion(name, dict.fromkeys(one.name for one in every))
        raise KernelError(
            f"constants.{name}: the code has no such __constant__ or __device__ variable", others
        )
    if size_bytes > found[0].size_bytes:
        raise KernelError(
            f"constants.{name}: the variable has {found[0].size_bytes} bytes, and the tensor {size_bytes}",
            "make the variable as large, or the tensor smaller",
        )
    return found[0]


def require_variables(cubin: bytes, launch: Launch) -> None:
    """Raise an error unless a cubin has each variable that its launch fills; errors as of :func:`filled_variable`."""
    for name, _, size_bytes in launch.constants:
        filled_variable(cubin, name, size_bytes)


def calls_malloc(cubin: bytes) -> bool:
    """Return whether a cubin asks the driver for memory of the heap, with ``malloc``, ``new``, or aligned."""
    return any(name.endswith("malloc") and place is None for name, _, place, _, _ in _symbols(cubin))


def _symbols(cubin: bytes) -> Iterator[tuple[str, int, _Section | None, int, int]]:
    """Yield name, type, section, and place in it and size of a cubin's symbols; no section for what the driver has."""
    sections = list(_sections(cubin))
    for table in sections:
        symbols = _SYMBOL.iter_unpack(table.data if table.kind == _SYMBOLS else b"")
        for name, info, _, place, start, size in symbols:
            section = sections[place] if 0 < place < len(sections) else None
            yield _text(sections[table.link].data, name), info & 15, section, start, size


def left_changed(variable: str) -> str:
    """Return what is wrong where a run leaves a variable of the code other than it was."""
    state = f'state = ["{variable}"] in its variant, if that is on purpose'
    return f"it changes {variable}, a variable that lives from launch to launch ({state})"


def source_name(symbol: str) -> str:
    """Return what the source calls a variable: the last name in a mangled one."""
    last, at = symbol, 2
    while symbol.startswith("_Z") and (number := _NUMBER.search(symbol, at)):
        at = number.end() + int(number[0])
        if at <= len(symbol):
            last = symbol[number.end() : at]
    return last


def function_name(symbol: str) -> str:
    """Return what C++ calls a function, without its parameters: ``solver::step`` for ``_ZN6solver4stepEPf``."""
    if not (mangled := _MANGLED.match(symbol)):
        return symbol
    names, at = list[str](), mangled.end()
    while (number := _NAME_LENGTH.match(symbol, at)) and (mangled[1] or not names):
        at = number.end() + int(number[1])
        names.append(symbol[number.end() : at])
    return "::".join(
        name for name in names if not name.startswith(("_GLOBAL__N_", "_INTERNAL_"))
    )  # of no name


def refused_launch(cubin: bytes, entry: str, launch: Launch) -> str:
    """Return why the driver would refuse a launch, by what the kernel was compiled for; empty if it would not."""
    said = {kind: value for kind, value in _attributes(cubin, entry) if len(value) == 3}
    block, grid = launch.block, launch.grid
    if (most := said.get(_MAX_THREADS)) and launch.threads > math.prod(most):
        return (
            f"a block of {launch.threads} threads, but the kernel was compiled for at most {math.prod(most)} threads "
            "(__launch_bounds__)"
        )
    if (wanted := said.get(_REQUIRED_THREADS)) and wanted != block:
        return f"a block of {_times(block)} threads, but the kernel was compiled for {_times(wanted)} (__block_size__)"
    if cluster := said.get(_CLUSTER):
        if launch.cluster is not None and launch.cluster != cluster:
            return f"clusters of {_times(launch.cluster)} blocks, but the kernel has __cluster_dims__ {_times(cluster)}"
        if any(blocks % side for blocks, side in zip(grid, cluster, strict=True)):
            return f"a grid of {_times(grid)} blocks is no multiple of the kernel's __cluster_dims__ {_times(cluster)}"
    return ""


def _times(sides: tuple[int, ...]) -> str:
    return " x ".join(map(str, sides))


def _attributes(cubin: bytes, entry: str) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield number and value of a kernel's attributes: a value is words of four bytes."""
    for section in _sections(cubin):
        position = 0 if section.name == f"{_INFO}{entry}" else section.size
        while position + 4 <= len(section.data):
            kind, number, size = struct.unpack_from("<BBH", section.data, position)
            position += 4
            if kind == _SIZED:
                yield number, struct.unpack_from(f"<{size // 4}I", section.data, position)
                position += size
