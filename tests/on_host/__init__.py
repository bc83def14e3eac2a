"""Runs a rendered kernel on the host: its threads as fibers, in an order drawn from a seed (``cuda_on_host.hpp``).

No GPU is needed, only g++. What is run is the template's own code, but for the functions that hold PTX. All blocks of a
grid may be there at once and overtake each other, so this finds, beside wrong indices and lost elements, missing
barriers and results that depend on who comes first; not what only a GPU can get wrong, such as a missing fence.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEADER = Path(__file__).parent / "cuda_on_host.hpp"
GPP = shutil.which("g++")


@dataclass(frozen=True)
class Schedule:
    """Who comes first."""

    seed: int = 0
    resident: int = 1 << 20
    """Blocks that are there at once."""
    shuffled: bool = False
    """Whether blocks start in any order."""


class HostKernel:
    """A kernel compiled for the host.

    Args:
        source: CUDA C++ as it is rendered.
        entry: the kernel's name.
        folder: where it is built.
        types: of the arguments, in C++.
        shared_bytes: dynamic shared memory, which the kernel calls ``ring``.
    """

    def __init__(
        self, source: str, entry: str, folder: Path, types: Sequence[str], shared_bytes: int = 0
    ) -> None:
        assert GPP is not None
        names = [f"argument{i}" for i in range(len(types))]
        parameters = ", ".join(f"{kind} {name}" for kind, name in zip(types, names, strict=True))
        call = f"{entry}({', '.join(names)})"
        text = (
            f'#include "{HEADER.name}"\n{_without_ptx(source)}\n'
            'extern "C" int run(unsigned int blocks, unsigned int threads, unsigned int resident, int shuffled,'
            f" unsigned int seed, {parameters}) {{\n"
            f"    return host::launch(blocks, threads, {shared_bytes}, resident, shuffled, seed, [=] {{ {call}; }});\n"
            "}\n"
        )
        folder.mkdir(parents=True, exist_ok=True)
        file, library = folder / f"{entry}.cpp", folder / f"{entry}.so"
        file.write_text(text)
        _compile("-shared", f"-I{_compiled_header()}", "-o", library, file)
        self._run = ctypes.CDLL(str(library)).run

    def __call__(self, blocks: int, threads: int, schedule: Schedule, *arguments: Any) -> None:
        """Run it to its end."""
        head = (blocks, threads, schedule.resident, int(schedule.shuffled), schedule.seed)
        assert self._run(*map(ctypes.c_uint, head), *arguments), "threads wait for each other for ever"


def _compile(*words: object) -> None:
    flags = ["-std=c++17", "-O1", "-fno-strict-aliasing", "-fPIC", "-w"]
    done = subprocess.run([str(GPP), *flags, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]


@functools.cache
def _compiled_header() -> Path:
    """Compile the header once for all kernels: it takes longer than any of them."""
    folder = Path(tempfile.mkdtemp(prefix="cuda_on_host-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shutil.copy(HEADER, folder)
    _compile("-x", "c++-header", "-o", folder / f"{HEADER.name}.gch", folder / HEADER.name)
    return folder


_ARCHITECTURE = re.compile(
    r"^#if __CUDA_ARCH__ [^\n]*\n(.*?)(?:^#else\n(.*?))?^#endif\n", re.MULTILINE | re.DOTALL
)
_DYNAMIC = re.compile(r"^ *extern __shared__ .*\[\];\n", re.MULTILINE)
_SHORT = re.compile(r"^__device__ .*\basm volatile\(.*\}$\n", re.MULTILINE)
_HEAD = re.compile(r"^(?:template[^\n]*\n)?__device__ ", re.MULTILINE)
_BARRIER = re.compile(r"^using Barrier = .*$\n", re.MULTILINE)


def _without_ptx(source: str) -> str:
    """Leave out the functions that hold PTX: the header has others of the same names.

    Where the code depends on the architecture, the oldest GPU's is taken.
    """
    source = _ARCHITECTURE.sub(lambda match: match[2] or "", source)
    for pattern in (_DYNAMIC, _SHORT, _BARRIER):
        source = pattern.sub("", source)
    parts = []
    for part in re.split(r"(?<=^}\n)", source, flags=re.MULTILINE):
        heads = list(_HEAD.finditer(part))
        parts.append(part[: heads[-1].start()] if re.search(r"\basm\b", part) and heads else part)
    return "".join(parts)
