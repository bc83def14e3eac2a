"""One configuration of one problem, as a user names it: by its values, by a trial's number, or as the winner."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner import paths
from tuner.cli.options import MOST, Command, Option, database_option

if TYPE_CHECKING:
    from tuner.database.records import StoredTrial, StoredWinner
    from tuner.kernel.spec import KernelSpec, ParameterSpec, VariantSpec
    from tuner.model import Conditions, Configuration, Gpu, Problem, Value

OPTIONS: tuple[Option, ...] = (
    click.argument("kernel_name", metavar="[KERNEL]", required=False, default=""),
    click.option("-s", "--size", "sizes", multiple=True, metavar="NAME=N[,...]", help="Problem sizes."),
    click.option("--dtype", "dtypes", multiple=True, metavar="[ROLE=]DTYPE", help="The dtype."),
    click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="The kernel's options."),
    click.option("--preset", help="A named problem of the kernel."),
    click.option(
        "--config",
        metavar="TEXT",
        help='A configuration as tables print it: "mma_sync block_m=128 stages=3"; or default.',
    ),
    click.option(
        "--trial", type=click.IntRange(min=1, max=MOST), metavar="N", help="The configuration of trial N."
    ),
    database_option,
)
"""What :func:`choice_options` adds, in the order of the help page."""


@dataclass(frozen=True)
class Asked:
    """What the command line said about a configuration; :func:`choose` settles it."""

    kernel_name: str
    """Empty where only a trial is named."""
    sizes: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    preset: str | None = None
    config: str | None = None
    trial: int | None = None
    db: Path = paths.DATABASE

    @property
    def names_problem(self) -> bool:
        """Whether anything was said about the problem, besides its kernel."""
        return bool(self.sizes or self.dtypes or self.options or self.preset)


@dataclass(frozen=True)
class Choice:
    """One configuration, ready to be planned and compiled."""

    kernel: KernelSpec
    problem: Problem
    gpu: Gpu
    configuration: Configuration
    source: str
    """Where the configuration comes from, for people: ``winner, trial 12``, ``trial 12``, ``as given``, ``default``."""
    time_ns: float | None = None
    """Its stored time for this problem on a GPU of this name; None where there is none."""
    conditions: Conditions | None = None
    """Under which that time was taken."""
    trial_id: int | None = None
    """The row that it comes from, if any."""
    notes: tuple[str, ...] = ()
    """What a reader should know about the choice."""


def choice_options(command: Command) -> Command:
    """Add KERNEL and the options that name a problem and a configuration; the command gets them as ``asked``."""

    @functools.wraps(command)
    def gathered(**arguments: Any) -> Any:
        asked = Asked(**{field.name: arguments.pop(field.name) for field in fields(Asked)})
        return command(asked=asked, **arguments)

    decorated: Command = gathered
    for option in reversed(OPTIONS):
        decorated = option(decorated)
    return decorated


def refuse_device(device: str) -> None:
    """Say that a device is no GPU, where only a GPU will do.

    Raises:
        UsageError: that.
    """
    from tuner.errors import UsageError

    if device.partition(":")[0] != "cuda":
        raise UsageError(f"--device {device}: this needs a GPU of this machine", "use cuda or cuda:N")


def gpu_here(device: str = "cuda") -> Gpu:
    """Describe a GPU of this machine: a measuring process is started, asked, and ended.

    Args:
        device: ``cuda`` or ``cuda:N``.

    Raises:
        NoGpuError: there is none.
        UsageError: this device is no GPU of this machine.
    """
    from tuner.devices.choose import open_device
    from tuner.errors import NoGpuError

    refuse_device(device)
    try:
        with closing(open_device(device, "", 1, paths.cache() / "cubins")) as opened:
            return opened.gpu
    except NoGpuError as error:
        raise NoGpuError(error.problem, "run it on a machine with one; see `tune doctor`") from None


def number_of(device: str) -> int:
    """Return the number of a GPU from what a user calls it: ``cuda`` is the first, as is ``cuda:0``."""
    number = device.partition(":")[2]
    return int(number) if number.isdigit() else 0


def choose(asked: Asked, gpu: Gpu | None) -> Choice:
    """Settle kernel, problem and configuration.

    Without ``--config`` and ``--trial``: the winner of this very problem on a GPU of this name, else the kernel's
    default configuration.

    Args:
        asked: from the command line.
        gpu: the GPU that is meant; None takes the one of the stored trial or winner, else a typical H200.

    Raises:
        UsageError: a name or value that does not exist, a configuration that is not valid for the problem.
        DatabaseError: no such trial.
    """
    from tuner.errors import UsageError

    if asked.trial is not None:
        if asked.config is not None:
            raise UsageError("--config and --trial exclude each other", "give one of them")
        return _of_trial(asked, asked.trial, gpu)
    kernel, problem = named_problem(asked)
    stored = _winner(asked, kernel, problem, gpu)
    chosen, notes = _gpu_or(gpu, stored)
    if asked.config is not None and asked.config.strip() != "default":
        return _as_given(
            Choice(kernel, problem, chosen, parse_configuration(kernel, asked.config), "as given")
        )
    if stored is not None and asked.config is None:
        objection = _objection(kernel, problem, chosen, stored.winner.configuration)
        if not objection:
            winner, run = stored.winner, stored.run
            source = f"winner, trial {winner.trial_id}"
            return Choice(
                kernel, problem, chosen, winner.configuration, source, winner.time_ns, run.conditions,
                winner.trial_id, (*notes, *_changed(kernel, stored)),
            )  # fmt: skip
        notes = (*notes, f"the stored winner cannot be run any more: {objection}")
    elif asked.config is None:
        replayed = _winner(asked, kernel, problem, gpu, replayed=True)
        instead = f"; a replay's winner: --trial {replayed.winner.trial_id}" if replayed else ""
        said = f"nothing was tuned for this problem on {_place(gpu)}: the default configuration{instead}"
        notes = (*notes, said)
    return Choice(kernel, problem, chosen, _default(kernel, problem, chosen), "default", notes=notes)


def named_problem(asked: Asked) -> tuple[KernelSpec, Problem]:
    """Settle the problem that the command line names by kernel, sizes, dtypes, options and preset."""
    from tuner.cli.problems import make_problems
    from tuner.errors import UsageError
    from tuner.kernel.load import load_kernel

    if not asked.kernel_name:
        raise UsageError("no kernel is named", "give a kernel (tune list has their names), or --trial N")
    kernel = load_kernel(asked.kernel_name)
    presets = [asked.preset] if asked.preset else []
    return kernel, make_problems(kernel, asked.sizes, asked.dtypes, asked.options, presets, [], None)[0]


def refuse_slips(asked: Asked, parameters: Sequence[str] = ()) -> None:
    """Refuse what is wrong on every machine, before a GPU is opened.

    Args:
        asked: from the command line.
        parameters: names that the kernel's variants, or that of ``--config``, should have.

    Raises:
        UsageError: a name or value that does not exist.
        DatabaseError: no such trial.
    """
    from tuner.database.database import Database
    from tuner.errors import UsageError
    from tuner.kernel.spec import suggestion

    if asked.trial is not None:
        if asked.config is not None:
            raise UsageError("--config and --trial exclude each other", "give one of them")
        with Database.open(asked.db, write=False) as database:
            database.trial(asked.trial)
        return
    kernel, _ = named_problem(asked)
    variants, owner = list(kernel.variants.values()), kernel.name
    if asked.config is not None and asked.config.strip() != "default":
        owner = parse_configuration(kernel, asked.config).variant
        variants = [kernel.variants[owner]]
    known = list(dict.fromkeys(name for variant in variants for name in variant.parameters))
    for name in parameters:
        if name not in known:
            raise UsageError(f"{owner} has no parameter {name!r}", suggestion(name, known))


def parse_configuration(kernel: KernelSpec, text: str) -> Configuration:
    """Read a configuration as tables print it; parameters that it does not name have their default value.

    Args:
        kernel: whose variants and parameters it names.
        text: ``variant name=value ...``, with blanks or commas between; a kernel with one variant needs no name of it.

    Raises:
        UsageError: a name or value that the kernel does not have.
    """
    from tuner.errors import UsageError
    from tuner.kernel.spec import suggestion
    from tuner.model import Configuration

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
    pairs = [word.partition("=")[::2] for word in words if "=" in word]
    return Configuration.of(name, {**variant.defaults, **_values(variant, dict(pairs))})


def _values(variant: VariantSpec, texts: Mapping[str, str]) -> dict[str, Value]:
    from tuner.errors import UsageError
    from tuner.kernel.spec import suggestion

    found: dict[str, Value] = {}
    for name, text in texts.items():
        parameter = variant.parameters.get(name)
        if parameter is None:
            raise UsageError(
                f"{variant.name} has no parameter {name!r}", suggestion(name, variant.parameters)
            )
        found[name] = _value(parameter, text)
    return found


def _value(parameter: ParameterSpec, text: str) -> Value:
    from tuner.errors import UsageError
    from tuner.kernel.spec import suggestion

    words = {True: ("true", "yes"), False: ("false", "no")}
    for value in parameter.values:
        if text.lower() in (words[value] if isinstance(value, bool) else (str(value).lower(),)):
            return value
    known = [words[v][1] if isinstance(v, bool) else str(v) for v in parameter.values]
    raise UsageError(f"{parameter.name} is never {text!r}", suggestion(text, known))


def _of_trial(asked: Asked, number: int, gpu: Gpu | None) -> Choice:
    from tuner.bench.targets import kernel_of
    from tuner.cli.problems import make_problems
    from tuner.database.database import Database
    from tuner.errors import UsageError
    from tuner.kernel.load import load_kernel

    with Database.open(asked.db, write=False) as database:
        stored = database.trial(number)
    run, trial = stored.run, stored.trial
    kernel = load_kernel(asked.kernel_name) if asked.kernel_name else kernel_of(run)
    if kernel.name != run.problem.kernel:
        raise UsageError(
            f"trial {number} is one of {run.problem.kernel}, not of {kernel.name}", "leave out the kernel"
        )
    problem = run.problem
    if asked.names_problem:
        presets = [asked.preset] if asked.preset else []
        problem = make_problems(kernel, asked.sizes, asked.dtypes, asked.options, presets, [], None)[0]
    chosen, notes = _gpu_or(gpu, stored)
    same = problem == run.problem and chosen.name == run.gpu.name
    if not same:
        notes = (*notes, f"the trial was of {run.problem} on {run.gpu.name}")
    return _as_given(
        Choice(
            kernel, problem, chosen, trial.configuration, f"trial {number}",
            trial.time_ns if same else None, run.conditions if same else None, number,
            (*notes, *_changed(kernel, stored)),
        )
    )  # fmt: skip


def _as_given(choice: Choice) -> Choice:
    """Refuse a configuration that cannot be run; give it with its values in the order of the kernel's file."""
    from tuner.errors import UsageError
    from tuner.model import Configuration

    objection = _objection(choice.kernel, choice.problem, choice.gpu, choice.configuration)
    if objection:
        raise UsageError(
            f"{choice.configuration} is not valid for {choice.problem} on {choice.gpu.name}: {objection}",
            "choose other values; tune show lists them with the constraints",
        )
    values = choice.configuration.values
    order = choice.kernel.variants[choice.configuration.variant].parameters
    ordered = Configuration.of(choice.configuration.variant, {name: values[name] for name in order})
    return replace(choice, configuration=ordered)


