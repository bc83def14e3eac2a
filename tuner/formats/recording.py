"""Recorded spaces: a GPU's results for every configuration of a sub-lattice, as gzipped JSON.

A recording names the GPU, the problem and what was computed, and for each row how that was done: by the digests of
:mod:`tuner.kernel.identity`, so that a changed comment does not orphan it and a changed kernel does. Times are whole
nanoseconds. Version 1 has no digest of what was computed, and of a row the digest of its rendered sources alone.
"""

from __future__ import annotations

import glob
import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.core import paths
from tuner.core.conditions import Conditions, Mode, Regime
from tuner.core.errors import RecordingError
from tuner.core.files import whole_file
from tuner.core.model import Configuration, Gpu, Problem, Resources, Status, Trial, digest
from tuner.formats import recorded_data
from tuner.formats.files import unpacks_beyond
from tuner.formats.recorded_data import Invalid
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.render import source_digest
from tuner.kernel.variant_spec import RESOURCE_NAMES

FORMAT = "kernel-tune recording"
VERSION = 2
VERSIONS = (1, 2)
"""Those that can be read."""
OF_FILE = (
    "format",
    "version",
    "kernel",
    "computation",
    "gpu",
    "recorded",
    "versions",
    "mode",
    "regime",
    "problems",
)
OF_PROBLEM = ("problem", "resources", "variants")
COLUMNS = ("values", "status", "samples_ns", "resources", "error", "source")
OF_VARIANT = ("parameters", *COLUMNS)
"""The keys of a recording, and of each problem and variant in it; others are refused."""
MAX_BYTES = 256 << 20
"""Of JSON, unpacked; reading it takes several times as much memory."""
DIGEST_LENGTH = 12
GZIP = b"\x1f\x8b"
AGAIN = "fetch it again, or record it anew"
OTHERS = "leave out --kernel if it is a T4 or a Kernel Tuner cache file"


@dataclass(frozen=True)
class Row:
    """The recorded result of one configuration."""

    status: Status
    samples_ns: tuple[float, ...]
    resources: Resources | None
    error: str
    source: str
    """Digest of the implementation, shortened; in version 1 of the rendered sources."""


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
    computation: Mapping[str, str] = field(default_factory=dict)
    """The digest of each part of what was computed; empty in version 1."""

    def row_digest(self, identity: KernelIdentity, variant: str, sources: Sequence[str]) -> str:
        """Return what :attr:`Row.source` has to be for a row to be of this kernel.

        Args:
            identity: of the kernel.
            variant: the configuration's.
            sources: what the configuration renders to.
        """
        if self.computation:
            return short_implementation(identity.implementation(variant, sources))
        return digest([source_digest(source) for source in sources])[:DIGEST_LENGTH]


def short_implementation(implementation: str) -> str:
    """Return what a row keeps of the digest of an implementation."""
    return implementation[:DIGEST_LENGTH]


def find_recording(kernel: str) -> Path | None:
    """Return the recording of a built-in kernel that comes with the package."""
    return next(iter(sorted(paths.recordings().glob(f"{glob.escape(kernel)}-*.json.gz"))), None)


