"""``tune sanitize``: Compute Sanitizer over the winner, or over a sample of the space."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.choice import Asked, choice_options
from tuner.cli.options import Amount, gpu_option, seed_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.kernel.spec import KernelSpec
    from tuner.model import Configuration, Gpu, Problem
    from tuner.tools.cases import Case, LeftOut, Unit
    from tuner.tools.checking import Settings, Verdict

FOLDER = Path("results/sanitizer")

EPILOG = """\b
Examples:
  tune sanitize gemm
  tune sanitize transform --size n=2**28 --dtype float16 --tool memcheck
  tune sanitize reduce --sample 50 --json
  tune sanitize --trial 12 --at n=1000003
  tune sanitize reduce --winners
"""


@click.command(epilog=EPILOG)
@choice_options
@click.option(
    "--sample", type=click.IntRange(min=1), metavar="N", help="So many random configurations instead of one."
)
@click.option(
    "--variant", "variants", multiple=True, help="With --sample: only of this variant; repeat for several."
)
@click.option(
    "--winners",
    is_flag=True,
    help="Every stored winner of the kernel on GPUs of this name; --dtype and --option choose among them.",
)
@click.option(
    "--tool",
    "tools",
    multiple=True,
    metavar="NAME[,...]",
    help="Of memcheck, racecheck, synccheck, initcheck; the first three, if not given.",
)
@click.option(
    "--at",
    "places",
    multiple=True,
    metavar="NAME=N[,...]",
    help="Run at these sizes, not at small awkward ones; repeat for several.",
)
@click.option(
    "--edges",
    default=3,
    show_default=True,
    type=click.IntRange(min=1, max=48),
    help="Awkward sizes of each configuration.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Where the logs go; a new folder.",
)
@click.option(
    "--compute-sanitizer",
    "sanitizer_path",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="NVIDIA's compute-sanitizer.",
)
@click.option(
    "--self-check/--no-self-check",
    default=True,
    help="Insist that each tool finds a fault that was planted for it.",
)
@click.option(
    "--deadline",
    "deadline_s",
    default=120,
    show_default=True,
    type=Amount(min=1),
    help="Seconds for one configuration at one size.",
)
@gpu_option
@seed_option("Of inputs, sample and sizes.")
@click.option("-q", "--quiet", is_flag=True, help="Print the result only.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def sanitize(
    asked: Asked,
    sample: int | None,
    variants: tuple[str, ...],
    winners: bool,
    tools: tuple[str, ...],
    places: tuple[str, ...],
    edges: int,
    output: Path | None,
    sanitizer_path: Path | None,
    self_check: bool,
    deadline_s: float,
    device_name: str,
    seed: int,
    quiet: bool,
    as_json: bool,
) -> None:
    """Look for wrong memory accesses, races and misused barriers. Exit status 1 on any finding.

    Without --config, --trial and --sample it is the winner for this problem on this GPU, or the default configuration
    where nothing was tuned. The tools are slow, so it runs at small sizes around its tile.
    """
    from tuner.cli.choice import gpu_here, number_of, refuse_device, refuse_slips
    from tuner.report.tables import say, show_json
    from tuner.tools.checking import Settings
    from tuner.tools.locate import SANITIZER, find
    from tuner.tools.sanitize_report import Checked, checked_as_json, show_checked

    chosen_tools = _tools(tools)
    _refuse_contradictions(asked, sample, variants, winners=winners)
    refuse_slips(asked)
    refuse_device(device_name)
    sanitizer = find(SANITIZER, sanitizer_path)  # what is missing is said before anything is started
    gpu = gpu_here(device_name)
    chosen = _winners(asked, gpu) if winners else _chosen(asked, sample, variants, gpu, seed)
    cases, left_out = _cases(chosen, gpu, places, edges, seed)
    folder = _folder(chosen.kernel.name, output)
    if not quiet:
        say(f"compiling for {len(cases)} runs under each of {', '.join(chosen_tools)}")
    compiled = _compiled(chosen, gpu, cases, chosen_tools if self_check else [])
    settings = Settings(sanitizer, folder, number_of(device_name), str(_cache()), seed, deadline_s)
    verdicts = _verdicts(settings, chosen_tools, compiled, quiet=quiet)
    left_out += compiled.left_out
    found = Checked(chosen.problem, gpu, chosen.source, verdicts, left_out, folder, chosen.notes)
    if as_json:
        show_json(checked_as_json(found))
    else:
        show_checked(found)
    if not found.clean:
        raise click.exceptions.Exit(1)


@dataclass(frozen=True)
class _Chosen:
    """What is to be checked."""

    kernel: KernelSpec
    problem: Problem
    pairs: Sequence[tuple[Problem, Configuration]]
    """Each configuration with the problem that it is for."""
    source: str
    """Where they come from."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Compiled:
    """What can be run."""

    units: list[Unit]
    left_out: list[LeftOut]
    planted: dict[str, Unit]
    """By tool: the kernel with a fault for it."""


