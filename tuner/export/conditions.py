"""For which sizes a configuration is valid, as C++ conditions: what ``tuner.kernel.plan`` and the constraints ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tuner.expressions import cpp
from tuner.expressions.arithmetic import Expression
from tuner.expressions.cpp import Untranslatable
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import ArgumentSpec, LaunchSpec
from tuner.model import Configuration, Gpu, Problem
from tuner.runtime.dtypes import ITEMSIZE
from tuner.runtime.launch_limits import GRID_LIMITS, INTEGER_RANGES

TENSOR_MAP_ROW_BYTES = 16
"""A tensor map's rows start at multiples of this."""


def conditions_of(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration
) -> list[str] | None:
    """Return the conditions on the sizes of ``p`` under which a configuration can be launched, without a GPU's answer.

    Args:
        kernel: has the configuration's variant.
        problem: whose dtypes and options hold.
        gpu: whose limits hold.
        configuration: it is valid for the problem.

    Returns:
        C++ expressions of type bool; None where one of the conditions cannot be said in C++.
    """
    try:
        return list(dict.fromkeys(_Conditions(kernel, problem, gpu, configuration).all()))
    except Untranslatable:
        return None


class _Conditions:
    def __init__(self, kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration) -> None:
        self._kernel = kernel
        self._variant = kernel.variants[configuration.variant]
        self._sizes = frozenset(problem.sizes)
        names = {**kernel.environment(problem, gpu), **configuration.values}
        self._constants = {name: value for name, value in names.items() if name not in self._sizes}
        self._dtypes: Mapping[str, str] = problem.dtypes

    def all(self) -> Iterator[str]:
        """Yield each condition that does not always hold."""
        variant = self._variant
        required = [] if variant.requires is None else [variant.requires]
        texts = [self._condition(item) for item in (*required, *(c for _, c in variant.constraints_before))]
        for launch in variant.launches:
            wanted = "true" if launch.when is None else self._condition(launch.when)
            unless = "" if wanted == "true" else f"!{wanted} || "
            texts += [f"({unless}{text})" if unless else text for text in self._of_launch(launch)]
        return (text for text in texts if text != "true")

    def _of_launch(self, launch: LaunchSpec) -> Iterator[str]:
        grid = [self._integer(item) for item in launch.grid]
        for text, limit in zip(grid, GRID_LIMITS, strict=False):
            yield _between(text, 1, limit)
        for blocks, item in zip(grid, launch.cluster, strict=False):
            if (side := self._integer(item)) != "1LL":
                yield f"(mod({blocks}, {side}, fine) == 0)"
        for argument in launch.arguments:
            yield from self._of_argument(argument)

    def _of_argument(self, argument: ArgumentSpec) -> Iterator[str]:
        if argument.map is not None:
            tensor = self._kernel.tensors.get(argument.name)
            if tensor is not None:
                swapped = tensor.transposed is not None and self._condition(tensor.transposed) == "true"
                row = self._integer(tensor.shape[0 if swapped else -1])
                itemsize = ITEMSIZE[self._dtypes.get(tensor.dtype, tensor.dtype)]
                yield f"(mod(mul({row}, {itemsize}LL, fine), {TENSOR_MAP_ROW_BYTES}LL, fine) == 0)"
        elif argument.value is not None and argument.dtype in INTEGER_RANGES:
            yield _between(self._integer(argument.value), *INTEGER_RANGES[argument.dtype])
        elif argument.name in self._sizes:
            yield _between(self._variable(argument.name), *INTEGER_RANGES["int32"])

    def _condition(self, expression: Expression) -> str:
        return cpp.condition(expression, self._constants, self._variable)

    def _integer(self, expression: Expression) -> str:
        return cpp.integer(expression, self._constants, self._variable)

    def _variable(self, name: str) -> str:
        if name not in self._sizes:
            raise Untranslatable(name)
        return f"p.{name}"


def _between(text: str, low: int, high: int) -> str:
    if text.removesuffix("LL").removeprefix("-").isdigit():
        return "true" if low <= int(text.removesuffix("LL")) <= high else "false"
    return f"between({text}, {low}LL, {high}LL)"
