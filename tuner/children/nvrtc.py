"""Source -> cubin with NVRTC, in this process, and what ptxas says about it. No GPU is needed.

Cubins, not PTX: a driver refuses PTX that is newer than itself, and would compile it with another ptxas.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.children.cubin import function_name
from tuner.children.headers import NAMES, Headers, header_folders, headers_of
from tuner.core.errors import CompileError, first_line
from tuner.core.model import Resources

PROGRAM = "kernel.cu"
"""What NVRTC calls a rendered source."""
BASE_OPTIONS = (
    "--std=c++17",
    "--device-as-default-execution-space",
    "--ptxas-options=-v",
    # Where there is a driver, NVRTC keeps cubins itself, and the log with the registers is empty the second time.
    "--no-cache",
)


class SourceRejected(CompileError):  # noqa: N818 - a verdict on a candidate, not a fault of the tuner
    """NVRTC or ptxas refused a source; ``log`` says why."""

    def __init__(self, log: str) -> None:
        self.log = log
        super().__init__(_first_error(log))


@dataclass(frozen=True)
class Cubin:
    """A cubin and what is known about it without a GPU."""

    cubin: bytes
    entry: str
    """The entry's name in the cubin: mangled for C++ templates."""
    resources: Resources
    log: str
    ptx: str = ""
    """What ptxas made the cubin of; only where it was asked for."""
    barriers: int = 0
    """Named barriers of a block; 0 without a listing."""


@functools.cache
def nvrtc() -> Any:
    """Return the NVRTC bindings.

    Raises:
        CompileError: NVRTC is not installed.
    """
    try:
        from cuda.bindings import nvrtc as bindings

        bindings.nvrtcVersion()
    except (ImportError, OSError, RuntimeError) as error:
        raise CompileError(f"NVRTC cannot be loaded: {error}", "pip install nvidia-cuda-nvrtc") from None
    return bindings


def nvrtc_version() -> str:
    """Return NVRTC's version, such as ``13.0``."""
    major, minor = _call("Version")
    return f"{major}.{minor}"


def supported_archs() -> list[int]:
    """Return the compute capabilities (times ten) that this NVRTC can compile for."""
    return [int(arch) for arch in _call("GetSupportedArchs")]


def compile_options(
    arch: str, options: tuple[str, ...] = (), include: tuple[Path, ...] = (), headers: Headers | None = None
) -> tuple[str, ...]:
    """Return the options of a compilation; include folders of the kernel come before CUDA's.

    Args:
        arch: NVRTC's target.
        options: of the kernel.
        include: folders of its own headers.
        headers: what its source needs beside them; None for one that includes nothing.
    """
    return (
        f"--gpu-architecture={arch}",
        *BASE_OPTIONS,
        *options,
        *(f"--include-path={folder}" for folder in include),
        *(headers or Headers(header_folders()[:1])).options,
    )


def compile_source(
    source: str,
    entry: str,
    arch: str,
    options: tuple[str, ...] = (),
    include: tuple[Path, ...] = (),
    *,
    listing: bool = False,
    headers: Headers | None = None,
    precompiled: Path | None = None,
) -> Cubin:
    """Compile one source to a cubin.

    Args:
        source: CUDA C++.
        entry: name of the kernel, as C or C++ has it; with ``<`` or ``::`` it is a C++ name expression that NVRTC
            instantiates.
        arch: NVRTC's target, such as ``sm_90a``.
        options: further NVRTC options.
        include: folders of the kernel's own headers.
        listing: give the PTX, too, and the number of barriers: to read the code, not for tuning.
        headers: what the source needs beside the kernel's own headers; None to find it out.
        precompiled: the file of its first headers, by :func:`precompile`.

    Raises:
        SourceRejected: the source does not compile, or has no such entry; or NVRTC does not take the file.
        CompileError: NVRTC itself fails.
    """
    headers = headers or headers_of(source, include, entry, options)
    used = compile_options(arch, options, include, headers)
    if precompiled is not None:
        names = f'#include "{NAMES}"\n' if NAMES in headers.texts else ""
        source = f'{_STOP}{names}#line 1 "{PROGRAM}"\n{source}'
        used = (*compile_options(arch, options, include, headers.first), f"--use-pch={precompiled}")
    expression = "<" in entry or "::" in entry
    with _program(source, headers) as program:
        if expression:
            _call("AddNameExpression", program, entry.encode())
        compiled, log = _compile(program, used)
        if precompiled is not None:
            compiled, log = compiled and bool(_TAKEN.match(log)), _TAKEN.sub("", log, count=1)
        if not compiled:
            raise SourceRejected(log)
        lowered = _call("GetLoweredName", program, entry.encode()).decode() if expression else entry
        cubin = _read(program, "CUBIN")
        ptx = _text(program, "PTX") if listing else ""
    parts = _ENTRY.split(log)
    blocks = dict(zip(parts[1::2], parts[2::2], strict=True))
    lowered = _symbol(lowered, blocks)
    said = blocks[lowered]
    barriers = _number(_BARRIERS, said) if listing else 0
    return Cubin(cubin, lowered, _resources(said), log, ptx, barriers)


