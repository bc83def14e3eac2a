"""Rows of the database and the records they stand for; every row carries a digest of its content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime
from typing import Any

import msgspec

from tuner.core.conditions import Calibration
from tuner.core.model import (
    RENAMED_SAMPLERS,
    Configuration,
    Gpu,
    Problem,
    Resources,
    Run,
    RunOptions,
    Trial,
)
from tuner.database import cells
from tuner.database.cells import Damaged
from tuner.database.records import Benchmark, Metrics, StoredTrial, StoredWinner, Winner

_RESOURCES = tuple(item.name for item in fields(Resources))
_METRICS = Metrics.__struct_fields__
_TIMES = ("time_ns", "ci_low_ns", "ci_high_ns")
_RATIOS = ("ratio", "ratio_low", "ratio_high")


def encode_run(run: Run, owner: str) -> dict[str, Any]:
    """Return the row of a run that starts now."""
    return cells.sealed(
        "runs",
        id=run.id,
        started_at=cells.now(),
        ended_at=None,
        state="running",
        owner=owner,
        kernel_file=cells.storable(run.kernel_file),
        **_described(run),
        device=run.device,
        replayed=int(run.replayed),
        seed=int(run.options.seed),
        sampler=run.options.sampler,
        trials_requested=int(run.options.trials),
        lookahead=int(run.lookahead),
        narrowing=cells.to_json(run.options.to_json()),
        stats="{}",
        calibration=cells.to_json(None if run.calibration is None else run.calibration.to_json()),
    )


def decode_run(row: Mapping[str, Any]) -> Run:
    """Rebuild a run, or raise :class:`Damaged`."""
    with _decoding("runs", row):
        calibration = cells.from_json(row["calibration"], dict[str, Any] | None)
        return msgspec.convert(
            {
                **row,
                **_as_described(row),
                "options": RunOptions.from_json(
                    cells.from_json(row["narrowing"]),
                    trials=row["trials_requested"],
                    sampler=RENAMED_SAMPLERS.get(row["sampler"], row["sampler"]),
                    seed=row["seed"],
                ),
                "calibration": calibration and Calibration.from_json(calibration),
            },
            Run,
        )


def encode_trial(run: Run, trial: Trial, metrics: Metrics, source_digests: list[str]) -> dict[str, Any]:
    """Return the row of a finished trial."""
    resources = trial.resources
    samples = cells.encode_samples(trial.samples_ns)
    return cells.sealed(
        "trials",
        **_of_run(run, trial.configuration),
        number=int(trial.number),
        status=str(trial.status),
        samples=samples,
        sample_count=len(trial.samples_ns),
        **_reals(trial, _TIMES),
        **_reals(metrics, _METRICS),
        **{name: None if resources is None else int(getattr(resources, name)) for name in _RESOURCES},
        verification=trial.verification and cells.encode_verification(trial.verification),
        error=cells.storable(trial.error),
        source_digests=cells.to_json(source_digests),
        compile_log=cells.storable(trial.compile_log),
        **{
            name: cells.real(getattr(trial, name)) or 0.0
            for name in ("compile_s", "measure_s", "sm_clock_hz")
        },
        tags=cells.to_json(list(trial.tags)),
        capped_samples=int(trial.capped_samples),
        outliers=cells.outliers_in(samples, len(trial.samples_ns)),
        implementation=trial.implementation,
    )


def decode_trial(row: Mapping[str, Any], run: Run) -> StoredTrial:
    """Rebuild a trial without its sources, or raise :class:`Damaged`."""
    with _decoding("trials", row):
        _same_problem(row, run)
        source_digests_of(row)
        trial = msgspec.convert(
            {
                **row,
                "configuration": cells.decode_configuration(row),
                "samples_ns": cells.decode_samples(row["samples"], row["sample_count"]),
                "resources": None if row["registers"] is None else {name: row[name] for name in _RESOURCES},
                "verification": row["verification"] and cells.decode_verification(row["verification"]),
                "tags": cells.from_json(row["tags"], tuple[str, ...]),
            },
            Trial,
        )
        _refuse_impossible(trial, _TIMES)
        return StoredTrial(trial, run, msgspec.convert(row, Metrics), _time_of(row), row["outliers"])


def source_digests_of(row: Mapping[str, Any]) -> list[str]:
    """Return the digests of a trial's sources.

    Raises:
        ValueError: it is no list of texts.
    """
    return list(cells.from_json(row["source_digests"], list[str]))


def encode_winner(run: Run, winner: Winner) -> dict[str, Any]:
    """Return the row of a run's winner."""
    return cells.sealed(
        "winners",
        **_of_run(run, winner.configuration),
        trial_id=winner.trial_id,
        time_ns=float(winner.time_ns),
        default_trial_id=winner.default_trial_id,
        **_reals(winner, ("default_time_ns", "confirmed_ns", *_RATIOS)),
        verdict=str(winner.verdict),
        edges_verified=int(winner.edges_verified),
        exportable=int(winner.exportable),
        reason=cells.storable(winner.reason),
        race=cells.to_json(
            dict(winner.race) | ({"warm": msgspec.structs.asdict(winner.warm)} if winner.warm else {})
        ),
    )


