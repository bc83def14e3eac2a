"""Compute Sanitizer: its command line, and its findings in plain words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
DEFAULT_TOOLS = TOOLS[:3]
PADDING_BYTES = 4096
"""Between allocations under memcheck: without it an access far behind one tensor could hit the next, unseen."""
PRINT_LIMIT = 2000
"""Findings that one process prints. A batch whose log is full is continued in a new process, so nothing is lost."""
CONNECT_S = 120
"""Allowed for the connection of the tool's two halves; Python and its imports come before it on some systems."""


def sanitizer_command(sanitizer: Path, tool: str, log: Path, kernels: Iterable[str]) -> list[str]:
    """Return the command line up to the command that is checked.

    Only the kernels of that name in a cubin are watched, not what fills tensors, nor the reference, which takes longer
    under racecheck than most kernels. Initcheck watches all: it has to see every write.

    Errors of driver calls are not asked for: the process itself says which call failed. An access that memcheck sees
    ends the context, so that the configuration that made it is known.
    """
    command = [str(sanitizer), "--tool", tool, "--log-file", str(log)]
    command += ["--target-processes", "application-only", "--launch-timeout", str(CONNECT_S)]
    command += ["--show-backtrace", "no", "--print-limit", str(PRINT_LIMIT)]
    if tool == "memcheck":
        command += ["--padding", str(PADDING_BYTES), "--report-api-errors", "no"]
        command += ["--destroy-on-device-error", "context"]
    if tool != "initcheck":
        command += chain.from_iterable(("--kernel-name", f"kne={name}") for name in sorted(set(kernels)))
    return command


@dataclass(frozen=True)
class ToolMessage:
    """One finding as the tool prints it."""

    title: str
    details: tuple[str, ...] = ()
    line: int = 0
    """In the log, from 1."""

    @property
    def kernel(self) -> str:
        """The kernel in which it happened; empty if the tool does not say."""
        for text in (self.title, *self.details):
            for pattern in _LOCATIONS:
                match = pattern.search(text)
                if match:
                    return _plain_name(match["name"])
        return ""


@dataclass(frozen=True)
class Log:
    """What a log holds."""

    records: tuple[ToolMessage, ...]
    complete: bool
    """Whether the tool came to its summary."""
    counted: int
    """Findings by that summary."""
    full: bool
    """Whether findings were left out because there are too many."""
    trouble: str
    """Why the tool itself did not work; empty if it did."""


_PREFIX = re.compile(r"^=+ ?")
_OPENINGS = (
    "Invalid ", "Race reported", "Potential ", "Barrier error", "Warpgroup MMA", "Uninitialized ", "Malloc/Free error",
    "Deadlock detected", "Unused ", "Tensor Memory", "Hardware exception", "Host API", "Leaked ", "Out-of-range",
)  # fmt: skip
_SEVERITY = re.compile(r"^(error|warning|warn|info): ", re.IGNORECASE)
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK|LEAK) SUMMARY: ([\d,]+)")
_FULL = re.compile(r"were not printed")
_NOISE = (
    "COMPUTE-SANITIZER", "Error: process didn't terminate", "Target application returned", "Program hit ",
    "Saved host backtrace", "Error: couldn't find exit code",
)  # fmt: skip
_LOCATIONS = (
    # "at name(float *)+0x90", "Write access at name(int *)+0x90 in file.cu:13", "at name():0x160 in file.cu:6"
    re.compile(
        r"\bat (?:\[clone [^\]]*\] )?(?P<name>[A-Za-z_$][\w$:<>, *&~]*?)(?:\(.*?\))?(?:\+|:)0x[0-9a-f]+"
    ),
    # "at 0x00000148 in name(int*)", as older versions print it
    re.compile(r"\bat 0x[0-9a-f]+ in (?:\S+:\d+:)?(?P<name>[A-Za-z_$][\w$:<>]*)"),
)
_ALLOCATION = re.compile(r"nearest allocation at (0x[0-9a-f]+)")
_DISTANCE = re.compile(r"([\d,]+) bytes? (before|after) the nearest allocation .*?of size ([\d,]+)")
_SIZE = re.compile(r"of size ([\d,]+)(?: bytes?)?")
_SPACE = re.compile(r"__(global|shared|local)__")
_VARYING = re.compile(r"[\d,]+ bytes? (?=behind|before)| \(\d+ times\)")
_HAZARDS = re.compile(r"\[([\d,]+) hazards?\]")


def parse_log(text: str, first_line: int = 1) -> Log:
    """Read a log, or a part of one that begins at some line."""
    records: list[ToolMessage] = []
    trouble, counted = "", 0
    complete = full = False
    open_record: ToolMessage | None = None
    for number, raw in enumerate(text.splitlines(), first_line):
        line = _PREFIX.sub("", raw)
        words = line.strip()
        if summary := _SUMMARY.search(words):
            if _FULL.search(words):
                full = True
            else:
                complete, counted = True, max(counted, int(summary[1].replace(",", "")))
            open_record = None
        elif _SEVERITY.sub("", words).replace("(Warp Level Programming) ", "").startswith(_OPENINGS):
            records.append(ToolMessage(words, line=number))
            open_record = records[-1]
        elif not words or any(words.startswith(noise) for noise in _NOISE):
            open_record = None
        elif open_record is not None:
            open_record = records[-1] = replace(open_record, details=(*open_record.details, words))
        elif not trouble and words.lower().startswith(
            ("error", "unable", "fatal", "device not supported", "internal")
        ):
            trouble = words
    return Log(tuple(records), complete, counted, full, trouble)


