"""The compiling child: renders and compiles one configuration a message, under a memory limit."""

from __future__ import annotations

import base64
import contextlib
import functools
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tuner.compile.cache import CubinCache
from tuner.compile.nvrtc import (
    Compiled,
    SourceRejected,
    compile_options,
    compile_source,
    nvrtc,
    nvrtc_version,
)
from tuner.errors import CompileError, KernelError
from tuner.kernel.headers import headers_digest
from tuner.kernel.load import read_kernel
from tuner.kernel.render import render_launch
from tuner.kernel.variant_spec import LaunchSpec
from tuner.model import Configuration, Gpu, Problem, Status
from tuner.processes import ParentPipe


class Compiler:
    """Renders and compiles the launches of configurations, through the cache."""

    def __init__(self, cache: CubinCache | None) -> None:
        self.cache = cache
        self._kernel = functools.lru_cache(maxsize=4)(read_kernel)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compile what a request names; the reply says what became of it."""
        started = time.monotonic()
        reply: dict[str, Any] = {
            "id": request["id"],
            "sources": [],
            "cubins": [],
            "resources": [],
            "entries": [],
            "log": "",
        }
        try:
            for source, entry, options, include in self._launches(request):
                reply["sources"].append(source)
                compiled = self._compile(source, entry, request["gpu"], options, include)
                reply["cubins"].append(base64.b64encode(compiled.cubin).decode())
                reply["resources"].append(asdict(compiled.resources))
                reply["entries"].append(compiled.entry)
                reply["log"] += compiled.log + "\n"
            reply["status"] = Status.OK
        except SourceRejected as error:
            memory = "out of memory" in error.log.lower() or "OUT_OF_MEMORY" in error.log
            reply.update(
                status=Status.COMPILE_OOM if memory else Status.COMPILE_ERROR, error=str(error), log=error.log
            )
        except (KernelError, CompileError) as error:
            reply.update(status=Status.COMPILE_ERROR, error=str(error))
        except MemoryError:
            reply.update(status=Status.COMPILE_OOM, error="out of memory while rendering or compiling")
        reply["compile_s"] = time.monotonic() - started
        return reply

    def _launches(
        self, request: dict[str, Any]
    ) -> Iterator[tuple[str, str, tuple[str, ...], tuple[Path, ...]]]:
        """Return source, entry, options and include folders of each launch that a request means."""
        if "source" in request:
            yield request["source"], request["entry"], (), (Path(request["include"]),)
            return
        kernel = self._kernel(Path(request["kernel_file"]))
        problem, gpu = Problem.from_json(request["problem"]), Gpu(**request["gpu"])
        configuration = Configuration.of(request["variant"], request["parameters"])
        if request.get("reference"):
            assert kernel.reference.cuda is not None
            launches: tuple[LaunchSpec, ...] = (kernel.reference.cuda,)
        else:
            launches = kernel.launches(problem, gpu, configuration)
        for launch in launches:
            source, entry = render_launch(kernel, launch, problem, gpu, configuration)
            yield source, entry, kernel.compile_options, (launch.template.parent, *kernel.include)

    def _compile(
        self,
        source: str,
        entry: str,
        gpu: dict[str, Any],
        options: tuple[str, ...],
        include: tuple[Path, ...],
    ) -> Compiled:
        arch = Gpu(**gpu).arch
        headers = headers_digest(source, include) if self.cache is not None else None
        if self.cache is None or headers is None:
            return compile_source(source, entry, arch, options, include)
        key = CubinCache.key(
            source,
            entry,
            compile_options(arch, options, include),
            nvrtc_version(),
            headers,
        )
        compiled = self.cache.get(key)
        if compiled is None:
            compiled = compile_source(source, entry, arch, options, include)
            self.cache.put(key, compiled)
        return compiled


def main() -> None:
    """Serve until the parent closes the pipe. Arguments: cache folder or ``-``, memory limit in bytes."""
    pipe = ParentPipe()
    folder, limit = sys.argv[1], int(sys.argv[2])
    compiler = Compiler(None if folder == "-" else CubinCache(Path(folder)))
    with contextlib.suppress(CompileError):  # the first request says it with a status
        nvrtc()
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while (request := pipe.receive()) is not None:
        pipe.send(compiler.answer(request))


if __name__ == "__main__":
    main()
