"""NVRTC's messages with the line of the template, instead of that of the rendered source."""

from __future__ import annotations

import re

from tuner.core.errors import KernelError
from tuner.core.model import Configuration, Gpu, Problem
from tuner.kernel.line_map import LineMap, Location
from tuner.kernel.render import line_map
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import LaunchSpec

PROGRAM = "kernel.cu"
"""What NVRTC calls a rendered source."""

NO_LOCATIONS = LineMap(())

_MESSAGE = re.compile(r"(?P<file>\S.*?)\((?P<line>\d+)\): (?P<what>(?:[a-z]+ )?(?:error|warning|remark)\b.*)")
_INSTANTIATION = re.compile(r"(?P<what>.* at line )(?P<line>\d+)(?: of (?P<file>.+))?")


def in_template(
    log: str, kernel: KernelSpec, launch: LaunchSpec, problem: Problem, gpu: Gpu, configuration: Configuration
) -> str:
    """Return a compiler's log in which messages on a launch's source name the template and its line.

    The template's own line follows where the source has another text there. Messages on headers keep their file.
    """
    if not any(_MESSAGE.fullmatch(line) for line in log.split("\n")):
        return log
    try:
        lines = line_map(kernel, launch, problem, gpu, configuration)
    except (KernelError, MemoryError):  # the template was changed meanwhile, or is very large
        lines = None
    return with_locations(log, lines or NO_LOCATIONS)


def with_locations(log: str, lines: LineMap = NO_LOCATIONS) -> str:
    """Return a compiler's log with each message as ``file:line: text``, and the lines of a source by its map."""
    written: list[str] = []
    said_of = PROGRAM
    said = log.split("\n")
    for number, line in enumerate(said):
        if match := _MESSAGE.fullmatch(line):
            said_of = match["file"]
            at, location = _location(said_of, int(match["line"]), lines)
            written.append(f"{at}: {match['what']}")
            rendered = said[number + 1] if number + 1 < len(said) else ""
            if location is not None and location.text.split() != rendered.split():
                written.append(f"  {location.text.strip()}   <- the template's line, which renders to")
        elif (match := _INSTANTIATION.fullmatch(line)) and line.startswith(" "):
            at, _ = _location(match["file"] or said_of, int(match["line"]), lines)
            written.append(f"{match['what'].removesuffix('line ')}{at}")
        else:
            written.append(line)
    return "\n".join(written)


def _location(file: str, line: int, lines: LineMap) -> tuple[str, Location | None]:
    location = lines.location(line) if file == PROGRAM else None
    return (
        (f"{location.name}:{location.line}", location) if location is not None else (f"{file}:{line}", None)
    )