def _winner(
    asked: Asked, kernel: KernelSpec, problem: Problem, gpu: Gpu | None, *, replayed: bool = False
) -> StoredWinner | None:
    """Return the confirmed winner of this very problem that was tuned last, if the database has one."""
    from tuner.database.database import Database, Filters

    if not asked.db.is_file():
        return None
    filters = Filters(
        kernel=kernel.name,
        gpu=gpu.name if gpu else "",
        problem_key=problem.key,
        exportable=True,
        replayed=replayed,
    )
    with Database.open(asked.db, write=False) as database:
        found = database.best(filters).rows
    fitting = [stored for stored in found if gpu is None or stored.run.gpu.name == gpu.name]
    return max(fitting, key=lambda stored: stored.created_at, default=None)


def _gpu_or(gpu: Gpu | None, stored: StoredTrial | StoredWinner | None) -> tuple[Gpu, tuple[str, ...]]:
    from tuner.hardware.roofline import ARCHITECTURES

    if gpu is not None:
        return gpu, ()
    if stored is not None:
        return stored.run.gpu, ()
    typical = ARCHITECTURES[90]
    return typical, (f"no GPU is named and none is known: the limits of an {typical.name}",)


def _place(gpu: Gpu | None) -> str:
    return "any GPU" if gpu is None else f"an {gpu.name}" if gpu.name.startswith("N") else f"a {gpu.name}"


def _objection(kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration) -> str:
    from tuner.space.validity import objection

    return objection(kernel, problem, gpu, configuration)


def _changed(kernel: KernelSpec, stored: StoredTrial | StoredWinner) -> tuple[str, ...]:
    from tuner.kernel.load import content_digest

    same = stored.run.kernel_digest == content_digest(kernel)
    return () if same else ("the kernel has changed since it was tuned",)


def _default(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> Configuration:
    from tuner.space.space import SearchSpace

    return SearchSpace.from_kernel(kernel, problem, gpu).default