def decode_winner(row: Mapping[str, Any], stored: StoredTrial) -> StoredWinner:
    """Rebuild a winner, or raise :class:`Damaged`; it must be the configuration of its trial."""
    with _decoding("winners", row):
        _same_problem(row, stored.run)
        configuration = cells.decode_configuration(row)
        if configuration != stored.trial.configuration:
            raise ValueError("its configuration is not its trial's")
        race = cells.from_json(row["race"], dict[str, Any])
        flags = {name: bool(row[name]) for name in ("edges_verified", "exportable")}
        winner = msgspec.convert(
            {**row, **flags, "configuration": configuration, "warm": race.pop("warm", None), "race": race},
            Winner,
        )
        _refuse_impossible(winner, ("time_ns", "default_time_ns", "confirmed_ns"))
        if winner.warm:
            _refuse_impossible(winner.warm, ("time_ns",))
        metrics = _scaled(stored, winner.time_ns)
        taken = stored.trial, stored.run, metrics, _time_of(row), stored.outliers
        return StoredWinner(*taken, id=row["id"], winner=winner)


def _scaled(stored: StoredTrial, time_ns: float) -> Metrics:
    """Return what another time of a trial's configuration means."""
    if stored.trial.time_ns is None:
        return stored.metrics
    factor = stored.trial.time_ns / time_ns
    return Metrics(*(value and value * factor for value in msgspec.structs.astuple(stored.metrics)))


def encode_benchmark(benchmark: Benchmark, winner_run: str | None, created_at: str) -> dict[str, Any]:
    """Return the row of one contestant; a winner is named by its run, whatever row number it gets elsewhere."""
    configuration = benchmark.configuration
    return cells.sealed(
        "benchmarks",
        bench=benchmark.bench,
        **_described(benchmark),
        contestant=cells.storable(benchmark.contestant),
        variant=None if configuration is None else configuration.variant,
        configuration=None if configuration is None else cells.encode_parameters(configuration),
        winner_run=winner_run,
        **{name: float(getattr(benchmark, name)) for name in (*_TIMES, "noise_floor")},
        samples=cells.encode_samples(benchmark.samples_ns),
        sample_count=len(benchmark.samples_ns),
        **_reals(benchmark, _RATIOS),
        verdict=str(benchmark.verdict),
        sm_clock_hz=cells.real(benchmark.sm_clock_hz) or 0.0,
        tags=cells.to_json(list(benchmark.tags)),
        created_at=created_at,
    )


def decode_benchmark(row: Mapping[str, Any], winner_id: int | None) -> Benchmark:
    """Rebuild one contestant of a benchmark, or raise :class:`Damaged`.

    Args:
        row: of ``benchmarks``.
        winner_id: the row number that the winner of ``winner_run`` has in this file; none where that is gone.
    """
    with _decoding("benchmarks", row):
        benchmark = msgspec.convert(
            {
                **row,
                **_as_described(row),
                "configuration": None if row["variant"] is None else cells.decode_configuration(row),
                "winner_id": winner_id,
                "samples_ns": cells.decode_samples(row["samples"], row["sample_count"]),
                "tags": cells.from_json(row["tags"], tuple[str, ...]),
            },
            Benchmark,
        )
        _refuse_impossible(benchmark, _TIMES)
        return benchmark


