"""The child that compiles one configuration to be read: PTX beside the cubin, and SASS if it can be had."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tuner.children.code import LISTING, LaunchListing, ListingRefused, ListingRequest, Listings
from tuner.children.compiler_messages import in_template
from tuner.children.memory import memory_limit
from tuner.children.nvrtc import Cubin, SourceRejected, compile_source
from tuner.core.errors import CompileError, KernelError
from tuner.core.processes import ParentPipe, limit_memory
from tuner.kernel.load import read_kernel
from tuner.kernel.render import render_launch

DISASSEMBLY_S = 30.0


def listings(request: ListingRequest) -> Listings:
    """Compile every launch of a configuration.

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
        sass, note = _disassembled(compiled, request.nvdisasm)
        launches.append(
            LaunchListing(
                entry, compiled.entry, compiled.ptx, sass, note, compiled.resources, compiled.barriers
            )
        )
    return Listings(tuple(launches))


def _disassembled(compiled: Cubin, nvdisasm: Path | None) -> tuple[str, str]:
    """Return the SASS, or why there is none."""
    if nvdisasm is None:
        return "", "no nvdisasm, so the PTX alone: pip install nvidia-cuda-nvdisasm"
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
            return "", f"{nvdisasm} failed: {error}"
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        return "", f"{nvdisasm} failed: {words[-1] if words else f'exit status {done.returncode}'}"
    return done.stdout.decode(errors="replace"), ""


def main() -> None:
    """Answer one request."""
    pipe = ParentPipe(LISTING)
    limit = memory_limit(1)
    limit_memory(limit)
    request = pipe.receive()
    if request is None:
        return
    try:
        reply: Listings | ListingRefused = listings(request)
    except (KernelError, CompileError) as error:
        reply = ListingRefused(error.problem, error.remedy)
    except MemoryError:
        reply = ListingRefused("out of memory while rendering or compiling", "")
    pipe.send(reply)


if __name__ == "__main__":
    main()
