"""Recorded spaces: what a GPU answered for every configuration of a sub-lattice, as gzipped JSON.

A recording names the GPU and the problem, and for each row the digest of the rendered source (comments and white
space aside), so that a changed comment does not orphan it and a changed kernel does. Times are whole nanoseconds.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner import paths
from tuner.errors import RecordingError
from tuner.kernel import RESOURCE_NAMES, KernelSpec
from tuner.model import (
    Conditions,
    Configuration,
    Gpu,
    Mode,
    Problem,
    Regime,
    Resources,
    Status,
    Trial,
    digest,
)
from tuner.render import render, source_digest

FORMAT = "kernel-tune recording"
VERSION = 1
MAX_BYTES = 256 << 20
DIGEST_LENGTH = 12
OTHERS = "leave out --kernel if it is a T4 or a Kernel Tuner cache file"


@dataclass(frozen=True)
class Row:
    """What was recorded of one configuration."""

    status: Status
    samples_ns: tuple[float, ...]
    resources: Resources | None
    error: str
    source: str
    """Digest of the rendered sources, shortened."""


@dataclass(frozen=True)
class RecordedProblem:
    """All rows of one problem."""

    problem: Problem
    rows: Mapping[Configuration, Row]


@dataclass(frozen=True)
class Recording:
    """A file of recorded rows of one kernel on one GPU."""

    name: str
    kernel: str
    gpu: Gpu
    recorded: str
    """Date."""
    versions: Mapping[str, str]
    problems: tuple[RecordedProblem, ...]
    conditions: Conditions = field(default_factory=Conditions)
    """How all of it was timed."""


def sources_digest(kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration) -> str:
    """Hash what a configuration renders to."""
    return short_digest(source for source, _ in render(kernel, problem, gpu, configuration))


def short_digest(sources: Iterable[str]) -> str:
    """Hash the sources of one candidate, in order."""
    return digest([source_digest(source) for source in sources])[:DIGEST_LENGTH]


def find_recording(kernel: str) -> Path | None:
    """Give the recording of a built-in kernel that comes with the package."""
    found = sorted(paths.recordings().glob(f"{kernel}-*.json.gz"))
    return found[0] if found else None


def recorded_kernel(path: Path, kernel: str) -> str:
    """Give what to load for a recording: the kernel's name, or, if it has changed since, the file that is kept of it.

    Beside ``NAME.json.gz`` that is ``NAME/KERNEL.toml``, with those templates that have changed.
    """
    kept = path.with_name(path.name.removesuffix(".json.gz")) / f"{kernel}.toml"
    return str(kept) if kept.is_file() else kernel


def write_recording(path: Path, recording: Recording) -> None:
    """Write a recording; the same content gives the same bytes."""
    data = {
        "format": FORMAT,
        "version": VERSION,
        "kernel": recording.kernel,
        "gpu": recording.gpu.to_json(),
        "recorded": recording.recorded,
        "versions": dict(recording.versions),
        "mode": recording.conditions.mode,
        "regime": recording.conditions.regime,
        "problems": [_encode_problem(problem) for problem in recording.problems],
    }
    text = json.dumps(data, separators=(",", ":")).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(gzip.compress(text, 9, mtime=0))
    new.replace(path)


def read_recording(path: Path) -> Recording:
    """Read a recording.

    Raises:
        RecordingError: it is not one, or is damaged or of a later version.
    """
    try:
        unpacker = zlib.decompressobj(wbits=31)
        text = unpacker.decompress(path.read_bytes(), MAX_BYTES)
        if not unpacker.eof:
            raise RecordingError(f"{path}: truncated, or larger than {MAX_BYTES >> 20} MiB")
        data = json.loads(text)
    except OSError as error:
        raise RecordingError(
            f"cannot read recording {path}: {error.strerror}", "give the path of a .json.gz file"
        ) from None
    except (zlib.error, ValueError, RecursionError) as error:
        raise RecordingError(f"{path}: not a recording: {error}", OTHERS) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise RecordingError(f"{path}: not a recording of this tool", OTHERS)
    if data.get("version") != VERSION:
        raise RecordingError(
            f"{path}: version {data.get('version')}, this is {VERSION}", "update kernel-tune"
        )
    try:
        return Recording(
            path.name.removesuffix(".json.gz"),
            data["kernel"],
            Gpu(**data["gpu"]),
            data["recorded"],
            data["versions"],
            tuple(_decode_problem(problem) for problem in data["problems"]),
            # The first recordings do not say; they were all taken so.
            Conditions(Mode(data.get("mode", Mode.COLD)), Regime(data.get("regime", Regime.RESTED))),
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise RecordingError(f"{path}: damaged: {error!r}") from None


def row_of(trial: Trial, source: str, samples_ns: Sequence[float]) -> Row:
    """Give what a recording keeps of a trial, with the samples that are to be kept."""
    return Row(trial.status, tuple(float(round(s)) for s in samples_ns), trial.resources, trial.error, source)


def _encode_problem(recorded: RecordedProblem) -> dict[str, Any]:
    variants: dict[str, dict[str, Any]] = {}
    for configuration, row in recorded.rows.items():
        variant = variants.setdefault(
            configuration.variant,
            {
                "parameters": list(configuration.values),
                "values": [],
                "status": [],
                "samples_ns": [],
                "resources": [],
                "error": [],
                "source": [],
            },
        )
        variant["values"].append(list(configuration.values.values()))
        variant["status"].append(row.status)
        variant["samples_ns"].append([int(sample) for sample in row.samples_ns])
        variant["resources"].append(
            [getattr(row.resources, name) for name in RESOURCE_NAMES] if row.resources else None
        )
        variant["error"].append(row.error)
        variant["source"].append(row.source)
    return {"problem": recorded.problem.to_json(), "resources": list(RESOURCE_NAMES), "variants": variants}


def _decode_problem(data: Mapping[str, Any]) -> RecordedProblem:
    rows: dict[Configuration, Row] = {}
    names = data["resources"]
    for variant, columns in data["variants"].items():
        lists = (columns[key] for key in ("values", "status", "samples_ns", "resources", "error", "source"))
        for values, status, samples, resources, error, source in zip(*lists, strict=True):
            configuration = Configuration(variant, tuple(zip(columns["parameters"], values, strict=True)))
            found = Resources(**dict(zip(names, resources, strict=True))) if resources else None
            rows[configuration] = Row(Status(status), tuple(float(s) for s in samples), found, error, source)
    return RecordedProblem(Problem.from_json(data["problem"]), rows)
