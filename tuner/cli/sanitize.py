"""``tune sanitize``: Compute Sanitizer over the winner, or over a sample of the space."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

import click

from tuner.children.compile_pool import CompilePool
from tuner.cli.commands.inspection import SanitizeArguments
from tuner.cli.configuration import (
    choose,
    describe_gpu,
    named_problem,
    refuse_without_gpu,
    refuse_wrong_names,
)
from tuner.cli.options import ConfigurationArguments
from tuner.cli.problems import assignments, size_of
from tuner.core import paths
from tuner.core.errors import CompileError, DatabaseError, UsageError, suggestion
from tuner.core.files import refuse_missing_parent, unused
from tuner.core.model import Configuration, Gpu, Problem
from tuner.database.database import Database
from tuner.devices.choose import gpu_number
from tuner.inspect.tools.cases import Case, LeftOut, compile_cases, planted, small_problems
from tuner.inspect.tools.cases import sample as draw_sample
from tuner.inspect.tools.checking import Checker, ToolVerdict
from tuner.inspect.tools.nvidia import SANITIZER, find
from tuner.inspect.tools.report import Checked, checked_as_json, show_checked
from tuner.inspect.tools.sanitizer import DEFAULT_TOOLS, TOOLS
from tuner.kernel.plan import invalid_reason
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.report.progress import counting
from tuner.report.tables import say, show_json
from tuner.studies.bench import stored_winners

FOLDER = Path("results/sanitizer")
PLAIN_EVERY_S = 10.0


def sanitize(asked: SanitizeArguments) -> None:
    """Run configurations under Compute Sanitizer's tools and print the findings; exit status 1 on any."""
    tools = _tools(asked.tools)
    _refuse_contradictions(asked)
    refuse_wrong_names(asked)
    refuse_missing_parent(asked.output)
    refuse_without_gpu(asked.device_name)
    sanitizer = find(SANITIZER, asked.sanitizer_path)  # a missing tool is reported before anything is started
    gpu = describe_gpu(asked.device_name)
    chosen = _winners(asked, gpu) if asked.winners else _chosen(asked, gpu)
    cases, left_out = _cases(chosen, asked, gpu)
    folder = _folder(chosen.kernel.name, asked.output)
    if not asked.quiet:
        say(f"compiling for {len(cases)} runs under each of {', '.join(tools)}")
    with closing(CompilePool(None, paths.cubins())) as pool:
        units, not_compiled = compile_cases(chosen.kernel, gpu, pool, cases, chosen.problem)
        if not units:
            case, reason = not_compiled[0]
            raise CompileError(f"nothing can be run: {case}: {reason}", "choose another configuration")
        faulty = {tool: planted(tool, gpu, pool) for tool in tools if asked.self_check}
    seen: dict[tuple[str, int], bool] = {}
    number, cache = gpu_number(asked.device_name), str(paths.cubins())
    verdicts = {}
    with closing(counting(quiet=asked.quiet, every_s=PLAIN_EVERY_S)) as progress:

        def tell(verdict: ToolVerdict) -> None:
            seen[verdict.tool, verdict.unit.number] = verdict.failed  # the last on a configuration counts
            wrong = sum(seen.values())
            progress.step(f"{verdict.tool}{f', {wrong} with findings' if wrong else ''}", len(seen))

        progress.phase("runs", len(units) * len(tools))
        checker = Checker(sanitizer, folder, number, cache, asked.seed, asked.deadline_s, tell)
        for tool in tools:
            if tool in faulty:
                checker.try_out(tool, faulty[tool])
            verdicts[tool] = checker.check(tool, units)
    left_out += not_compiled
    checked = Checked(chosen.problem, gpu, chosen.source, verdicts, left_out, folder, chosen.notes)
    if asked.as_json:
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
    cases: Sequence[Case]
    """Each configuration with the problem that it is for."""
    source: str
    """Where they come from."""
    notes: tuple[str, ...] = ()


def _tools(texts: Sequence[str]) -> list[str]:
    names = [name.strip() for text in texts for name in text.split(",")] or list(DEFAULT_TOOLS)
    for name in names:
        if name not in TOOLS:
            raise UsageError(f"Compute Sanitizer has no tool {name!r}", suggestion(name, TOOLS))
    return list(dict.fromkeys(names))


