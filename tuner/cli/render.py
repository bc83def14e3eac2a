"""``tune render``: what a configuration becomes, without a GPU."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from tuner.cli.commands.inspection import RenderArguments
from tuner.cli.configuration import choose, launching, named_gpu
from tuner.core.errors import UsageError
from tuner.core.files import refuse_missing_parent, whole_file
from tuner.kernel.line_map import with_line_directives
from tuner.kernel.options import options_of
from tuner.kernel.plan import make_plan
from tuner.kernel.render import line_map, render_launch
from tuner.kernel.templates import apart, template_name
from tuner.kernel.variant_spec import LaunchSpec
from tuner.report import configurations
from tuner.report.tables import configuration_record, say, show_json
from tuner.report.terminal import print_exactly, printable
from tuner.runtime.launches import Launch, Plan

MARK = "// tune render: "
"""What every file begins with, unless it is exactly what is compiled."""


@dataclass(frozen=True)
class _Rendered:
    """The code of one launch of a configuration, or of all that repeat it."""

    spec: LaunchSpec
    launches: Sequence[Launch]
    """In order, mostly one."""
    source: str
    """What is compiled."""
    entry: str
    lined: str | None
    """The source with ``#line`` directives; None where its lines cannot be told."""


def render(asked: RenderArguments) -> None:
    """Print the launches of a configuration, or write them into files.

    Raises:
        UsageError: options that exclude each other, no such launch, or a file that is not to be replaced.
    """
    if asked.as_json and asked.output is not None:
        raise UsageError("--json and --output exclude each other", "give one of them")
    if asked.force and asked.output is None:
        raise UsageError("--force replaces files", "name their folder with -o")
    if asked.output is not None:
        refuse_missing_parent(asked.output)
    gpu, _ = named_gpu(asked)
    chosen = choose(asked, gpu)
    with launching(chosen):
        plan, launches = _rendered(chosen)
    count = len(launches)
    if asked.number is not None and asked.number > count:
        raise UsageError(
            f"there is no launch {asked.number}", f"{chosen.configuration.variant} has {count} here"
        )
    numbers = range(1, count + 1) if asked.number is None else [asked.number]
    for note in chosen.notes:
        say(note)
    if asked.as_json:
        show_json(_as_json(chosen, plan, launches, numbers, exact=asked.exact))
        return
    alone = len(numbers) == 1 or asked.output is not None
    texts = dict(_text(chosen, launches, i, exact=asked.exact, alone=alone) for i in numbers)
    if asked.output is not None:
        _write(asked.output, texts, force=asked.force)
        return
    for text in texts.values():
        print_exactly(text)


def _rendered(chosen: configurations.ChosenConfiguration) -> tuple[Plan, list[_Rendered]]:
    """Return what a configuration becomes: its plan, and its launches, rendered.

    Raises:
        KernelError: a template cannot be rendered.
        UnlaunchableError: a grid, block or amount of shared memory is beyond the GPU's limits.
    """
    kernel, of = chosen.kernel, (chosen.problem, chosen.gpu, chosen.configuration)
    plan, specs = make_plan(kernel, *of), kernel.launches(*of)

    def rendered() -> list[tuple[str, str, str | None]]:
        texts = []
        for spec in specs:
            source, entry = render_launch(kernel, spec, *of)
            lines = line_map(kernel, spec, *of) if spec.template.suffix == ".j2" else None
            plain = source if spec.template.suffix != ".j2" else None  # it has a directive already
            texts.append((source, entry, with_line_directives(source, lines) if lines else plain))
        return texts

    told = apart(rendered, kernel.file.name)
    codes = zip(specs, plan.by_code, told, strict=True)
    return plan, [_Rendered(spec, launches, *texts) for spec, launches, texts in codes]


def _text(
    chosen: configurations.ChosenConfiguration,
    launches: Sequence[_Rendered],
    number: int,
    *,
    exact: bool,
    alone: bool,
) -> tuple[str, str]:
    """Return the name of a launch's file, and its text after comments: without them if exact and alone."""
    launch = launches[number - 1]
    name = re.sub(r"\W+", "_", launch.entry, flags=re.ASCII).strip("_")[:64]
    source = launch.source if exact else _with_lines(chosen, launch)
    head = [] if exact and alone else _head(chosen, launches, number)
    return f"{number}_{name or 'kernel'}.cu", "\n".join([*head, source])


