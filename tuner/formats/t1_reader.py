"""Search spaces in the T1 format."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tuner.errors import ExpressionError, RecordingError, SpaceError
from tuner.expressions.arithmetic import Expression, parse
from tuner.formats.foreign_recording import VARIANT, damaged, read_json
from tuner.formats.t1_values import parse_values
from tuner.kernel.variant_spec import ParameterSpec, VariantSpec
from tuner.model import Value
from tuner.space.enumeration import enumerate_valid
from tuner.space.space import SearchSpace, VariantSpace


@dataclass(frozen=True)
class T1Space:
    """Parameters and conditions of a T1 file."""

    kernel: str
    parameters: dict[str, ParameterSpec]
    conditions: tuple[tuple[str, Expression], ...]

    @property
    def defaults(self) -> dict[str, Value]:
        """The values to begin with."""
        return {name: parameter.default for name, parameter in self.parameters.items()}

    def space(self, seed: int = 0) -> SearchSpace:
        """Enumerate what the conditions allow.

        Raises:
            SpaceError: they allow nothing.
        """
        variant = VariantSpec(VARIANT, "", None, self.parameters, self.conditions, (), ())
        allowed = {name: list(range(len(p.values))) for name, p in self.parameters.items()}
        valid = enumerate_valid(variant, allowed, {}, np.random.default_rng(seed))
        if not len(valid.matrix):
            raise SpaceError(f"{self.kernel}: no configuration is valid ({valid.excluded_by})")
        found = VariantSpace(VARIANT, tuple(self.parameters.values()), valid.matrix)
        return SearchSpace([found], math.prod(map(len, allowed.values())), valid.sampled)


def is_t1(data: object) -> bool:
    """Whether this is the content of a T1 file."""
    return isinstance(data, dict) and "ConfigurationSpace" in data


def read_t1(path: Path) -> T1Space:
    """Read the search space of a T1 file; its expressions are parsed, and never run as Python.

    Raises:
        RecordingError: it is not a T1 file.
        ExpressionError: a condition or a list of values is beyond what expressions may contain.
    """
    data = read_json(path)
    if not is_t1(data):
        raise RecordingError(f"{path}: not a T1 file", "name a file with a ConfigurationSpace")
    try:
        described = data["ConfigurationSpace"]
        parameters = {str(p["Name"]): _parameter(path, p) for p in described["TuningParameters"]}
        conditions = tuple(_condition(path, c, parameters) for c in described.get("Conditions") or ())
        general, kernel = data.get("General") or {}, data.get("KernelSpecification") or {}
        name = general.get("BenchmarkName") or kernel.get("KernelName") or path.name.removesuffix(".T1.json")
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged(path, error, "compare it with the T1 schema") from None
    if not parameters:
        raise RecordingError(f"{path}: it has no TuningParameters", "add one")
    return T1Space(str(name), parameters, conditions)


def _parameter(path: Path, described: dict[str, Any]) -> ParameterSpec:
    name = str(described["Name"])
    try:
        values = parse_values(described["Values"])
    except ExpressionError as error:
        raise ExpressionError(f"{path}: Values of {name}: {error.problem}", error.remedy) from None
    if "Default" not in described or described["Default"] not in values:
        return ParameterSpec(name, values, values[len(values) // 2])
    return ParameterSpec(name, values, values[values.index(described["Default"])])


def _condition(
    path: Path, described: dict[str, Any], parameters: dict[str, ParameterSpec]
) -> tuple[str, Expression]:
    text = str(described["Expression"])
    try:
        found = parse(text)
    except ExpressionError as error:
        raise ExpressionError(f"{path}: {error.problem}", error.remedy) from None
    if unknown := sorted(found.names - parameters.keys()):
        raise RecordingError(
            f"{path}: the condition {text!r} names {', '.join(unknown)}", "make it a parameter, or a number"
        )
    return text, found
