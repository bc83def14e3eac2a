"""Winners of a database as a function: compiled when they are first used, in a process of their own, and kept."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.children.compile_pool import DEADLINE_S, CompilePool
from tuner.children.cubin_cache import CubinCache
from tuner.children.nvrtc import nvrtc_version
from tuner.core import paths
from tuner.core.errors import CompileError, DatabaseError, TunerError, suggestion
from tuner.core.model import Gpu, Resources, digest
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import builtin_kernels, load_kernel
from tuner.kernel.render import context, render_entry
from tuner.runtime.operation import Operation
from tuner.winners.chosen import choose_winners
from tuner.winners.compiling import checked_resources, compile_probe, render_request
from tuner.winners.contents import Contents, contents_of
from tuner.winners.current import Kernels
from tuner.winners.manifest import CompiledConfiguration, manifest_of
from tuner.winners.portfolios import portfolios_of
from tuner.winners.records import BundledConfiguration, CompiledLaunch


def load_from_database(
    kernel: str,
    db: str | Path,
    gpu: str,
    *,
    policy: str,
    dtypes: Mapping[str, str] | None,
    options: Mapping[str, Any] | None,
) -> Operation:
    """Return the operation of the confirmed winners of a kernel.

    Args:
        kernel: a built-in kernel's name, the name of a kernel in the database, or the path of a ``.toml`` file.
        db: the database.
        gpu: a part of the names of the GPUs whose winners count; empty for all.
        policy, dtypes, options: of :class:`Operation`.

    Raises:
        DatabaseError: it cannot be read, or has no such winner.
        TunerError: a kernel's file is wrong.
        CallError: there is no such policy, dtype or option.
    """
    contents = stored_contents(kernel, Path(db), gpu)
    compiling = CompiledOnUse(contents, paths.cubins())
    manifest = manifest_of(
        contents, compiling.configurations(), compiling.probes(), int(nvrtc_version().partition(".")[0])
    )
    return Operation(manifest, compiling.cubin, policy=policy, dtypes=dtypes, options=options)


def stored_contents(kernel: str, db: Path, gpu: str) -> Contents:
    """Return what there is to call of a kernel in a database.

    Raises:
        DatabaseError: it cannot be read, or has no confirmed winner whose kernel is still the same.
        TunerError: the kernel's file cannot be read.
    """
    named = load_kernel(kernel) if kernel.endswith(".toml") or "/" in kernel else None
    filters = Filters(kernel=kernel, gpu=gpu, exportable=True, replayed=False, regime="rested")
    if named is not None:
        filters = replace(filters, kernel=named.name, computations=KernelIdentity(named).computations)
    kernels = Kernels(named)
    with Database.open(db, write=False) as database:
        choice = choose_winners(database, filters, kernels, with_files=True)
        portfolios = portfolios_of(database, filters, kernels, choice.winners, named)
        names = sorted({*builtin_kernels(), *database.names("kernel")})
    if not choice.winners and not portfolios:
        remedy = f"find one with: tune --kernel {kernel}; a replay does not count"
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

        What the compiler would report is checked on first use. A kernel that is an instance of a C++ template is
        compiled now: only the compiler knows its name.

        Raises:
            TunerError: such a kernel does not compile, or an entry cannot be rendered.
        """
        trials = {winner.configuration: winner.stored.trial.resources for winner in self._contents.winners}
        return [
            self._configuration(item, trials.get(n)) for n, item in enumerate(self._contents.configurations)
        ]

    def _configuration(
        self, bundled: BundledConfiguration, resources: Resources | None
    ) -> CompiledConfiguration:
        names = context(bundled.problem, bundled.gpu, bundled.configuration.values)
        launches = {}
        for number, launch in bundled.launches.items():
            entry = launch.entry
            if "{" in entry:
                entry = render_entry(bundled.kernel, launch, names)
            name = self._name(bundled, number)
            self._of_launch[name] = bundled
            if "<" in entry or "::" in entry:
                entry = self._compile(bundled)[list(bundled.launches).index(number)]
            launches[number] = CompiledLaunch(name, name, entry)
        return CompiledConfiguration(launches, resources)

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
                    self._compile_probe(name)
                else:
                    self._compile(self._of_launch[name])
            return self._cubins[name]

    def _compile(self, bundled: BundledConfiguration) -> tuple[str, ...]:
        """Compile a configuration, keep its cubins, and return its entries' names."""
        names = [self._name(bundled, number) for number in bundled.launches]
        request = render_request(bundled, self._codes[str(bundled.kernel.file)])
        with (
            CubinCache(self._cache).alone(names[0], DEADLINE_S),
            closing(CompilePool(1, self._cache)) as pool,
        ):
            compilation = pool.compile(request)
        try:
            checked_resources(bundled, compilation)
        except TunerError as error:
            raise CompileError(f"{bundled.configuration}: {error.problem}", error.remedy) from None
        self._cubins.update(zip(names, compilation.cubins, strict=True))
        return compilation.entries

    def _compile_probe(self, name: str) -> None:
        with CubinCache(self._cache).alone(name, DEADLINE_S), closing(CompilePool(1, self._cache)) as pool:
            self._cubins[name] = compile_probe(self._of_probe[name], pool)

    def _name(self, bundled: BundledConfiguration, number: int) -> str:
        """Return what stands for a launch's cubin: a text of 32 hexadecimal digits."""
        file = str(bundled.kernel.file)
        of = [
            file,
            self._codes[file],
            bundled.problem.key,
            bundled.gpu.arch,
            bundled.configuration.key,
            number,
        ]
        return digest(of)