def _refuse_contradictions(asked: SanitizeArguments) -> None:
    named = asked.config is not None or asked.trial is not None
    if asked.winners and (asked.sample or named):
        raise UsageError("--winners excludes --sample, --config and --trial", "give one of them")
    if asked.sample and named:
        raise UsageError("--sample excludes --config and --trial", "give one of them")
    if asked.variants and not asked.sample:
        raise UsageError(
            "--variant is about a sample", "add --sample N, or name a configuration with --config"
        )


def _chosen(asked: SanitizeArguments, gpu: Gpu) -> _Chosen:
    if asked.sample is None:
        one = choose(asked, gpu)
        return _Chosen(one.kernel, one.problem, [Case(one.problem, one.configuration)], one.source, one.notes)
    kernel, problem = named_problem(asked)
    space = SearchSpace.from_kernel(kernel, problem, gpu, asked.variants, seed=asked.seed)
    cases = [Case(problem, configuration) for configuration in draw_sample(space, asked.sample, asked.seed)]
    return _Chosen(kernel, problem, cases, f"a sample of {len(space)}, seed {asked.seed}")


def _winners(given: ConfigurationArguments, gpu: Gpu) -> _Chosen:
    """Return a kernel's stored winners that can be run here, each configuration once for a dtype and options."""
    kernel, problem = named_problem(given)
    with Database.open(given.db) as database:
        stored = stored_winners(database, gpu, kernel).rows
    cases: dict[tuple[str, Configuration], Case] = {}
    notes = []
    for winner in stored:
        tuned, configuration = winner.run.problem, winner.winner.configuration
        other_dtypes = given.dtypes and tuned.dtypes != problem.dtypes
        if other_dtypes or (given.options and tuned.options != problem.options):
            continue
        if reason := invalid_reason(kernel, tuned, gpu, configuration):
            notes.append(f"left out, {configuration}: {reason}")
        else:
            cases.setdefault((tuned.kind, configuration), Case(tuned, configuration))
    if not cases:
        nothing = f"no winner of {kernel.name} on {gpu.name} in {given.db} can be run"
        raise DatabaseError(nothing, f"find one with: tune {kernel.name}")
    source = f"{len(cases)} winners in {given.db}"
    return _Chosen(kernel, problem, list(cases.values()), source, tuple(notes))


def _cases(chosen: _Chosen, asked: SanitizeArguments, gpu: Gpu) -> tuple[list[Case], list[LeftOut]]:
    """Return each configuration at the sizes of ``--at``, else at small edge-case sizes; and the invalid cases."""
    kernel = chosen.kernel
    cases: list[Case] = []
    left_out: list[LeftOut] = []

    def fits(configuration: Configuration, problem: Problem) -> bool:
        return not invalid_reason(kernel, problem, gpu, configuration)

    for one in chosen.cases:
        problem, configuration = one.problem, one.configuration
        if not asked.size_texts:
            suits = partial(fits, configuration)
            small = small_problems(problem, configuration, suits, asked.edge_sizes, asked.seed)
            cases += [Case(other, configuration) for other in small]
        for text in asked.size_texts:
            pairs = assignments([text], "--at", only=kernel.only_size)
            sizes = {name: size_of(name, value) for name, value in pairs}
            settled = kernel.problem({**problem.sizes, **sizes})  # which refuses unknown names
            other = replace(problem, sizes=settled.sizes)
            case, reason = Case(other, configuration), invalid_reason(kernel, other, gpu, configuration)
            if reason:
                left_out.append((case, reason))
            else:
                cases.append(case)
    if not cases:
        case, reason = left_out[0]
        raise UsageError(f"nothing can be run: {case}: {reason}", "give other sizes with --at")
    return cases, left_out


def _folder(kernel: str, output: Path | None) -> Path:
    """Make a folder for the logs and return it; one that has something in it is refused."""
    folder = output or unused(FOLDER / f"{kernel}-{datetime.now().strftime('%Y%m%d-%H%M%S')}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not an empty folder", "name a new one for the logs")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()
