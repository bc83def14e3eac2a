"""The configurations that programs call, compiled: all of a bundle's at once, with names by content.

Those of a database are compiled when they are first used, in a process of their own, and kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec import structs

from tuner.children.compilation import Compilation, SourceRequest, with_occupancy
from tuner.children.compile_pool import DEADLINE_S, CompilePool
from tuner.children.cubin_cache import CubinCache
from tuner.children.nvrtc import nvrtc_version
from tuner.core import paths
from tuner.core.errors import CompileError, DatabaseError, TunerError, suggestion
from tuner.core.model import Gpu, Resources, Status, digest
from tuner.core.observer import Observer
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import builtin_kernels
from tuner.kernel.plan import make_plan
from tuner.kernel.render import context, render_entry, render_helpers
from tuner.kernel.source.declarations import read_declarations
from tuner.kernel.templates import text_of
from tuner.runtime.entries import Manifest
from tuner.runtime.operation import Operation
from tuner.winners.bundle import bundle_files
from tuner.winners.contents import Contents, contents_of
from tuner.winners.current import Kernels, choose_winners, kernel_filters, named_kernel
from tuner.winners.manifest import PROBE_ENTRY, CompiledConfiguration, manifest_of, manifest_record
from tuner.winners.portfolios import portfolios_of
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
    contents: Contents, pool: CompilePool, observer: Observer[str], *, slices: bool = False
) -> CompiledContents:
    """Compile all configurations.

    Args:
        contents: has them.
        pool: compiles, or finds in the cache what it compiled.
        observer: told of each configuration.
        slices: whether also what writes outputs whose rows lie apart.

    Raises:
        CompileError: the tuner's own kernel does not compile.
    """
    result = CompiledContents([], {}, {}, {}, [])
    pairs = ((one, one.of_slices if slices else None) for one in contents.configurations)
    waits = [[(code, pool.submit(code.request())) for code in pair if code] for pair in pairs]

    def made(code: BundledConfiguration, compilation: Compilation) -> CompiledConfiguration | None:
        try:
            return _compiled(code, compilation, result)
        except TunerError as error:
            result.failures.append(f"{code.rendered} for {code.problem}: {error}")
            return None

    observer.phase("compiling configurations", len(waits))
    for number, codes in enumerate(waits, 1):
        whole, *others = [made(code, wait.result()) for code, wait in codes]
        apart = {} if others == [] or others[0] is None else others[0].launches
        result.configurations.append(whole and replace(whole, slices=apart))
        observer.step("", number)
    for bundled, item in zip(contents.configurations, result.configurations, strict=True):
        if item is not None and bundled.takes_cluster_order and bundled.gpu.cc not in result.probes:
            result.probes[bundled.gpu.cc] = _keep(compile_probe(bundled.gpu, pool), result.cubins)
    return result


def bundled(
    contents: Contents,
    pool: CompilePool,
    observer: Observer[str],
    say: Callable[[str], None],
    *,
    slices: bool = False,
) -> tuple[dict[str, Any], dict[str, bytes], CompiledContents]:
    """Return the manifest of a bundle, its files by path, and what was compiled for it.

    Args:
        contents: what is bundled.
        pool: compiles it.
        observer: told of each configuration.
        say: told what is left out, and why.
        slices: whether it also writes outputs whose rows lie apart.

    Raises:
        CompileError: no winner compiles, or the tuner's own kernel does not.
        BundleError: the manifest is beyond a limit of the launchers.
    """
    version = nvrtc_version()
    compiled = compile_contents(contents, pool, observer, slices=slices)
    major = int(version.partition(".")[0])
    written = manifest_record(manifest_of(contents, compiled.configurations, compiled.probes, major))
    for line in compiled.failures:
        say(f"left out: {line}")
    if not written["winners"] and "portfolios" not in written:
        raise CompileError("no winner compiles any more", f"tune again with this NVRTC, {version}")
    return written, bundle_files(written, compiled.cubins, compiled.sources), compiled


def compile_probe(gpu: Gpu, pool: CompilePool) -> bytes:
    """Return the cubin of the tuner's own kernels, of which one probes in which GPC clusters run.

    Raises:
        CompileError: it does not compile.
    """
    compilation = pool.compile(SourceRequest(render_helpers(), PROBE_ENTRY, gpu, (paths.templates(),)))
    if compilation.status is not Status.OK:
        raise CompileError(f"the tuner's own kernels do not compile: {compilation.error}", "run: tune doctor")
    return compilation.cubins[0]


def _compiled(
    bundled: BundledConfiguration, compilation: Compilation, result: CompiledContents
) -> CompiledConfiguration:
    """Keep what a configuration was compiled to.

    Raises:
        TunerError: it does not compile, or breaks a constraint on what the compiler reports.
    """
    resources = checked_resources(bundled, compilation)
    launches, code = {}, (compilation.cubins, compilation.sources, compilation.entries)
    for (number, launch), cubin, source, entry in zip(bundled.launches.items(), *code, strict=True):
        names = _keep(cubin, result.cubins), _keep(source.encode(), result.sources)
        launches[number] = CompiledLaunch.of(*names, entry, launch, cubin)
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
    kernel, of = bundled.kernel, (bundled.problem, bundled.gpu, bundled.configuration)
    if not kernel.variants[bundled.configuration.variant].constraints_after:
        return None
    present = [id(launch) for launch in kernel.launches(*of)]
    own = [number for number, launch in enumerate(bundled.launches.values()) if id(launch) in present]
    parts = {
        name: tuple(getattr(compilation, name)[number] for number in own)
        for name in ("resources", "cubins", "entries")
    }
    occupied = with_occupancy(structs.replace(compilation, **parts), make_plan(kernel, *of), bundled.gpu)
    resources = Resources.of(occupied.resources)
    if (unmet := kernel.unmet_after(*of, [resources])) is not None:
        raise CompileError(
            f"as this NVRTC compiles it, this does not hold: {unmet}", "tune it again with this NVRTC"
        )
    return resources


def compiled_on_use(contents: Contents, **how: Any) -> Operation:
    """Return the operation of some configurations, each compiled when it is first used.

    Args:
        contents: the configurations.
        how: policy, dtypes and options of :class:`Operation`.

    Raises:
        TunerError: a kernel with a C++ name does not compile.
        CallError: there is no such policy, dtype or option.
    """
    manifest, compiling = compiled_manifest(contents)
    return Operation(manifest, compiling.cubin, **how)


def compiled_manifest(contents: Contents) -> tuple[Manifest, CompiledOnUse]:
    """Return the manifest of some configurations, and what compiles each when it is first used.

    Raises:
        TunerError: a kernel with a C++ name does not compile.
    """
    compiling = CompiledOnUse(contents, paths.cubins())
    major = int(nvrtc_version().partition(".")[0])
    return manifest_of(contents, compiling.configurations(), compiling.probes(), major), compiling


def stored_contents(kernel: str, db: Path, gpu: str) -> Contents:
    """Return what there is to call of a kernel in a database.

    Args:
        kernel: a built-in kernel's name, the name of a kernel in the database, or the path of a ``.toml`` file.
        db: the database.
        gpu: a part of the names of the GPUs whose winners count; empty for all.

    Raises:
        DatabaseError: it cannot be read, or has no confirmed winner whose kernel is still the same.
        TunerError: the kernel's file cannot be read.
    """
    named = named_kernel(kernel)
    filters = Filters(
        **kernel_filters(named or kernel), gpu=gpu, exportable=True, replayed=False, regime="rested"
    )
    kernels = Kernels(named)
    with Database.open(db, write=False) as database:
        choice = choose_winners(database, filters, kernels, with_files=True)
        portfolios = portfolios_of(database, filters, kernels, choice.winners)
        names = sorted({*builtin_kernels(), *database.names("kernel")})
    if not choice.winners and not portfolios:
        remedy = f"find one with: tune {kernel}; a replay does not count"
        reasons = [f"{where}: {state}" for where, state in choice.left_out.items()]
        if not reasons and named is None and kernel not in builtin_kernels():
            remedy = f"{suggestion(kernel, names)}, or give the path of a .toml file"
        raise DatabaseError(
            f"no confirmed winner of {kernel} in {db} fits", "; ".join([*reasons[:1], remedy])
        )
    return contents_of(choice.winners, kernels, portfolios)


class CompiledOnUse:
    """The cubins of configurations, each compiled when it is first asked for. Threads may ask at the same time.

    Args:
        contents: the configurations.
        cache: folder of the cubin cache.
    """

    def __init__(self, contents: Contents, cache: Path) -> None:
        self._contents = contents
        self._cache = cache
        self._lock = threading.Lock()
        self._cubins: dict[str, bytes] = {}
        self._codes = {
            str(item.kernel.file): KernelIdentity(item.kernel).code for item in contents.configurations
        }
        self._of_launch: dict[str, BundledConfiguration] = {}
        self._of_probe: dict[str, Gpu] = {}

    def configurations(self) -> list[CompiledConfiguration]:
        """Return the configurations with names for cubins that do not exist yet.

        What the compiler would report is checked on first use. A kernel with a C++ name, or whose variables are filled,
        is compiled now: only the compiler knows symbols.

        Raises:
            TunerError: such a kernel does not compile, or an entry cannot be rendered.
        """
        trials = {number: stored.trial.resources for number, stored in self._contents.winners}
        made = []
        for number, bundled in enumerate(self._contents.configurations):
            slices = {} if (other := bundled.of_slices) is None else self._launches(other)
            made.append(CompiledConfiguration(self._launches(bundled), trials.get(number), slices))
        return made

    def _launches(self, bundled: BundledConfiguration) -> dict[int, CompiledLaunch]:
        names = context(bundled.problem, bundled.gpu, bundled.configuration.values)
        launches = {}
        for number, launch in bundled.launches.items():
            entry = launch.entry
            if "{" in entry:
                entry = render_entry(bundled.kernel, launch, names)
            name = self._name(bundled, number)
            self._of_launch[name] = bundled
            if launch.constants or not _is_symbol(entry, launch.template):
                entry = self._compile(bundled)[list(bundled.launches).index(number)]
            code = self._cubins.get(name, b"")
            launches[number] = CompiledLaunch.of(name, name, entry, launch, code)
        return launches

    def probes(self) -> dict[int, str]:
        """Return the names of the cubins by which GPUs are probed."""
        gpus = {item.gpu.cc: item.gpu for item in self._contents.configurations if item.takes_cluster_order}
        probes = {cc: digest(["probe", gpu.arch]) for cc, gpu in gpus.items()}
        self._of_probe = {probes[cc]: gpu for cc, gpu in gpus.items()}
        return probes

    def cubin(self, name: str) -> bytes:
        """Return a cubin, compiled now if it is asked for the first time.

        Raises:
            CompileError: it does not compile any more, or its kernel's files have changed meanwhile.
        """
        with self._lock:
            if name not in self._cubins:
                if name in self._of_probe:
                    with self._pool(name) as pool:
                        self._cubins[name] = compile_probe(self._of_probe[name], pool)
                else:
                    self._compile(self._of_launch[name])
            return self._cubins[name]

    @contextmanager
    def _pool(self, name: str) -> Iterator[CompilePool]:
        """Return what compiles, while no other process compiles what has this name."""
        with CubinCache(self._cache).alone(name, DEADLINE_S), closing(CompilePool(1, self._cache)) as pool:
            yield pool

    def _compile(self, bundled: BundledConfiguration) -> tuple[str, ...]:
        """Compile a configuration, keep its cubins, and return its entries' names."""
        names = [self._name(bundled, number) for number in bundled.launches]
        with self._pool(names[0]) as pool:
            compilation = pool.compile(bundled.request(self._codes[str(bundled.kernel.file)]))
        try:
            checked_resources(bundled, compilation)
        except TunerError as error:
            raise CompileError(f"{bundled.rendered}: {error.problem}", error.remedy) from None
        self._cubins.update(zip(names, compilation.cubins, strict=True))
        return compilation.entries

    def _name(self, bundled: BundledConfiguration, number: int) -> str:
        """Return what stands for a launch's cubin: a text of 32 hexadecimal digits."""
        file, problem = str(bundled.kernel.file), bundled.problem.key
        return digest([file, self._codes[file], problem, bundled.gpu.arch, bundled.rendered.key, number])


def _is_symbol(entry: str, template: Path) -> bool:
    """Return whether an entry surely is what the driver calls the kernel, as ``extern "C"`` has it."""
    if "<" in entry or "::" in entry or 'extern "C"' not in (text := text_of(template)):
        return False
    try:
        return template.suffix == ".j2" or read_declarations(text).kernel(entry).extern_c
    except TunerError:  # macros may hide it
        return False