@contextmanager
def _decoding(table: str, row: Mapping[str, Any]) -> Iterator[None]:
    """Raise :class:`Damaged` where the row's digest does not fit, or what the block decodes makes no sense."""
    name = f"{table.removesuffix('s')} {row['id']}"
    if column := cells.too_long(row):
        raise Damaged(f"{name} is damaged: its {column} is longer than what is written")
    if not cells.intact(table, row):
        raise Damaged(f"{name} is damaged: its digest does not fit its content")
    try:
        yield
    except cells.UNREADABLE as error:
        raise Damaged(f"{name} cannot be read: {error}") from error


def _refuse_impossible(record: object, names: Iterable[str]) -> None:
    """Raise ValueError for a time that is not above zero: it would be the best there is."""
    for name in names:
        time_ns = getattr(record, name)
        if time_ns is not None and not time_ns > 0:
            raise ValueError(f"its {name} is {time_ns:g}")


def _reals(record: object, names: Iterable[str]) -> dict[str, float | None]:
    return {name: cells.real(getattr(record, name)) for name in names}


def _keys(timed: Run | Benchmark) -> dict[str, Any]:
    """Return the columns that queries go by; they stand in every table."""
    problem, gpu, conditions = timed.problem, timed.gpu, timed.conditions
    of_problem = {"kernel": problem.kernel, "problem_key": problem.key, "dtype": problem.dtype}
    under = {"mode": str(conditions.mode), "regime": str(conditions.regime)}
    return {**of_problem, "gpu_name": gpu.name, "cc": gpu.cc, **under}


def _described(timed: Run | Benchmark) -> dict[str, Any]:
    """Return the columns of what does not refer to a run that describes itself."""
    return {
        **_keys(timed),
        "kernel_digest": timed.kernel_digest,
        "computation": timed.computation,
        "problem": cells.to_json(timed.problem.to_json()),
        "gpu": cells.to_json(timed.gpu.to_json()),
        "gpu_uuid": timed.gpu.uuid,
        "driver": timed.gpu.driver,
        "versions": cells.to_json(dict(timed.versions)),
    }


def _of_run(run: Run, configuration: Configuration) -> dict[str, Any]:
    """Return the columns of one configuration of a run."""
    return {
        "run_id": run.id,
        **_keys(run),
        "replayed": int(run.replayed),
        "variant": configuration.variant,
        "configuration": cells.encode_parameters(configuration),
        "created_at": cells.now(),
    }


def _as_described(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what :func:`_described` has written, but for plain columns."""
    problem, gpu = cells.from_json(row["problem"], Problem), cells.from_json(row["gpu"], Gpu)
    if (problem.kernel, problem.key, problem.dtype) != (row["kernel"], row["problem_key"], row["dtype"]):
        raise ValueError("its problem and its key differ")
    if (gpu.name, gpu.cc) != (row["gpu_name"], row["cc"]):
        raise ValueError("its GPU differs from its columns")
    return {
        "problem": problem,
        "gpu": gpu,
        "conditions": {"mode": row["mode"], "regime": row["regime"]},
        "versions": cells.from_json(row["versions"], dict[str, str]),
    }


def _time_of(row: Mapping[str, Any]) -> str:
    """Return when a row was written, in ISO 8601.

    Raises:
        ValueError: it says something else.
    """
    datetime.fromisoformat(row["created_at"])
    return str(row["created_at"])


def _same_problem(row: Mapping[str, Any], run: Run) -> None:
    ours = (run.id, run.problem.key, run.problem.dtype, run.gpu.name, run.gpu.cc, int(run.replayed))
    if tuple(row[n] for n in ("run_id", "problem_key", "dtype", "gpu_name", "cc", "replayed")) != ours:
        raise ValueError("it differs from its run")
    if (row["mode"], row["regime"]) != (run.conditions.mode, run.conditions.regime):
        raise ValueError("it was timed under other conditions than its run")
