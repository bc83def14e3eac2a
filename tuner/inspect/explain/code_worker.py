"""The child that compiles one configuration and reads its machine code."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tuner.children.compile_worker import in_template
from tuner.children.limits import memory_limit
from tuner.children.nvrtc import Cubin, SourceRejected, compile_source
from tuner.core.errors import CompileError, KernelError
from tuner.core.processes import ParentPipe, limit_memory
from tuner.inspect.explain.code import (
    CODES,
    CodeFacts,
    CodeRefused,
    CodeRequest,
    Codes,
    LaunchCode,
    sass_facts,
)
from tuner.inspect.tools.locate import NVDISASM
from tuner.kernel.load import read_kernel
from tuner.kernel.render import render_launch

DISASSEMBLY_S = 30.0
MAX_TEXT_BYTES = 16 << 20
"""A longer listing is not read: the analysis would take minutes."""


def codes_of(request: CodeRequest) -> Codes:
    """Compile every launch of a configuration, and read its code.

    Raises:
        CompileError, KernelError: it does not render or compile.
    """
    kernel = read_kernel(request.kernel_file)
    problem, gpu, configuration = request.problem, request.gpu, request.configuration
    launches = []
    for launch in kernel.launches(problem, gpu, configuration):
        source, entry = render_launch(kernel, launch, problem, gpu, configuration)
        include = (launch.template.parent, *kernel.include)
        try:
            compiled = compile_source(source, entry, gpu.arch, kernel.compile_options, include, listing=True)
        except SourceRejected as error:
            log = in_template(error.log, kernel, launch, problem, gpu, configuration)
            raise SourceRejected(log) from None
        facts, note = facts_of(compiled, request.nvdisasm)
        strides = asks_for_grid(compiled.ptx, compiled.entry)
        launches.append(
            LaunchCode(entry, compiled.entry, compiled.resources, compiled.barriers, strides, facts, note)
        )
    return Codes(tuple(launches))


def asks_for_grid(ptx: str, entry: str) -> bool:
    """Return whether a kernel of a PTX module reads the size of its grid: the SASS names only a place in memory."""
    own = re.split(rf"\.entry\s+{re.escape(entry)}\(", ptx)[-1].partition(".entry")[0]
    return "%nctaid" in own


def facts_of(compiled: Cubin, nvdisasm: Path | None) -> tuple[CodeFacts | None, str]:
    """Return what the machine code says, or why it was not read."""
    if nvdisasm is None:
        return None, f"no nvdisasm, so the code was not read: {NVDISASM.source}"
    # A file in memory: whatever kills this process, none is left.
    with os.fdopen(os.memfd_create("cubin"), "wb") as file:
        file.write(compiled.cubin)
        file.flush()
        try:
            done = subprocess.run(
                [nvdisasm, "-c", f"/proc/self/fd/{file.fileno()}"],
                pass_fds=[file.fileno()],
                capture_output=True,
                timeout=DISASSEMBLY_S,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return None, f"{nvdisasm} failed: {error}"
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        reason = words[-1] if words else f"exit status {done.returncode}"
        return None, f"{nvdisasm} failed: {reason}"
    if len(done.stdout) > MAX_TEXT_BYTES:
        return None, f"{len(done.stdout) >> 20} MiB of SASS are too long to be read"
    try:
        return sass_facts(done.stdout.decode(errors="replace"), compiled.entry), ""
    except ValueError as error:
        return None, str(error)


def main() -> None:
    """Answer one request."""
    pipe = ParentPipe(CODES)
    limit = memory_limit(1)
    limit_memory(limit)
    request = pipe.receive()
    if request is None:
        return
    try:
        reply: Codes | CodeRefused = codes_of(request)
    except (KernelError, CompileError) as error:
        reply = CodeRefused(error.problem, error.remedy)
    except MemoryError:
        reply = CodeRefused("out of memory while rendering or compiling", "")
    pipe.send(reply)


if __name__ == "__main__":
    main()
