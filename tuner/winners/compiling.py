"""The configurations of a bundle, compiled: launches with names by content, and what the compiler reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgspec import structs

from tuner.children.compilation import Compilation, RenderRequest, SourceRequest, with_occupancy
from tuner.children.compile_pool import CompilePool
from tuner.core import paths
from tuner.core.errors import CompileError, TunerError
from tuner.core.model import Gpu, Resources, Status, digest
from tuner.kernel.plan import make_plan
from tuner.kernel.render import render_helpers
from tuner.winners.contents import Contents
from tuner.winners.manifest import PROBE_ENTRY, CompiledConfiguration
from tuner.winners.records import BundledConfiguration, CompiledLaunch


@dataclass(frozen=True)
class CompiledContents:
    """All that was compiled.

    Attributes:
        configurations: each of the contents'; None for one that is left out.
        probes: the name of the probing cubin, by compute capability.
        cubins: by their names.
        sources: by their names.
        failures: a line for each configuration that is left out.
    """

    configurations: list[CompiledConfiguration | None]
    probes: dict[int, str]
    cubins: dict[str, bytes]
    sources: dict[str, bytes]
    failures: list[str]


def compile_contents(
    contents: Contents, pool: CompilePool, done: Callable[[int, int], None]
) -> CompiledContents:
    """Compile all configurations.

    Args:
        contents: has them.
        pool: compiles, or finds in the cache what it compiled.
        done: called with how many of how many configurations are there.

    Raises:
        CompileError: the tuner's own kernel does not compile.
    """
    result = CompiledContents([], {}, {}, {}, [])
    waits = [pool.begin(render_request(bundled)) for bundled in contents.configurations]
    for number, (bundled, wait) in enumerate(zip(contents.configurations, waits, strict=True), 1):
        compilation = wait()
        try:
            result.configurations.append(_compiled(bundled, compilation, result))
        except TunerError as error:
            result.configurations.append(None)
            result.failures.append(f"{bundled.configuration} for {bundled.problem}: {error}")
        done(number, len(waits))
    for bundled, item in zip(contents.configurations, result.configurations, strict=True):
        if item is not None and bundled.takes_cluster_order and bundled.gpu.cc not in result.probes:
            result.probes[bundled.gpu.cc] = _keep(compile_probe(bundled.gpu, pool), result.cubins)
    return result


def compile_probe(gpu: Gpu, pool: CompilePool) -> bytes:
    """Return the cubin of the tuner's own kernels, of which one probes in which GPC clusters run.

    Raises:
        CompileError: it does not compile.
    """
    compilation = pool.compile(SourceRequest(render_helpers(), PROBE_ENTRY, gpu, (paths.templates(),)))
    if compilation.status is not Status.OK:
        raise CompileError(f"the tuner's own kernels do not compile: {compilation.error}", "run: tune doctor")
    return compilation.cubins[0]


def render_request(bundled: BundledConfiguration, code: str = "") -> RenderRequest:
    """Return what asks for all launches of a configuration; the code's digest is that of :class:`RenderRequest`."""
    return RenderRequest(
        bundled.kernel.file,
        bundled.problem,
        bundled.gpu,
        bundled.configuration,
        code=code,
        launches=tuple(bundled.launches),
    )


def _compiled(
    bundled: BundledConfiguration, compilation: Compilation, result: CompiledContents
) -> CompiledConfiguration:
    """Keep what a configuration was compiled to.

    Raises:
        TunerError: it does not compile, or breaks a constraint on what the compiler reports.
    """
    resources = checked_resources(bundled, compilation)
    launches = {
        number: CompiledLaunch(_keep(cubin, result.cubins), _keep(source.encode(), result.sources), entry)
        for number, cubin, source, entry in zip(
            bundled.launches, compilation.cubins, compilation.sources, compilation.entries, strict=True
        )
    }
    return CompiledConfiguration(launches, resources)


def _keep(content: bytes, files: dict[str, bytes]) -> str:
    """Keep a file's content; return its name."""
    name = digest(content)
    files[name] = content
    return name


def checked_resources(bundled: BundledConfiguration, compilation: Compilation) -> Resources | None:
    """Return what the compiler reported of the launches that the configuration's own problem has, if constraints ask.

    Raises:
        CompileError: it did not compile, or breaks a constraint on what the compiler reports.
        UnlaunchableError: it cannot be launched for its own problem.
    """
    if compilation.status is not Status.OK:
        raise CompileError(f"{compilation.status}: {compilation.error}")
    kernel, problem, gpu, configuration = (
        bundled.kernel, bundled.problem, bundled.gpu, bundled.configuration
    )  # fmt: skip
    if not kernel.variants[configuration.variant].constraints_after:
        return None
    present = [id(launch) for launch in kernel.launches(problem, gpu, configuration)]
    every = zip(bundled.launches.values(), compilation.resources, strict=True)
    own = tuple(reported for launch, reported in every if id(launch) in present)
    plan = make_plan(kernel, problem, gpu, configuration)
    resources = Resources.of(with_occupancy(structs.replace(compilation, resources=own), plan, gpu).resources)
    if (unmet := kernel.unmet_after(problem, gpu, configuration, [resources])) is not None:
        raise CompileError(
            f"as this NVRTC compiles it, this does not hold: {unmet}", "tune it again with this NVRTC"
        )
    return resources
