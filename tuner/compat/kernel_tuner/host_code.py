"""Host code (``lang="C"``): functions that launch kernels themselves and return how long that took, in milliseconds.

The tuner's timing, race and database are for kernels. A host function is compiled by nvcc (or a C++ compiler), called
in a process of its own, and what it returns is its time.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from tuner.compat.kernel_tuner.answers import Judge
from tuner.compat.kernel_tuner.definition import Definition, compiler_options, configurations
from tuner.compat.kernel_tuner.results import Row, row
from tuner.compat.pycuda_driver import PageLocked
from tuner.core.errors import UsageError, typed
from tuner.core.model import Status, Value

COMPILE_S, CALL_S = 120.0, 120.0
"""Deadlines: of compiling a configuration, and of all its calls."""
ALLOCATE = """
extern "C" void *kernel_tune_allocate(size_t bytes) {
    void *start = 0;
    return cudaHostAlloc(&start, bytes, cudaHostAllocPortable | cudaHostAllocMapped) == cudaSuccess ? start : 0;
}
"""
"""Gives page-locked memory to the process that calls the code that it is appended to."""
_ARCHITECTURE = re.compile(r"--?(arch|gencode|gpu-architecture|generate-code|code|gpu-code)\b")


class HostCode:
    """A host function to be called in many configurations.

    Args:
        what: the function.
        options: ``compiler``, ``compiler_options``, ``iterations`` and ``seed`` of ``tune_kernel``.
        judge: says of the arguments after the first call whether they are right.
        folder: an empty one for what is compiled.

    Raises:
        UsageError: an argument cannot be passed, or there is no such compiler.
    """

    def __init__(
        self, what: Definition, options: Mapping[str, Any], judge: Judge | None, folder: Path
    ) -> None:
        self._what, self._options, self._judge, self._folder = what, options, judge, folder
        self._cuda = "__global__" in what.source or "cuda" in what.source
        asked = options.get("compiler") or "g++"
        self._compiler = "nvcc" if self._cuda and asked == "g++" else asked
        if shutil.which(self._compiler) is None:
            raise UsageError(f"host code needs {self._compiler}, which is not there", "put it on PATH")
        self._flags = list(options.get("compiler_options") or ())
        if self._cuda:
            own = [one for one in compiler_options(options) if not _ARCHITECTURE.match(one)]
            self._flags = [*own, "-arch=native"]
        position_independent = "-Xcompiler=-fPIC" if self._compiler == "nvcc" else "-fPIC"
        self._flags += ["-shared", position_independent, "-I", str(Path.cwd())]
        self._described = [self._keep(number, argument) for number, argument in enumerate(what.arguments)]

    def _keep(self, number: int, argument: Any) -> dict[str, Any]:
        """Keep an argument for the processes that call; return what they are told of it."""
        if isinstance(argument, np.ndarray):
            np.save(
                self._folder / f"{number}.npy", argument.astype(argument.dtype.newbyteorder("="), copy=False)
            )
            return {"file": f"{number}.npy", "locked": self._cuda and isinstance(argument, PageLocked)}
        if isinstance(argument, np.number):
            return {"dtype": str(argument.dtype), "value": argument.item()}
        raise UsageError(f"argument {number} is {typed(argument)}", "pass NumPy's arrays and numbers")

    def try_all(self, trials: int) -> list[Row]:
        """Compile and call at most so many configurations, drawn at random; return their results."""
        drawn = list(configurations(self._what.choices, self._what.how["where"]))
        if len(drawn) > trials:
            drawn = random.Random(self._options.get("seed")).sample(drawn, trials)
        numbers = range(len(drawn))
        with ThreadPoolExecutor() as pool:
            return list(map(self._called, numbers, drawn, pool.map(self._compiled, numbers, drawn)))

    def _compiled(self, number: int, configuration: Mapping[str, Value]) -> tuple[str, float]:
        """Return what the compiler says of a failure, and the milliseconds that it took."""
        began, text = time.monotonic(), self._what.source
        text = text if 'extern "C"' in text else f'extern "C" {{\n{text}\n}}'
        lines = [f"#define {name} {value}" for name, value in configuration.items()]
        source = self._folder / f"k{number}.{'cu' if self._cuda else 'cc'}"
        source.write_text("\n".join([*lines, text, ALLOCATE if self._cuda else ""]), encoding="utf-8")
        command = [self._compiler, str(source), "-o", str(source.with_suffix(".so")), *self._flags]
        return _error(command, COMPILE_S, self._folder), 1e3 * (time.monotonic() - began)

    def _called(self, number: int, configuration: Mapping[str, Value], compiled: tuple[str, float]) -> Row:
        error, compile_ms = compiled
        if error:
            return row(configuration, Status.COMPILE_ERROR, (), None, error, compile=compile_ms)
        began, job = time.monotonic(), self._folder / f"k{number}.json"
        said = {"name": self._what.name, "arguments": self._described, "keep": self._judge is not None}
        job.write_text(json.dumps({**said, "iterations": self._options.get("iterations") or 7}))
        error = _error([sys.executable, "-P", "-m", "tuner.compat.host_worker", str(job)], CALL_S)
        answer = json.loads(job.read_text())
        samples = answer if isinstance(answer, list) else []  # else it has ended the process itself
        status = (
            Status.OK if samples and min(samples) >= 0 else Status.LAUNCH_ERROR
        )  # as these functions say it
        if status is Status.OK and self._judge is not None and not self._judge(self._after()):
            status, error = Status.WRONG_RESULT, "wrong result"
        time_ms = statistics.median(samples) if status is Status.OK else None
        took_ms = {"compile": compile_ms, "benchmark": 1e3 * (time.monotonic() - began)}
        return row(configuration, status, samples, time_ms, error, **took_ms)

    def _after(self) -> list[Any]:
        """Return the arguments after the first call."""
        each = zip(self._described, self._what.arguments, strict=True)
        return [np.load(self._folder / f"after-{one['file']}") if "file" in one else own for one, own in each]


def _error(command: Sequence[str], limit_s: float, folder: Path | None = None) -> str:
    """Run a command; return the line that says why it failed, or nothing."""
    try:
        ended = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, timeout=limit_s,
            cwd=folder, errors="replace", env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no end after {limit_s:g} s"
    lines = ended.stderr.strip().splitlines()
    named = [line for line in lines if "error" in line]
    return "" if not ended.returncode else [*named[:1], *lines[-1:], f"exit status {ended.returncode}"][0]
