"""``tuner.tune``: from a call to a run of the engine. The call becomes a kernel file, which is tuned as any other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, TypedDict, Unpack

from tuner.api import folder
from tuner.api.call import Call
from tuner.api.caller import Answering
from tuner.api.description import Described, described
from tuner.api.progress import progress
from tuner.api.result import Result
from tuner.core import paths
from tuner.core.conditions import Mode
from tuner.core.errors import Interrupted, TunerError, UsageError
from tuner.core.model import Problem, RunOptions, Value
from tuner.core.signals import stopping
from tuner.database.database import Database
from tuner.devices.choose import kernel_for, open_device
from tuner.kernel.headers import read_source
from tuner.kernel.load import load_kernel
from tuner.kernel.spec import KernelSpec
from tuner.tuning import session
from tuner.tuning.request import Request, effort_options

RUN_OPTIONS = ("time_s", "mode", "seed", "from_scratch")
SOURCES = (".cu", ".cuh", ".j2")
"""Endings of files that hold a kernel's source."""


class RunHow(TypedDict, total=False):
    """How to tune."""

    effort: str
    """``quick``, ``normal`` (the default) or ``thorough``: over trials, the race and stopping early."""
    trials: int
    """Configurations to try: 60, 200 or 1000 by effort."""
    time_s: float
    """Seconds after which nothing new is tried; no limit."""
    mode: str
    """What the caches hold: ``cold``, ``warm`` or ``rotating``; the problem decides."""
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
    tolerance: float | str
    """Factor on the allowed error; 1."""
    reduction: int | str
    """Terms that are added up for one element; 1."""
    compile_options: Sequence[str]
    """Of NVRTC, such as ``--use_fast_math``."""


class Kernel:
    """A kernel that is described, and not yet tuned; its arguments are those of :func:`tune`.

    Raises:
        UsageError: an argument does not fit; the text says which, and what to pass instead.
    """

    def __init__(
        self,
        kernel: str | Path | Kernel,
        args: Sequence[Any] | Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        **what: Any,
    ) -> None:
        self._described: Described | None = None
        self._library = _library(args)
        self.dtypes, self.options = what.pop("dtypes", None), what.pop("options", None)
        self.params, self.sizes = dict(params or {}), what.get("sizes")
        text = str(kernel)
        if isinstance(kernel, Kernel):
            raise UsageError("a Kernel is described already", "call its tune()")
        if "__global__" in text or text.endswith(SOURCES):
            file = None if "__global__" in text else Path(text).expanduser()
            if file is not None and not file.is_file():
                raise UsageError(f"there is no file {text}", "give the path of a .cu, or the source itself")
            if self.dtypes or self.options:
                raise UsageError(
                    "dtypes and options are those of a kernel's file", "leave them out: args has dtypes"
                )
            source = read_source(file) if file else text
            self._described = described(Call(source=source, file=file, args=args, params=self.params, **what))
            return
        if "\n" in text:
            raise UsageError(
                "the source has no __global__ function", "give the source that defines the kernel"
            )
        if args is not None:
            what = {"args": args, **what}
        if given := [name for name in what if name != "sizes"]:
            raise UsageError(
                f"{given[0]} says what a source computes, and {text} says that itself",
                f"leave out {given[0]}",
            )
        self._name = text

    def problem(self, spec: KernelSpec) -> Problem:
        """Return the problem that the call means."""
        if self._described is not None:
            return spec.problem()
        return spec.problem(dict(self.sizes or {}), self.dtypes, self.options)

    @property
    def fixed(self) -> dict[str, tuple[Value, ...]]:
        """The values that the call allows of the parameters of a built-in kernel or a file."""
        if self._described is not None:
            return {}
        return {
            name: tuple(values) if isinstance(values, list | tuple) else (values,)
            for name, values in self.params.items()
        }

    def tune(self, **how: Unpack[RunHow]) -> Result:
        """Tune it; the options and the result are those of :func:`tune`."""
        return _tuned(self, how)

    def save(self, path: str | Path) -> Path:
        """Write the kernel's file, and what lies beside it; return its path."""
        target = Path(path)
        if self._described is None:
            return folder.save(load_kernel(self._name).file, target)
        return folder.write_as(self._described, target)

    def spec(self, device: str, database: Path) -> KernelSpec:
        """Return the kernel as the engine has it, from a file that is written now unless it is there."""
        if self._described is None:
            return load_kernel(kernel_for(device, self._name))
        return load_kernel(str(folder.kept(self._described, database)))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The parameters of the C function in order; empty for a kernel that was given by its file or name."""
        return self._described.arguments if self._described else ()

    @contextmanager
    def answering(self, kernel: KernelSpec) -> Iterator[None]:
        """Answer for a reference of this program as long as the block lasts."""
        if self._described is None or self._described.reference is None:
            yield
            return
        outputs = [name for name, tensor in kernel.tensors.items() if tensor.role != "input"]
        with Answering(self._described.reference, kernel.folder, outputs, self._library) as answers:
            try:
                yield
            except TunerError as error:
                if answers.error is not None:
                    raise error from answers.error  # which has the lines of the user's function
                raise


def _library(args: Any) -> str:
    """Return whose arrays a reference gets: the library of the call's own."""
    arrays = args.values() if isinstance(args, Mapping) else args or ()
    names = {type(array).__module__.partition(".")[0] for array in arrays}
    return next((name for name in ("torch", "cupy") if name in names), "numpy")


