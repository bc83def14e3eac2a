"""Rows of the database and the records they stand for; every row carries a digest of its content."""

from __future__ import annotations

import array
import json
import math
import sys
import zlib
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any, NoReturn

from tuner.model import (
    Configuration,
    Gpu,
    Problem,
    Resources,
    Run,
    Status,
    Trial,
    Value,
    Verification,
    canonical_json,
    digest,
)
from tuner.records import Metrics, StoredTrial, StoredWinner, Winner

MAX_TEXT = 1 << 20
"""Characters kept of an error or a compiler log."""
MAX_SAMPLES = 1 << 24
_NOT_CONTENT = {
    "runs": {"digest", "state", "ended_at", "stats", "owner"},
    "trials": {"id", "digest"},
    "winners": {"id", "digest"},
}
"""Columns that may change without the row becoming another one."""
_RESOURCES = tuple(item.name for item in fields(Resources))


class Damaged(Exception):  # noqa: N818 - a finding; database.py decides what becomes of it
    """A row whose content is not what was written."""


def now() -> str:
    """Give the time in UTC, in a form that sorts as text."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def row_digest(table: str, row: Mapping[str, Any]) -> str:
    """Hash a row's content; row numbers are not content, so that a merged row keeps its digest."""
    ignored = _NOT_CONTENT[table]
    return digest({n: v.hex() if isinstance(v, bytes) else v for n, v in row.items() if n not in ignored})


def sealed(table: str, row: dict[str, Any]) -> dict[str, Any]:
    """Give the row with its digest."""
    return {**row, "digest": row_digest(table, row)}


def intact(table: str, row: Mapping[str, Any]) -> bool:
    """Whether a row is what was written."""
    try:
        return bool(row_digest(table, row) == row["digest"])
    except (ValueError, TypeError):
        return False


def encode_run(run: Run, owner: str) -> dict[str, Any]:
    """Give the row of a run that starts now."""
    return sealed(
        "runs",
        {
            "id": run.id,
            "started_at": now(),
            "ended_at": None,
            "state": "running",
            "owner": owner,
            "kernel": run.problem.kernel,
            "kernel_file": storable(run.kernel_file),
            "kernel_digest": run.kernel_digest,
            "problem": to_json(run.problem.to_json()),
            "problem_key": run.problem.key,
            "dtype": run.problem.dtype,
            "device": run.device,
            "replayed": int(run.replayed),
            "gpu_name": run.gpu.name,
            "gpu_uuid": run.gpu.uuid,
            "cc": run.gpu.cc,
            "gpu": to_json(run.gpu.to_json()),
            "driver": run.gpu.driver,
            "versions": to_json(dict(run.versions)),
            "seed": int(run.seed),
            "sampler": run.sampler,
            "trials_requested": int(run.trials),
            "lookahead": int(run.lookahead),
            "narrowing": to_json(dict(run.narrowing)),
            "stats": "{}",
        },
    )


def decode_run(row: Mapping[str, Any]) -> Run:
    """Rebuild a run, or raise :class:`Damaged`."""
    _check("runs", row, f"run {row['id']}")
    try:
        problem, gpu = Problem.from_json(from_json(row["problem"])), Gpu(**from_json(row["gpu"]))
        if (problem.kernel, problem.key, problem.dtype) != (row["kernel"], row["problem_key"], row["dtype"]):
            raise ValueError("its problem and its key differ")
        if (gpu.name, gpu.cc) != (row["gpu_name"], row["cc"]):
            raise ValueError("its GPU differs from its columns")
        return Run(
            row["id"], problem, gpu, row["device"], row["seed"], row["sampler"], row["trials_requested"],
            row["lookahead"], from_json(row["narrowing"]), row["kernel_digest"], row["kernel_file"],
            from_json(row["versions"]),
        )  # fmt: skip
    except _BROKEN as error:
        _damaged(f"run {row['id']}", error)