def _with_lines(chosen: configurations.ChosenConfiguration, launch: _Rendered) -> str:
    if launch.lined is None:
        template = template_name(chosen.kernel.folder, launch.spec.template)
        say(f"{template} measures or filters what its macros return: its lines cannot be told apart")
    return launch.source if launch.lined is None else launch.lined


def _head(
    chosen: configurations.ChosenConfiguration, launches: Sequence[_Rendered], number: int
) -> list[str]:
    launch = launches[number - 1]
    kernel, gpu = chosen.kernel, chosen.gpu
    folders = (launch.spec.template.parent, *kernel.include)
    options = [f"-arch={gpu.arch}", *_options(chosen), *(f"-I{folder}" for folder in folders)]
    lines = (
        f"launch {number} of {len(launches)} of {chosen.configuration}",
        f"{chosen.problem} on {gpu.name}",
        *_calls(launch),
        f"options: {' '.join(options)}",
    )
    return [MARK + _comment(lines[0]), *(f"//   {_comment(line)}" for line in lines[1:])]


def _options(chosen: configurations.ChosenConfiguration) -> tuple[str, ...]:
    """Return the compiler's options, rendered where templates are."""
    of = chosen.kernel, chosen.problem, chosen.gpu, chosen.configuration
    return tuple(apart(partial(options_of, *of), chosen.kernel.file.name))


MOST_CALLS = 4
"""Of one code, in a comment; --json has all."""


def _calls(code: _Rendered) -> Iterator[str]:
    """Yield arguments and shape of a code's launch; of many the first and the last."""
    if len(code.launches) > 1:
        yield f"repeats {len(code.launches)} times:"
    for number, launch in enumerate(code.launches, 1):
        if MOST_CALLS <= number < len(code.launches):
            if number == MOST_CALLS:
                yield "..."
            continue
        yield f"{code.entry}({configurations.arguments_text(launch)})"
        yield configurations.shape_text(launch)


def _comment(text: str) -> str:
    """Return text that a comment of one line can hold; a backslash at its end would go on with the next."""
    return printable(" ".join(text.split())).rstrip("\\")


def _as_json(
    chosen: configurations.ChosenConfiguration,
    plan: Plan,
    launches: Sequence[_Rendered],
    numbers: Sequence[int],
    *,
    exact: bool,
) -> dict[str, Any]:
    kernel = chosen.kernel
    return {
        **chosen.problem.to_json(),
        "gpu": chosen.gpu.name,
        "arch": chosen.gpu.arch,
        **configuration_record(chosen.configuration),
        "chosen": chosen.source,
        "notes": chosen.notes,
        "compile_options": _options(chosen),
        "scratch": [configurations.buffer_record(buffer) for buffer in plan.scratch],
        "launches": [
            {
                "number": number,
                "template": str(launch.spec.template),
                **configurations.launch_record(launch.entry, launch.launches[0]),
                **_repeated(launch, plan),
                "include": [str(launch.spec.template.parent), *map(str, kernel.include)],
                "source": launch.source if exact else _with_lines(chosen, launch),
            }
            for number in numbers
            for launch in [launches[number - 1]]
        ],
    }


def _repeated(code: _Rendered, plan: Plan) -> dict[str, Any]:
    """Return all launches of a code that repeats, each with its place among the plan's, from 1."""
    if len(code.launches) == 1:
        return {}
    places = [place for place, one in enumerate(plan.launches, 1) if one.code == code.launches[0].code]
    records = [configurations.launch_record(code.entry, one) for one in code.launches]
    return {"repeats": [{"place": place, **one} for place, one in zip(places, records, strict=True)]}


def _write(folder: Path, texts: Mapping[str, str], *, force: bool) -> None:
    """Write a file a launch; none if one of them is not to be replaced.

    Raises:
        UsageError: that.
        OSError: the folder or a file cannot be written.
    """
    for name, text in texts.items():
        _refuse_foreign(folder / name, text, force=force)
    for name, text in texts.items():
        with whole_file(folder / name, replace=True) as partial:
            partial.write_text(text, encoding="utf-8", newline="")
        click.echo(f"wrote {folder / name}")


def _refuse_foreign(path: Path, text: str, *, force: bool) -> None:
    try:
        plain = stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not plain:
        raise UsageError(f"{path} is a link, a folder or a device", "name another folder with -o")
    if force:
        return
    with path.open("rb") as file:
        begun = file.read(len(text.encode()) + 1)
    if begun != text.encode() and not begun.startswith(MARK.encode()):
        raise UsageError(f"{path} was not written by tune render, or with --no-line", "--force replaces it")
