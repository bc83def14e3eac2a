"""Computations and configurations as a bundle's manifest says them (``docs/bundles.md``): what ``tuner.kernel.plan``
would make of them, with sizes and the device's limits left open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tuner.core.errors import KernelError
from tuner.core.model import Configuration, Gpu, Problem, Resources, Value
from tuner.expressions.arithmetic import Expression
from tuner.expressions.folding import Folded, fold
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import ArgumentSpec, LaunchSpec, ScratchSpec
from tuner.runtime.launch_limits import DEVICE_LIMITS
from tuner.winners.baked_sizes import baked_sizes

Record = dict[str, Any]
"""A part of a manifest, as JSON."""


@dataclass(frozen=True)
class CompiledLaunch:
    """What a launch was compiled to: the names of its cubin and its source in a bundle, and its entry's name."""

    cubin: str
    source: str
    entry: str


@dataclass(frozen=True)
class BundledConfiguration:
    """A configuration of a kernel, for problems that have a problem's dtypes and options, on GPUs like one."""

    kernel: KernelSpec
    problem: Problem
    gpu: Gpu
    configuration: Configuration

    @property
    def constants(self) -> dict[str, Any]:
        """The values of all names but sizes and the device's limits."""
        values = self.configuration.values
        return {**self.problem.dtypes, **self.problem.options, "cc": self.gpu.cc, **values}

    def fold(self, expression: Expression) -> Folded:
        """Return an expression of the variant as JSON.

        Raises:
            KernelError: it gives text.
        """
        return fold(expression, self.constants)

    @property
    def launches(self) -> dict[int, LaunchSpec]:
        """The variant's launches by number, without those that no problem of these dtypes and options has.

        Raises:
            KernelError: a stored configuration names a variant that the kernel does not have.
        """
        if self.configuration.variant not in self.kernel.variants:
            raise KernelError(f"{self.kernel.name} has no variant {self.configuration.variant!r}")
        every = self.kernel.variants[self.configuration.variant].launches
        return {
            number: launch
            for number, launch in enumerate(every)
            if launch.when is None or self.fold(launch.when) is not False
        }

    @property
    def takes_cluster_order(self) -> bool:
        """Whether a launch takes a table of cluster numbers, for which the GPU is probed."""
        orders = [a.cluster_order for launch in self.launches.values() for a in launch.arguments]
        return any(self.fold(order) != 0 for order in orders if order is not None)


def computation_record(kernel: KernelSpec, problem: Problem) -> Record:
    """Return what is computed for a problem's dtypes and options.

    Raises:
        KernelError: an expression that a program cannot evaluate, such as a layout that depends on sizes.
    """
    constants = {**problem.dtypes, **problem.options}
    return {
        "dtypes": dict(problem.dtypes),
        "options": dict(problem.options),
        "tensors": [
            {
                "name": tensor.name,
                "role": tensor.role,
                "dtype": problem.dtypes.get(tensor.dtype, tensor.dtype),
                "shape": [fold(dim, constants) for dim in tensor.shape],
                "transposed": _transposed(tensor.transposed, constants),
                **_when(tensor.when, constants),
            }
            for tensor in kernel.tensors.values()
        ],
        "scalars": [
            {
                "name": scalar.name,
                "dtype": problem.dtypes.get(scalar.dtype, scalar.dtype),
                "value": fold(scalar.value, constants),
            }
            for scalar in kernel.scalars.values()
        ],
    }


def configuration_record(
    bundled: BundledConfiguration,
    computation: int,
    compiled: Mapping[int, CompiledLaunch],
    resources: Resources | None,
) -> Record:
    """Return a configuration's record.

    Args:
        bundled: the configuration.
        computation: the number of its computation in the manifest.
        compiled: its launches by number, all of :attr:`BundledConfiguration.launches`.
        resources: what the compiler reported; None leaves out the constraints on that.

    Raises:
        KernelError: an expression that a program cannot evaluate.
    """
    variant = bundled.kernel.variants[bundled.configuration.variant]
    scratch = {item.name: item for item in variant.scratch}
    return {
        "computation": computation,
        "cc": bundled.gpu.cc,
        "variant": variant.name,
        "parameters": bundled.configuration.values,
        "requires": _requirements(bundled, resources),
        "scratch": [_scratch(bundled, item) for item in variant.scratch],
        "launches": [
            _launch(bundled, launch, scratch, compiled[number]) for number, launch in bundled.launches.items()
        ],
    }


