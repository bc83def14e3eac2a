"""One configuration of one problem as a user names it: by its values, a trial or as the winner; and its GPU."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from tuner.cli.options import ConfigurationArguments, ForGpuArguments
from tuner.cli.problems import assignments, make_problem
from tuner.core import paths
from tuner.core.conditions import Calibration
from tuner.core.errors import DeviceError, NoGpuError, UsageError, suggestion
from tuner.core.model import Configuration, Gpu, Problem, value_text
from tuner.database.database import Database
from tuner.database.records import Filters, Selection, StoredTrial, StoredWinner
from tuner.devices.base import Device, say_nothing
from tuner.devices.choose import open_device
from tuner.devices.local import LocalDevice
from tuner.devices.started import has_gpu
from tuner.kernel.batching import footprint
from tuner.kernel.load import kernel_of_run, load_kernel
from tuner.kernel.plan import invalid_reason, tensors_of
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import index_of_text
from tuner.report.configurations import ChosenConfiguration, Texts
from tuner.report.next_steps import kernel_argument
from tuner.report.tables import say, si
from tuner.runtime.launch_limits import UnlaunchableError
from tuner.winners.current import best_winners, changes_since, kernel_filters
from tuner.winners.wanted import measured_else_replayed


def choose(given: ConfigurationArguments, gpu: Gpu | None) -> ChosenConfiguration:
    """Return the configuration of the command line, with its kernel, problem and GPU.

    Without ``--config`` and ``--trial``: the winner of this very problem on a GPU of this name (of a replay where none
    was measured), else the kernel's default configuration.

    Args:
        given: by the command line.
        gpu: the GPU that is meant; None takes the one of the stored trial or winner, else a typical H200.

    Raises:
        UsageError: a name or value that does not exist, a configuration that is not valid for the problem.
        DatabaseError: no such trial.
    """
    if (stored_trial := _named_trial(given)) is not None:
        return _of_trial(given, stored_trial, gpu)
    kernel, problem = named_problem(given)
    stored, note = _winner(given, kernel, problem, gpu)
    chosen, notes = _gpu_or(gpu, stored)
    if given.config is not None and given.config.strip() != "default":
        configuration = parse_configuration(kernel, given.config)
        return _as_given(ChosenConfiguration(kernel, problem, chosen, configuration, "as given"))
    if stored is not None and given.config is None:
        reason = invalid_reason(kernel, problem, chosen, stored.winner.configuration)
        if not reason:
            winner, run = stored.winner, stored.run
            source = f"winner, trial {winner.trial_id}"
            return ChosenConfiguration(
                kernel, problem, chosen, winner.configuration, source, winner.time_ns, run.conditions,
                winner.trial_id, (*notes, *filter(None, [note]), *changes_since(kernel, stored)),
            )  # fmt: skip
        notes = (*notes, f"the stored winner cannot be run any more: {reason}")
    elif given.config is None:
        absent = (
            "" if given.db.is_file() or given.db == paths.DATABASE else f"there is no database {given.db}; "
        )
        notes = (*notes, f"{absent}this problem was not tuned on {_gpu_text(gpu)}: the default configuration")
    default = SearchSpace.from_kernel(kernel, problem, chosen).default
    return ChosenConfiguration(kernel, problem, chosen, default, "default", notes=notes)


@contextmanager
def launching(chosen: ChosenConfiguration) -> Iterator[None]:
    """Name the configuration where it turns out that the GPU cannot launch it.

    Raises:
        UsageError: that, or it is a call, which has no launches.
    """
    if chosen.kernel.variants[chosen.configuration.variant].call is not None:
        raise UsageError(f"{chosen.configuration} is a call, and has no code of its own", "name another")
    try:
        yield
    except UnlaunchableError as error:
        raise UsageError(
            f"{chosen.configuration} cannot be launched for {chosen.problem} on {chosen.gpu.name}: {error}",
            "give smaller sizes or another configuration",
        ) from None


def refuse_beyond_memory(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> None:
    """Refuse a problem whose tensors alone are more than the GPU's memory.

    Raises:
        UsageError: that.
    """
    size_bytes = footprint(tensors_of(kernel, problem, gpu))
    if size_bytes > gpu.memory_bytes > 0:
        raise UsageError(
            f"{problem} needs {si(size_bytes, 'B')}; {_gpu_text(gpu)} has {si(gpu.memory_bytes, 'B')}",
            "give smaller sizes",
        )


def named_problem(given: ConfigurationArguments) -> tuple[KernelSpec, Problem]:
    """Return the problem that the command line names by kernel, sizes, dtypes, options and preset."""
    if not given.kernel_name:
        raise UsageError("no kernel is named", "give a kernel (tune show has their names), or --trial N")
    kernel = load_kernel(given.kernel_name)
    return kernel, make_problem(kernel, given)


def refuse_wrong_names(given: ConfigurationArguments, parameters: Sequence[str] = ()) -> None:
    """Refuse what is wrong on every machine, before a GPU is opened.

    Args:
        given: by the command line.
        parameters: names that the kernel's variants, or that of ``--config``, should have.

    Raises:
        UsageError: a name or value that does not exist.
        DatabaseError: no such trial.
    """
    if _named_trial(given) is not None:
        return
    kernel, _ = named_problem(given)
    variants, owner = list(kernel.variants.values()), kernel.name
    if given.config is not None and given.config.strip() != "default":
        owner = parse_configuration(kernel, given.config).variant
        variants = [kernel.variants[owner]]
    names = list(dict.fromkeys(name for variant in variants for name in variant.parameters))
    for name in parameters:
        if name not in names:
            raise UsageError(f"{owner} has no parameter {name!r}", suggestion(name, names))


def parse_configuration(kernel: KernelSpec, text: str) -> Configuration:
    """Return a configuration from its text in tables; parameters that it does not name have their default value.

    Args:
        kernel: whose variants and parameters it names.
        text: ``variant name=value ...``, with blanks or commas between; a kernel with one variant needs no name of it.

    Raises:
        UsageError: a name or value that the kernel does not have.
    """
    words = text.replace(",", " ").split()
    names = [word for word in words if "=" not in word]
    if len(names) > 1:
        unknown = next((name for name in names if name not in kernel.variants), "")
        problem = f"{unknown!r} has no value" if unknown else f"it names {len(names)} variants"
        raise UsageError(f"--config {text!r}: {problem}", "write: variant name=value ...")
    if not names and len(kernel.variants) > 1:
        raise UsageError(f"--config {text!r} names no variant", suggestion("", kernel.variants))
    name = names[0] if names else next(iter(kernel.variants))
    variant = kernel.variants.get(name)
    if variant is None:
        raise UsageError(f"{kernel.name} has no variant {name!r}", suggestion(name, kernel.variants))
    values = dict(variant.defaults)
    for one, value in assignments([word for word in words if "=" in word], "--config"):
        if one not in variant.parameters:
            raise UsageError(f"{name} has no parameter {one!r}", suggestion(one, variant.parameters))
        choices = variant.parameters[one].values
        if (index := index_of_text(value, choices)) is None:
            raise UsageError(f"{one} is never {value!r}", suggestion(value, map(value_text, choices)))
        values[one] = choices[index]
    return Configuration.of(name, values)


def _named_trial(given: ConfigurationArguments) -> StoredTrial | None:
    """Return the trial that the command line names; None where it names none."""
    if given.trial is None:
        return None
    if given.config is not None:
        raise UsageError("--config and --trial exclude each other", "give one of them")
    with Database.open(given.db, write=False) as database:
        return database.trial(given.trial)


def _of_trial(given: ConfigurationArguments, stored: StoredTrial, gpu: Gpu | None) -> ChosenConfiguration:
    run, trial, number = stored.run, stored.trial, given.trial
    kernel = load_kernel(given.kernel_name) if given.kernel_name else kernel_of_run(run)
    if kernel.name != run.problem.kernel:
        raise UsageError(
            f"trial {number} is one of {run.problem.kernel}, not of {kernel.name}", "leave out the kernel"
        )
    problem = make_problem(kernel, given) if given.names_problem else run.problem
    chosen, notes = _gpu_or(gpu, stored)
    same = problem == run.problem and chosen.name == run.gpu.name
    if not same:
        notes = (*notes, f"the trial was of {run.problem} on {run.gpu.name}")
    return _as_given(
        ChosenConfiguration(
            kernel, problem, chosen, trial.configuration, f"trial {number}",
            trial.time_ns if same else None, run.conditions if same else None, number,
            (*notes, *changes_since(kernel, stored)),
        )
    )  # fmt: skip


def _as_given(chosen: ChosenConfiguration) -> ChosenConfiguration:
    """Return a configuration with its values in the order of the kernel's file; refuse one that cannot be run."""
    configuration = chosen.configuration
    reason = invalid_reason(chosen.kernel, chosen.problem, chosen.gpu, configuration)
    if reason:
        kernel = shlex.quote(kernel_argument(chosen.kernel.name, chosen.kernel.file))
        raise UsageError(
            f"{Texts.of_kernel(chosen.kernel).cell(configuration)} is not valid for {chosen.problem} "
            f"on {chosen.gpu.name}: {reason}",
            f"choose other values; tune show {kernel} --full lists them with the constraints",
        )
    order = chosen.kernel.variants[configuration.variant].parameters
    values = {name: configuration.values[name] for name in order}
    return replace(chosen, configuration=Configuration.of(configuration.variant, values))


