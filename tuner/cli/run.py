"""``tune run``: the main job."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from tuner.database import Database
    from tuner.model import Problem
    from tuner.state import Result

EPILOG = """\b
Examples:
  tune --kernel gemm --trials 200
  tune --kernel gemm --size m=1024,n=1024,k=64 --dtype float32 --variant register_tiled
  tune --kernel vector_add --problem n=2**20 --problem n=2**28 --time 60
  tune --kernel ./mykernel.toml --fix block_size=128,256
"""


@click.command(epilog=EPILOG)
@click.option(
    "-k",
    "--kernel",
    "kernel_name",
    required=True,
    help="Built-in kernel (`tune list`), or the path of your own .toml file.",
)
@click.option(
    "-n",
    "--trials",
    default=200,
    show_default=True,
    type=click.IntRange(min=1),
    help="Configurations to try.",
)
@click.option(
    "--time",
    "time_s",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Try nothing new after this time.",
)
@click.option(
    "-s",
    "--size",
    "sizes",
    multiple=True,
    metavar="NAME=N[,...]",
    help="Problem sizes, such as m=4096,k=2**12.",
)
@click.option(
    "--dtype", "dtypes", multiple=True, metavar="[ROLE=]DTYPE", help="float32, float16, bfloat16, ..."
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="The kernel's options, such as layout=nt.",
)
@click.option("--preset", "presets", multiple=True, help="A named problem of the kernel; repeat for several.")
@click.option(
    "--problem", "problem_texts", multiple=True, metavar="NAME=N,...", help="One of several problems; repeat."
)
@click.option(
    "--problems",
    "problem_file",
    type=click.Path(path_type=Path),
    metavar="FILE.csv",
    help="Problems, one a row; the first row names the sizes.",
)
@click.option("--variant", "variants", multiple=True, help="Search only this variant; repeat for several.")
@click.option(
    "--fix", "fixes", multiple=True, metavar="NAME=V[,V...]", help="Allow only these values of a parameter."
)
@click.option(
    "--device",
    "device_name",
    default="auto",
    show_default=True,
    help="auto, cuda, cuda:N, replay or replay:FILE.",
)
@click.option(
    "--sampler",
    default="tpe",
    show_default=True,
    help="tpe, random, brute-force, or any Optuna sampler by name.",
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(min=0, max=2**31 - 1),
    help="Of the search and the inputs.",
)
@click.option(
    "--db",
    "db_path",
    default="results/tuning.db",
    show_default=True,
    type=click.Path(path_type=Path),
    help="The database.",
)
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Compiling processes; one a core by default.")
@click.option("--resume", is_flag=True, help="Go on with the last interrupted run of this problem.")
@click.option("--from-scratch", is_flag=True, help="Ignore what earlier runs of this problem found.")
@click.option("--no-cache", is_flag=True, help="Compile everything anew.")
@click.option("-q", "--quiet", is_flag=True, help="Print the result only.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def run(
    kernel_name: str,
    trials: int,
    time_s: float | None,
    sizes: tuple[str, ...],
    dtypes: tuple[str, ...],
    options: tuple[str, ...],
    presets: tuple[str, ...],
    problem_texts: tuple[str, ...],
    problem_file: Path | None,
    variants: tuple[str, ...],
    fixes: tuple[str, ...],
    device_name: str,
    sampler: str,
    seed: int,
    db_path: Path,
    jobs: int | None,
    resume: bool,
    from_scratch: bool,
    no_cache: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Tune a kernel for a problem on the GPU in front of you.

    Tries configurations, keeps each in the database, races the best against the default, and confirms the winner in
    a fresh process. Without a GPU the recorded answers of another machine's GPU are replayed, and marked as such.
    """
    from tuner import paths  # everything heavy waits until the command is used
    from tuner.cli.problems import make_problems
    from tuner.database import Database
    from tuner.devices.choose import open_device
    from tuner.errors import Interrupted, TunerError
    from tuner.kernel_file import load_kernel
    from tuner.report.progress import make_observer
    from tuner.report.summary import result_as_json, summary
    from tuner.report.tables import printable
    from tuner.session import tune
    from tuner.state import Request

    kernel = load_kernel(kernel_name)
    problems = make_problems(kernel, sizes, dtypes, options, presets, problem_texts, problem_file)
    fixed = _fixed(fixes)
    cache = None if no_cache else paths.cache() / "cubins"
    found: list[Result] = []
    failed = False
    try:
        with _stopping() as stop, closing(open_device(device_name, kernel.name, jobs, cache)) as device:
            if device.note:
                click.echo(f"tune: {printable(device.note)}", err=True)
            with Database.open(db_path) as database:
                to_do = [(problem, False) for problem in problems]
                if resume:
                    to_do = _left_to_do(problems, database, device.name)
                    if any(going_on and database.latest_unfinished(p, device.name) for p, going_on in to_do):
                        _say_what_is_kept()
                for problem, going_on in to_do:
                    request = Request(
                        kernel,
                        problem,
                        trials,
                        sampler,
                        seed,
                        variants,
                        fixed,
                        time_s,
                        going_on,
                        from_scratch,
                    )
                    try:
                        found.append(tune(request, device, database, make_observer(quiet), stop))
                    except Interrupted:
                        raise
                    except TunerError as error:
                        if len(to_do) == 1:
                            raise
                        failed = True
                        click.echo(f"tune: {printable(problem)}: {printable(error)}", err=True)
                        continue
                    if not as_json:
                        click.echo(summary(found[-1], db_path))
    finally:
        if as_json and (found or failed):
            click.echo(json.dumps([result_as_json(result) for result in found], indent=2))
    for result in found:
        if result.finish is None:
            failed = True
            click.echo(f"tune: {printable(_why_nothing(result, db_path))}", err=True)
    if failed:
        sys.exit(1)


