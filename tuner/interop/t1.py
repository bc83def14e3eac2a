"""Search spaces in the T1 format."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tuner.enumeration import enumerate_valid
from tuner.errors import RecordingError, SpaceError
from tuner.expressions import Expression, parse
from tuner.interop.foreign import VARIANT, read_json
from tuner.kernel import ParameterSpec, VariantSpec
from tuner.model import Value
from tuner.space import SearchSpace, VariantSpace


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


def read_t1(path: Path) -> T1Space:
    """Read the search space of a T1 file; its expressions are parsed, and never run as Python.

    Raises:
        RecordingError: it is not a T1 file.
        ExpressionError: a condition is beyond what expressions may contain.
    """
    data = read_json(path)
    try:
        described = data["ConfigurationSpace"]
        parameters = {}
        for parameter in described["TuningParameters"]:
            name, values = str(parameter["Name"]), ast.literal_eval(str(parameter["Values"]))
            if not isinstance(values, list | tuple) or not values:
                raise RecordingError(f"{path}: values of {name} are not a list")
            values = tuple(dict.fromkeys(values))
            default = parameter.get("Default", values[len(values) // 2])
            if default not in values:
                default = values[len(values) // 2]
            parameters[name] = ParameterSpec(name, values, default)
        conditions = tuple(
            (str(c["Expression"]), parse(str(c["Expression"]))) for c in described.get("Conditions", ())
        )
        general = data.get("General", {})
        kernel = general.get("BenchmarkName") or data["KernelSpecification"]["KernelName"]
    except (KeyError, TypeError, AttributeError, ValueError, SyntaxError) as error:
        raise RecordingError(f"{path}: not a T1 file: {error!r}") from None
    return T1Space(str(kernel), parameters, conditions)
