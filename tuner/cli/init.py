"""``tune init``: the file of a kernel, from its source."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tuner.cli.commands.inspection import InitArguments
from tuner.core.errors import KernelError, UsageError
from tuner.core.files import refuse_missing_parent, whole_file
from tuner.kernel.draft import GAP
from tuner.kernel.headers import read_source
from tuner.kernel.load import read_kernel
from tuner.kernel.source.declarations import KernelSignature, Source
from tuner.kernel.source.device_part import read_whole
from tuner.kernel.source.drafting import draft_of
from tuner.kernel.source.sequence import draft_of_sequence
from tuner.kernel.source.tree import names_in
from tuner.report.tables import say, show_line


def init(asked: InitArguments) -> None:
    """Write the file, and print what is in it and what comes next.

    Raises:
        UsageError: there is no such source, or the file exists.
        KernelError: the source has no kernel or several, or one that no launch can call.
    """
    source = asked.source
    if not source.is_file():
        raise UsageError(f"no file {source}", "give the path of a .cu file")
    if source.suffix in (".toml", ".j2", ".py"):
        raise UsageError(f"{source} is no CUDA source", "give a .cu file; templates are described by hand")
    output = asked.output or source.with_suffix(".toml")
    if output.suffix != ".toml":
        raise UsageError(f"{output} is no name of a kernel's file", "let it end in .toml")
    if output.exists() and not asked.force:
        raise UsageError(f"{output} exists", "give another one with -o, or replace it with --force")
    refuse_missing_parent(output)
    text = read_source(source)
    try:
        read = read_whole(text, source)
        several = draft_of_sequence(read, str(source)) if not asked.entry and len(read.kernels) > 1 else None
        draft, names = several or (None, [read.kernel(asked.entry).short_name])
        if draft is None:
            draft = draft_of(read, read.kernel(asked.entry), str(source))
    except KernelError as error:
        remedy = error.remedy.replace("name one by entry: ", "name one with --entry: ")
        where = "" if error.problem.startswith(f"{source}:") else f"{source}: "
        raise KernelError(where + error.problem, remedy) from None
    first = f"Written by tune init from {source.name}. Lines marked {GAP} are guesses."
    template = os.path.relpath(source, output.parent)
    launches = [replace(launch, template=template) for launch in draft.launches]
    written = replace(draft, head=[first, *draft.head], launches=launches).toml()
    with whole_file(output, replace=asked.force) as path:
        path.write_text(written)
    fixed = [line for line in draft.head if not line.startswith(GAP)]
    how = ": a parameter is a macro that the source does not define, or between #ifndef and #endif"
    tuned = ", ".join(draft.parameters) or "nothing yet" + how * (not fixed)
    kernels = [read.kernel(name) for name in names]
    called = [f"{one.name}({', '.join(argument.name for argument in one.parameters)})" for one in kernels]
    show_line(f"{output}: {', then '.join(called)}; tuned: {tuned}")
    if left := [one.name for one in read.kernels if one not in kernels and several]:
        say(f"left out: {', '.join(left)}; --entry writes the file of one")
    for line in fixed:
        say(f"{source}: {line}")
    lines = [(number, line) for number, line in enumerate(written.splitlines(), 1) if f"# {GAP}: " in line]
    if (other := _part_of(source, read, kernels)) is not None:
        say(
            f"{source} is a part of {other}, where what it lacks is defined: tune init {shlex.quote(str(other))}"
        )
    for number, line in lines:
        say(f"{output}:{number}: a guess: {line.partition(f'# {GAP}: ')[2]}")
    try:
        read_kernel(output.resolve())
    except KernelError as error:
        say(f"correct before anything else: {error}")
    name = shlex.quote(str(output))
    say(f"next: tune check {name}, then tune {name}")


def _part_of(source: Path, read: Source, kernels: Sequence[KernelSignature]) -> Path | None:
    """Return the file of the same folder that includes a source and has what its kernels lack, but for numbers."""
    include = re.compile(rf'^\s*#\s*include\s*"(?:\./)?{re.escape(source.name)}"', re.MULTILINE)
    used = {name for one in kernels for name in names_in(one.body)}
    lacks = used.difference(read.macros, *(one.names for one in read.items))
    for other in sorted(source.parent.glob("*.c*")) if lacks else ():
        if other == source or not other.is_file() or not include.search(text := read_source(other)):
            continue
        whole = read_whole(text, other)
        given = {name for name, one in whole.macros.items() if not one.value.isdecimal()}
        if lacks.intersection(given.union(*(one.names for one in whole.items))):
            return other
    return None