def tune(
    kernel: str | Path | Kernel,
    args: Sequence[Any] | Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    *,
    grid: Any = None,
    block: Any = None,
    where: Any = (),
    reference: Any = "default",
    outputs: Any = None,
    sizes: Any = None,
    shapes: Any = None,
    **how: Unpack[How],
) -> Result:
    """Return the fastest configuration of a kernel, verified, raced against the default, and confirmed.

    Args:
        kernel: source text or the path of a ``.cu``; or the path of a ``.toml``, or the name of a built-in kernel.
    """
    run = {name: how.pop(name) for name in list(how) if name in RunHow.__annotations__}  # type: ignore[misc]
    if isinstance(kernel, Kernel):
        described_by = kernel
    else:
        what = {"grid": grid, "block": block, "outputs": outputs, "sizes": sizes, "shapes": shapes}
        what = {name: value for name, value in what.items() if value is not None}
        if not (isinstance(where, tuple) and not where):
            what["where"] = where
        if not (isinstance(reference, str) and reference == "default"):
            what["reference"] = reference
        described_by = Kernel(kernel, args, params, **what, **how)
    return _tuned(described_by, run)


def _tuned(kernel: Kernel, how: Mapping[str, Any]) -> Result:
    """Tune a described kernel."""
    database = Path(how.get("db") or paths.DATABASE)
    device_name = how.get("device") or "auto"
    spec = kernel.spec(device_name, database)
    problem = kernel.problem(spec)
    options = _options(kernel, how)
    observer = progress(how.get("quiet"))
    answer: Result | None = None
    with ExitStack() as stack:
        stop = stack.enter_context(stopping())
        stack.enter_context(kernel.answering(spec))
        cache = paths.cubins()
        device = open_device(device_name, spec.name, how.get("jobs"), cache, observer.note)
        stack.enter_context(closing(device))
        store = stack.enter_context(Database.open(database))
        stack.enter_context(closing(observer))
        try:
            result = session.tune(Request(spec, problem, options), device, store, observer, stop)
            answer = Result(spec, database, kernel.arguments, False, result.state, result)
        except Interrupted:
            if observer.now is None:
                raise KeyboardInterrupt from None
            answer = Result(spec, database, kernel.arguments, True, observer.now, None)
    return answer


def _options(kernel: Kernel, how: Mapping[str, Any]) -> RunOptions:
    """Return how a problem is tuned.

    Raises:
        UsageError: there is no such option or mode.
    """
    given = {name: value for name, value in how.items() if name in RUN_OPTIONS and value is not None}
    effort = effort_options(
        how.get("effort", "normal"), how.get("sampler", RunOptions.sampler), how.get("trials")
    )
    if "mode" in given:
        if given["mode"] not in list(Mode):
            raise UsageError(f"mode is {given['mode']!r}", f"choose from: {', '.join(Mode)}")
        given |= {"mode": Mode(given["mode"]), "one_mode": True}
    return RunOptions(**given, **effort, fixed=kernel.fixed)
