"""The compiling child: renders and compiles one configuration a message, under a memory limit."""

from __future__ import annotations

import contextlib
import functools
import re
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from msgspec import structs

from tuner.children.compilation import (
    COMPILING,
    Compilation,
    CompileRequest,
    ReadRequest,
    RenderRequest,
    SourceRequest,
    with_occupancy,
)
from tuner.children.cubin import kernels_of
from tuner.children.cubin_cache import CubinCache
from tuner.children.headers import Headers, headers_of
from tuner.children.measuring import PythonCall
from tuner.children.nvrtc import (
    PROGRAM,
    Cubin,
    SourceRejected,
    compile_options,
    compile_source,
    nvrtc,
    nvrtc_version,
)
from tuner.children.precompiled import PrecompiledHeaders
from tuner.core.errors import CompileError, KernelError, TunerError, suggestion
from tuner.core.model import Configuration, Gpu, Problem, Resources, Status, digest
from tuner.core.processes import ParentPipe, limit_memory
from tuner.core.reading import read_at_most
from tuner.kernel.candidates import CANDIDATE, candidate_kernel
from tuner.kernel.functions import PythonFunction
from tuner.kernel.headers import headers_digest, read_source, with_own_headers
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.line_map import LineMap, Location
from tuner.kernel.load import read_kernel
from tuner.kernel.modules import FILE, MODEL, MODEL_NEW
from tuner.kernel.options import options_of
from tuner.kernel.plan import make_plan, numbers_of
from tuner.kernel.render import line_map, render_launch
from tuner.kernel.source.device_part import needed_part
from tuner.kernel.spec import KernelSpec
from tuner.kernel.templates import FAILURES, read_template, read_templates_once
from tuner.kernel.variant_spec import LaunchSpec
from tuner.runtime.launches import Plan

_STATIC_SHARED = re.compile(r"uses too much shared data \(0x(\w+) bytes, 0x(\w+) max\)")
CHANGED = "have changed since the run began"
MAX_CUBIN_BYTES = 64 << 20


@dataclass(frozen=True)
class _Source:
    """A rendered launch, ready for NVRTC."""

    text: str
    entry: str
    options: tuple[str, ...]
    include: tuple[Path, ...]
    located: Callable[[str], str]
    """Return a compiler's log with the template's lines."""
    cubin: bytes = b""
    """In place of what is compiled of the text."""
    listing: bool = False


