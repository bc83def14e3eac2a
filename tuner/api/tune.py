"""``tuner.tune``: from a call to a run of the engine. The call becomes a kernel file, which is tuned as any other."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypedDict, Unpack

from tuner.api import folder
from tuner.api.build import build_of, described_build, is_build, require_no_child
from tuner.api.call import (
    OF_BUILT,
    Call,
    in_python,
    library_of,
    require,
    values_of,
    words_of_python,
)
from tuner.api.caller import Answering
from tuner.api.description import Described, described
from tuner.api.kinds import path_of, require_kinds
from tuner.api.progress import progress
from tuner.api.result import Result
from tuner.core import paths
from tuner.core.conditions import Mode
from tuner.core.errors import Interrupted, NoGpuError, TunerError, UsageError, shown, suggestion
from tuner.core.limits import MOST
from tuner.core.model import RunOptions, Value
from tuner.core.signals import stopping
from tuner.database.database import Database
from tuner.devices.base import Device
from tuner.devices.choose import kernel_for, open_device
from tuner.devices.replay import ReplayDevice
from tuner.kernel.headers import named_file, read_source
from tuner.kernel.load import find_kernel, load_kernel
from tuner.kernel.spec import KernelSpec
from tuner.runtime.launches import OUTPUTS
from tuner.tuning import session
from tuner.tuning.history import sources_of
from tuner.tuning.request import Request, effort_options

RUN_OPTIONS = ("time_s", "seed", "from_scratch")
OF_FILES = ("sizes", "dtypes", "options")
"""What is said of a problem of a kernel that has a file or a name."""
OF_SOURCES = tuple(
    field.name for field in fields(Call) if field.name not in ("source", "file", "args", "params")
)
LOOKS = {
    "effort": "quick", "trials": 100, "time_s": 60.0, "mode": "warm", "device": "cuda:0", "db": "results/tuning.db",
    "seed": 1, "sampler": "tpe", "jobs": 4, "from_scratch": True, "learn_from": ["other.json"], "quiet": True,
}  # fmt: skip
"""How options of :class:`RunHow` look."""
KINDS: dict[type, Any] = {int: Integral, float: Real, list: (str, Path, list, tuple)}
SOURCES = (".cu", ".cuh", ".j2")
"""Endings of files that hold a kernel's source."""


class RunHow(TypedDict, total=False):
    """How to tune."""

    effort: str
    """``quick``, ``normal`` (the default) or ``thorough``: over trials, the race and stopping early."""
    trials: int
    """Configurations to try: 60, 200 or 1000 by effort."""
    time_s: float
    """Seconds from the call, a GPU's calibration left out, after which nothing new is tried; the race and the
    confirmation follow. No limit."""
    mode: str
    """What the caches hold: ``cold``, ``warm`` or ``rotating``; ``auto``: the problem decides."""
    device: str
    """``cuda``, ``cuda:N``, ``replay``, ``replay:FILE``; ``auto`` takes a GPU where there is one."""
    db: str | Path
    """Where every trial is kept; results/tuning.db."""
    seed: int
    """Of the search and the inputs; 0."""
    sampler: str
    """As ``--sampler``; ``gp-ei``."""
    jobs: int
    """Compiling processes; one a core."""
    from_scratch: bool
    """Whether results of earlier calls are left out of account; False."""
    learn_from: str | Path | Sequence[str | Path]
    """Files with results of another GPU, size or tool, to begin with and to learn from, as ``--learn-from``."""
    quiet: bool
    """Whether no progress is shown; by default it is on a terminal and in a notebook."""


class How(RunHow, total=False):
    """How to tune, and what is seldom said of a kernel."""

    entry: str
    """The ``__global__`` function, where the source has several; or an instance, such as ``"f<BLOCK>"``."""
    name: str
    """Under which results are kept; that of the function."""
    dtypes: Mapping[str, str]
    """Of a built-in kernel or a file, by role."""
    options: Mapping[str, Value]
    """Of a built-in kernel or a file, by name."""
    default: Mapping[str, Value]
    """Values of the default configuration; the first of each."""
    constants: Mapping[str, Any]
    """Arrays for ``__constant__`` symbols, by name."""
    shared_memory: Any
    """Bytes of dynamic shared memory, as ``grid``."""
    repeat: Mapping[str, str | int]
    """Loops in which the host launches it, the outermost first: names, which count from 0, and how many passes."""
    tolerance: float | str
    """Factor on the allowed error; 1."""
    reduction: int | str
    """Terms that are added up for one element; estimated."""
    compile_options: Sequence[str]
    """Of NVRTC, such as ``--use_fast_math``."""


