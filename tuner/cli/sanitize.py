"""``tune sanitize``: Compute Sanitizer over the winner, or over a sample of the space."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click

from tuner.children.compile_pool import CompilePool
from tuner.cli.configuration import choose, named_problem, refuse_wrong_names
from tuner.cli.configuration_options import ConfigurationArguments
from tuner.cli.gpu import describe_gpu, gpu_number, refuse_without_gpu
from tuner.cli.problems import assignments, size_of
from tuner.core import paths
from tuner.core.errors import CompileError, DatabaseError, UsageError, suggestion
from tuner.core.files import refuse_missing_parent
from tuner.core.model import Configuration, Gpu, Problem
from tuner.database.database import Database
from tuner.inspect.tools.cases import Case, LeftOut, Unit, compile_cases
from tuner.inspect.tools.checking import Checker, Settings, ToolVerdict
from tuner.inspect.tools.locate import SANITIZER, find
from tuner.inspect.tools.planted import planted
from tuner.inspect.tools.sanitize_report import Checked, SanitizeProgress, checked_as_json, show_checked
from tuner.inspect.tools.sanitizer import DEFAULT_TOOLS, TOOLS
from tuner.inspect.tools.small_sizes import sample as draw_sample
from tuner.inspect.tools.small_sizes import small_problems
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.kernel.validity import invalid_reason
from tuner.report.tables import say, show_json
from tuner.studies.targets import stored_winners

FOLDER = Path("results/sanitizer")


def sanitize(
    given: ConfigurationArguments,
    sample: int | None,
    variants: tuple[str, ...],
    winners: bool,
    tools: tuple[str, ...],
    size_texts: tuple[str, ...],
    edge_sizes: int,
    output: Path | None,
    sanitizer_path: Path | None,
    self_check: bool,
    deadline_s: float,
    device_name: str,
    seed: int,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run configurations under Compute Sanitizer's tools and print the findings; exit status 1 on any."""
    chosen_tools = _tools(tools)
    _refuse_contradictions(given, sample, variants, winners=winners)
    refuse_wrong_names(given)
    if output is not None:
        refuse_missing_parent(output)
    refuse_without_gpu(device_name)
    sanitizer = find(SANITIZER, sanitizer_path)  # a missing tool is reported before anything is started
    gpu = describe_gpu(device_name)
    chosen = _winners(given, gpu) if winners else _chosen(given, sample, variants, gpu, seed)
    cases, left_out = _cases(chosen, gpu, size_texts, edge_sizes, seed)
    folder = _folder(chosen.kernel.name, output)
    if not quiet:
        say(f"compiling for {len(cases)} runs under each of {', '.join(chosen_tools)}")
    compiled = _compiled(chosen, gpu, cases, chosen_tools if self_check else [])
    settings = Settings(sanitizer, folder, gpu_number(device_name), str(paths.cubins()), seed, deadline_s)
    verdicts = _verdicts(settings, chosen_tools, compiled, quiet=quiet)
    left_out += compiled.left_out
    checked = Checked(chosen.problem, gpu, chosen.source, verdicts, left_out, folder, chosen.notes)
    if as_json:
        show_json(checked_as_json(checked))
    else:
        show_checked(checked)
    if not checked.clean:
        raise click.exceptions.Exit(1)