def _tools(texts: Sequence[str]) -> list[str]:
    from tuner.errors import UsageError
    from tuner.kernel.spec import suggestion
    from tuner.tools.sanitizer import DEFAULT_TOOLS, TOOLS

    names = [name.strip() for text in texts for name in text.split(",")] or list(DEFAULT_TOOLS)
    for name in names:
        if name not in TOOLS:
            raise UsageError(f"Compute Sanitizer has no tool {name!r}", suggestion(name, TOOLS))
    return list(dict.fromkeys(names))


def _refuse_contradictions(
    asked: Asked, sample: int | None, variants: Sequence[str], *, winners: bool
) -> None:
    from tuner.errors import UsageError

    if winners and (sample or asked.config is not None or asked.trial is not None):
        raise UsageError("--winners excludes --sample, --config and --trial", "give one of them")
    if sample and (asked.config is not None or asked.trial is not None):
        raise UsageError("--sample excludes --config and --trial", "give one of them")
    if variants and not sample:
        raise UsageError(
            "--variant is about a sample", "add --sample N, or name a configuration with --config"
        )


def _chosen(asked: Asked, sample: int | None, variants: Sequence[str], gpu: Gpu, seed: int) -> _Chosen:
    from tuner.cli.choice import choose, named_problem
    from tuner.space.space import SearchSpace
    from tuner.tools.small import sample as draw

    if sample is None:
        choice = choose(asked, gpu)
        pairs = [(choice.problem, choice.configuration)]
        return _Chosen(choice.kernel, choice.problem, pairs, choice.source, choice.notes)
    kernel, problem = named_problem(asked)
    space = SearchSpace.from_kernel(kernel, problem, gpu, variants, seed=seed)
    pairs = [(problem, configuration) for configuration in draw(space, sample, seed)]
    return _Chosen(kernel, problem, pairs, f"a sample of {len(space)}, seed {seed}")


def _winners(asked: Asked, gpu: Gpu) -> _Chosen:
    """Return a kernel's stored winners that can be run here, each configuration once for a dtype and options."""
    from tuner.bench.targets import stored_winners
    from tuner.cli.choice import named_problem
    from tuner.database.database import Database
    from tuner.errors import DatabaseError
    from tuner.model import Problem
    from tuner.space.validity import objection

    kernel, problem = named_problem(asked)
    with Database.open(asked.db) as database:
        stored = stored_winners(database, gpu, kernel.name).rows
    pairs: dict[tuple[str, Configuration], tuple[Problem, Configuration]] = {}
    notes = []
    for winner in stored:
        found, configuration = winner.run.problem, winner.winner.configuration
        if (asked.dtypes and found.dtypes != problem.dtypes) or (
            asked.options and found.options != problem.options
        ):
            continue
        reason = objection(kernel, found, gpu, configuration)
        if reason:
            notes.append(f"left out, {configuration}: {reason}")
            continue
        kind = Problem(found.kernel, {}, found.dtypes, found.options).key
        pairs.setdefault((kind, configuration), (found, configuration))
    if not pairs:
        nothing = f"no winner of {kernel.name} on {gpu.name} in {asked.db} can be run"
        raise DatabaseError(nothing, f"find one with: tune --kernel {kernel.name}")
    source = f"{len(pairs)} winners in {asked.db}"
    return _Chosen(kernel, problem, list(pairs.values()), source, tuple(notes))