@dataclass(frozen=True)
class Finding:
    """A fault in plain words; equal ones are counted together."""

    text: str
    kernel: str
    detail: str
    """The first of its kind, as the tool printed it."""
    line: int
    """Of that in the log."""
    count: int = 1


def findings_of(
    records: Sequence[ToolMessage],
    tool: str,
    tensors: Mapping[str, Sequence[int]],
    own: Sequence[str] | None = None,
) -> list[Finding]:
    """Say what a tool found, each kind once.

    Args:
        records: of one configuration.
        tool: that found it.
        tensors: address and bytes of each tensor, by name.
        own: the configuration's kernels; a kernel that is not among them is the tuner's own.
    """
    findings: dict[tuple[str, str], Finding] = {}
    for record in records:
        text = in_plain_words(record, tool, tensors, own)
        key = (_VARYING.sub("", text), record.kernel)  # each thread is another number of bytes away
        if key in findings:
            findings[key] = replace(findings[key], count=findings[key].count + 1)
        else:
            detail = " ".join([record.title, *record.details])
            findings[key] = Finding(text, record.kernel, detail, record.line)
    return list(findings.values())


def in_plain_words(
    record: ToolMessage, tool: str, tensors: Mapping[str, Sequence[int]], own: Sequence[str] | None = None
) -> str:
    """Say what one record means."""
    title, everything = _SEVERITY.sub("", record.title), " ".join([record.title, *record.details])
    access = "writes" if " write" in title else "reads" if " read" in title else "touches"
    size = _SIZE.search(title)
    count = size[1] if size else "some"
    space = _SPACE.search(title)
    where = f"{space[1]} memory" if space else "memory"
    if title.startswith("Invalid "):
        access = "changes atomically" if " atomic" in title else access
        if "misaligned" in everything:
            return f"{access} {count} bytes of {where} at an address that is not a multiple of {count}"
        return f"{access} {count} bytes of {where} {_outside(everything, tensors)}"
    if title.startswith("Uninitialized "):
        if own is not None and record.kernel and record.kernel not in own:
            return (
                f"leaves a part of an output or of scratch memory unwritten ({record.kernel} reads it there)"
            )
        return f"reads {count} bytes of {where} that nothing has written"
    if "Race reported" in title:
        kinds = re.findall(r"\b(Read|Write) access at", everything)
        hazards = _HAZARDS.findall(everything)
        times = sum(int(number.replace(",", "")) for number in hazards)
        both = " and a ".join(kind.lower() for kind in kinds[:2]) or "write"
        counted = f" ({times} times)" if times else ""
        return (
            f"a {both} of the same shared memory by different threads, with nothing that orders them{counted}"
        )
    if "hazard detected" in title:
        return "accesses to the same shared memory by different threads, with nothing that orders them"
    if title.startswith("Barrier error"):
        reason = title.partition(".")[2].strip().rstrip(".")
        reasons = {
            "Divergent thread(s) in block": "a barrier that some threads of the block do not reach",
            "Divergent thread(s) in warp": "a barrier that some threads of a warp do not reach",
            "Invalid arguments": "a barrier that is called with wrong arguments, such as a mask without the caller",
        }
        return reasons.get(reason, f"a barrier is used wrongly: {reason or 'no reason given'}")
    return f"{tool}: {title}"


def _outside(text: str, tensors: Mapping[str, Sequence[int]]) -> str:
    allocation, distance = _ALLOCATION.search(text), _DISTANCE.search(text)
    if allocation is None or distance is None:
        return "where nothing is allocated"
    address = int(allocation[1], 16)
    name = next((name for name, (start, _) in tensors.items() if start == address), "")
    what = name if name.startswith("scratch ") else f"tensor {name}" if name else "an allocation"
    behind = "behind the end of" if distance[2] == "after" else "before the start of"
    unit = "byte" if distance[1] == "1" else "bytes"
    return f"{distance[1]} {unit} {behind} {what} (of {distance[3]} bytes)"


def _plain_name(text: str) -> str:
    """Return a kernel's name without its return type, parameters and template arguments."""
    return text.partition("(")[0].partition("<")[0].split()[-1].strip() if text.strip() else ""


def split_by_length(text: bytes, lengths: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Cut a log at some lengths; return each part and the number of its first line."""
    start, line = 0, 1
    for length in (*lengths, len(text)):
        part = text[start : max(start, length)]
        yield part.decode(errors="replace"), line
        line += part.count(b"\n")
        start = max(start, length)