@dataclass(frozen=True)
class _Chosen:
    """The configurations to check."""

    kernel: KernelSpec
    problem: Problem
    pairs: Sequence[tuple[Problem, Configuration]]
    """Each configuration with the problem that it is for."""
    source: str
    """Where they come from."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _CompiledCases:
    """What can be run."""

    units: list[Unit]
    left_out: list[LeftOut]
    planted: dict[str, Unit]
    """By tool: the kernel with a fault for it."""


def _tools(texts: Sequence[str]) -> list[str]:
    names = [name.strip() for text in texts for name in text.split(",")] or list(DEFAULT_TOOLS)
    for name in names:
        if name not in TOOLS:
            raise UsageError(f"Compute Sanitizer has no tool {name!r}", suggestion(name, TOOLS))
    return list(dict.fromkeys(names))


def _refuse_contradictions(
    given: ConfigurationArguments, sample: int | None, variants: Sequence[str], *, winners: bool
) -> None:
    if winners and (sample or given.config is not None or given.trial is not None):
        raise UsageError("--winners excludes --sample, --config and --trial", "give one of them")
    if sample and (given.config is not None or given.trial is not None):
        raise UsageError("--sample excludes --config and --trial", "give one of them")
    if variants and not sample:
        raise UsageError(
            "--variant is about a sample", "add --sample N, or name a configuration with --config"
        )


def _chosen(
    given: ConfigurationArguments, sample: int | None, variants: Sequence[str], gpu: Gpu, seed: int
) -> _Chosen:
    if sample is None:
        one = choose(given, gpu)
        return _Chosen(one.kernel, one.problem, [(one.problem, one.configuration)], one.source, one.notes)
    kernel, problem = named_problem(given)
    space = SearchSpace.from_kernel(kernel, problem, gpu, variants, seed=seed)
    pairs = [(problem, configuration) for configuration in draw_sample(space, sample, seed)]
    return _Chosen(kernel, problem, pairs, f"a sample of {len(space)}, seed {seed}")


def _winners(given: ConfigurationArguments, gpu: Gpu) -> _Chosen:
    """Return a kernel's stored winners that can be run here, each configuration once for a dtype and options."""
    kernel, problem = named_problem(given)
    with Database.open(given.db) as database:
        stored = stored_winners(database, gpu, kernel).rows
    pairs: dict[tuple[str, Configuration], tuple[Problem, Configuration]] = {}
    notes = []
    for winner in stored:
        tuned, configuration = winner.run.problem, winner.winner.configuration
        if (given.dtypes and tuned.dtypes != problem.dtypes) or (
            given.options and tuned.options != problem.options
        ):
            continue
        reason = invalid_reason(kernel, tuned, gpu, configuration)
        if reason:
            notes.append(f"left out, {configuration}: {reason}")
            continue
        kind = Problem(tuned.kernel, {}, tuned.dtypes, tuned.options).key
        pairs.setdefault((kind, configuration), (tuned, configuration))
    if not pairs:
        nothing = f"no winner of {kernel.name} on {gpu.name} in {given.db} can be run"
        raise DatabaseError(nothing, f"find one with: tune --kernel {kernel.name}")
    source = f"{len(pairs)} winners in {given.db}"
    return _Chosen(kernel, problem, list(pairs.values()), source, tuple(notes))


def _cases(
    chosen: _Chosen, gpu: Gpu, size_texts: Sequence[str], edge_sizes: int, seed: int
) -> tuple[list[Case], list[LeftOut]]:
    """Return each configuration at the sizes of ``--at``, else at small edge-case sizes; and the invalid cases."""
    kernel = chosen.kernel
    cases: list[Case] = []
    left_out: list[LeftOut] = []
    for problem, configuration in chosen.pairs:
        if not size_texts:

            def fits(other: Problem, configuration: Configuration = configuration) -> bool:
                return not invalid_reason(kernel, other, gpu, configuration)

            small = small_problems(problem, configuration, fits, edge_sizes, seed)
            cases += [Case(other, configuration) for other in small]
        for text in size_texts:
            sizes = {name: size_of(name, value) for name, value in assignments([text], "--at")}
            settled = kernel.problem({**problem.sizes, **sizes})  # which refuses unknown names
            other = Problem(problem.kernel, settled.sizes, problem.dtypes, problem.options)
            case, reason = Case(other, configuration), invalid_reason(kernel, other, gpu, configuration)
            if reason:
                left_out.append(LeftOut(case, reason))
            else:
                cases.append(case)
    if not cases:
        raise UsageError(
            f"nothing can be run: {left_out[0].case}: {left_out[0].reason}", "give other sizes with --at"
        )
    return cases, left_out


def _folder(kernel: str, output: Path | None) -> Path:
    """Make a folder for the logs and return it; one that has something in it is refused."""
    folder, count = output or FOLDER / f"{kernel}-{datetime.now().strftime('%Y%m%d-%H%M%S')}", 2
    while output is None and folder.exists():
        folder, count = folder.with_name(f"{folder.name}-{count}"), count + 1
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not an empty folder", "name a new one for the logs")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def _compiled(chosen: _Chosen, gpu: Gpu, cases: Sequence[Case], planted_for: Sequence[str]) -> _CompiledCases:
    """Compile everything, and for some tools a kernel with a fault.

    Raises:
        CompileError: there is nothing left to run.
    """
    with closing(CompilePool(None, paths.cubins())) as pool:
        units, left_out = compile_cases(chosen.kernel, gpu, pool, cases, chosen.problem)
        if not units:
            reason = f"{left_out[0].case}: {left_out[0].reason}"
            raise CompileError(f"nothing can be run: {reason}", "choose another configuration")
        return _CompiledCases(units, left_out, {tool: planted(tool, gpu, pool) for tool in planted_for})


def _verdicts(
    settings: Settings, tools: Sequence[str], compiled: _CompiledCases, *, quiet: bool
) -> dict[str, list[ToolVerdict]]:
    """Run everything under one tool after the other; return the verdicts by tool."""
    progress = SanitizeProgress(len(compiled.units) * len(tools), quiet=quiet)
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
