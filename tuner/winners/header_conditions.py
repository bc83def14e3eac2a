"""For which sizes a configuration can be launched, and what it needs of its caller then, as C++ expressions.

The conditions are those of ``requires``, of the constraints, and of ``tuner.kernel.plan``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from math import prod

from tuner.core.model import Configuration, Gpu, Problem, Resources
from tuner.expressions import cpp
from tuner.expressions.arithmetic import Expression
from tuner.expressions.cpp import Untranslatable
from tuner.kernel.spec import KernelSpec, TensorSpec
from tuner.kernel.variant_spec import ArgumentSpec, LaunchSpec, MapSpec, ScratchSpec
from tuner.runtime.dtypes import ITEMSIZE
from tuner.runtime.launch_limits import (
    ALIGNMENT,
    BLOCK_LIMITS,
    CLUSTER_LIMITS,
    GRID_LIMITS,
    INTEGER_RANGES,
    MAP_DTYPES,
)
from tuner.runtime.launches import MAX_CLUSTERS

MAX_INTEGER = 2**63 - 1
OF_A_DEVICE = {"sm_count", "l2_bytes"}
"""Limits in which GPUs of one compute capability differ."""


@dataclass(frozen=True)
class Launchable:
    """When a configuration can be launched, and what it needs then, as C++ over the sizes of ``p``.

    Attributes:
        conditions: of type bool; all must hold, and no arithmetic in them may leave 64 bits.
        alignment: bytes of which every tensor's address must be a multiple.
        zeroed_bytes: bytes of scratch memory that is zero before its first use, of type ``long long``.
        one_device: whether it can be launched only where a GPU has as many SMs as the one it was tuned on.
    """

    conditions: tuple[str, ...]
    alignment: str
    zeroed_bytes: str
    one_device: bool = False


def launchable(
    kernel: KernelSpec,
    problem: Problem,
    gpu: Gpu,
    configuration: Configuration,
    resources: Resources | None = None,
    *,
    searched: bool = False,
) -> Launchable | None:
    """Return when a configuration can be launched, for problems with the same dtypes and options.

    Args:
        kernel: has the configuration's variant.
        problem: whose dtypes and options hold.
        gpu: whose limits hold.
        configuration: of the kernel.
        resources: what the compiler reported of it, for the constraints that ask.
        searched: whether the pruning rules must hold, too.

    Returns:
        None where it can never be launched, or one of the conditions cannot be said in C++.
    """
    try:
        return _Conditions(kernel, problem, gpu, configuration, resources, searched).launchable()
    except Untranslatable:
        return None


class _Conditions:
    def __init__(
        self,
        kernel: KernelSpec,
        problem: Problem,
        gpu: Gpu,
        configuration: Configuration,
        resources: Resources | None,
        searched: bool,
    ) -> None:
        self._searched = searched
        self._kernel, self._gpu, self._dtypes = kernel, gpu, problem.dtypes
        self._variant = kernel.variants[configuration.variant]
        self._sizes = frozenset(problem.sizes)
        names = {**kernel.environment(problem, gpu), **configuration.values}
        names |= asdict(resources) if resources else {}
        self._constants = {name: value for name, value in names.items() if name not in self._sizes}
        self._scratch = {item.name: item for item in self._variant.scratch}

    def launchable(self) -> Launchable | None:
        variant, searched = self._variant, self._searched
        before = variant.search_conditions if searched else variant.constraints_before
        # What does not depend on the sizes was decided when the configuration was measured.
        after = [item for item in variant.constraints_after if item[1].names & self._sizes]
        conditions = [] if variant.requires is None else [variant.requires]
        conditions += [condition for _, condition in (*before, *([] if searched else after))]
        texts = [self._condition(expression) for expression in conditions]
        shaped: list[TensorSpec | ScratchSpec] = [*self._kernel.tensors.values(), *variant.scratch]
        for item in shaped:
            if unsure := [dim for dim in item.shape if not cpp.positive(dim, self._constants)]:
                texts += _implied(
                    self._present(item.name), (f"({self._integer(dim)} >= 1)" for dim in unsure)
                )
        wanted = [self._wanted(launch) for launch in variant.launches]
        texts.append(_any(wanted))
        for when, launch in zip(wanted, variant.launches, strict=True):
            texts += _implied(when, self._of_launch(launch))
        if "false" in texts:
            return None
        alignments = [self._alignment(launch) for launch in variant.launches]
        return Launchable(
            tuple(dict.fromkeys(text for text in texts if text != "true")),
            str(max(alignments)),
            _sum(self._bytes_of(item) for item in variant.scratch if item.zeroed_once),
            self._of_one_device(conditions),
        )

    def _of_one_device(self, conditions: Iterable[Expression]) -> bool:
        """Return whether a condition, or a grid whose blocks must all be resident, depends on the number of SMs."""
        waiting = [
            side
            for launch in self._variant.launches
            if launch.cooperative or (launch.resident and self._condition(launch.resident) != "false")
            for side in launch.grid
        ]
        return any(self._asks_device(expression) for expression in (*conditions, *waiting))

    def _asks_device(self, expression: Expression) -> bool:
        """Return whether the outcome may differ between GPUs of one compute capability."""
        if expression.names.isdisjoint(OF_A_DEVICE):
            return False
        constants = {name: self._constants[name] for name in self._constants if name not in OF_A_DEVICE}
        try:
            cpp.condition(expression, constants, self._variable)
        except Untranslatable:
            return True
        return False

    def _wanted(self, launch: LaunchSpec) -> str:
        return "true" if launch.when is None else self._condition(launch.when)

    def _of_launch(self, launch: LaunchSpec) -> Iterator[str]:
        grid, block = ([self._integer(item) for item in sides] for sides in (launch.grid, launch.block))
        for sides, limits in ((launch.grid, GRID_LIMITS), (launch.block, BLOCK_LIMITS)):
            yield from (self._within(side, 1, limit) for side, limit in zip(sides, limits, strict=False))
        yield _between(_product(block), 1, self._gpu.max_threads_per_block)
        yield self._within(launch.shared_bytes, 0, self._gpu.shared_bytes_optin)
        cluster = [self._integer(item) for item in launch.cluster]
        if (launch.cluster or launch.programmatic) and self._gpu.cc < 90:
            yield "false"
        for blocks, side, limit in zip(grid, cluster, CLUSTER_LIMITS, strict=False):
            yield _between(side, 1, limit)
            yield _multiple(blocks, side)
        for argument in launch.arguments:
            yield from self._of_argument(argument)
            if argument.cluster_order is not None and self._integer(argument.cluster_order) != "0LL":
                yield f"({_product(grid)} <= {_product([f'{MAX_CLUSTERS}LL', *cluster])})"

    def _of_argument(self, argument: ArgumentSpec) -> Iterator[str]:
        scalar = self._kernel.scalars.get(argument.name)
        if argument.map is not None:
            yield from self._of_map(argument, argument.map)
        elif argument.value is not None:
            yield self._fits(argument.value, argument.dtype)
        elif scalar is not None:
            yield self._fits(scalar.value, self._dtypes.get(scalar.dtype, scalar.dtype))
        elif argument.name in self._sizes:
            yield f"({self._variable(argument.name)} <= {INTEGER_RANGES['int32'][1]}LL)"

    def _fits(self, value: Expression, dtype: str) -> str:
        """Return whether a number fits its dtype, which no number exceeds in ``fine`` arithmetic if it has 64 bits."""
        if "float" in dtype:
            return "true"
        return self._within(value, *INTEGER_RANGES.get(dtype, (-MAX_INTEGER, MAX_INTEGER)))

    def _within(self, expression: Expression, low: int, high: int) -> str:
        text = self._integer(expression)
        if _number(text) is None and low <= 1 and cpp.positive(expression, self._constants):
            return f"({text} <= {high}LL)"
        return _between(text, low, high)

    def _of_map(self, argument: ArgumentSpec, spec: MapSpec) -> Iterator[str]:
        """Yield what holds for the first matrix that is present."""
        if self._gpu.cc < 90:
            yield "false"
        earlier: list[str] = []
        for name in (argument.name, *spec.instead):
            present = self._present(name)
            yield from _implied(_all([*map(cpp.negated, earlier), present]), self._of_matrix(name, spec))
            earlier.append(present)
        yield _any(earlier)

    def _of_matrix(self, name: str, spec: MapSpec) -> Iterator[str]:
        matrix = self._scratch.get(name) or self._kernel.tensors[name]
        dtype = self._dtypes.get(matrix.dtype, matrix.dtype)
        if len(matrix.shape) != 2 or dtype not in MAP_DTYPES:
            yield "false"
        swapped = getattr(matrix, "transposed", None)
        row = matrix.shape[0 if swapped is not None and self._constant(self._condition(swapped)) else -1]
        yield _multiple(_product([self._integer(row), f"{ITEMSIZE[dtype]}LL"]), "16LL")
        box = [self._integer(side) for side in spec.box]
        yield from (_between(side, 1, 256) for side in box)
        width = _product([box[1], f"{ITEMSIZE[dtype]}LL"])
        yield _multiple(width, "16LL")
        swizzle = self._outcomes(spec.swizzle, (0, 32, 64, 128))
        if max(swizzle):
            if len(swizzle) > 1:
                raise Untranslatable(spec.swizzle.text)
            yield _between(width, 0, swizzle[0])
        self._outcomes(spec.promotion, (0, 64, 128, 256))

    def _outcomes(self, expression: Expression, allowed: tuple[int, ...]) -> list[int]:
        """Return the values that an expression may have, all of them allowed."""
        values = cpp.outcomes(expression, self._constants)
        if not set(values) <= set(allowed):
            raise Untranslatable(expression.text)
        return values

    def _alignment(self, launch: LaunchSpec) -> int:
        """Return the largest alignment that a launch may ask for."""
        if launch.alignment is None:
            return 1
        return max(self._outcomes(launch.alignment, tuple(n for n in range(1, 257) if ALIGNMENT % n == 0)))

    def _present(self, name: str) -> str:
        item = self._scratch.get(name) or self._kernel.tensors.get(name)
        if item is None:
            return "false"
        return "true" if item.when is None else self._condition(item.when)

    def _bytes_of(self, scratch: ScratchSpec) -> str:
        itemsize = ITEMSIZE[self._dtypes.get(scratch.dtype, scratch.dtype)]
        return cpp.chosen(
            self._present(scratch.name),
            lambda: _product([*(self._integer(dim) for dim in scratch.shape), f"{itemsize}LL"]),
            lambda: "0LL",
        )

    @staticmethod
    def _constant(text: str) -> bool:
        if text not in ("true", "false"):
            raise Untranslatable(text)
        return text == "true"

    def _condition(self, expression: Expression) -> str:
        return cpp.condition(expression, self._constants, self._variable)

    def _integer(self, expression: Expression) -> str:
        return cpp.integer(expression, self._constants, self._variable)

    def _variable(self, name: str) -> str:
        if name not in self._sizes:
            raise Untranslatable(name)
        return f"p.{name}"


def _number(text: str) -> int | None:
    """Return the value of a literal."""
    digits = text.removesuffix("LL")
    return int(digits) if digits.removeprefix("-").isdigit() else None


def _between(text: str, low: int, high: int) -> str:
    if (value := _number(text)) is not None:
        return "true" if low <= value <= high else "false"
    return f"between({text}, {low}LL, {high}LL)"


def _multiple(text: str, of: str) -> str:
    value, divisor = _number(text), _number(of)
    if divisor == 1:
        return "true"
    if value is not None and divisor:
        return "false" if value % divisor else "true"
    return f"(mod({text}, {of}, fine) == 0)"


def _product(texts: Iterable[str]) -> str:
    texts = list(texts)
    numbers = [value for text in texts if (value := _number(text)) is not None]
    unknown = [text for text in texts if _number(text) is None]
    factor = prod(numbers)
    product = f"{factor}LL" if factor != 1 or not unknown else unknown.pop()
    for text in unknown:
        product = f"mul({text}, {product}, fine)"
    return product


def _sum(texts: Iterable[str]) -> str:
    total = "0LL"
    for text in texts:
        if text != "0LL":
            total = text if total == "0LL" else f"add({total}, {text}, fine)"
    return total


def _all(texts: Iterable[str]) -> str:
    return cpp.joined(texts, every=True)


def _any(texts: Iterable[str]) -> str:
    return cpp.joined(texts, every=False)


def _implied(condition: str, texts: Iterable[str]) -> list[str]:
    """Return what must hold where a condition does."""
    return [] if condition == "false" else [_any([cpp.negated(condition), text]) for text in texts]
