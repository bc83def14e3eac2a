"""NVIDIA's tools: where they lie, and one that runs ``tuner.gpu.tool_target``, seen from outside."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tuner.children.job import ENTRIES, Complaint, Done, Ended, Entry, Ready, ToolJob, Waiting, write_job
from tuner.core.errors import TunerError, UsageError


class ToolMissingError(TunerError):
    """A tool of NVIDIA's is not installed, or may not do what it is for."""


@dataclass(frozen=True)
class Tool:
    """An executable that comes with CUDA but is not needed for tuning."""

    name: str
    title: str
    option: str
    """Of the command line, for its path, if there is one."""
    folders: tuple[str, ...]
    """Where it may be when it is not on the PATH; patterns, below each toolkit where they are relative."""
    source: str
    """How to get it."""


NCU = Tool(
    "ncu",
    "Nsight Compute",
    "--ncu",
    ("bin", "nsight-compute*", "/opt/nvidia/nsight-compute/*"),
    "it comes with the CUDA toolkit (Debian, Ubuntu: cuda-nsight-compute-13-0) and from "
    "developer.nvidia.com/nsight-compute",
)
SANITIZER = Tool(
    "compute-sanitizer",
    "Compute Sanitizer",
    "--compute-sanitizer",
    ("bin", "compute-sanitizer"),
    "it comes with the CUDA toolkit (Debian, Ubuntu: cuda-sanitizer-13-0)",
)
NVDISASM = Tool(
    "nvdisasm",
    "CUDA's disassembler",
    "",
    (f"{sysconfig.get_paths()['purelib']}/nvidia/cu*/bin", "bin"),
    "pip install nvidia-cuda-nvdisasm",
)


def find(tool: Tool, given: Path | None = None) -> Path:
    """Return a tool's executable.

    Args:
        tool: which.
        given: where the user says that it is.

    Raises:
        UsageError: it is not there.
        ToolMissingError: it is nowhere.
    """
    if given is not None:
        if not _executable(given):
            raise UsageError(f"{given} is no executable", f"give the path of {tool.name} itself")
        return given.absolute()
    on_path = shutil.which(tool.name)
    if on_path:
        return Path(on_path)
    for folder in _folders(tool):
        if _executable(folder / tool.name):
            return folder / tool.name
    raise ToolMissingError(
        f"{tool.title} ({tool.name}) is not installed",
        f"{tool.source}; or say where it is with {tool.option} PATH",
    )


def _executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _folders(tool: Tool) -> Iterator[Path]:
    """Return where a tool may be, newer versions first."""
    named = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    toolkits = [*named, *_newest_first(Path("/usr/local").glob("cuda*"))]
    for pattern in tool.folders:
        for root in [Path("/")] if pattern.startswith("/") else toolkits:
            yield from _newest_first(root.glob(pattern.lstrip("/")))


def _newest_first(folders: Iterable[Path]) -> list[Path]:
    return sorted(
        folders, key=lambda folder: [int(number) for number in re.findall(r"\d+", folder.name)], reverse=True
    )


START_S = 180.0
"""Allowed up to a context: the tool's own start, Python's imports from a cold disk, patched driver libraries."""
END_S = 120.0
"""Allowed from the last step to the tool's end, in which it may write a report."""
LOCK_S = 600.0
"""Allowed for other tuners on the GPU to end their turn."""
TICK_S = 0.05
MAX_OUTPUT = 20_000
"""Characters of the tool's output that are kept."""


@dataclass
class Watched:
    """What was seen of one process of a tool."""

    entries: list[Entry] = field(default_factory=list)
    """The diary of the watched process (``tuner.gpu.tool_target``)."""
    status: int | None = None
    """The tool's exit status; None when it had to be killed."""
    late: bool = False
    """Whether it was killed because a step took too long."""
    output: str = ""
    """The end of what the tool printed."""

    @property
    def locked_out(self) -> bool:
        """Whether it was still waiting for another tuner to leave the GPU."""
        return self.late and bool(self.entries) and isinstance(self.entries[-1], Waiting)

    @property
    def complaint(self) -> str:
        """Why the process could not begin, in its own words; empty if it did not say."""
        return next((entry.error for entry in self.entries if isinstance(entry, Complaint)), "")

    @property
    def last_line(self) -> str:
        """The last line that the tool printed."""
        return "".join(self.output.strip().splitlines()[-1:])

    @property
    def ended(self) -> Ended | None:
        """The end of the first configuration's turn."""
        return next((entry for entry in self.entries if isinstance(entry, Ended)), None)


def watch(
    tool: Sequence[str], job: ToolJob, folder: Path, name: str, step_s: float, log: Path | None = None
) -> Watched:
    """Run a tool over a job to its end.

    Args:
        tool: the tool with its options; the command to be watched is appended.
        job: what the watched process does.
        folder: an existing one, for the job and its diary; both are removed again.
        name: of these files.
        step_s: seconds that one configuration may take.
        log: the tool's.

    Raises:
        OSError: the tool cannot be started.
    """
    path, diary = write_job(job, folder, name, log)
    seen, python_path = Watched(), os.pathsep.join(path for path in sys.path if path)
    try:
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [*tool, sys.executable, "-P", "-m", "tuner.gpu.tool_target", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # Numbers in the tool's output must not depend on the user's language.
                env={**os.environ, "PYTHONPATH": python_path, "PYTHONUTF8": "1", "LC_ALL": "C"},
            )
            try:
                _follow(process, diary, seen, step_s)
            finally:
                _end(process, path, seen)
            output.seek(max(0, output.seek(0, os.SEEK_END) - MAX_OUTPUT))
            seen.output = output.read().decode(errors="replace")
    finally:
        path.unlink(missing_ok=True)
        diary.unlink(missing_ok=True)
    return seen


def _follow(process: subprocess.Popen[bytes], diary: Path, seen: Watched, step_s: float) -> None:
    read, deadline = 0, time.monotonic() + START_S
    while True:
        ended = process.poll() is not None  # asked before reading: nothing is written after its end
        entries, read = _read(diary, read)
        seen.entries += entries
        if entries:
            deadline = time.monotonic() + {Done: END_S, Waiting: LOCK_S}.get(type(entries[-1]), step_s)
        if ended:
            seen.status = process.returncode
            return
        if time.monotonic() > deadline:
            seen.late = True
            return
        time.sleep(TICK_S)


def _read(diary: Path, start: int) -> tuple[list[Entry], int]:
    """Return the whole lines behind a position, and the position behind them; a malformed one is a complaint."""
    try:
        with diary.open("rb") as file:
            file.seek(start)
            data = file.read()
    except FileNotFoundError:
        return [], start
    whole = data[: data.rfind(b"\n") + 1]
    return [_entry(line) for line in whole.splitlines()], start + len(whole)


def _entry(line: bytes) -> Entry:
    try:
        return ENTRIES.decode(line)
    except msgspec.DecodeError as error:
        return Complaint(f"its diary is malformed: {error}")


def _end(process: subprocess.Popen[bytes], job: Path, seen: Watched) -> None:
    """Kill what is left: the tool's process group, and the watched process, which the tool may have moved out of it."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    for pid in [entry.pid for entry in seen.entries if isinstance(entry, Ready)]:
        if _runs(pid, job):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10.0)


def _runs(pid: int, job: Path) -> bool:
    """Return whether a process is the one with this job, and not another that was given its number since."""
    try:
        return os.fsencode(job) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
