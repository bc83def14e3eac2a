"""``tune render``: what a configuration becomes, without a GPU."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from tuner.report.configurations import (
    ChosenConfiguration,
    arguments_text,
    launch_record,
    shape_text,
)
from tuner.report.tables import configuration_record, picked, say, show_json
from tuner.report.terminal import print_exactly, printable
from tuner.runtime.launches import Launch

BUFFER = "name shape dtype size_bytes zeroed zeroed_once"
"""What ``--json`` has of scratch memory."""
MARK = "// tune render: "
"""What every file begins with, unless it is exactly what is compiled."""


@dataclass(frozen=True)
class _Code:
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
    refuse_missing_parent(asked.output)
    gpu, _ = named_gpu(asked)
    chosen = choose(asked, gpu)
    with launching(chosen):
        rendered = _Rendered(chosen, exact=asked.exact)
    count = len(rendered.codes)
    if asked.number is not None and asked.number > count:
        raise UsageError(
            f"there is no launch {asked.number}", f"{chosen.configuration.variant} has {count} here"
        )
    numbers = range(1, count + 1) if asked.number is None else [asked.number]
    for note in chosen.notes:
        say(note)
    if asked.as_json:
        show_json(rendered.to_json(numbers))
        return
    alone = len(numbers) == 1 or asked.output is not None
    texts = {rendered.file_name(number): rendered.text(number, alone=alone) for number in numbers}
    if asked.output is not None:
        _write(asked.output, texts, force=asked.force)
        return
    for text in texts.values():
        print_exactly(text)


class _Rendered:
    """What a configuration becomes: its plan, the compiler's options, and the code of its launches, by number from 1.

    Args:
        chosen: the configuration.
        exact: whether sources are shown exactly as they are compiled.

    Raises:
        KernelError: a template cannot be rendered.
        UnlaunchableError: a grid, block or amount of shared memory is beyond the GPU's limits.
    """

    def __init__(self, chosen: ChosenConfiguration, *, exact: bool) -> None:
        self._chosen, self._exact = chosen, exact
        kernel, of = chosen.kernel, (chosen.problem, chosen.gpu, chosen.configuration)
        self._plan, specs = make_plan(kernel, *of), kernel.launches(*of)

        def rendered() -> tuple[Sequence[str], list[tuple[str, str, str | None]]]:
            texts = []
            for spec in specs:
                source, entry = render_launch(kernel, spec, *of)
                lines = line_map(kernel, spec, *of) if spec.template.suffix == ".j2" else None
                plain = source if spec.template.suffix != ".j2" else None  # it has a directive already
                texts.append((source, entry, with_line_directives(source, lines) if lines else plain))
            return options_of(kernel, *of), texts

        self._options, told = apart(rendered, kernel.file.name)
        codes = zip(specs, self._plan.by_code, told, strict=True)
        self.codes = [_Code(spec, launches, *texts) for spec, launches, texts in codes]

    def file_name(self, number: int) -> str:
        """Return the name of a launch's file."""
        name = re.sub(r"\W+", "_", self.codes[number - 1].entry, flags=re.ASCII).strip("_")[:64]
        return f"{number}_{name or 'kernel'}.cu"

    def text(self, number: int, *, alone: bool) -> str:
        """Return a launch's source after comments: without them if exact and alone."""
        code = self.codes[number - 1]
        source = self._source(code)
        head = [] if self._exact and alone else self._head(number, code)
        return "\n".join([*head, source])

    def to_json(self, numbers: Iterable[int]) -> dict[str, Any]:
        """Return everything about the configuration for programs, with the launches of some numbers."""
        chosen = self._chosen
        return {
            **chosen.problem.to_json(),
            "gpu": chosen.gpu.name,
            "arch": chosen.gpu.arch,
            **configuration_record(chosen.configuration),
            "chosen": chosen.source,
            "notes": chosen.notes,
            "compile_options": self._options,
            "scratch": [picked(buffer, BUFFER) for buffer in self._plan.scratch],
            "launches": [self._record(number, self.codes[number - 1]) for number in numbers],
        }

    def _source(self, code: _Code) -> str:
        if self._exact:
            return code.source
        if code.lined is None:
            template = template_name(self._chosen.kernel.folder, code.spec.template)
            say(f"{template} measures or filters what its macros return: its lines cannot be told apart")
            return code.source
        return code.lined

    def _include(self, code: _Code) -> list[str]:
        return [str(folder) for folder in (code.spec.template.parent, *self._chosen.kernel.include)]

    def _head(self, number: int, code: _Code) -> list[str]:
        chosen = self._chosen
        options = [f"-arch={chosen.gpu.arch}", *self._options, *(f"-I{one}" for one in self._include(code))]
        lines = (
            f"launch {number} of {len(self.codes)} of {chosen.configuration}",
            f"{chosen.problem} on {chosen.gpu.name}",
            *_calls(code),
            f"options: {' '.join(options)}",
        )
        return [MARK + _comment(lines[0]), *(f"//   {_comment(line)}" for line in lines[1:])]

    def _record(self, number: int, code: _Code) -> dict[str, Any]:
        return {
            "number": number,
            "template": str(code.spec.template),
            **launch_record(code.entry, code.launches[0]),
            **self._repeated(code),
            "include": self._include(code),
            "source": self._source(code),
        }

    def _repeated(self, code: _Code) -> dict[str, Any]:
        """Return all launches of a code that repeats, each with its place among the plan's, from 1."""
        if len(code.launches) == 1:
            return {}
        launches = enumerate(self._plan.launches, 1)
        places = [place for place, one in launches if one.code == code.launches[0].code]
        records = [launch_record(code.entry, one) for one in code.launches]
        return {"repeats": [{"place": place, **one} for place, one in zip(places, records, strict=True)]}


MOST_CALLS = 4
"""Of one code, in a comment; --json has all."""


def _calls(code: _Code) -> Iterator[str]:
    """Yield arguments and shape of a code's launch; of many the first and the last."""
    if len(code.launches) > 1:
        yield f"repeats {len(code.launches)} times:"
    for number, launch in enumerate(code.launches, 1):
        if MOST_CALLS <= number < len(code.launches):
            if number == MOST_CALLS:
                yield "..."
            continue
        yield f"{code.entry}({arguments_text(launch)})"
        yield shape_text(launch)


def _comment(text: str) -> str:
    """Return text that a comment of one line can hold; a backslash at its end would go on with the next."""
    return printable(" ".join(text.split())).rstrip("\\")


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
    except NotADirectoryError:
        raise UsageError(f"{path.parent} is no folder", "name a folder with -o") from None
    if not plain:
        raise UsageError(f"{path} is a link, a folder or a device", "name another folder with -o")
    if force:
        return
    with path.open("rb") as file:
        begun = file.read(len(text.encode()) + 1)
    if begun != text.encode() and not begun.startswith(MARK.encode()):
        raise UsageError(f"{path} was not written by tune render, or with --no-line", "--force replaces it")
