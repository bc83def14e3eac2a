"""The launcher's C interface as Python calls it, in a child process that meets the fake driver."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.compiled_once import KEPT
from tests.fake_driver import environment, include_options
from tuner.core import paths

ROOT = Path(__file__).parent.parent
INCLUDE = paths.package() / "runtime" / "include"
CPP = ROOT / "scripts" / "cpp"
STRICT = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wconversion", "-Wshadow"]
PRELUDE = """
import ctypes, json, sys
from cuda.bindings import driver as cu
launcher, fake = ctypes.CDLL(sys.argv[1]), ctypes.CDLL("libcuda.so.1")
launcher.kt_workspace_bytes.restype = ctypes.c_size_t
launcher.kt_expected_slowdown.restype = ctypes.c_double
text = ctypes.create_string_buffer(4000)

def check(result):
    assert int(result[0]) == 0, result
    return result[1] if len(result) == 2 else result[1:]

def context(device):
    check(cu.cuInit(0))
    check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(device))))
    return int(check(cu.cuStreamCreate(1)))

def opened(folder):
    bundle = ctypes.c_void_p()
    return launcher.kt_open(folder.encode(), ctypes.byref(bundle), text, 4000), bundle

def planned(bundle, sizes, dtypes="", options="", device=0, policy=0, apart=0):
    plan = ctypes.c_void_p()
    sizes = "\\n".join(f"{name}={value}" for name, value in sizes.items())
    code = launcher.kt_plan(bundle, sizes.encode(), dtypes.encode(), options.encode(), device, policy, apart,
                            ctypes.byref(plan), text, 4000)
    return code, plan

def prepare(plan, workspace, bytes_, stream):
    return launcher.kt_prepare(plan, ctypes.c_ulonglong(workspace), ctypes.c_size_t(bytes_),
                               ctypes.c_void_p(stream), text, 4000)

def run(plan, addresses, workspace, bytes_, stream, strides=None):
    array, count = (ctypes.c_uint64 * len(addresses))(*addresses), ctypes.c_size_t(len(addresses))
    at = (ctypes.c_ulonglong(workspace), ctypes.c_size_t(bytes_), ctypes.c_void_p(stream), text, 4000)
    if strides is None:
        return launcher.kt_run(plan, array, count, *at)
    return launcher.kt_run_apart(plan, array, (ctypes.c_size_t * len(strides))(*strides), count, *at)
"""

RUN_PROGRAM = """
given = [each.encode() for each in (sys.argv[2], *sys.argv[3:])]
sys.exit(launcher.run_program(given[0], len(given), (ctypes.c_char_p * len(given))(*given)))
"""


def compiled(source: Path, *options: str, compiler: str = "g++") -> Path:
    """Return a program or library that a compiler makes without a warning, made once for all tests and workers.

    Without optimisation: that takes it several times as long as all that the tests do.
    """
    others = [path for folder in (source.parent, CPP) for path in folder.glob("*.[ch]pp")]
    read = b"".join(path.read_bytes() for path in (source, *sorted([*INCLUDE.rglob("*.hpp"), *others])))
    name = f"{source.stem}-{hashlib.sha256(read + repr(options).encode()).hexdigest()[:16]}"
    output, made = KEPT / name, KEPT / f"{name}.new"
    with (KEPT / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not output.exists():
            command = [compiler, *STRICT, "-O0", *options, f"-I{INCLUDE}", *include_options()]
            command += ["-o", str(made), str(source), "-ldl", "-pthread"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[-4000:]
            made.rename(output)
    return output


def interface() -> Path:
    """Return the C interface as a library: of clang++ where it is there, which takes half of g++'s time."""
    compiler = "clang++" if shutil.which("clang++") else "g++"
    return compiled(ROOT / "tests" / "cpp" / "interface.cpp", "-shared", "-fPIC", compiler=compiler)


def sanitized(name: str) -> list[str | Path]:
    """Return the command of a program of ``tests/cpp/sanitized.cpp``, which ends at what a sanitizer finds.

    Checks of each pointer and object take g++ half of its time, and find what the address sanitizer does, which is
    called instead of written out. The headers do without exceptions and types at run time.
    """
    options = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-exceptions", "-fno-rtti")
    without = "-fno-sanitize=null,alignment,object-size,vptr"
    calls = ("--param", "asan-instrumentation-with-call-threshold=0")
    return [compiled(ROOT / "tests" / "cpp" / "sanitized.cpp", *options, without, *calls), name]


def program_output(name: str, *arguments: str | Path) -> str:
    """Return what ``threads`` or ``measure`` prints on the fake driver."""
    return python_on(interface(), RUN_PROGRAM, name, *arguments)


def output_of(*command: str | Path, **settings: str) -> str:
    """Return what a program prints on the fake driver; ``settings`` are the driver's."""
    done = subprocess.run(
        [str(part) for part in command],
        env=environment(**settings),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def python_on(library: Path, program: str, *arguments: str | Path, **settings: str) -> str:
    """Return what a Python program prints that has the functions of :data:`PRELUDE`."""
    return output_of(sys.executable, "-c", PRELUDE + program, library, *arguments, **settings)
