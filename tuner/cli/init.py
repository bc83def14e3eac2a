"""``tune init``: the file of a kernel, from its source."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace

from tuner.children.headers import not_found
from tuner.cli.commands.inspection import InitArguments
from tuner.core.errors import KernelError, UsageError
from tuner.formats.files import new_file
from tuner.kernel.draft import GAP
from tuner.kernel.headers import read_source
from tuner.kernel.load import read_kernel
from tuner.kernel.source.device_part import read_whole
from tuner.kernel.source.drafting import draft_of
from tuner.report.tables import say, show_line


def init(asked: InitArguments) -> None:
    """Write the file, and print what is in it and what comes next; with status 1 where no command reads it as it is.

    Raises:
        UsageError: there is no such source.
        DatabaseError: the file exists, or cannot be written.
        KernelError: the source has no kernel or several, or one that no launch can call.
    """
    source = asked.source
    if not source.is_file():
        raise UsageError(f"no file {source}", "give the path of a .cu file")
    if source.suffix in (".toml", ".j2", ".py"):
        raise UsageError(f"{source} is no CUDA source", "give a .cu file; templates are described by hand")
    if absent := [str(folder) for folder in asked.include if not folder.is_dir()]:
        raise UsageError(f"no folder {absent[0]}", "-I takes a folder with headers")
    output = asked.output or source.with_suffix(".toml")
    if output.suffix != ".toml":
        raise UsageError(f"{output} is no name of a kernel's file", "let it end in .toml")
    text = read_source(source)
    try:
        read = read_whole(text, source, asked.include)
        kernel = read.kernel(asked.entry)
        draft = draft_of(read, kernel, str(source))
    except KernelError as error:
        remedy = error.remedy.replace("name one by entry: ", "name one with --entry: ")
        where = "" if error.problem.startswith(f"{source}:") else f"{source}: "
        raise KernelError(where + error.problem, remedy) from None
    head = [f"Written by tune init from {source.name}. Lines marked {GAP} are guesses.", *draft.head]
    if absent := not_found(text, [source.resolve().parent, *asked.include]):
        head.append(
            f"{GAP}: {', '.join(absent)} not found, whose macros are guessed: name the folder with -I FOLDER"
        )
    template = os.path.relpath(source, output.parent)
    launches = [replace(launch, template=template) for launch in draft.launches]
    include = [os.path.relpath(folder, output.parent) for folder in asked.include]
    compiled = {"include": include} if include else {}
    written = replace(draft, head=head, launches=launches, compile=compiled).toml()
    with new_file(output, force=asked.force) as path:
        path.write_text(written, encoding="utf-8")
    fixed = [line for line in draft.head if not line.startswith(GAP)]
    how = ": a parameter is a macro that the source does not define, or between #ifndef and #endif"
    tuned = ", ".join(draft.parameters) or "nothing yet" + how * (not fixed)
    taken = ", ".join(argument.name for argument in kernel.parameters)
    show_line(f"{output}: {kernel.name}({taken}); tuned: {tuned}")
    for line in fixed:
        say(f"{source}: {line}")
    lines = [(number, line) for number, line in enumerate(written.splitlines(), 1) if f"# {GAP}: " in line]
    for number, line in lines:
        say(f"{output}:{number}: a guess: {line.partition(f'# {GAP}: ')[2]}")
    try:
        read_kernel(output.resolve())
    except KernelError as error:
        say(f"correct before anything else: {error}")
        sys.exit(1)
    name = shlex.quote(str(output))
    say(f"next: tune check {name}, then tune {name}")
