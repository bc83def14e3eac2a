"""A libcuda.so.1 without a GPU, for tests of what calls the driver: built from this folder's C++ with g++."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tuner.children.headers import header_folders

FOLDER = Path(__file__).parent


def include_options() -> list[str]:
    """Return g++'s options for cuda.h; skip the test where there is none."""
    folders = [folder for folder in header_folders() if (folder / "cuda.h").is_file()]
    if not folders or shutil.which("g++") is None:
        pytest.skip("needs g++ and cuda.h")
    return [f"-isystem{folder}" for folder in folders]


def built() -> Path:
    """Return the folder of a libcuda.so.1: first of LD_LIBRARY_PATH in a child process that shall use it.

    It is compiled once for each version of its source, for all tests and workers.
    """
    options = include_options()
    sources = sorted(FOLDER.glob("*.?pp"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"fake-cuda-{os.getuid()}-{digest}"
    folder.mkdir(mode=0o700, exist_ok=True)
    library = folder / "libcuda.so.1"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            made = folder / "new.so"
            compiler = "clang++" if shutil.which("clang++") else "g++"  # which takes twice as long
            command = [compiler, "-std=c++17", "-O0", "-shared", "-fPIC", "-Wall", "-Wextra", *options]
            command += ["-Wl,-soname,libcuda.so.1", "-o", str(made), str(FOLDER / "fake_driver.cpp"), "-ldl"]
            subprocess.run(command, check=True)
            made.rename(library)
    return folder


def environment(**settings: str) -> dict[str, str]:
    """Return the environment of a child process that meets the fake driver; ``devices="NVIDIA L4:89:58"`` sets
    FAKE_CUDA_DEVICES, and so on (fake_driver.cpp has the names)."""
    paths = os.pathsep.join(filter(None, [str(built()), os.environ.get("LD_LIBRARY_PATH")]))
    own = {f"FAKE_CUDA_{name.upper()}": value for name, value in settings.items()}
    return {**os.environ, "LD_LIBRARY_PATH": paths, **own}
