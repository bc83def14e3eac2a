"""Recorded spaces: a GPU's results for every configuration of a sub-lattice, as gzipped JSON.

A recording names the GPU, the problem and what was computed, and for each row how that was done: by the digests of
:mod:`tuner.kernel.identity`, so that a changed comment does not orphan it and a changed kernel does. Times are whole
nanoseconds. Version 1 has no digest of what was computed, and of a row the digest of its rendered sources alone.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta, Struct

from tuner.core import paths
from tuner.core.conditions import Conditions, Mode, Regime
from tuner.core.errors import RecordingError
from tuner.core.model import Configuration, Gpu, Problem, Resources, Status, digest
from tuner.core.reading import read_beginning
from tuner.formats.files import GZIP, pieces
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.render import source_digest
from tuner.kernel.variant_spec import RESOURCE_NAMES
from tuner.runtime.launch_limits import MAX_SIZE

FORMAT = "kernel-tune recording"
VERSION = 2
VERSIONS = (1, 2)
"""Those that can be read."""
COLUMNS = ("values", "status", "samples_ns", "resources", "error", "source")
"""Of a variant's rows, each a list."""
MAX_BYTES = 64 << 20
"""Of JSON, unpacked: fifty times the largest that is here."""
MAX_VALUES = 2_500_000
"""Numbers, texts, lists and names in a file, ten times those of the largest that is here. Each takes up to 100 bytes of
memory, also an empty one of three characters."""
DIGEST_LENGTH = 12
AGAIN = "fetch it again, or record it anew"
OTHERS = "leave out the kernel if it is a T4 or a Kernel Tuner cache file"


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


def read_recording(path: Path) -> Recording:
    """Read a recording.

    Raises:
        RecordingError: it is not one, or is damaged or of a later version.
    """
    text = _unpacked(path)
    try:
        head = msgspec.json.decode(text, type=_Head)
    except RecursionError:
        raise RecordingError(f"{path}: not a recording: nested too deep", OTHERS) from None
    except msgspec.ValidationError:
        head = _Head()
    except ValueError as error:
        raise RecordingError(f"{path}: not a recording: {error}", OTHERS) from None
    if head.format != FORMAT:
        raise RecordingError(f"{path}: not a recording of this tool", OTHERS)
    if isinstance(head.version, int) and head.version not in VERSIONS:
        raise RecordingError(f"{path}: version {head.version}, this is {VERSION}", "update kernel-tune")
    try:
        return _recording(path.name.removesuffix(".json.gz"), msgspec.json.decode(text, type=_File))
    except ValueError as error:
        raise RecordingError(f"{path}: damaged: {error}", AGAIN) from None


def _unpacked(path: Path) -> bytes:
    """Return the JSON of a recording, of which no more is decoded than fits into the memory.

    Raises:
        RecordingError: it cannot be read, or is not compressed, or holds too much.
    """
    try:
        begins = read_beginning(path, len(GZIP))
    except OSError as error:
        raise RecordingError(
            f"cannot read recording {path}: {error.strerror}", "give the path of a .json.gz file"
        ) from None
    if not begins:
        raise RecordingError(f"{path} is empty", AGAIN)
    if begins != GZIP:
        raise RecordingError(f"{path}: not a recording: not compressed with gzip", OTHERS)
    values = 0
    for piece in pieces(path, MAX_BYTES, AGAIN):
        values += sum(map(piece.count, (b",", b":", b"[", b"{")))
        if values > MAX_VALUES:
            raise RecordingError(
                f"{path}: more than {MAX_VALUES} values", "record fewer configurations or problems in a file"
            )
    return b"".join(pieces(path, MAX_BYTES, AGAIN))


# What a file may hold. Without these checks a run would store whatever a recording says of its GPU, and a row with a
# value of another type would no longer match its digest when it is read back.

MIN_CC = 75
"""CUDA 13 compiles for nothing older."""
END = 2**63
"""Numbers from here on fit neither the database nor NumPy's integers."""
Text = Annotated[str, Meta(min_length=1)]
Whole = Annotated[int, Meta(ge=1, le=MAX_SIZE)]
Count = Annotated[int, Meta(ge=0, le=END - 1)]
Time = Annotated[float, Meta(ge=1, lt=float(END))]
"""In nanoseconds; recordings hold whole ones."""
Scalar = (
    bool
    | Annotated[int, Meta(ge=1 - END, le=END - 1)]
    | Annotated[float, Meta(gt=-float(END), lt=float(END))]
    | str
)


class _Problem(Struct):
    kernel: Text
    sizes: dict[Text, Whole]
    dtypes: dict[Text, Text]
    options: dict[Text, Scalar] = {}


class _Variant(Struct, forbid_unknown_fields=True):
    parameters: list[Text]
    values: list[list[Scalar]]
    status: list[Status]
    samples_ns: list[tuple[Time, ...]]
    resources: list[list[Count] | None]
    error: list[str]
    source: list[str]


class _Recorded(Struct, forbid_unknown_fields=True):
    problem: _Problem
    resources: list[Text]
    variants: dict[Text, _Variant]