class Kernel:
    """A kernel that is described, and not yet tuned.

    Args:
        kernel, args, params: as for :func:`tune`.
        what: other arguments of it, but for those of :class:`RunHow`.

    Raises:
        UsageError: an argument does not fit; the text says which, and what to pass instead.
    """

    def __init__(
        self,
        kernel: str | Path | Callable[..., Any],
        args: Sequence[Any] | Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        **what: Any,
    ) -> None:
        text = str(kernel)
        if not (isinstance(kernel, str | Path) or callable(kernel)) or not text.strip():
            raise UsageError(
                f"kernel is {shown(kernel)}",
                "give source text, the path of a .cu or .toml, a name, or a function",
            )
        # None says nothing, but of the reference, of which it says that there is none; and no unknown name passes.
        unsaid = {*OF_SOURCES, *OF_FILES} - {"reference"}
        what = {name: value for name, value in what.items() if value is not None or name not in unsaid}
        require_kinds({"args": args, "params": params, **what})
        self._described: Described | None = None
        self._build: Callable[..., Any] | None = None
        self._name, self._library = text, library_of(args)
        self._params = {name: values_of(name, values) for name, values in (params or {}).items()}
        given = {"args": args, "params": self._params, **what}
        if is_build(kernel):
            require(what, OF_BUILT, "a kernel that a function builds has no argument {!r}")
            build = build_of(kernel if callable(kernel) else text)
            self._build = build.function
            self._described = described_build(build, Call(source="", **given))
        elif any(mark in text for mark in ("__global__", "\n", "{ ", ") {", "){")) or text.endswith(SOURCES):
            file = named_file(text) if text.endswith(SOURCES) else None
            if file is None and text.endswith(SOURCES):
                remedy = "give the path of a .cu, or the source itself"
                raise UsageError(f"there is no file {Path(text).absolute()}", remedy)
            require(what, OF_SOURCES, "a source has no argument {!r}")
            source = read_source(file) if file else text
            try:
                self._described = described(Call(source=source, file=file, **given))
            except RecursionError:
                raise UsageError(
                    "an argument is nested too deeply", "pass one that is not in itself"
                ) from None
        else:
            find_kernel(text)
            named = [*what, *([] if args is None else ["args"])]
            require(named, OF_FILES, f"{text} describes itself, and takes no argument {{!r}}")
            require_kinds(what, lists=())
        if self._described is not None:
            folder.require_launchable(self._described)
        self._problem = {name: what[name] for name in OF_FILES if name in what and self._described is None}

    def __repr__(self) -> str:
        if (of := self._described) is None:
            return f"<kernel {self._name}>"
        sizes = "".join(f" {name}={size}" for name, size in of.draft.sizes.items())
        parameters = "".join(f"; {name} in {one.values}" for name, one in of.draft.parameters.items())
        return f"<kernel {of.draft.name}{sizes}{parameters}>"

    @in_python
    def tune(self, **how: Unpack[RunHow]) -> Result:
        """Tune it; options, result and errors are those of :func:`tune`."""
        began = time.monotonic()
        require_no_child()
        require(how, LOOKS, "tuning has no argument {!r}")
        given: dict[str, Any] = {name: value for name, value in how.items() if value is not None}
        for name, value in given.items():
            with suppress(AttributeError, TypeError, ValueError, RuntimeError):
                given[name] = value.item()  # numbers of NumPy and torch are as good
        options = self._options(given)
        database = path_of("db", given.get("db", paths.DATABASE), f"db={LOOKS['db']!r}")
        device_name = given.get("device", "auto")
        files = given.get("learn_from", ())
        files = [
            path_of("learn_from", file, f"learn_from={LOOKS['learn_from']!r}")
            for file in ([files] if isinstance(files, str | Path) else files)
        ]
        with ExitStack() as stack:
            stop = stack.enter_context(stopping(quiet=bool(given.get("quiet"))))
            observer = stack.enter_context(closing(progress(given.get("quiet"))))

            def opened(name: str) -> Device:
                say = lambda text: observer.note(words_of_python(text))  # noqa: E731
                try:
                    device = open_device(device_name, name, given.get("jobs"), paths.cubins(), say)
                except NoGpuError as error:
                    after = f", after Kernel(...).save('{name}.toml')" if self._described else ""
                    raise NoGpuError(error.problem, error.remedy + after) from None
                return stack.enter_context(closing(device))

            if (of := self._described) is None:
                kernel = load_kernel(kernel_for(device_name, self._name))
                device = opened(kernel.name)
            else:  # without a device nothing is written
                device = opened(of.draft.name)
                kernel = stack.enter_context(folder.kept(of, database, lambda: observer.now is not None))
            problem = kernel.problem(**self._problem)
            stack.enter_context(self.answering(kernel))
            if isinstance(device, ReplayDevice) and not (self._described or self._problem):
                problem = device.recorded_instead(kernel, problem)
            sources = sources_of(files, kernel, options.sampler)
            store = stack.enter_context(Database.open(database))
            store.sources = sources
            what = (kernel, database, of.arguments if of else {}, of.alone if of else "", self._build)
            try:
                request = Request(kernel, problem, options, began=began)
                result = session.tune(request, device, store, observer, stop)
            except Interrupted:
                if observer.now is None:
                    raise KeyboardInterrupt from None
                return Result(*what, observer.now, None)
            return Result(*what, result.state, result)
        raise AssertionError  # no context ends an error

    def _options(self, how: Mapping[str, Any]) -> RunOptions:
        """Return how a problem is tuned.

        Raises:
            UsageError: there is no such effort or mode.
        """
        for name, value in how.items():
            kind = type(example := LOOKS[name])
            least = 0 if name == "seed" else 1e-9
            most = MOST if kind is int else sys.float_info.max
            numeric = kind in (int, float)
            fits = isinstance(value, (str, Path) if name == "db" else KINDS.get(kind, kind)) and (
                kind is bool or not isinstance(value, bool)
            )
            if not fits or (numeric and not least <= value <= most):
                raise UsageError(
                    f"{name} is {shown(value)}", f"for example {name}={example!r}, or leave it out"
                )
        given = {name: value for name, value in how.items() if name in RUN_OPTIONS}
        if (mode := how.get("mode", "auto")) != "auto":
            if mode not in list(Mode):
                raise UsageError(f"mode is {mode!r}", suggestion(mode, (*Mode, "auto")))
            given |= {"mode": Mode(mode), "one_mode": True}
        given |= effort_options(
            how.get("effort", "normal"), how.get("sampler", RunOptions.sampler), how.get("trials")
        )
        narrowed = {name: tuple(values) for name, values in self._params.items() if not self._described}
        return RunOptions(**given, fixed=narrowed)

    def save(self, path: str | Path) -> Path:
        """Write the kernel's file, and what it needs beside it, to a ``.toml`` of this name; return its path."""
        if self._described is None:
            return folder.save(load_kernel(self._name), path)
        with folder.written(self._described) as kernel:
            return folder.save(kernel, path)

    @contextmanager
    def answering(self, kernel: KernelSpec) -> Iterator[None]:
        """Answer for a reference of this program as long as the block lasts."""
        if self._described is None or self._described.reference is None:
            yield
            return
        outputs = [name for name, tensor in kernel.tensors.items() if tensor.role in OUTPUTS]
        names = self._described.arguments
        with Answering(self._described.reference, kernel.folder, outputs, self._library, names) as answers:
            try:
                yield
            except TunerError as error:
                raise error from answers.error  # which has the lines of the user's function