def _winner(
    given: ConfigurationArguments, kernel: KernelSpec, problem: Problem, gpu: Gpu | None
) -> tuple[StoredWinner | None, str]:
    """Return the confirmed winner of this very problem that was tuned last, if the database has one, and a note on it.

    One of a replay is taken where nothing was measured.
    """
    if not given.db.is_file():
        return None, ""
    filters = Filters(
        **kernel_filters(kernel), problem_key=problem.key, gpu_name=gpu.name if gpu else "", exportable=True,
        replayed=False,
    )  # fmt: skip

    def fitting(filters: Filters) -> Selection[StoredWinner]:
        found = best_winners(database, filters, kernel)
        return Selection([one.stored for one in found.rows], found.damaged)

    with Database.open(given.db, write=False) as database:
        winners, note = measured_else_replayed(fitting, filters)
    return max(winners.rows, key=lambda stored: stored.created_at, default=None), note


def _gpu_or(gpu: Gpu | None, stored: StoredTrial | None) -> tuple[Gpu, tuple[str, ...]]:
    if gpu is not None:
        return gpu, ()
    if stored is not None:
        return stored.run.gpu, ()
    typical = ARCHITECTURES[90]
    return typical, (f"no GPU here, and none named by --gpu or --cc: taken for an {typical.name}",)


