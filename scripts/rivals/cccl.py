"""Thrust and CUB as contestants, on the same buffers and in the same graphs as the tuned kernels.

    tune bench vector_add --against scripts/rivals/cccl.py:thrust_vector_add
    tune bench reduce --against scripts/rivals/cccl.py:cub_sum

| kernel | functions |
|---|---|
| vector_add | thrust_vector_add |
| saxpy | thrust_saxpy |
| transform, with its default expression | thrust_transform, cub_transform |
| reduce, op=sum | cub_sum |

The first use compiles ``cccl.cu`` with the CUDA toolkit's nvcc against the Thrust and CUB that come with it, for the
GPU at hand, in about a minute; the library is kept in ``rivals/`` in the tuner's cache folder
(``~/.cache/kernel-tune``). Its name has the compute capability and a digest of ``cccl.cu``: one that was built from
another text is not used. nvcc is looked for on the PATH, below ``$CUDA_HOME`` and ``$CUDA_PATH``, and in
``/usr/local/cuda``.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().with_name("cccl.cu")


class RivalError(RuntimeError):
    """Thrust and CUB cannot take part; the message is one line that says why."""


# -- what `tune bench` calls


def thrust_vector_add(a: Any, b: Any, c: Any, n: int, stream: int) -> None:
    _call("thrust_vector_add", [a, b, c], n, stream)


def thrust_saxpy(alpha: float, x: Any, y: Any, n: int, stream: int) -> None:
    _call("thrust_saxpy", [x, y], n, stream, alpha)


def thrust_transform(x: Any, out: Any, n: int, stream: int) -> None:
    _call("thrust_transform", [x, out], n, stream)


def cub_transform(x: Any, out: Any, n: int, stream: int) -> None:
    _call("cub_transform", [x, out], n, stream)


def cub_sum(x: Any, out: Any, n: int, stream: int) -> None:
    _call("cub_sum", [x, out], n, stream)


def _call(name: str, tensors: Sequence[Any], n: int, stream: int, *numbers: float) -> None:
    """Queue a call for the dtype of the first tensor."""
    library = _library()
    function = getattr(library, f"{name}_{_dtype(tensors[0])}", None)
    if function is None:
        raise RivalError(f"{name} is not built for {_dtype(tensors[0])}")
    arguments = [
        *(ctypes.c_float(number) for number in numbers),
        *(ctypes.c_void_p(_address(tensor)) for tensor in tensors),
        ctypes.c_longlong(n),
        ctypes.c_void_p(stream),
    ]
    error = function(*arguments)
    if error:
        raise RivalError(f"{name}: {library.error_name(error).decode()}")


def _dtype(tensor: Any) -> str:
    """Return ``float32`` for torch's ``torch.float32``, NumPy's and CuPy's ``dtype('float32')`` and a plain text."""
    return str(getattr(tensor.dtype, "name", tensor.dtype)).rpartition(".")[2]


def _address(tensor: Any) -> int:
    if hasattr(tensor, "data_ptr"):  # torch, which has no array interface for bfloat16
        return int(tensor.data_ptr())
    if hasattr(getattr(tensor, "data", None), "ptr"):  # CuPy
        return int(tensor.data.ptr)
    return int(tensor.__cuda_array_interface__["data"][0])


# -- the library


@functools.cache
def _library() -> ctypes.CDLL:
    """Load the library for the GPU of the current context; build it where there is none."""
    from tuner.core import paths

    library = ctypes.CDLL(str(build(paths.cache() / "rivals", _current_arch())))
    library.error_name.restype = ctypes.c_char_p
    return library


def _current_arch() -> int:
    from cuda.bindings import driver as cu

    def asked(result: tuple[Any, ...]) -> Any:
        if int(result[0]):
            raise RivalError(f"the GPU's compute capability is not to be had: {result[0]}")
        return result[1]

    attribute = cu.CUdevice_attribute
    device = asked(cu.cuCtxGetDevice())
    major = asked(cu.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))
    minor = asked(cu.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
    return 10 * int(major) + int(minor)


def build(folder: Path, arch: int) -> Path:
    """Compile the library into a folder, unless it is there; gives its path.

    Raises:
        RivalError: there is no nvcc, or it fails.
    """
    text = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    path = folder / f"cccl-rivals-{text}-{arch}.so"
    if path.is_file():
        return path
    command = [
        find_nvcc(),
        *("-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", "-cudart", "static", "--threads", "0"),
        *("-gencode", f"arch=compute_{arch},code=sm_{arch}"),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        half_done = Path(scratch) / path.name
        done = subprocess.run(
            [*command, "-o", str(half_done), str(SOURCE)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if "error" in line]
            raise RivalError(f"nvcc cannot compile {SOURCE.name}: {(lines or ['no reason given'])[0]}")
        half_done.replace(path)  # whole or not at all
    return path


def find_nvcc() -> str:
    """Return the path of nvcc.

    Raises:
        RivalError: it is nowhere.
    """
    folders = [os.environ[name] + "/bin" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    found = shutil.which("nvcc")
    for folder in [*folders, "/usr/local/cuda/bin"]:
        found = found or shutil.which("nvcc", path=folder)
    if not found:
        raise RivalError(
            "Thrust and CUB need nvcc, which is not on the PATH nor in /usr/local/cuda/bin: install the CUDA toolkit"
        )
    return found