def tune(
    kernel: str | Path | Kernel | Callable[..., Any],
    args: Sequence[Any] | Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    *,
    grid: Any = None,
    block: Any = None,
    where: Any = None,
    reference: Any = "default",
    outputs: Sequence[str] | Mapping[str, str] | None = None,
    sizes: Mapping[str, int] | Sequence[str] | None = None,
    shapes: Mapping[str, Any] | None = None,
    **how: Unpack[How],
) -> Result:
    """Return the fastest configuration of a kernel: verified, raced against the default, confirmed in a new process.

    ``docs/python.md`` has an example, and says more of each argument. Ctrl-C gives the best so far.

    Args:
        kernel: source text or the path of a ``.cu``, of which ``params`` are macros; the path of a ``.toml``; the name
            of a built-in kernel; a :class:`Kernel`; or a function of a file (or ``"FILE.py:FUNCTION"``), that gets
            ``params`` and returns what is called with the arrays.
        args: arrays (of NumPy, torch, CuPy, or any that speak DLPack) and numbers in the order of the C function, or by
            name. They give shapes, dtypes and values, and are not written.
        params: values of each parameter; of a file or a built-in kernel, those to which the search is narrowed.
        grid: blocks: an expression such as ``"ceil_div(n, BLOCK)"``, a number, one to three of them, or a function of
            sizes and parameters that returns these.
        block: threads of a block, likewise.
        where: a condition or several that a configuration must meet: expressions or functions.
        reference: a function whose parameters are names of the arrays and numbers, ``"file.py:function"``, a NumPy
            expression, an expected array (or a dictionary of these by output), ``"default"`` for what the default
            configuration gives, or None for nothing: then no configuration can win.
        outputs: names of the arrays that the kernel writes, which are filled with NaN before; or roles by name:
            ``output``, ``inout``. By default each pointer that is not const is ``inout``: it has its value again before
            each launch.
        sizes: names of the numbers that are sizes, or sizes by name; by default the numbers that are an extent of an
            array. With none, the winner is verified for this problem alone.
        shapes: extents of arrays by name, as expressions of sizes: ``{"a": ("n", "m")}``.
        how: see :class:`How`.

    Raises:
        UsageError: an argument does not fit; the text says which, and what to pass instead.
        KernelError: the kernel's file or source is wrong.
        DeviceError: there is no GPU, the problem does not fit on it, or the reference fails.
        KeyboardInterrupt: Ctrl-C before the first trial.
    """
    run = {name: how.pop(name) for name in list(how) if name in RunHow.__annotations__}  # type: ignore[misc]
    given = {"args": args, "params": params, "grid": grid, "block": block, "where": where}
    given |= {"outputs": outputs, "sizes": sizes, "shapes": shapes, **how}
    require(how, [*dict.fromkeys((*OF_SOURCES, *OF_FILES, *LOOKS))], "tune has no argument {!r}")
    what = {name: value for name, value in given.items() if value is not None}
    if not isinstance(reference, str) or reference != "default":
        what["reference"] = reference
    if isinstance(kernel, Kernel):
        require(what, (), "a Kernel is described already, and takes no argument {!r}")
        return kernel.tune(**run)
    return Kernel(kernel, **what).tune(**run)