def _requirements(bundled: BundledConfiguration, resources: Resources | None) -> list[Record]:
    """Return the conditions that do not hold for all sizes and limits."""
    variant = bundled.kernel.variants[bundled.configuration.variant]
    needed = [(f"{variant.name} needs {reason}", item) for reason, item in variant.requirements]
    if variant.requires is not None and not needed:  # the file has no words for it
        needed = [(f"{variant.name} requires {variant.requires.written}", variant.requires)]
    conditions = [(reason, bundled.fold(item)) for reason, item in needed]
    conditions += [(reason, bundled.fold(item)) for reason, item in variant.constraints_before]
    if resources is not None:
        constants = {**bundled.constants, **asdict(resources)}
        conditions += [(reason, fold(item, constants)) for reason, item in variant.constraints_after]
    for name in baked_sizes(bundled.kernel, bundled.launches.values()):
        value = bundled.problem.sizes[name]
        conditions.append((f"its source was made for {name} = {value}", ["==", name, value]))
    return [{"reason": reason, "holds": holds} for reason, holds in conditions if holds is not True]


def _scratch(bundled: BundledConfiguration, item: ScratchSpec) -> Record:
    record: Record = {
        "name": item.name,
        "dtype": bundled.problem.dtypes.get(item.dtype, item.dtype),
        "shape": [bundled.fold(dim) for dim in item.shape],
        **_when(item.when, bundled.constants),
    }
    return record | {name: True for name in ("zeroed", "zeroed_once") if getattr(item, name)}


def _launch(
    bundled: BundledConfiguration,
    launch: LaunchSpec,
    scratch: Mapping[str, ScratchSpec],
    compiled: CompiledLaunch,
) -> Record:
    record: Record = {
        **asdict(compiled),
        **_when(launch.when, bundled.constants),
        "grid": [bundled.fold(item) for item in launch.grid],
        "block": [bundled.fold(item) for item in launch.block],
        "shared_bytes": bundled.fold(launch.shared_bytes),
        "cluster": [bundled.fold(item) for item in launch.cluster],
        "cooperative": launch.cooperative,
        "programmatic": launch.programmatic,
        "alignment": 1 if launch.alignment is None else bundled.fold(launch.alignment),
        "resident": False if launch.resident is None else bundled.fold(launch.resident),
    }
    if launch.carveout is not None:
        record["carveout"] = bundled.fold(launch.carveout)
    arguments = [_argument(bundled, argument, scratch) for argument in launch.arguments]
    return record | {"arguments": [item for item in arguments if item != {"cluster_order": 0}]}


def _argument(
    bundled: BundledConfiguration, argument: ArgumentSpec, scratch: Mapping[str, ScratchSpec]
) -> Record:
    kernel = bundled.kernel
    if argument.value is not None:
        return {"value": bundled.fold(argument.value), "dtype": argument.dtype}
    if argument.cluster_order is not None:
        return {"cluster_order": bundled.fold(argument.cluster_order)}
    if argument.map is not None:
        return {
            "map": [argument.name, *argument.map.instead],
            "box": [bundled.fold(side) for side in argument.map.box],
            "swizzle": bundled.fold(argument.map.swizzle),
            "l2_promotion": bundled.fold(argument.map.promotion),
        }
    if argument.name in scratch:
        return {"scratch": argument.name}
    if argument.name in kernel.tensors:
        return {"tensor": argument.name}
    if argument.name in kernel.scalars:
        return {"scalar": argument.name}
    return _number(bundled, argument.name)


def _number(bundled: BundledConfiguration, name: str) -> Record:
    """Return the argument for a size, a limit, a parameter or an option."""
    if name in bundled.problem.sizes or (name in DEVICE_LIMITS and name != "cc"):
        return {"value": name, "dtype": "int32"}
    value: Value = bundled.constants[name]
    if isinstance(value, str):
        raise KernelError(f"argument {name} is the text {value!r}", "a kernel takes numbers only")
    return {"value": value, "dtype": "float32" if isinstance(value, float) else "int32"}


def _transposed(condition: Expression | None, constants: Mapping[str, Any]) -> bool:
    transposed = False if condition is None else fold(condition, constants)
    if isinstance(transposed, (str, list)):
        raise KernelError(
            f"{condition.where if condition else ''}: a layout that depends on sizes",
            "write it with options: a program that calls a winner knows the layout by them",
        )
    return bool(transposed)


def _when(condition: Expression | None, constants: Mapping[str, Any]) -> Record:
    """Return the key ``when``, unless the condition always holds."""
    holds = True if condition is None else fold(condition, constants)
    return {} if holds is True else {"when": holds}