def precompile(
    headers: Headers, arch: str, options: tuple[str, ...], include: tuple[Path, ...], file: Path
) -> bool:
    """Precompile the headers that come first in a source, and return whether that is done.

    Args:
        headers: :attr:`Headers.first` of the source's.
        arch: as in :func:`compile_source`, and so are the options and the folders.
        options: NVRTC takes the file only with the same ones.
        include: folders of the kernel's own headers.
        file: to be written.
    """
    bindings = nvrtc()
    with _program(_STOP, headers) as program:
        _compile(program, (*compile_options(arch, options, include, headers), f"--create-pch={file}"))
        (status,) = bindings.nvrtcGetPCHCreateStatus(program)
    return bool(status == bindings.nvrtcResult.NVRTC_SUCCESS)


@contextmanager
def _program(source: str, headers: Headers) -> Iterator[Any]:
    names, texts = ([part.encode() for part in parts] for parts in (headers.texts, headers.texts.values()))
    program = _call("CreateProgram", source.encode(), PROGRAM.encode(), len(names), texts, names)
    try:
        yield program
    finally:
        nvrtc().nvrtcDestroyProgram(program)


def _compile(program: Any, options: tuple[str, ...]) -> tuple[bool, str]:
    """Compile a program; return whether it is done, and the log."""
    bindings = nvrtc()
    (error,) = bindings.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    done = bool(error == bindings.nvrtcResult.NVRTC_SUCCESS)
    return done, _text(program, "ProgramLog").strip() or ("" if done else str(error))


def _symbol(entry: str, kernels: Collection[str]) -> str:
    """Return the symbol of the kernel that an entry names: by its C name, or else by its C++ name.

    Args:
        entry: a symbol, or the name of a function.
        kernels: the symbols of a cubin's kernels.

    Raises:
        SourceRejected: there is no such kernel, or several.
    """
    if entry in kernels:
        return entry
    names = {symbol: function_name(symbol) for symbol in kernels}
    found = [symbol for symbol, name in names.items() if name == entry]
    if len(found) == 1:
        return found[0]
    if found:
        raise SourceRejected(
            f"error: {entry!r} names {len(found)} kernels ({', '.join(found)}); rename them, or write a template's "
            "arguments: NAME<...>"
        )
    choices = ", ".join(dict.fromkeys(names.values())) or "none"
    raise SourceRejected(
        f"error: no kernel named {entry!r} in the source (found: {choices}); "
        "of a template write the arguments, too: NAME<...>"
    )


def _read(program: Any, what: str) -> bytes:
    data = bytes(_call(f"Get{what}Size", program))  # NVRTC writes into it, and b" " * 1 is the literal itself
    _call(f"Get{what}", program, data)
    return data


def _text(program: Any, what: str) -> str:
    """Return a text without zero bytes: one ends it, and ptxas's messages begin with one."""
    return _read(program, what).replace(b"\0", b"").decode(errors="replace")


def _call(name: str, *arguments: Any) -> Any:
    """Return what a function of NVRTC gives: one value, or a list of any other number."""
    bindings = nvrtc()
    error, *values = getattr(bindings, f"nvrtc{name}")(*arguments)
    if error != bindings.nvrtcResult.NVRTC_SUCCESS:
        text = bindings.nvrtcGetErrorString(error)[1].decode()
        raise CompileError(f"NVRTC: {text}", "run `tune doctor`")
    return values[0] if len(values) == 1 else values


_STOP = "#pragma nv_hdrstop\n"
_TAKEN = re.compile(r'"[^"\n]*": using precompiled header file "[^"\n]*"\n')
_ENTRY = re.compile(r"Compiling entry function '([^']+)' for")
_REGISTERS = re.compile(r"Used (\d+) registers")
_BARRIERS = re.compile(r"used (\d+) barriers")
_SHARED = re.compile(r"(\d+) bytes smem")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def _resources(said: str) -> Resources:
    spilled = _number(_STACK, said, 2) + _number(_STACK, said, 3)
    return Resources(_number(_REGISTERS, said), _number(_SHARED, said), _number(_STACK, said), spilled)


def _number(pattern: re.Pattern[str], said: str, group: int = 1) -> int:
    match = pattern.search(said)
    return int(match[group]) if match else 0


def _first_error(log: str) -> str:
    for line in log.splitlines():
        if "error" in line.lower():
            return line.strip()
    return first_line(log) or "the compiler gave no reason"
