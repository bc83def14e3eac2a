"""A configuration of a manifest in numbers: all that a program needs to launch it but addresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..core.errors import CallError, TunerError
from .entries import Computation, LaunchEntry, Manifest
from .expressions import MAX_INTEGER, NoValueError, round_up
from .launch_limits import ALIGNMENT, DEVICE_LIMITS, MAX_SIZE, UnlaunchableError, fits, rounded
from .launches import Buffer, Plan
from .plans import PlanMaker

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
    """A configuration of a manifest in numbers: all that a launch needs but addresses."""

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
    *,
    apart: bool = False,
) -> ConcretePlan:
    """Return what a configuration launches.

    Args:
        manifest: of the bundle.
        configuration: an index of its configurations.
        sizes: by name, all of the manifest's.
        limits: of the GPU, by the names of :data:`DEVICE_LIMITS`.
        apart: whether rows of outputs lie apart; a configuration that has no launches for that has its own.

    Raises:
        InvalidForProblemError: the configuration cannot run these sizes on this GPU; says why.
        CallError: a size does not exist, or has no such value.
    """
    check_sizes(manifest, sizes)
    entry = manifest.configurations[configuration]
    if limits["cc"] != entry.cc:
        raise InvalidForProblemError(
            f"it was compiled for compute capability {entry.cc / 10}, and this GPU has {limits['cc'] / 10}"
        )
    names = {**sizes, **{name: limits[name] for name in DEVICE_LIMITS}}
    for reason, condition in entry.requires:
        if not condition.holds(names):
            raise InvalidForProblemError(reason)
    computation = manifest.computations[entry.computation]
    maker = PlanMaker(names, computation.tensors, computation.scalars, entry.scratch)
    entries = (apart and entry.slices) or entry.launches
    try:
        for buffer in (*maker.scratch, *maker.tensors):
            if buffer.size_bytes > MAX_BYTES:
                raise UnlaunchableError(f"{buffer.name} of {buffer.size_bytes} bytes", "use smaller sizes")
        steps = [(entries[index], at) for index, at in maker.steps(entries)]
        positions: dict[str, tuple[tuple[int, int], ...]] = {}
        for number, (launch, at) in enumerate(steps):
            parts = (part for argument in at.passed(launch) for part in argument.leaves)
            for position, argument in enumerate(parts):
                if argument.kind == "scalar":
                    positions[argument.name] = (*positions.get(argument.name, ()), (number, position))
        workspace, plan = _workspace(maker.scratch), maker.plan(entries)
    except NoValueError as error:
        raise InvalidForProblemError(f"a number of its launches has no value: {error}") from None
    except TunerError as error:
        raise InvalidForProblemError(error.problem, error.remedy) from None
    launches = tuple(launch for launch, _ in steps)
    return ConcretePlan(configuration, plan, launches, maker.tensors, positions, workspace)


def _workspace(scratch: Iterable[Buffer]) -> Workspace:
    """Return where each buffer lies: first those that are zeroed once, each at a multiple of ALIGNMENT."""
    offsets: dict[str, int] = {}
    end = zeroed_once = 0
    for buffer in sorted(scratch, key=lambda item: not item.zeroed_once):
        offsets[buffer.name] = end
        end += round_up(buffer.size_bytes, ALIGNMENT)
        if buffer.zeroed_once:
            zeroed_once = end
    if end > MAX_BYTES:
        raise UnlaunchableError(f"scratch memory of {end} bytes", "use smaller sizes")
    return Workspace(offsets, zeroed_once, end)


def check_sizes(manifest: Manifest, sizes: Mapping[str, int], *, every: bool = True) -> None:
    """Raise an error for other sizes than the manifest's, and unless ``every`` one is given.

    Raises:
        CallError: a name is wrong, or a size is not from 1 to 2**62.
    """
    if not sizes.keys() <= set(manifest.sizes) or (every and len(sizes) < len(manifest.sizes)):
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
    dtypes, values = {item.name: item.dtype for item in computation.scalars}, {}
    for name, value in given.items():
        if (dtype := dtypes.get(name)) is None:
            raise CallError(f"there is no scalar {name!r}", f"choose from: {', '.join(dtypes) or 'none'}")
        if not isinstance(value, (int, float)) or (isinstance(value, int) and abs(value) > MAX_INTEGER):
            raise CallError(f"scalar {name} = {value!r}", "give a number")
        try:
            values[name] = rounded(fits(value, dtype, name), dtype)
        except TunerError:
            raise CallError(f"scalar {name} = {value!r} does not fit {dtype}", "give another value") from None
    return values