class Compiler:
    """Renders and compiles the launches of configurations, through the cache."""

    def __init__(self, cache: CubinCache | None) -> None:
        self.cache = cache
        self.precompiled = PrecompiledHeaders(cache.folder.parent / "precompiled") if cache else None
        self._identity = functools.lru_cache(maxsize=4)(_identity)

    def answer(self, request: CompileRequest) -> Compilation:
        """Compile what a request names; a failure comes with what was done before it."""
        if isinstance(request, ReadRequest):
            return self._read(request)
        if isinstance(request, SourceRequest) or request.reference:
            return self._compile_all(request)
        gpu = request.gpu
        try:
            identity = self._identity(request.kernel_file, request.candidate, request.code)
            changed = bool(request.code) and identity.code != request.code
        except KernelError as error:
            return Compilation(Status.COMPILE_ERROR, str(error), changed=bool(request.code))
        if changed:
            name = identity.kernel.file.name
            return Compilation(Status.COMPILE_ERROR, f"{name} or its templates {CHANGED}", changed=True)
        if request.launches or request.listing:
            return self._compile_all(request)
        try:
            plan = make_plan(identity.kernel, request.problem, gpu, request.configuration)
        except TunerError as error:
            return Compilation(Status.INVALID_CONFIG, str(error))
        call = identity.kernel.variants[request.configuration.variant].call
        compilation = (
            self._compile_all(request) if call is None else _called(call, plan, identity.kernel, request)
        )
        try:
            options = options_of(identity.kernel, request.problem, gpu, request.configuration)
        except (KernelError, MemoryError):  # the compilation says it
            return compilation
        implementation = identity.implementation(request.configuration.variant, compilation.sources, options)
        compilation = structs.replace(compilation, implementation=implementation)
        if call is not None or compilation.status is not Status.OK:
            return compilation
        return with_occupancy(compilation, plan, gpu)

    def _read(self, request: ReadRequest) -> Compilation:
        with contextlib.suppress(TunerError, MemoryError, *FAILURES):  # the first configuration says it
            identity = self._identity(request.kernel_file, request.candidate, request.code)
            variants = identity.kernel.variants.values() if identity.code else ()
            for template in {launch.template for variant in variants for launch in variant.launches}:
                if template.suffix == ".j2":
                    read_template(identity.kernel.folder, template)
        return Compilation(Status.OK)

    def _compile_all(self, request: RenderRequest | SourceRequest) -> Compilation:
        started = time.monotonic()
        sources: list[str] = []
        compiled: list[Cubin] = []
        status, error, log = Status.OK, "", None
        try:
            for source in self._launches(request):
                sources.append(source.text)
                compiled.append(self._compile(source, request.gpu.arch))
        except SourceRejected as rejected:
            error, log = str(rejected), rejected.log
            memory = "out of memory" in log.lower() or "OUT_OF_MEMORY" in log
            status = Status.COMPILE_OOM if memory else Status.COMPILE_ERROR
            if too_much := _STATIC_SHARED.search(log):
                status = Status.INVALID_CONFIG
                error = (
                    f"{int(too_much[1], 16)} bytes of static shared memory, of at most {int(too_much[2], 16)}; more "
                    "is possible as dynamic shared memory (extern __shared__, and shared_bytes in the launch)"
                )
        except TunerError as failure:
            status, error = Status.COMPILE_ERROR, str(failure)
        except MemoryError:
            status, error = Status.COMPILE_OOM, "out of memory while rendering or compiling"
        return Compilation(
            status,
            error,
            sources=tuple(sources),
            cubins=tuple(one.cubin for one in compiled),
            entries=tuple(one.entry for one in compiled),
            resources=tuple(one.resources for one in compiled),
            ptx=tuple(one.ptx for one in compiled),
            barriers=tuple(one.barriers for one in compiled),
            log="".join(f"{one.log}\n" for one in compiled) if log is None else log,
            compile_s=time.monotonic() - started,
        )

    def _launches(self, request: RenderRequest | SourceRequest) -> Iterator[_Source]:
        """Render each launch that a request means."""
        if isinstance(request, SourceRequest):
            yield _Source(request.source, request.entry, request.options, request.include, with_locations)
            return
        kernel = self._identity(request.kernel_file, request.candidate, request.code).kernel
        problem, gpu, configuration = request.problem, request.gpu, request.configuration
        if request.reference:
            assert kernel.reference.cuda is not None
            launches: tuple[LaunchSpec, ...] = (kernel.reference.cuda,)
        elif request.launches:
            every = kernel.variants[configuration.variant].launches
            launches = tuple(every[number] for number in request.launches)
        else:
            launches = kernel.launches(problem, gpu, configuration)
        options = options_of(kernel, problem, gpu, None if request.reference else configuration)
        for launch in launches:
            if launch.template.suffix == ".cubin":
                cubin = read_at_most(launch.template, MAX_CUBIN_BYTES)
                yield _Source(f"// cubin {digest(cubin)}", launch.entry, (), (), str, cubin)
                continue
            text, entry = render_launch(kernel, launch, problem, gpu, configuration)
            located = partial(in_template, kernel, launch, problem, gpu, configuration)
            include = (launch.template.parent, *kernel.include)
            yield _Source(text, entry, options, include, located, listing=request.listing)

    def _compile(self, source: _Source, arch: str) -> Cubin:
        """Compile a source, or take it from the cache; if the whole does not compile, what its kernel needs.

        Raises:
            SourceRejected: it does not compile; the log names the template's lines.
        """
        if source.cubin:
            return _given(source)
        try:
            compiled = self._compile_or_get(source, arch)
        except SourceRejected as error:
            try:
                whole = with_own_headers(source.text, source.include, PROGRAM)
                needed = needed_part(whole, source.entry)
                if needed == whole or _hits_macro(source.text, needed, error.log):
                    raise
                compiled = self._compile_or_get(replace(source, text=needed), arch)
            except KernelError:  # too large to be read
                raise SourceRejected(source.located(error.log)) from None
            except SourceRejected as of_needed:
                # What is left out too much shows as an error that the whole does not have.
                log = of_needed.log if str(of_needed) in error.log else error.log
                raise SourceRejected(source.located(log)) from None
        return replace(compiled, log=source.located(compiled.log))

    def _compile_or_get(self, source: _Source, arch: str) -> Cubin:
        text, entry, options, include = source.text, source.entry, source.options, source.include
        headers = headers_of(text, include, entry, options)
        own = headers_digest(text, include) if self.cache is not None else None
        # Without headers of its own a kernel needs no folder: all such kernels share precompiled headers, which NVRTC
        # takes with equal options alone.
        if own == "":
            source, include = replace(source, include=()), ()
        if self.cache is None or own is None or source.listing:
            return self._with_headers(source, arch, headers)
        used = compile_options(arch, options, include, headers)
        key = CubinCache.key(text, entry, used, nvrtc_version(), own + headers.digest)
        compiled = self.cache.get(key)
        if compiled is None:
            compiled = self._with_headers(source, arch, headers)
            self.cache.put(key, compiled)
        return compiled

    def _with_headers(self, source: _Source, arch: str, headers: Headers) -> Cubin:
        """Compile a source, from precompiled headers if there are any; what these refuse is compiled without."""
        text, entry, options, include = source.text, source.entry, source.options, source.include
        file = self.precompiled.find(headers, arch, options, include) if self.precompiled else None
        if self.precompiled and file is not None:
            try:
                return compile_source(text, entry, arch, options, include, headers=headers, precompiled=file)
            except SourceRejected as error:
                if "precompiled header" in error.log:
                    self.precompiled.refuse(file)
        return compile_source(text, entry, arch, options, include, listing=source.listing, headers=headers)