def encode_trial(run: Run, trial: Trial, metrics: Metrics, source_digests: list[str]) -> dict[str, Any]:
    """Give the row of a finished trial."""
    resources = trial.resources
    return sealed(
        "trials",
        {
            "run_id": run.id,
            "number": int(trial.number),
            "kernel": run.problem.kernel,
            "variant": trial.configuration.variant,
            "problem_key": run.problem.key,
            "dtype": run.problem.dtype,
            "gpu_name": run.gpu.name,
            "cc": run.gpu.cc,
            "replayed": int(run.replayed),
            "configuration": encode_parameters(trial.configuration),
            "status": str(trial.status),
            "time_ns": _real(trial.time_ns),
            "ci_low_ns": _real(trial.ci_low_ns),
            "ci_high_ns": _real(trial.ci_high_ns),
            "samples": zlib.compress(_swapped(array.array("f", trial.samples_ns)).tobytes()),
            "sample_count": len(trial.samples_ns),
            **{name: _real(getattr(metrics, name)) for name in ("tflops", "gbytes_per_s", "speed_of_light")},
            **{name: None if resources is None else int(getattr(resources, name)) for name in _RESOURCES},
            "verification": None if trial.verification is None else _encode_verification(trial.verification),
            "error": storable(trial.error),
            "source_digests": to_json(source_digests),
            "compile_log": storable(trial.compile_log),
            "compile_s": _real(trial.compile_s) or 0.0,
            "measure_s": _real(trial.measure_s) or 0.0,
            "tags": to_json(list(trial.tags)),
            "created_at": now(),
        },
    )


def decode_trial(row: Mapping[str, Any], run: Run) -> StoredTrial:
    """Rebuild a trial without its sources, or raise :class:`Damaged`."""
    name = f"trial {row['id']}"
    _check("trials", row, name)
    try:
        _same_problem(row, run)
        known = row["registers"] is not None
        trial = Trial(
            number=row["number"],
            configuration=decode_configuration(row),
            status=Status(row["status"]),
            time_ns=row["time_ns"],
            ci_low_ns=row["ci_low_ns"],
            ci_high_ns=row["ci_high_ns"],
            samples_ns=_decode_samples(row["samples"], row["sample_count"]),
            resources=Resources(**{n: int(row[n]) for n in _RESOURCES}) if known else None,
            verification=None if row["verification"] is None else _decode_verification(row["verification"]),
            error=row["error"],
            compile_log=row["compile_log"],
            compile_s=row["compile_s"],
            measure_s=row["measure_s"],
            tags=tuple(str(tag) for tag in from_json(row["tags"])),
            id=row["id"],
        )
        metrics = Metrics(row["tflops"], row["gbytes_per_s"], row["speed_of_light"])
        return StoredTrial(trial, run, metrics, row["created_at"])
    except _BROKEN as error:
        _damaged(name, error)


def with_sources(stored: StoredTrial, sources: tuple[str, ...]) -> StoredTrial:
    """Give the same trial with its rendered sources."""
    return replace(stored, trial=replace(stored.trial, sources=sources))


def encode_winner(run: Run, winner: Winner) -> dict[str, Any]:
    """Give the row of a run's winner."""
    return sealed(
        "winners",
        {
            "run_id": run.id,
            "trial_id": winner.trial_id,
            "kernel": run.problem.kernel,
            "problem_key": run.problem.key,
            "dtype": run.problem.dtype,
            "gpu_name": run.gpu.name,
            "cc": run.gpu.cc,
            "replayed": int(run.replayed),
            "variant": winner.configuration.variant,
            "configuration": encode_parameters(winner.configuration),
            "time_ns": float(winner.time_ns),
            "default_trial_id": winner.default_trial_id,
            **{n: _real(getattr(winner, n)) for n in ("default_time_ns", "ratio", "ratio_low", "ratio_high")},
            "verdict": str(winner.verdict),
            "confirmed_ns": _real(winner.confirmed_ns),
            "edges_verified": int(winner.edges_verified),
            "exportable": int(winner.exportable),
            "reason": storable(winner.reason),
            "race": to_json(winner.race),
            "created_at": now(),
        },
    )


