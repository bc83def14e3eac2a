"""What the readers of other tools' recordings have in common."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tuner.errors import RecordingError
from tuner.kernel import ParameterSpec
from tuner.model import Configuration, Value
from tuner.space import SearchSpace, VariantSpace

MAX_BYTES = 256 << 20
VARIANT = "kernel"
"""The name of the only variant: other tools do not have any."""


@dataclass(frozen=True)
class ForeignRecording:
    """A recording of another tool.

    Args:
        name: of the file, without its endings.
        parameters: names with their values, in the file's order.
        times_ns: for each recorded configuration its time, or None for a failure.
        defaults: values to begin with, where somebody has said so.
    """

    name: str
    parameters: Mapping[str, tuple[Value, ...]]
    times_ns: Mapping[tuple[Value, ...], float | None]
    defaults: Mapping[str, Value]

    def configuration(self, values: Sequence[Value]) -> Configuration:
        """Give a recorded row as a configuration."""
        return Configuration(VARIANT, tuple(zip(self.parameters, values, strict=True)))

    def space(self) -> SearchSpace:
        """Give what was recorded as the valid set."""
        specs = [
            ParameterSpec(name, values, self.defaults.get(name, values[len(values) // 2]))
            for name, values in self.parameters.items()
        ]
        places = [{value: i for i, value in enumerate(spec.values)} for spec in specs]
        matrix = np.array(
            [[table[v] for table, v in zip(places, row, strict=True)] for row in self.times_ns],
            dtype=np.int16,
        )
        return SearchSpace([VariantSpace(VARIANT, specs, matrix)], math.prod(len(s.values) for s in specs))


def read_json(path: Path) -> Any:
    """Read JSON, gzipped or not, and also what ends without its closing brackets.

    Raises:
        RecordingError: it cannot be read, or is not JSON.
    """
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            with gzip.open(path) as file:
                data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise RecordingError(f"{path}: larger than {MAX_BYTES >> 20} MiB")
        text = data.decode()
    except OSError as error:
        raise RecordingError(f"cannot read {path}: {error.strerror or error}") from None
    except (zlib.error, EOFError, UnicodeDecodeError) as error:
        raise RecordingError(f"{path}: damaged: {error}") from None
    last: ValueError | None = None
    for end in ("", "}", "}}", "}}}"):
        try:
            return json.loads(text if not end else text.rstrip().removesuffix(",") + end)
        except ValueError as error:
            last = last or error
        except RecursionError as error:
            raise RecordingError(f"{path}: not JSON: {error}") from None
    raise RecordingError(f"{path}: not JSON: {last}")


def milliseconds(value: object) -> float | None:
    """Give a time in nanoseconds; what is not a positive number is a failure, whatever else it says."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) * 1e6 if math.isfinite(value) and value > 0 else None