def _gpu_text(gpu: Gpu | None) -> str:
    return "any GPU" if gpu is None else f"an {gpu.name}" if gpu.name.startswith("N") else f"a {gpu.name}"


ELSEWHERE = "run it on a machine with one; see `tune doctor`"


def refuse_device(device: str) -> None:
    """Refuse a device that is no GPU of this machine.

    Raises:
        UsageError: that.
    """
    if device.partition(":")[0] != "cuda":
        raise UsageError(f"--device {device}: this needs a GPU of this machine", "use cuda or cuda:N")


def refuse_without_gpu(device: str) -> None:
    """Refuse a device that is no GPU of this machine, and a machine without one, before anything else is looked for.

    Raises:
        UsageError, NoGpuError: that.
    """
    refuse_device(device)
    if not has_gpu():
        raise NoGpuError("this machine has no NVIDIA GPU", ELSEWHERE)


def open_gpu(
    device: str, kernel: str = "", jobs: int | None = 1, say: Callable[[str], None] = say_nothing
) -> Device:
    """Open a GPU of this machine, for a command that needs one.

    Args:
        device: ``cuda`` or ``cuda:N``.
        kernel: the kernel's name.
        jobs: compiling processes; None for one per core.
        say: told when something takes seconds that the user did not ask for.

    Raises:
        NoGpuError: there is none.
        UsageError: this device is no GPU of this machine.
    """
    refuse_device(device)
    try:
        return open_device(device, kernel, jobs, paths.cubins(), say)
    except NoGpuError as error:
        raise NoGpuError(error.problem, ELSEWHERE) from None


def describe_gpu(device: str = "cuda") -> Gpu:
    """Describe a GPU of this machine: a measuring process is started, asked, and ended.

    Raises:
        NoGpuError, UsageError: as :func:`open_gpu`.
    """
    with closing(open_gpu(device)) as opened:
        return opened.gpu


def typical_gpu(cc: int) -> Gpu:
    """Return the typical GPU of a compute capability, times ten.

    Raises:
        UsageError: none is known.
    """
    if cc not in ARCHITECTURES:
        raise UsageError(f"no compute capability {cc}", f"choose from: {', '.join(map(str, ARCHITECTURES))}")
    return ARCHITECTURES[cc]


def named_gpu(given: ForGpuArguments) -> tuple[Gpu | None, Calibration | None]:
    """Return the GPU, as far as the command line and this machine say; with its calibration if it is here.

    Raises:
        UsageError: two options name one, or none fits.
        DeviceError: the GPU of this machine that is named cannot be used.
    """
    named = {"--gpu": given.gpu_text, "--cc": given.cc, "--device": given.device_name}
    options = [name for name, value in named.items() if value]
    if len(options) > 1:
        raise UsageError(f"{' and '.join(options)} exclude each other", "give one of them")
    if given.cc is not None:
        return typical_gpu(given.cc), None
    if given.gpu_text:
        return _named(given.gpu_text, given.db), None
    if given.device_name:
        return _here(given.device_name)
    if given.trial is None and has_gpu():
        try:
            return _here("cuda")
        except DeviceError as error:  # no option asked for it
            say(f"{error.problem}: going on without this machine's GPU")
    return None, None


def _named(text: str, db: Path) -> Gpu:
    """Return a GPU by a part of its name: the one that was tuned on last, else a typical one."""
    if db.is_file():
        with Database.open(db, write=False) as database:
            rows = database.query(Filters(gpu=text), "-id", 1).rows
        if rows:
            return rows[0].run.gpu
    fitting = [gpu for gpu in ARCHITECTURES.values() if text.lower() in gpu.name.lower()]
    if len(fitting) != 1:
        names = [gpu.name for gpu in ARCHITECTURES.values()]
        problem = f"--gpu {text!r} fits {len(fitting)} of the known GPUs"
        raise UsageError(problem, suggestion(text, names))
    return fitting[0]


def _here(device: str) -> tuple[Gpu, Calibration | None]:
    """Return a GPU of this machine, with its calibration if there is one."""
    refuse_device(device)
    with closing(open_device(device, "", 1, paths.cubins())) as opened:
        calibration = opened.known_calibration() if isinstance(opened, LocalDevice) else None
        return opened.gpu, calibration