def decode_winner(row: Mapping[str, Any], stored: StoredTrial) -> StoredWinner:
    """Rebuild a winner, or raise :class:`Damaged`; it must be the configuration of its trial."""
    name = f"winner {row['id']}"
    _check("winners", row, name)
    try:
        _same_problem(row, stored.run)
        configuration = decode_configuration(row)
        if configuration != stored.trial.configuration:
            raise ValueError("its configuration is not its trial's")
        plain = ("trial_id", "time_ns", "default_trial_id", "default_time_ns", "ratio", "ratio_low")
        winner = Winner(
            configuration=configuration,
            edges_verified=bool(row["edges_verified"]),
            exportable=bool(row["exportable"]),
            race=from_json(row["race"]),
            **{n: row[n] for n in (*plain, "ratio_high", "verdict", "confirmed_ns", "reason")},
        )
        return StoredWinner(row["id"], winner, stored.run, stored.trial, stored.metrics, row["created_at"])
    except _BROKEN as error:
        _damaged(name, error)


def encode_parameters(configuration: Configuration) -> str:
    """Give the parameters as JSON, in their order."""
    return to_json(configuration.values)


def decode_configuration(row: Mapping[str, Any]) -> Configuration:
    """Rebuild a configuration from the columns ``variant`` and ``configuration``."""
    parameters: dict[str, Value] = from_json(row["configuration"])
    if not all(isinstance(value, (int, float, str)) for value in parameters.values()):
        raise ValueError("a parameter is not a plain value")
    return Configuration.of(row["variant"], parameters)


_BROKEN = (ValueError, LookupError, TypeError, AttributeError, RecursionError, ArithmeticError, zlib.error)


def _check(table: str, row: Mapping[str, Any], name: str) -> None:
    if not intact(table, row):
        raise Damaged(f"{name} is damaged: its digest does not fit its content")


def _damaged(name: str, error: BaseException) -> NoReturn:
    raise Damaged(f"{name} cannot be read: {error}") from error


def _same_problem(row: Mapping[str, Any], run: Run) -> None:
    ours = (run.id, run.problem.key, run.problem.dtype, run.gpu.name, run.gpu.cc, int(run.replayed))
    if tuple(row[n] for n in ("run_id", "problem_key", "dtype", "gpu_name", "cc", "replayed")) != ours:
        raise ValueError("it differs from its run")


def storable(text: str) -> str:
    """Only what UTF-8 can hold, and not without end."""
    return text[:MAX_TEXT].encode("utf-8", "replace").decode()


def _real(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _plain(value: Any) -> Any:
    """Turn NumPy's numbers and other mappings and sequences into what JSON can hold."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return storable(value)
    if hasattr(value, "item"):
        value = value.item()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def to_json(value: Any) -> str:
    """Give JSON text that keeps the order of names; infinities and NaN become text."""
    return json.dumps(_plain(value), separators=(",", ":"), allow_nan=False)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def from_json(text: str) -> Any:
    """Read JSON text as strictly as it was written."""
    return json.loads(text, parse_constant=_refuse_constant)


def _encode_verification(verification: Verification) -> str:
    return canonical_json(_plain(vars(verification)))


def _decode_verification(text: str) -> Verification:
    data = from_json(text)
    data.update({name: float(data[name]) for name in ("worst_ratio", "norm_error")})  # also "inf" and "nan"
    return Verification(**data)


def _swapped(samples: array.array[float]) -> array.array[float]:
    if sys.byteorder == "big":
        samples.byteswap()
    return samples


def _decode_samples(blob: bytes, count: int) -> tuple[float, ...]:
    if not 0 <= count <= MAX_SAMPLES:
        raise ValueError(f"{count} samples")
    data = zlib.decompressobj().decompress(blob, 4 * count + 1)
    if len(data) != 4 * count:
        raise ValueError("samples are missing")
    return tuple(_swapped(array.array("f", data)))
