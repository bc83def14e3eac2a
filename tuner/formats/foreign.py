"""Another tool's recording as a kernel and a recording of ours, for a session to search, and as rows of the database.

The kernel has parameters and a valid set, which is either the recorded configurations or what the conditions of a T1
file allow. It has no launches, and nothing to render.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec import convert

from tuner.core.conditions import Conditions, Mode, Regime
from tuner.core.errors import RecordingError
from tuner.core.model import FOREIGN, Configuration, Gpu, Problem, Run, RunOptions, Trial, Value, digest
from tuner.core.version import __version__
from tuner.database.database import Database
from tuner.database.records import Winner
from tuner.expressions.arithmetic import parse
from tuner.formats.autotuners import read_cache, read_t4
from tuner.formats.foreign_json import JsonResults
from tuner.formats.foreign_recording import VARIANT, ForeignRecording, ForeignRow, check_parameters, damaged
from tuner.formats.recording import FORMAT, RecordedProblem, Recording, Row
from tuner.formats.t1 import is_t1, read_t1
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.spec import KernelSpec, ReferenceSpec, WorkSpec
from tuner.kernel.variant_spec import VariantSpec

SAMPLER = "import"
"""The sampler of such a run."""
TAG = "foreign"
UNVERIFIED = "another tool's result, which nothing here has verified"
AGAIN = "fetch it again"
UNKNOWN_GPU = "unknown GPU"
CONDITIONS = Conditions(Mode.WARM, Regime.SUSTAINED)
"""How other tools time, unless a file says more: calls in a row, on the same data, without pauses."""


@dataclass(frozen=True)
class ForeignResults:
    """The results in a file of another tool, as a kernel and a recording.

    Args:
        kernel: its parameters and valid set.
        recording: its results.
        rows: the same as they are in the file.
        notes: for the user, on how the file was read.
        objective: what was minimized.
    """

    kernel: KernelSpec
    recording: Recording
    rows: Mapping[Configuration, ForeignRow]
    notes: tuple[str, ...] = ()
    objective: str = "time"

    @property
    def problem(self) -> Problem:
        """The only problem of the recording."""
        return self.recording.problems[0].problem


def read_results(path: Path) -> ForeignRecording:
    """Return the content of a T4 or cache file.

    Raises:
        RecordingError: it is neither.
    """
    file = JsonResults(path)
    if file.member:
        read = read_cache if file.member == "cache" else read_t4
        try:
            results = read(file)
            if file.late:
                results = read(file)
        except (KeyError, TypeError, AttributeError) as error:
            raise damaged(path, error, AGAIN) from None
        if note := file.note():
            if not results.rows:
                raise RecordingError(f"{path}: {note}", AGAIN)
            results = replace(results, notes=(note, *results.notes))
        check_parameters(path, results)
        return results
    if is_t1(file.head):
        raise RecordingError(f"{path}: a T1 file has no results", "name it with --space")
    if file.head.get("format") == FORMAT and "kernel" in file.head:
        kernel = _plain(str(file.head["kernel"]))
        raise RecordingError(
            f"{path}: a recording of this tool", f"replay it: tune {kernel} --device replay:{path}"
        )
    if note := file.note():
        raise RecordingError(f"{path}: {note}", AGAIN)
    raise RecordingError(f"{path}: neither a T4 file nor a Kernel Tuner cache", "name one of those")


def read_foreign(
    path: Path,
    space: Path | None = None,
    *,
    kernel: str = "",
    gpu: str = "",
    sizes: Mapping[str, int] | None = None,
) -> ForeignResults:
    """Return the results in a T4 or cache file as a kernel and a recording.

    Args:
        path: of the results.
        space: a T1 file that describes the valid set; without it, what was recorded is valid.
        kernel: a name that overrides the file's.
        gpu: the same for the device.
        sizes: of the problem; they override the file's.

    Raises:
        RecordingError: a file cannot be read, or the two do not fit each other.
        ExpressionError: a condition is beyond what expressions may contain.
    """
    results = read_results(path)
    results = replace(
        results,
        kernel=kernel or _plain(results.kernel),
        gpu=gpu or _plain(results.gpu) or UNKNOWN_GPU,
        sizes=sizes or results.sizes,
    )
    t1 = read_t1(space) if space is not None else None
    notes = list(results.notes)
    constants: dict[str, Value] = {}
    if t1 is None:
        specs = {spec.name: spec for spec in results.specs}
        variant = VariantSpec(VARIANT, "", None, specs, (), (), (), results.indices())
    else:
        constants = _constants(results, t1, path, notes)
        results = _aligned(results, t1)
        specs = {name: t1.parameters[name] for name in results.parameters}
        variant = replace(t1, parameters=specs)
    problem, conditions = _described(results, constants)
    rows = {results.configuration(key): row for key, row in results.rows.items()}
    spec = KernelSpec(
        results.kernel, f"recorded by another tool ({results.format})", path.absolute(), _digest(results, t1),
        sizes=problem.sizes, dtypes=problem.dtypes, presets={}, tensors={}, scalars={}, variants={VARIANT: variant},
        options={name: (value,) for name, value in problem.options.items()},
        reference=ReferenceSpec(), work=WorkSpec(parse("0"), parse("0")),
    )  # fmt: skip
    recorded = RecordedProblem(problem, {configuration: _row(row) for configuration, row in rows.items()})
    recording = Recording(
        results.name, results.kernel, Gpu(results.gpu, 0, 0, 0, 0, 0, 0), recorded="",
        versions={FOREIGN: results.format}, problems=(recorded,), conditions=conditions,
    )  # fmt: skip
    return ForeignResults(spec, recording, rows, tuple(notes), results.objective)


def _plain(text: str) -> str:
    return "".join(c for c in text if c.isprintable())[:200]


def _constants(results: ForeignRecording, t1: VariantSpec, path: Path, notes: list[str]) -> dict[str, Value]:
    """Return the parameters of the T1 file that the recording lacks, as they had one value throughout."""
    if missing := [name for name in results.parameters if name not in t1.parameters]:
        raise RecordingError(
            f"{path}: its parameters {', '.join(missing)} are not in the space file",
            "name the T1 file it was made from",
        )
    constants = {name: p.default for name, p in t1.parameters.items() if name not in results.parameters}
    if len(constants) == len(t1.parameters):
        raise RecordingError(
            f"{path} and the space file have no parameter in common", "name the right T1 file"
        )
    guessed = [f"{name}={value}" for name, value in constants.items() if len(t1.parameters[name].values) > 1]
    if guessed:
        notes.append(f"{path.name} does not say {', '.join(guessed)}: the space file's default is assumed")
    return constants


def _aligned(results: ForeignRecording, t1: VariantSpec) -> ForeignRecording:
    """Return the values with their types in the T1 file, as some writers make 1 of True, or 2.0 of 2."""
    tables = [{value: value for value in t1.parameters[name].values} for name in results.parameters]
    rows = {
        tuple(table.get(value, value) for table, value in zip(tables, key, strict=True)): row
        for key, row in results.rows.items()
    }
    return replace(results, rows=rows)


def _described(results: ForeignRecording, constants: Mapping[str, Value]) -> tuple[Problem, Conditions]:
    """Return the problem and the conditions; a file that this tool has written names both."""
    problem = Problem(results.kernel, dict(results.sizes), {}, dict(constants))
    try:
        ours = convert(results.metadata["problem"], Problem)
        if ours.key and not results.sizes:
            problem = replace(ours, kernel=results.kernel, options={**ours.options, **constants})
    except (KeyError, TypeError, ValueError, AttributeError):
        pass
    try:
        return problem, Conditions(Mode(results.metadata["mode"]), Regime(results.metadata["regime"]))
    except (KeyError, TypeError, ValueError):
        return problem, CONDITIONS


def _row(row: ForeignRow) -> Row:
    # The one time that the file ranks by; the median of its samples may differ.
    ranked = row.ranked_ns
    return Row(row.status, () if ranked is None else (ranked,), None, row.error, "")


def _digest(results: ForeignRecording, t1: VariantSpec | None) -> str:
    """Hash all that a search sees: only with the same can a run be resumed."""
    parameters = {name: list(values) for name, values in results.parameters.items()}
    rows = [[list(key), str(row.status), row.ranked_ns] for key, row in results.rows.items()]
    described: list[Any] = [results.format, parameters, rows]
    if t1 is not None:
        described.append([text for text, _ in t1.constraints])
        described.append({name: list(p.values) for name, p in t1.parameters.items()})
    return digest(described)


@dataclass(frozen=True)
class Imported:
    """The outcome of importing a file."""

    run: Run
    trials: int
    failures: int
    best: Configuration | None
    best_ns: float | None
    added: bool
    """False if the same results were there already."""


def import_foreign(database: Database, results: ForeignResults) -> Imported:
    """Add all results of a file as one run, in one transaction; the same results are not added twice.

    Raises:
        DatabaseError: the database cannot be written.
    """
    run = run_of(results)
    trials = [
        Trial(
            number, configuration, row.status, row.time_ns, samples_ns=row.samples_ns, error=row.error,
            compile_s=row.compile_s, measure_s=row.measure_s, tags=("replayed", TAG),
        )
        for number, (configuration, row) in enumerate(results.rows.items())
    ]  # fmt: skip
    ranked = [trial for trial in trials if trial.time_ns is not None]
    best = min(ranked, key=lambda trial: trial.time_ns or 0.0, default=None)
    added = run.id not in database.run_ids()
    if added:
        with database.transaction():
            database.start_run(run)
            ids = {trial.number: database.record(run.id, trial) for trial in trials}
            if best is not None and best.time_ns is not None:
                database.record_winner(
                    run.id, Winner(ids[best.number], best.configuration, best.time_ns, reason=UNVERIFIED)
                )
            database.finish_run(run.id, "finished", {"trials": len(trials)})
    failures = len(trials) - len(ranked)
    configuration, best_ns = (best.configuration, best.time_ns) if best else (None, None)
    return Imported(run, len(trials), failures, configuration, best_ns, added)


def run_of(results: ForeignResults) -> Run:
    """Return the run that a file's results are imported as."""
    recording, kernel = results.recording, results.kernel
    identity = KernelIdentity(kernel)
    what = digest([kernel.digest, results.problem.to_json(), recording.gpu.name, str(recording.conditions)])
    return Run(
        id=str(uuid.uuid5(uuid.NAMESPACE_OID, what)),
        problem=results.problem,
        gpu=recording.gpu,
        device=f"replay:{recording.name}",
        options=RunOptions(sampler=SAMPLER, trials=len(results.rows)),
        kernel_digest=identity.text,
        computation=identity.computation,
        kernel_file=str(kernel.file),
        versions={"kernel-tune": __version__, **recording.versions},
        conditions=recording.conditions,
    )
