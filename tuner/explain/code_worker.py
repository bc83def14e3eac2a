"""The child that compiles one configuration to be read: PTX beside the cubin, and SASS if it can be had."""

from __future__ import annotations

import resource
import subprocess
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tuner.compile.nvrtc import Compiled, compile_source
from tuner.compile.pool import MEMORY_LIMIT_BYTES
from tuner.errors import CompileError, KernelError
from tuner.kernel.load import read_kernel
from tuner.kernel.render import render_launch
from tuner.model import Configuration, Gpu, Problem
from tuner.processes import ParentPipe

DISASSEMBLY_S = 30.0


def listings(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Compile every launch of a configuration.

    Raises:
        CompileError, KernelError: it does not render or compile.
    """
    kernel = read_kernel(Path(request["kernel_file"]))
    problem, gpu = Problem.from_json(request["problem"]), Gpu(**request["gpu"])
    configuration = Configuration.of(request["variant"], request["parameters"])
    found = []
    for launch in kernel.launches(problem, gpu, configuration):
        source, entry = render_launch(kernel, launch, problem, gpu, configuration)
        include = (launch.template.parent, *kernel.include)
        compiled = compile_source(source, entry, gpu.arch, kernel.compile_options, include, listing=True)
        sass, note = _disassembled(compiled, request["nvdisasm"])
        found.append(
            {
                "entry": compiled.entry,
                "ptx": compiled.ptx,
                "sass": sass,
                "sass_note": note,
                "resources": asdict(compiled.resources),
                "barriers": compiled.barriers,
            }
        )
    return found


def _disassembled(compiled: Compiled, nvdisasm: str) -> tuple[str, str]:
    """Return the SASS, or why there is none."""
    if not nvdisasm:
        return "", "no nvdisasm, so the PTX alone: pip install nvidia-cuda-nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.cubin)
        file.flush()
        try:
            done = subprocess.run(
                [nvdisasm, "-c", file.name],
                capture_output=True,
                timeout=DISASSEMBLY_S,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return "", f"{nvdisasm} failed: {error}"
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        return "", f"{nvdisasm} failed: {words[-1] if words else f'exit status {done.returncode}'}"
    return done.stdout.decode(errors="replace"), ""


def main() -> None:
    """Answer one request."""
    pipe = ParentPipe()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    request = pipe.receive()
    if request is None:
        return
    try:
        reply: dict[str, Any] = {"launches": listings(request)}
    except (KernelError, CompileError) as error:
        reply = {"problem": error.problem, "remedy": error.remedy}
    except MemoryError:
        reply = {"problem": "out of memory while rendering or compiling", "remedy": ""}
    pipe.send(reply)


if __name__ == "__main__":
    main()
