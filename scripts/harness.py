"""What scripts share: options, calls of `tune`, results kept from one call to the next, and the evidence's files."""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

import numpy as np

from tuner.core.errors import NoGpuError, TunerError, UsageError
from tuner.core.files import whole_file
from tuner.devices.started import has_gpu

ROOT = Path(__file__).resolve().parents[1]
EVIDENCE = ROOT / "results" / "evidence"
TUNE = (sys.executable, "-m", "tuner")
PACKAGES = {
    "kernel-tune": ("kernel-tune",),
    "nvrtc": ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"),
    "torch": ("torch",),
    "cublas": ("nvidia-cublas", "nvidia-cublas-cu12"),
}


class CommandError(RuntimeError):
    """A command failed; the message says which, and how."""


def parser(text: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is a script's docstring as it is written."""
    return argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


def study_parser(
    text: str | None, steps: Sequence[str], work: str, given: str = ""
) -> argparse.ArgumentParser:
    """Return a parser of what all studies know: steps if any (by default all, or those given), time, and folders."""
    options = parser(text)
    add = options.add_argument
    if steps:
        add("--steps", type=listed(steps), default=given or ",".join(steps), help=f"Of {', '.join(steps)}.")
    add("--seconds", type=float, default=0.0, help="Begin nothing new after so many; 0 for no limit.")
    add("--work", type=Path, default=Path(work), help="Folder for everything that is known so far.")
    add("--out", type=Path, help="Folder for the evidence.")
    return options


def listed(known: Iterable[str] = ()) -> Callable[[str], list[str]]:
    """Return what reads an option with commas between its words, each of which is known, or any."""
    allowed = list(known)

    def read(text: str) -> list[str]:
        words = [word for word in text.split(",") if word]
        for word in words if allowed else ():
            if word not in allowed:
                raise argparse.ArgumentTypeError(f"no {word!r}: choose from {', '.join(allowed)}")
        return words

    return read


def run(main: Callable[[], int | None], *, gpu: bool = False) -> NoReturn:
    """End this process by a script's ``main``: an error is one line and exit status 2, Ctrl-C 130.

    Args:
        main: of the script.
        gpu: whether it needs one, where `tune` would replay what another machine's has answered.
    """
    try:
        if gpu and not has_gpu() and not {"-h", "--help"} & {*sys.argv}:
            raise NoGpuError("this machine has no NVIDIA GPU", "run it on a machine with one")
        sys.exit(main())
    except (TunerError, CommandError, ImportError) as error:
        say(f"error: {error}")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def say(text: str) -> None:
    """Print beside the results."""
    print(text, file=sys.stderr, flush=True)


def tune(*words: str, environment: Mapping[str, str] | None = None) -> tuple[str, float]:
    """Call the command; return what it prints, and how many seconds it took.

    Raises:
        CommandError: it ends with another status than 0 or 1.
    """
    began = time.monotonic()
    done = subprocess.run([*TUNE, *words], env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1):
        raise CommandError(f"tune {' '.join(words)}: exit status {done.returncode}")
    return done.stdout, time.monotonic() - began


def output_of(
    command: Sequence[str], environment: Mapping[str, str] | None = None, deadline_s: float | None = None
) -> str:
    """Return what a command prints.

    Raises:
        CommandError: it fails; with the end of what it said.
        subprocess.TimeoutExpired: it takes longer.
    """
    done = subprocess.run(
        command, env=environment, check=False, capture_output=True, text=True, timeout=deadline_s
    )
    if done.returncode:
        said = (done.stdout + done.stderr)[-2000:]
        raise CommandError(f"{' '.join(command[:4])[:200]}: exit status {done.returncode}: {said}")
    return done.stdout


class Kept:
    """Results in a JSON file, written whole after each: what is there is not measured again.

    Args:
        file: read if it is there; None to keep nothing.
        empty: what is known before the first result.
    """

    def __init__(self, file: Path | None, **empty: Any) -> None:
        self.file = file
        self.data: dict[str, Any] = empty
        self.read()

    def read(self) -> None:
        """Take what another process has written since."""
        if self.file and self.file.is_file():
            self.data |= json.loads(self.file.read_text())

    def keep(self, **values: Any) -> None:
        """Add results, and write everything down."""
        self.data |= values
        if self.file:
            write_json(self.file, self.data)

    def once(self, name: str, measured: Callable[..., object], *arguments: Any) -> Any:
        """Return a result, measured by a call and kept unless it is known."""
        if name not in self.data:
            self.keep(**{name: measured(*arguments)})
        return self.data[name]


class Study(Kept):
    """Steps by name, each a method ``_NAME``, as far as a time limit goes; what they found is kept.

    Args:
        file: what is known.
        seconds: begin nothing new after so many; 0 for no limit.
        how: what all results of one file have in common.
        empty: what is known before the first result.

    Attributes:
        failures: steps that failed, each with why.

    Raises:
        UsageError: the file has results of another kind.
    """

    def __init__(self, file: Path, seconds: float = 0.0, how: Any = None, **empty: Any) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(file, **empty, **({"how": how} if how else {}))
        if how and self.data["how"] != how:
            raise UsageError(
                f"{file.parent} was measured with {self.data['how']}", "give the same, or another --work"
            )
        self._until = time.monotonic() + (seconds or math.inf)
        self.failures: list[str] = []

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return self._until - time.monotonic()

    def has_time(self, wanted_s: float = 0.0) -> bool:
        """Return whether what takes so long can still be begun."""
        return self.left_s > wanted_s

    def run(self, steps: Iterable[str]) -> None:
        """Do steps in order, each unless the time is over; one that fails does not keep others from being done."""
        for step in steps:
            if not self.has_time():
                say(f"no time for {step}")
                continue
            began = time.monotonic()
            self.attempt(step, getattr(self, f"_{step}"))
            say(f"{step}: {time.monotonic() - began:.0f} s")

    def attempt(self, name: str, call: Callable[[], object]) -> None:
        """Do something; if it fails, that is noted and said, and the next can be done."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 - what was measured is kept, and the rest is measured
            if not isinstance(error, (TunerError, CommandError, OSError, subprocess.SubprocessError)):
                traceback.print_exc()
            self.failures.append(f"{name}: {error}")
            say(self.failures[-1])

    def restart(self) -> NoReturn:
        """Go on in a new process, as after a fault that has ended all work on the GPU."""
        left = [] if math.isinf(self.left_s) else [f"--seconds={max(self.left_s, 1.0):.0f}"]
        say("work on the GPU has ended: the rest by a new process")
        os.execv(sys.executable, [sys.executable, *sys.argv, *left])


def write_json(file: Path, data: Any) -> None:
    """Write a file whole or not at all, with its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(file, replace=True) as partly:
        partly.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def write(folder: Path | None, name: str, data: Any, text: str = "") -> None:
    """Write evidence, if there is a folder for it: NAME.json, and NAME.txt where there is a text."""
    if folder is not None:
        write_json(folder / f"{name}.json", data)
        if text:
            (folder / f"{name}.txt").write_text(text.rstrip("\n") + "\n", encoding="utf-8")


def today() -> str:
    """Return the date."""
    return time.strftime("%Y-%m-%d")


def versions(*names: str) -> dict[str, str]:
    """Return the versions of packages that are installed: of some, or of all of :data:`PACKAGES`."""
    found: dict[str, str] = {}
    for name in names or PACKAGES:
        for package in PACKAGES.get(name, (name,)):
            try:
                found.setdefault(name, version(package))
            except PackageNotFoundError:
                continue
    return found


def machine(*names: str) -> dict[str, str]:
    """Return the first GPU and its driver, the day, and versions as :func:`versions` does."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    found = output_of(query).splitlines()[0].split(", ") if shutil.which(query[0]) else ["none", "none"]
    return {"gpu": found[0], "driver": found[1], **versions(*names), "day": today()}


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return the median, the 95th percentile and the largest of some values."""
    found = {"median": np.median(values), "p95": np.quantile(values, 0.95), "worst": np.max(values)}
    return {name: float(value) for name, value in found.items()}


def medians(rounds: Sequence[Sequence[Sequence[float]]]) -> list[list[float]]:
    """Return of each contestant of a race the median of its samples in each round."""
    return [[median(groups[i]) for groups in rounds] for i in range(len(rounds[0]))]