def recorded_kernel(path: Path, kernel: str) -> str:
    """Return what to load for a recording: the kernel's name, or, if it has changed since, the file that is kept of it.

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
        "computation": dict(recording.computation),
        "gpu": recording.gpu.to_json(),
        "recorded": recording.recorded,
        "versions": dict(recording.versions),
        "mode": recording.conditions.mode,
        "regime": recording.conditions.regime,
        "problems": [_encode_problem(problem) for problem in recording.problems],
    }
    text = json.dumps(data, separators=(",", ":")).encode()
    with whole_file(path, replace=True) as partial:
        partial.write_bytes(gzip.compress(text, 9, mtime=0))


def read_recording(path: Path) -> Recording:
    """Read a recording.

    Raises:
        RecordingError: it is not one, or is damaged or of a later version.
    """
    data = _loaded(path)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise RecordingError(f"{path}: not a recording of this tool", OTHERS)
    try:
        version = recorded_data.whole(recorded_data.member(data, "version"), "version")
        if version not in VERSIONS:
            raise RecordingError(f"{path}: version {version}, this is {VERSION}", "update kernel-tune")
        return _decode(path.name.removesuffix(".json.gz"), data, version)
    except Invalid as finding:
        raise RecordingError(f"{path}: damaged: {finding}", AGAIN) from None


def row_of(trial: Trial, source: str, samples_ns: Sequence[float]) -> Row:
    """Return what a recording keeps of a trial, with the samples that are to be kept."""
    return Row(trial.status, tuple(float(round(s)) for s in samples_ns), trial.resources, trial.error, source)


def _encode_problem(recorded: RecordedProblem) -> dict[str, Any]:
    variants: dict[str, dict[str, Any]] = {}
    for configuration, row in recorded.rows.items():
        values, resources = configuration.values, row.resources
        empty = {"parameters": list(values), **{name: [] for name in COLUMNS}}
        variant = variants.setdefault(configuration.variant, empty)
        samples = [int(sample) for sample in row.samples_ns]
        counts = [getattr(resources, name) for name in RESOURCE_NAMES] if resources else None
        cells = (list(values.values()), row.status, samples, counts, row.error, row.source)
        for name, cell in zip(COLUMNS, cells, strict=True):
            variant[name].append(cell)
    return {"problem": recorded.problem.to_json(), "resources": list(RESOURCE_NAMES), "variants": variants}


def _loaded(path: Path) -> Any:
    try:
        packed = path.read_bytes()
        if not packed:
            raise RecordingError(f"{path} is empty", AGAIN)
        if not packed.startswith(GZIP):
            raise RecordingError(f"{path}: not a recording: not compressed with gzip", OTHERS)
        if unpacks_beyond(packed, MAX_BYTES):
            raise RecordingError(f"{path}: larger than {MAX_BYTES >> 20} MiB", "record fewer problems in it")
        unpacker = zlib.decompressobj(wbits=31)
        text = unpacker.decompress(packed)
    except OSError as error:
        raise RecordingError(
            f"cannot read recording {path}: {error.strerror}", "give the path of a .json.gz file"
        ) from None
    except zlib.error:
        raise RecordingError(f"{path}: damaged: it cannot be decompressed", AGAIN) from None
    if not unpacker.eof:
        raise RecordingError(f"{path}: the compressed file is cut off", AGAIN)
    try:
        return json.loads(text)
    except ValueError as error:
        raise RecordingError(f"{path}: not a recording: not JSON: {error}", OTHERS) from None
    except RecursionError:
        raise RecordingError(f"{path}: not a recording: nested too deep", OTHERS) from None


def _decode(name: str, data: Mapping[str, Any], version: int) -> Recording:
    recorded_data.refuse_unknown(data, OF_FILE, "a recording")
    problems = recorded_data.json_list(recorded_data.member(data, "problems"), "problems")
    if not problems:
        raise Invalid("problems is empty")
    # The first recordings do not say how they were timed; they were all taken so.
    mode, regime = data.get("mode", Mode.COLD), data.get("regime", Regime.RESTED)
    return Recording(
        name,
        recorded_data.text(recorded_data.member(data, "kernel"), "kernel"),
        recorded_data.gpu(recorded_data.member(data, "gpu")),
        recorded_data.text(recorded_data.member(data, "recorded"), "recorded", 0),
        recorded_data.versions(recorded_data.member(data, "versions")),
        tuple(_decode_problem(problem, f"problems[{i}]") for i, problem in enumerate(problems)),
        Conditions(recorded_data.choice(Mode, mode, "mode"), recorded_data.choice(Regime, regime, "regime")),
        recorded_data.computation(data.get("computation")) if version > 1 else {},
    )


def _decode_problem(value: object, where: str) -> RecordedProblem:
    data = recorded_data.json_object(value, where)
    recorded_data.refuse_unknown(data, OF_PROBLEM, where)
    problem = recorded_data.problem(recorded_data.member(data, "problem", where), f"{where}.problem")
    names = recorded_data.resource_names(recorded_data.member(data, "resources", where), f"{where}.resources")
    variants = recorded_data.json_object(recorded_data.member(data, "variants", where), f"{where}.variants")
    rows: dict[Configuration, Row] = {}
    for variant, columns in variants.items():
        rows.update(_decode_rows(variant, columns, names, f"{where}.variants.{variant}"))
    return RecordedProblem(problem, rows)


def _decode_rows(variant: str, value: object, names: list[str], where: str) -> dict[Configuration, Row]:
    data = recorded_data.json_object(value, where)
    recorded_data.refuse_unknown(data, OF_VARIANT, where)
    parameters = recorded_data.names(recorded_data.member(data, "parameters", where), f"{where}.parameters")
    columns = recorded_data.columns(data, where, len(parameters), len(names))
    rows: dict[Configuration, Row] = {}
    for values, status, samples, resources, error, source in zip(*columns, strict=True):
        configuration = Configuration(variant, tuple(zip(parameters, values, strict=True)))
        report = Resources(**dict(zip(names, resources, strict=True))) if resources else None
        rows[configuration] = Row(Status(status), tuple(map(float, samples)), report, error, source)
    if len(rows) < len(columns[0]):
        raise Invalid(f"{where}.values has a configuration twice")
    return rows
