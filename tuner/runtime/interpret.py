"""From a manifest's configuration, sizes and a GPU's limits to launches in numbers: the interpreter of all plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..core.errors import CallError, TunerError
from .expressions import MAX_INTEGER, Expression, NoValueError, evaluate, holds
from .launch_limits import (
    ALIGNMENT,
    BLOCK_LIMITS,
    DEVICE_LIMITS,
    GRID_LIMITS,
    NULL_POINTER,
    UnlaunchableError,
    check_launch,
    cluster_of,
    fits,
    map_argument,
    rounded,
    triple,
)
from .launches import Buffer, Launch, Plan
from .manifest import MAX_SIZE
from .manifest_records import (
    ArgumentEntry,
    Computation,
    ConfigurationEntry,
    LaunchEntry,
    Manifest,
    ScalarEntry,
    ScratchEntry,
)

MAX_BYTES = 2**60
"""Of a tensor, and of scratch memory: C++ counts them with 64 bits."""


class InvalidForProblemError(CallError):
    """A configuration cannot run these sizes on this GPU."""


@dataclass(frozen=True)
class Workspace:
    """Where the scratch memory of a plan lies in one piece of memory, in bytes."""

    offsets: Mapping[str, int] = field(default_factory=dict)
    zeroed_once_bytes: int = 0
    """The first so many are zero before the first run; every run leaves them zero."""
    size_bytes: int = 0


@dataclass(frozen=True)
class ConcretePlan:
    """A configuration in numbers: all that a launch needs but addresses."""

    configuration: int
    """Its index in the manifest."""
    plan: Plan
    entries: tuple[LaunchEntry, ...]
    """Of each launch of the plan: its cubin and the kernel's name in it."""
    tensors: tuple[Buffer, ...]
    """Those that the problem has, in the kernel's order; shapes as they lie in memory."""
    scalar_positions: Mapping[str, tuple[tuple[int, int], ...]]
    """Where each scalar is passed: pairs of a launch and an argument, as indices of the plan."""
    workspace: Workspace


def interpret(
    manifest: Manifest,
    configuration: int,
    sizes: Mapping[str, int],
    limits: Mapping[str, int],
) -> ConcretePlan:
    """Return what a configuration launches.

    Args:
        manifest: of the bundle.
        configuration: an index of its configurations.
        sizes: by name, all of the manifest's.
        limits: of the GPU, by the names of :data:`DEVICE_LIMITS`.

    Raises:
        InvalidForProblemError: the configuration cannot run these sizes on this GPU; says why.
        CallError: a size does not exist, or has no such value.
    """
    check_sizes(manifest, sizes)
    entry = manifest.configurations[configuration]
    computation = manifest.computations[entry.computation]
    if limits["cc"] != entry.cc:
        raise InvalidForProblemError(
            f"it was compiled for compute capability {entry.cc / 10}, and this GPU has {limits['cc'] / 10}"
        )
    names = {**sizes, **{name: limits[name] for name in DEVICE_LIMITS}}
    for requirement in entry.requires:
        if not holds(requirement.holds, names):
            raise InvalidForProblemError(requirement.reason)
    try:
        return _Interpreter(computation, entry, names).run(configuration)
    except NoValueError as error:
        raise InvalidForProblemError(f"a number of its launches has no value: {error}") from None
    except CallError:
        raise
    except TunerError as error:
        raise InvalidForProblemError(error.problem, error.remedy) from None


def check_sizes(manifest: Manifest, sizes: Mapping[str, int]) -> None:
    """Raise an error unless all sizes are given, and no others.

    Raises:
        CallError: a name is wrong, or a size is not from 1 to 2**62.
    """
    if sizes.keys() != set(manifest.sizes):
        raise CallError(
            f"sizes {', '.join(sizes) or 'none'}", f"{manifest.kernel} takes {', '.join(manifest.sizes)}"
        )
    for name, size in sizes.items():
        if type(size) is not int or not 1 <= size <= MAX_SIZE:
            raise CallError(f"size {name} = {size!r}", "a size is a whole number from 1 to 2**62")


def scalar_values(computation: Computation, given: Mapping[str, float]) -> dict[str, float]:
    """Return a caller's scalars as their dtypes hold them.

    Raises:
        CallError: there is no such scalar, or its dtype has no such value.
    """
    entries = {item.name: item for item in computation.scalars}
    return {name: _scalar_value(entries, name, value) for name, value in given.items()}


def _scalar_value(entries: Mapping[str, ScalarEntry], name: str, value: object) -> float:
    if name not in entries:
        raise CallError(f"there is no scalar {name!r}", f"choose from: {', '.join(entries) or 'none'}")
    if not isinstance(value, (int, float)) or (isinstance(value, int) and abs(value) > MAX_INTEGER):
        raise CallError(f"scalar {name} = {value!r}", "give a number")
    dtype = entries[name].dtype
    try:
        return rounded(fits(value, dtype, name), dtype)
    except TunerError:
        raise CallError(f"scalar {name} = {value!r} does not fit {dtype}", "give another value") from None


