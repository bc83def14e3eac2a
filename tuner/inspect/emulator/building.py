"""Compiles C++ for the CPU: kernels, and once for all of them the machine that runs them (``machine.cpp``)."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from tuner.core import paths
from tuner.core.files import make_private, refusal, whole_folder
from tuner.core.model import digest
from tuner.inspect.emulator.source import BESIDE

COMPILER = shutil.which("g++")
FLAGS = (
    "-std=c++17", "-Og", "-fPIC", "-w", "-fno-strict-aliasing", "-fno-gnu-unique", "-U_FORTIFY_SOURCE",
    "-fsanitize=alignment,thread", "-fsanitize-undefined-trap-on-error", "-fno-extern-tls-init", "-g1", "-gdwarf-4",
)  # fmt: skip
UNSEEN = "-fno-sanitize=thread"
"""For what is no kernel: its accesses are not looked at."""
LINKED = ("-shared", "-nodefaultlibs", "-Wl,-Bsymbolic", "-fwhole-program")
"""Without the libraries of C++: the machine's brings them, and linking takes 6 ms, not 46. What a kernel does not call
is not compiled: gemm's takes 100 ms instead of 160, with -Og instead of -O1, which runs as fast."""
FORWARDED = {
    "cub/cub.cuh": [f"cub/block/block_{of}.cuh" for of in ("load", "reduce", "scan", "store")]
    + [f"cub/warp/warp_{of}.cuh" for of in ("reduce", "scan")],
    "cooperative_groups.h": [f"cooperative_groups/{of}.h" for of in ("memcpy_async", "reduce", "scan")],
    "cuda_pipeline.h": ["cuda_pipeline_primitives.h"],
    "cuda.hpp": ["assert.h", "cassert"],  # its assert ends a run and not the process
}
"""Headers of other names for what one has."""
STALE_S = 86400.0
_REFUSED = re.compile(r":\d+: (?:fatal )?[Ee]rror: ")


class NotForHost(Exception):  # noqa: N818 - a verdict on a source
    """A source that g++ does not compile: it needs more of CUDA than the emulator has."""


def compile_cpp(*words: object) -> None:
    """Compile; a compiler that fails without naming an error, killed for want of memory perhaps, has a second try.

    Args:
        words: files and options beside :data:`FLAGS`.

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

    It takes four seconds, which is longer than any kernel does. What is a day old, of other versions, is deleted.
    """
    version = subprocess.run([str(COMPILER), "--version"], capture_output=True, text=True, check=False).stdout
    files = [path for path in sorted(Path(__file__).parent.rglob("*")) if path.is_file()]
    texts = [path.read_text(encoding="utf-8") for path in files if ".py" not in path.suffix]
    kept = paths.emulator() / digest([version, *FLAGS, *LINKED, *texts, FORWARDED])
    if not refusal(kept.parent):
        if (kept / "machine.so").is_file():
            with contextlib.suppress(OSError):
                os.utime(kept)  # what is used is not stale: another version would delete it under its users
            return kept
        with contextlib.suppress(OSError):  # a full or read-only disk
            make_private(kept.parent.parent, kept.parent)
            for other in kept.parent.iterdir():
                if time.time() - other.stat().st_mtime > STALE_S:
                    shutil.rmtree(other, ignore_errors=True)
            with whole_folder(kept) as folder:
                _build_machine(folder)
            return kept
    folder = Path(tempfile.mkdtemp(prefix="emulator-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _build_machine(folder)
    return folder


def _build_machine(folder: Path) -> None:
    sources = shutil.ignore_patterns("*.py*", "__pycache__")
    shutil.copytree(Path(__file__).parent, folder, ignore=sources, dirs_exist_ok=True)
    for name, others in FORWARDED.items():
        for other in others:
            path = folder / "include" / other
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#include <{name}>\n", encoding="utf-8")
    (folder / "behind.cpp").write_text(BESIDE, encoding="utf-8")
    compile_cpp("-c", "-o", folder / "behind.o", folder / "behind.cpp")
    compile_cpp("-x", "c++-header", "-o", folder / "cuda.hpp.gch", folder / "cuda.hpp")
    compile_cpp("-shared", UNSEEN, "-O2", "-o", folder / "machine.so", folder / "machine.cpp", "-ldl")