def _gpu_fields() -> Iterator[tuple[Any, ...]]:
    """Yield the fields of :class:`Gpu`, as it declares them: what has a default may be empty or 0."""
    minima = {"cc": MIN_CC, "reserved_shared_bytes": 0}
    kinds = get_type_hints(Gpu)
    for one in fields(Gpu):
        optional = one.default is not MISSING
        types: dict[type, Any] = {
            int: Annotated[int, Meta(ge=minima.get(one.name, 1), le=MAX_SIZE)],
            float: Annotated[float, Meta(ge=0, lt=float(END))],
            str: str if optional else Text,
        }
        yield (one.name, types[kinds[one.name]], *([one.default] if optional else []))


_Head: Any = msgspec.defstruct("_Head", [(name, Scalar | None, None) for name in ("format", "version")])
_Gpu: Any = msgspec.defstruct("_Gpu", _gpu_fields(), forbid_unknown_fields=True)


class _File(Struct, forbid_unknown_fields=True):
    format: str
    version: int
    kernel: Text
    gpu: _Gpu
    recorded: str
    versions: dict[Text, str]
    problems: Annotated[list[_Recorded], Meta(min_length=1)]
    computation: dict[Text, Text] = {}
    # The first recordings do not say how they were timed; they were all taken so.
    mode: Mode = Mode.COLD
    regime: Regime = Regime.RESTED


def _recording(name: str, file: _File) -> Recording:
    """Return what a file holds.

    Raises:
        ValueError: a part of it does not fit another, or cannot be shown.
    """
    if file.version > 1 and not file.computation:
        raise ValueError("computation is empty")
    for where in ("kernel", "gpu", "recorded", "versions", "computation"):
        _refuse_unprintable(msgspec.to_builtins(getattr(file, where)), where)
    return Recording(
        name,
        file.kernel,
        Gpu(**msgspec.structs.asdict(file.gpu)),
        file.recorded,
        file.versions,
        tuple(_recorded(recorded, f"problems[{i}]") for i, recorded in enumerate(file.problems)),
        Conditions(file.mode, file.regime),
        file.computation if file.version > 1 else {},
    )


def _recorded(recorded: _Recorded, where: str) -> RecordedProblem:
    names = recorded.resources
    _refuse_unprintable(msgspec.to_builtins(recorded.problem), f"{where}.problem")
    _refuse_twice(names, f"{where}.resources")
    if unknown := [name for name in names if name not in RESOURCE_NAMES]:
        raise ValueError(f"{where}.resources has {unknown[0]!r}, which this version does not know")
    rows: dict[Configuration, Row] = {}
    for variant, columns in recorded.variants.items():
        rows.update(_rows(variant, columns, names, f"{where}.variants.{variant}"))
    problem = recorded.problem
    return RecordedProblem(Problem(problem.kernel, problem.sizes, problem.dtypes, problem.options), rows)


def _rows(variant: str, columns: _Variant, names: list[str], where: str) -> dict[Configuration, Row]:
    parameters, count = columns.parameters, len(columns.values)
    _refuse_unprintable([variant, *parameters], where)
    _refuse_twice(parameters, f"{where}.parameters")
    for column in COLUMNS:
        if len(of := getattr(columns, column)) != count:
            raise ValueError(f"{where}.{column} has {len(of)} entries, and values {count}")
    rows: dict[Configuration, Row] = {}
    for number, (values, status, samples, counts, error, source) in enumerate(
        zip(*(getattr(columns, column) for column in COLUMNS), strict=True)
    ):
        if len(values) != len(parameters):
            raise ValueError(f"{where}.values[{number}] has {len(values)} values, not {len(parameters)}")
        if counts is not None and len(counts) != len(names):
            raise ValueError(f"{where}.resources[{number}] has {len(counts)} numbers, not {len(names)}")
        if status.ranked and not samples:
            raise ValueError(f"{where}.samples_ns[{number}] is empty, and its status {status}")
        report = Resources(**dict(zip(names, counts, strict=True))) if counts else None
        configuration = Configuration(variant, tuple(zip(parameters, values, strict=True)))
        rows[configuration] = Row(status, samples, report, error, source)
    if len(rows) < count:
        raise ValueError(f"{where}.values has a configuration twice")
    _refuse_unprintable([value for values in columns.values for value in values], f"{where}.values")
    return rows


def _refuse_twice(names: list[str], where: str) -> None:
    if len(set(names)) < len(names):
        raise ValueError(f"{where} has a name twice")


def _refuse_unprintable(value: object, where: str) -> None:
    """Raise ValueError for a text that is not one line of printable characters."""
    if isinstance(value, str) and not value.isprintable():
        raise ValueError(f"{where} is {value[:80]!r}, not a line of text")
    if isinstance(value, dict):
        for name, part in value.items():
            _refuse_unprintable(name, f"a name in {where}")
            _refuse_unprintable(part, f"{where}.{name}")
    elif isinstance(value, list):
        for part in value:
            _refuse_unprintable(part, where)