class _Interpreter:
    def __init__(
        self,
        computation: Computation,
        entry: ConfigurationEntry,
        names: Mapping[str, int],
    ) -> None:
        self._computation = computation
        self._entry = entry
        self._names = names

    def run(self, configuration: int) -> ConcretePlan:
        scratch = tuple(self._scratch(item) for item in self._entry.scratch if self._true(item.when))
        workspace = _workspace(scratch)
        self._scalars = {item.name: self._scalar(item) for item in self._computation.scalars}
        tensors = self._tensors()
        self._present = {buffer.name: buffer for buffer in (*tensors, *scratch)}
        entries = tuple(launch for launch in self._entry.launches if self._true(launch.when))
        if not entries:
            raise UnlaunchableError("it has no launch for these sizes")
        positions: dict[str, tuple[tuple[int, int], ...]] = {}
        launches = []
        for index, entry in enumerate(entries):
            launches.append(self._launch(entry))
            passed = [item for item in entry.arguments if self._is_passed(item)]
            for position, argument in enumerate(passed):
                if argument.kind == "scalar":
                    (name,) = argument.names
                    positions[name] = (*positions.get(name, ()), (index, position))
        return ConcretePlan(
            configuration, Plan(tuple(launches), scratch), entries, tensors, positions, workspace
        )

    def _tensors(self) -> tuple[Buffer, ...]:
        buffers = []
        for item in self._computation.tensors:
            if self._true(item.when):
                shape = self._extents(item.shape, f"shape of {item.name}")
                shape = shape[::-1] if item.transposed else shape
                buffers.append(Buffer(item.name, shape, item.dtype, item.role, transposed=item.transposed))
                _check_bytes(buffers[-1])
        if all(buffer.role == "input" for buffer in buffers):
            raise UnlaunchableError("the problem has no output")
        return tuple(buffers)

    def _scratch(self, item: ScratchEntry) -> Buffer:
        shape = self._extents(item.shape, f"shape of {item.name}")
        buffer = Buffer(
            item.name, shape, item.dtype, "scratch", zeroed=item.zeroed, zeroed_once=item.zeroed_once
        )
        _check_bytes(buffer)
        return buffer

    def _scalar(self, item: ScalarEntry) -> tuple[str, str, float]:
        value = fits(evaluate(item.value, self._names), item.dtype, item.name)
        return "scalar", item.dtype, rounded(value, item.dtype)

    def _launch(self, entry: LaunchEntry) -> Launch:
        grid = triple(self._extents(entry.grid, "grid"), "grid", GRID_LIMITS)
        launch = Launch(
            grid,
            triple(self._extents(entry.block, "block"), "block", BLOCK_LIMITS),
            self._whole(entry.shared_bytes, "shared_bytes"),
            tuple(self._argument(item) for item in entry.arguments if self._is_passed(item)),
            cluster_of(self._extents(entry.cluster, "cluster"), grid, self._names["cc"]),
            entry.cooperative,
            None if entry.carveout is None else self._whole(entry.carveout, "carveout"),
            self._alignment(entry.alignment),
            self._true(entry.resident),
            entry.programmatic,
        )
        check_launch(launch, self._names)
        return launch

    def _is_passed(self, argument: ArgumentEntry) -> bool:
        """Return whether an argument is one: a cluster order of 0 is left out."""
        return argument.kind != "cluster_order" or self._whole(argument.value, "cluster_order") > 0

    def _argument(self, argument: ArgumentEntry) -> tuple[str, str, float | str]:
        match argument.kind:
            case "value":
                value = evaluate(argument.value, self._names)
                return "scalar", argument.dtype, fits(value, argument.dtype, "value")
            case "cluster_order":
                return "cluster_order", "uint8", self._whole(argument.value, "cluster_order")
            case "map":
                return self._map(argument)
            case "scalar":
                return self._scalars[argument.names[0]]
        (name,) = argument.names
        return ("buffer", name, 0) if name in self._present else NULL_POINTER

    def _map(self, argument: ArgumentEntry) -> tuple[str, str, str]:
        matrix = next((self._present[name] for name in argument.names if name in self._present), None)
        what = f"tensor map of {matrix.name if matrix else argument.names[0]}"
        rows, columns = self._extents(argument.box, f"box of the {what}")
        swizzle = self._whole(argument.swizzle, f"swizzle of the {what}")
        promotion = self._whole(argument.promotion, f"l2_promotion of the {what}")
        return map_argument(matrix, what, (rows, columns), swizzle, promotion, self._names["cc"])

    def _alignment(self, expression: Expression) -> int:
        alignment = self._whole(expression, "alignment", minimum=1)
        if ALIGNMENT % alignment:
            raise UnlaunchableError(
                f"alignment = {alignment}", f"it must be a power of two up to {ALIGNMENT}"
            )
        return alignment

    def _true(self, expression: Expression) -> bool:
        return bool(evaluate(expression, self._names))

    def _extents(self, expressions: Iterable[Expression], what: str) -> tuple[int, ...]:
        return tuple(self._whole(item, what, minimum=1) for item in expressions)

    def _whole(self, expression: Expression, what: str, minimum: int = 0) -> int:
        value = evaluate(expression, self._names)
        if value != int(value) or not minimum <= value <= MAX_INTEGER:
            raise UnlaunchableError(f"{what} = {value}", f"it must be a whole number from {minimum} up")
        return int(value)


def _check_bytes(buffer: Buffer) -> None:
    if buffer.size_bytes > MAX_BYTES:
        raise UnlaunchableError(f"{buffer.name} of {buffer.size_bytes} bytes", "use smaller sizes")


def _workspace(scratch: Iterable[Buffer]) -> Workspace:
    """Return where each buffer lies: first those that are zeroed once, each at a multiple of ALIGNMENT."""
    offsets: dict[str, int] = {}
    end = zeroed_once = 0
    for buffer in sorted(scratch, key=lambda item: not item.zeroed_once):
        offsets[buffer.name] = end
        end += -(-buffer.size_bytes // ALIGNMENT) * ALIGNMENT
        if buffer.zeroed_once:
            zeroed_once = end
    if end > MAX_BYTES:
        raise UnlaunchableError(f"scratch memory of {end} bytes", "use smaller sizes")
    return Workspace(offsets, zeroed_once, end)