def _why_nothing(result: Result, database: Path) -> str:
    """Name the commonest failure, and the command that shows one of them."""
    trials = [trial for trial in result.state.trials if not trial.status.ranked]
    text = f"{result.state.run.problem}: no configuration could be verified"
    if not trials:
        return text
    status, count = Counter(trial.status for trial in trials).most_common(1)[0]
    first = next(trial for trial in trials if trial.status is status)
    said = next((line.strip() for line in first.error.splitlines() if line.strip()), "")
    ended = f"{count} of {len(result.state.trials)} ended as {status}"
    command = f"tune trial {first.id} --db {shlex.quote(str(database))}"
    return f"{text}; {ended}{': ' if said else ''}{said}; see: {command}"


def _left_to_do(problems: list[Problem], database: Database, device: str) -> list[tuple[Problem, bool]]:
    """Say which problems are left, and whether each goes on with an interrupted run.

    Of several problems those that ended before the first interrupted one are done; one that never began is begun.
    """
    from tuner.errors import TunerError

    if len(problems) == 1:
        return [(problems[0], True)]
    left: list[tuple[Problem, bool]] = []
    any_interrupted = False
    for problem in problems:
        interrupted = database.latest_unfinished(problem, device) is not None
        any_interrupted |= interrupted
        if any_interrupted or not _began(problem, database, device):
            left.append((problem, interrupted))
    if not left:
        raise TunerError(
            f"there is no interrupted run of any of the {len(problems)} problems on {device}",
            "leave out --resume",
        )
    return left


def _began(problem: Problem, database: Database, device: str) -> bool:
    from tuner.database import Filters

    found = database.query(Filters(problem_key=problem.key)).rows
    return any(stored.run.device == device for stored in found)


KEPT = {
    "trials": "--trials",
    "sampler": "--sampler",
    "seed": "--seed",
    "variants": "--variant",
    "fixes": "--fix",
    "from_scratch": "--from-scratch",
}
"""What a resumed run has already, by parameter."""


def _say_what_is_kept() -> None:
    """Say which options are not heeded because a resumed run goes on as it began."""
    context = click.get_current_context()
    given = [
        option
        for name, option in KEPT.items()
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if given:
        click.echo(f"tune: a resumed run keeps its own {', '.join(given)}", err=True)


def _fixed(texts: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    from tuner.errors import UsageError

    fixed: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise UsageError(f"--fix {text!r}", "write --fix name=value or --fix name=value,value")
        if "=" in values:
            raise UsageError(
                f"--fix {text!r} names several parameters", "repeat --fix, once for each of them"
            )
        fixed[name.strip()] = fixed.get(name.strip(), ()) + tuple(
            value.strip() for value in values.split(",")
        )
    return fixed


class _Stop:
    """Ctrl-C once: finish what is being measured. Twice: now."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked

    def signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signal's signature
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        click.echo("\ntune: stopping after the current measurement; Ctrl-C again stops at once", err=True)


@contextmanager
def _stopping() -> Iterator[_Stop]:
    stop = _Stop()
    before = {number: signal.signal(number, stop.signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
