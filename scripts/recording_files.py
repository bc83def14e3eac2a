"""Writes recordings, in the format that the tuner reads (``tuner.formats.recording``)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner.core.files import whole_file
from tuner.core.model import Trial
from tuner.formats.recording import COLUMNS, FORMAT, VERSION, RecordedProblem, Recording, Row
from tuner.kernel.variant_spec import RESOURCE_NAMES


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
