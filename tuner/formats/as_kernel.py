"""Another tool's recording as a kernel and a recording of ours, which a session can search like any other.

The kernel has no launches: nothing of it can be rendered. What it has is parameters and the valid set, which is either
listed (what was recorded) or described by the conditions of a T1 file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.conditions import Conditions, Mode, Regime
from tuner.errors import RecordingError
from tuner.expressions.arithmetic import parse
from tuner.formats.foreign_recording import VARIANT, ForeignRecording, ForeignRow, read_json
from tuner.formats.kernel_tuner_cache_reader import is_cache, read_cache
from tuner.formats.recording import FORMAT, RecordedProblem, Recording, Row
from tuner.formats.t1_reader import T1Space, is_t1, read_t1
from tuner.formats.t4_reader import is_t4, read_t4
from tuner.kernel.spec import KernelSpec, ReferenceSpec, WorkSpec
from tuner.kernel.variant_spec import VariantSpec
from tuner.model import FOREIGN, Configuration, Gpu, Problem, Value, digest

UNKNOWN_GPU = "unknown GPU"
CONDITIONS = Conditions(Mode.WARM, Regime.SUSTAINED)
"""How other tools time unless a file says more: calls in a row, on the same data, without a pause."""


@dataclass(frozen=True)
class Others:
    """What a file of another tool holds, in our terms.

    Args:
        kernel: its parameters and valid set.
        recording: its results.
        rows: the same as they were read.
        notes: what a user should know about how the file was understood.
        objective: what the file was ranked by.
    """

    kernel: KernelSpec
    recording: Recording
    rows: Mapping[Configuration, ForeignRow]
    notes: tuple[str, ...] = ()
    objective: str = "time"

    @property
    def problem(self) -> Problem:
        """The only problem that there is."""
        return self.recording.problems[0].problem


def read_results(path: Path) -> ForeignRecording:
    """Read a T4 or cache file.

    Raises:
        RecordingError: it is neither.
    """
    data = read_json(path)
    if is_cache(data):
        return read_cache(path, data)
    if is_t4(data):
        return read_t4(path, data)
    if is_t1(data):
        raise RecordingError(f"{path}: a T1 file has no results", "name it with --space")
    if isinstance(data, dict) and data.get("format") == FORMAT:
        kernel = _plain(str(data.get("kernel")))
        raise RecordingError(
            f"{path}: a recording of this tool", f"replay it: tune --kernel {kernel} --device replay:{path}"
        )
    raise RecordingError(f"{path}: neither a T4 file nor a Kernel Tuner cache", "name one of those")


def read_others(
    path: Path,
    space: Path | None = None,
    *,
    kernel: str = "",
    gpu: str = "",
    sizes: Mapping[str, int] | None = None,
) -> Others:
    """Read a T4 or cache file, with a T1 file that describes the valid set or without.

    Args:
        path: of the results.
        space: of the T1 file.
        kernel: a name, in place of the one that the file gives.
        gpu: the same for the device.
        sizes: of the problem, in place of what the file says.

    Raises:
        RecordingError: a file cannot be read, or the two do not fit each other.
        ExpressionError: a condition is beyond what expressions may contain.
    """
    found = read_results(path)
    found = replace(
        found,
        kernel=kernel or _plain(found.kernel),
        gpu=gpu or _plain(found.gpu) or UNKNOWN_GPU,
        sizes=sizes or found.sizes,
    )
    t1 = read_t1(space) if space is not None else None
    notes: list[str] = []
    constants: dict[str, Value] = {}
    if t1 is None:
        specs = {spec.name: spec for spec in found.specs}
        variant = VariantSpec(VARIANT, "", None, specs, (), (), (), found.places())
    else:
        constants = _constants(found, t1, path, notes)
        found = _aligned(found, t1)
        specs = {name: t1.parameters[name] for name in found.parameters}
        variant = VariantSpec(VARIANT, "", None, specs, t1.conditions, (), ())
    problem, conditions = _described(found, constants)
    rows = {found.configuration(key): row for key, row in found.rows.items()}
    spec = KernelSpec(
        found.kernel, f"recorded by another tool ({found.format})", path.absolute(), _digest(found, t1),
        problem.sizes, problem.dtypes, {name: (value,) for name, value in problem.options.items()}, {}, {}, {},
        ReferenceSpec(), WorkSpec(parse("0"), parse("0")), {VARIANT: variant},
    )  # fmt: skip
    recording = Recording(
        found.name, found.kernel, Gpu(found.gpu, 0, 0, 0, 0, 0, 0), "", {FOREIGN: found.format},
        (RecordedProblem(problem, {configuration: _row(row) for configuration, row in rows.items()}),), conditions,
    )  # fmt: skip
    return Others(spec, recording, rows, tuple(notes), found.objective)


def _plain(text: str) -> str:
    return "".join(c for c in text if c.isprintable())[:200]


def _constants(found: ForeignRecording, t1: T1Space, path: Path, notes: list[str]) -> dict[str, Value]:
    """Return the parameters of the T1 file that the recording does not have: they were the same all the time."""
    if missing := [name for name in found.parameters if name not in t1.parameters]:
        raise RecordingError(
            f"{path}: its parameters {', '.join(missing)} are not in the space file",
            "name the T1 file it was made from",
        )
    constants = {name: p.default for name, p in t1.parameters.items() if name not in found.parameters}
    if len(constants) == len(t1.parameters):
        raise RecordingError(
            f"{path} and the space file have no parameter in common", "name the right T1 file"
        )
    guessed = [f"{name}={value}" for name, value in constants.items() if len(t1.parameters[name].values) > 1]
    if guessed:
        notes.append(f"{path.name} does not say {', '.join(guessed)}: the space file's default is assumed")
    return constants


def _aligned(found: ForeignRecording, t1: T1Space) -> ForeignRecording:
    """Return the values the types that they have in the T1 file, where a writer has made 1 of True, or 2.0 of 2."""
    tables = [{value: value for value in t1.parameters[name].values} for name in found.parameters]
    rows = {
        tuple(table.get(value, value) for table, value in zip(tables, key, strict=True)): row
        for key, row in found.rows.items()
    }
    return replace(found, rows=rows)


def _described(found: ForeignRecording, constants: Mapping[str, Value]) -> tuple[Problem, Conditions]:
    """Return the problem and the conditions, with what a file of our own says of them."""
    problem = Problem(found.kernel, dict(found.sizes), {}, dict(constants))
    try:
        ours = Problem.from_json(found.about["problem"])
        sound = all(isinstance(size, int) for size in ours.sizes.values()) and ours.key
        if sound and not found.sizes:
            problem = replace(ours, kernel=found.kernel, options={**ours.options, **constants})
    except (KeyError, TypeError, ValueError, AttributeError):
        pass
    try:
        return problem, Conditions(Mode(found.about["mode"]), Regime(found.about["regime"]))
    except (KeyError, TypeError, ValueError):
        return problem, CONDITIONS


def _row(row: ForeignRow) -> Row:
    # The one time that the file ranks by: its median is itself, while that of the samples is another figure.
    ranked = row.ranked_ns
    return Row(row.status, () if ranked is None else (ranked,), None, row.error, "")


def _digest(found: ForeignRecording, t1: T1Space | None) -> str:
    """Hash all that a search could see: a run goes on only with the same."""
    described: list[Any] = [found.format, {name: list(values) for name, values in found.parameters.items()}]
    described.append([[list(key), str(row.status), row.ranked_ns] for key, row in found.rows.items()])
    if t1 is not None:
        described.append([text for text, _ in t1.conditions])
        described.append({name: list(p.values) for name, p in t1.parameters.items()})
    return digest(described)