def _given(source: _Source) -> Cubin:
    """Return a cubin that somebody else has compiled, of which no registers are known."""
    try:
        kernels = kernels_of(source.cubin)
    except (struct.error, ValueError, IndexError):
        raise CompileError("this is no cubin", "compile one with: nvcc -cubin") from None
    if source.entry not in kernels:
        raise CompileError(f"the cubin has no kernel {source.entry!r}", suggestion(source.entry, kernels))
    return Cubin(source.cubin, source.entry, Resources(), "")


def _hits_macro(source: str, needed: str, log: str) -> bool:
    """Return whether a line that is no CUDA has a macro that the tuner defines: that is to be said, not left out.

    A line of the source itself that the kernel does not need, such as another kernel's parameter, is left out.
    """
    defines, begins, own = source.partition("\n#line 1 ")
    names = set(re.findall(r"^#define (\w+)", defines, re.MULTILINE)) if begins else set()
    lines = map(str.strip, re.findall(r"error: expected [^\n]*\n([^\n]*)", log))
    return any(names & set(re.findall(r"\w+", line)) for line in lines if line in needed or line not in own)


def _identity(file: Path, candidate: str, code: str) -> KernelIdentity:  # noqa: ARG001 - of the key
    kernel = read_kernel(file)
    return KernelIdentity(candidate_kernel(kernel, candidate) if candidate else kernel)


def _called(call: PythonFunction, plan: Plan, kernel: KernelSpec, request: RenderRequest) -> Compilation:
    """Return a function, of which there is nothing to compile."""
    numbers, parameters = numbers_of(kernel, request.problem, request.gpu), request.configuration.values
    source, model = read_source(call.file), None
    if call.name in (MODEL, MODEL_NEW):
        python = (kernel.task or kernel).reference.python
        model = python.file.with_name(FILE) if python is not None else None
        if model is None or not model.is_file():
            what = f"{call.name} is a torch module, and the task is none"
            return Compilation(Status.INVALID_CONFIG, f"{what}; write a function {CANDIDATE}")
    if call.builds:
        called = PythonCall(call, numbers, model, parameters)
    else:
        called = PythonCall(call, {**numbers, **parameters}, model)
    return Compilation(Status.OK, plan=plan, sources=(source,), entries=(call.name,), call=called)


NO_LOCATIONS = LineMap(())

_MESSAGE = re.compile(r"(?P<file>\S.*?)\((?P<line>\d+)\): (?P<what>(?:[a-z]+ )?(?:error|warning|remark)\b.*)")
_INSTANTIATION = re.compile(r"(?P<what>.* at line )(?P<line>\d+)(?: of (?P<file>.+))?")


def in_template(
    kernel: KernelSpec, launch: LaunchSpec, problem: Problem, gpu: Gpu, configuration: Configuration, log: str
) -> str:
    """Return a compiler's log in which messages on a launch's source name the template and its line.

    The template's own line follows where the source has another text there. Messages on headers keep their file.
    """
    if not any(_MESSAGE.fullmatch(line) for line in log.split("\n")):
        return log
    try:
        lines = line_map(kernel, launch, problem, gpu, configuration)
    except (KernelError, MemoryError):  # the template was changed meanwhile, or is very large
        lines = None
    return with_locations(log, lines or NO_LOCATIONS)


def with_locations(log: str, lines: LineMap = NO_LOCATIONS) -> str:
    """Return a compiler's log with each message as ``file:line: text``, and the lines of a source by its map."""
    written: list[str] = []
    said_of = PROGRAM
    said = log.split("\n")
    for number, line in enumerate(said):
        if match := _MESSAGE.fullmatch(line):
            said_of = match["file"]
            at, location = _location(said_of, int(match["line"]), lines)
            written.append(f"{at}: {match['what']}")
            rendered = said[number + 1] if number + 1 < len(said) else ""
            if location is not None and location.text.split() != rendered.split():
                written.append(f"  {location.text.strip()}   <- the template's line, which renders to")
        elif (match := _INSTANTIATION.fullmatch(line)) and line.startswith(" "):
            at, _ = _location(match["file"] or said_of, int(match["line"]), lines)
            written.append(f"{match['what'].removesuffix('line ')}{at}")
        else:
            written.append(line)
    return "\n".join(written)


def _location(file: str, line: int, lines: LineMap) -> tuple[str, Location | None]:
    location = lines.location(line) if file == PROGRAM else None
    return (
        (f"{location.name}:{location.line}", location) if location is not None else (f"{file}:{line}", None)
    )


def main() -> None:
    """Serve until the parent closes the pipe. Arguments: cache folder or ``-``, memory limit in bytes."""
    pipe = ParentPipe(COMPILING)
    folder, limit = sys.argv[1], int(sys.argv[2])
    read_templates_once()  # a run goes on with the text that it began with
    compiler = Compiler(None if folder == "-" else CubinCache(Path(folder)))
    with contextlib.suppress(CompileError):  # the first request says it with a status
        nvrtc()
    limit_memory(limit)
    while (request := pipe.receive()) is not None:
        pipe.send(compiler.answer(request))


if __name__ == "__main__":
    main()