def _cases(
    chosen: _Chosen, gpu: Gpu, places: Sequence[str], edges: int, seed: int
) -> tuple[list[Case], list[LeftOut]]:
    """Return each configuration at the sizes asked for, or at small awkward ones; and what is not valid there."""
    from tuner.cli.problems import assignments, whole_number
    from tuner.errors import UsageError
    from tuner.model import Problem
    from tuner.space.validity import objection
    from tuner.tools.cases import Case, LeftOut
    from tuner.tools.small import small_problems

    kernel = chosen.kernel
    cases: list[Case] = []
    left_out: list[LeftOut] = []
    for problem, configuration in chosen.pairs:
        if not places:
            fits = partial(_fits, kernel, gpu, configuration)
            cases += [
                Case(p, configuration) for p in small_problems(problem, configuration, fits, edges, seed)
            ]
        for place in places:
            sizes = {name: whole_number(name, value) for name, value in assignments([place], "--at")}
            settled = kernel.problem({**problem.sizes, **sizes})  # which refuses unknown names
            there = Problem(problem.kernel, settled.sizes, problem.dtypes, problem.options)
            case, reason = Case(there, configuration), objection(kernel, there, gpu, configuration)
            if reason:
                left_out.append(LeftOut(case, reason))
            else:
                cases.append(case)
    if not cases:
        raise UsageError(
            f"nothing can be run: {left_out[0].case}: {left_out[0].reason}", "give other sizes with --at"
        )
    return cases, left_out


def _fits(kernel: KernelSpec, gpu: Gpu, configuration: Configuration, problem: Problem) -> bool:
    from tuner.space.validity import objection

    return not objection(kernel, problem, gpu, configuration)


def _folder(kernel: str, output: Path | None) -> Path:
    """Make a folder for the logs; one that has something in it is refused."""
    from tuner.errors import UsageError

    folder, count = output or FOLDER / f"{kernel}-{datetime.now().strftime('%Y%m%d-%H%M%S')}", 2
    while output is None and folder.exists():
        folder, count = folder.with_name(f"{folder.name}-{count}"), count + 1
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not an empty folder", "name a new one for the logs")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def _cache() -> Path:
    from tuner import paths

    return paths.cache() / "cubins"


def _compiled(chosen: _Chosen, gpu: Gpu, cases: Sequence[Case], planted_for: Sequence[str]) -> _Compiled:
    """Compile everything, and for some tools a kernel with a fault.

    Raises:
        CompileError: there is nothing left to run.
    """
    from tuner.compile.pool import CompilePool
    from tuner.errors import CompileError
    from tuner.tools.cases import compile_cases
    from tuner.tools.planted import planted

    with closing(CompilePool(None, _cache())) as pool:
        units, left_out = compile_cases(chosen.kernel, gpu, pool, cases, chosen.problem)
        if not units:
            reason = f"{left_out[0].case}: {left_out[0].reason}"
            raise CompileError(f"nothing can be run: {reason}", "choose another configuration")
        return _Compiled(units, left_out, {tool: planted(tool, gpu, pool) for tool in planted_for})


def _verdicts(
    settings: Settings, tools: Sequence[str], compiled: _Compiled, *, quiet: bool
) -> dict[str, list[Verdict]]:
    """Let one tool after the other run everything."""
    from tuner.tools.checking import Checker
    from tuner.tools.sanitize_report import Progress

    progress = Progress(len(compiled.units) * len(tools), quiet=quiet)
    checker = Checker(settings, progress)
    verdicts = {}
    try:
        for tool in tools:
            if tool in compiled.planted:
                checker.try_out(tool, compiled.planted[tool])
            verdicts[tool] = checker.check(tool, compiled.units)
    finally:
        progress.close()
    return verdicts
