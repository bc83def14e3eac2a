"""Computations and configurations as a bundle has them: the entries of a kernel's file, with sizes and the device's
limits left open and everything else worked in."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from tuner.children.compilation import RenderRequest
from tuner.children.cubin import filled_variable
from tuner.core.errors import KernelError
from tuner.core.model import Configuration, Gpu, Problem, Resources, Value
from tuner.expressions.folding import fold
from tuner.kernel.identity import template_texts
from tuner.kernel.options import written_options
from tuner.kernel.render import size_macros
from tuner.kernel.spec import KernelSpec
from tuner.kernel.templates import problem_names, undeclared_names
from tuner.kernel.variant_spec import LaunchSpec
from tuner.runtime.entries import (
    ArgumentEntry,
    Computation,
    ConfigurationEntry,
    Constraints,
    LaunchEntry,
    ScalarEntry,
    ScratchEntry,
    TensorEntry,
)
from tuner.runtime.expressions import Expression
from tuner.runtime.launch_limits import DEVICE_LIMITS
from tuner.runtime.launches import RESTORED

APART = "apart"
"""A name that a template has where rows of outputs may lie apart: then it takes each, and inputs of their shape, as a
struct of the address and the elements from row to row."""


def baked_names(kernel: KernelSpec, launches: Iterable[LaunchSpec], options: Iterable[str] = ()) -> list[str]:
    """Return the sizes, and the device's limits but ``cc``, that the code of launches may hold.

    Args:
        kernel: whose they are.
        launches: with sources and entries.
        options: of the compiler, as the file has them.
    """
    found = _taken(kernel, launches, options)
    return [name for name in (*kernel.sizes, *DEVICE_LIMITS) if name in found and name != "cc"]


def _taken(kernel: KernelSpec, launches: Iterable[LaunchSpec], options: Iterable[str] = ()) -> set[str]:
    """Return the sizes and the device's limits that the code of launches may hold; and :data:`APART`, if it takes that.

    Sizes reach a template by the name ``problem`` alone, and a plain ``.cu`` as macros.
    """
    found = set[str]().union(*(_names_in(option, kernel) for option in options if "{" in option))
    for launch in launches:
        texts = [launch.entry]
        if launch.template.suffix == ".j2":
            texts += template_texts(kernel.folder, launch.template)
        else:
            found |= set(size_macros(kernel, launch.template))
        found = found.union(*(_names_in(text, kernel) for text in texts))
    return found


def _names_in(text: str, kernel: KernelSpec) -> frozenset[str]:
    """Return the sizes and the device's limits that a template may take."""
    names, limits = _problem_names(text, kernel.folder)
    return limits.union(kernel.sizes if names is None else names)


@functools.lru_cache(maxsize=256)
def _problem_names(text: str, folder: Path) -> tuple[frozenset[str] | None, frozenset[str]]:
    """Return the sizes that a template takes from ``problem``, None where they are not known; and the device's limits.

    Parsing takes 3 ms.
    """
    try:
        names, limits = problem_names(text, folder), undeclared_names(text, folder) & {*DEVICE_LIMITS, APART}
    except KernelError:  # of a file beside the template, which may be included
        return None, frozenset()
    return None if names is None else frozenset(names), frozenset(limits)


def _slices(kernel: KernelSpec) -> set[str]:
    """Return the tensors that may be slices of larger matrices: outputs, and inputs of their shape."""
    shapes = {tensor.shape for tensor in kernel.tensors.values() if tensor.role == "output"}
    roles = ("input", "output")
    return {name for name, one in kernel.tensors.items() if one.role in roles and one.shape in shapes}


@dataclass(frozen=True)
class CompiledLaunch:
    """What a launch was compiled to: the names of its cubin and its source in a bundle, and its entry's name."""

    cubin: str
    source: str
    entry: str
    constants: tuple[tuple[str, str], ...] = ()
    """Symbols of the variables that it fills, each with its tensor."""

    @classmethod
    def of(cls, cubin: str, source: str, entry: str, launch: LaunchSpec, code: bytes) -> CompiledLaunch:
        """Return a launch with the symbols of its variables in the compiled code.

        Raises:
            KernelError: it has no such variable.
        """
        symbols = ((filled_variable(code, name, 0).symbol, tensor) for name, tensor in launch.constants)
        return cls(cubin, source, entry, tuple(symbols))


@dataclass(frozen=True)
class BundledConfiguration:
    """A configuration of a kernel, for problems that have a problem's dtypes and options, on GPUs like one."""

    kernel: KernelSpec
    problem: Problem
    gpu: Gpu
    configuration: Configuration
    apart: bool = False
    """Whether it is the code that writes outputs whose rows lie apart."""

    @property
    def rendered(self) -> Configuration:
        """The configuration as templates get it."""
        apart = {APART: True} if self.apart else {}
        return Configuration.of(self.configuration.variant, {**self.configuration.values, **apart})

    @property
    def of_slices(self) -> BundledConfiguration | None:
        """The code of the same for outputs whose rows lie apart; None if a template that takes such has none."""
        slices = _slices(self.kernel)
        taking = [
            launch
            for launch in self.launches.values()
            if any(leaf.name in slices and not leaf.map for one in launch.arguments for leaf in one.leaves)
        ]
        taken = {*self.constants, *self.kernel.sizes}
        if APART in taken or not all(APART in _taken(self.kernel, [launch]) for launch in taking):
            return None
        return replace(self, apart=True) if taking else None

    @property
    def constants(self) -> dict[str, Any]:
        """The values of all names but sizes and the device's limits."""
        values = self.configuration.values
        return {**self.problem.dtypes, **self.problem.options, "cc": self.gpu.cc, **values}

    def fold(self, expression: Expression) -> Expression:
        """Return an expression of the variant with all constants worked in.

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
            if launch.when is None or self.fold(launch.when).tree is not False
        }

    def request(self, code: str = "") -> RenderRequest:
        """Return what asks for all of the launches; the code's digest is that of :class:`RenderRequest`."""
        launches = tuple(self.launches)
        return RenderRequest(
            self.kernel.file, self.problem, self.gpu, self.rendered, code=code, launches=launches
        )

    @property
    def baked(self) -> dict[str, int]:
        """The sizes and the device's limits for which its code is made, and no others."""
        values = self.kernel.environment(self.problem, self.gpu)
        options = written_options(self.kernel, self.configuration.variant)
        return {name: values[name] for name in baked_names(self.kernel, self.launches.values(), options)}

    @property
    def takes_cluster_order(self) -> bool:
        """Whether a launch takes a table of cluster numbers, for which the GPU is probed."""
        orders = [a.cluster_order for launch in self.launches.values() for a in launch.arguments]
        return any(self.fold(order).tree != 0 for order in orders if order is not None)


def computation_of(kernel: KernelSpec, problem: Problem) -> Computation:
    """Return what is computed for a problem's dtypes and options.

    Raises:
        KernelError: an expression that a program cannot evaluate, such as a layout that depends on sizes.
    """
    constants = {**problem.dtypes, **problem.options}
    tensors = (
        TensorEntry(
            tensor.name,
            tuple(fold(dim, constants) for dim in tensor.shape),
            problem.dtypes.get(tensor.dtype, tensor.dtype),
            "inout" if tensor.role in RESTORED else tensor.role,
            transposed=_transposed(tensor.transposed, constants),
            when=_when(tensor.when, constants),
        )
        for tensor in kernel.tensors.values()
    )
    scalars = (
        ScalarEntry(one.name, problem.dtypes.get(one.dtype, one.dtype), fold(one.value, constants))
        for one in kernel.scalars.values()
    )
    return Computation(dict(problem.dtypes), dict(problem.options), tuple(tensors), tuple(scalars))


def configuration_of(
    bundled: BundledConfiguration,
    computation: int,
    compiled: Mapping[int, CompiledLaunch],
    resources: Resources | None,
    slices: Mapping[int, CompiledLaunch] | None = None,
) -> ConfigurationEntry:
    """Return a configuration's entry.

    Args:
        bundled: the configuration.
        computation: the number of its computation in the manifest.
        compiled: its launches by number, all of :attr:`BundledConfiguration.launches`.
        resources: what the compiler reported; None leaves out the constraints on that.
        slices: the same launches of :attr:`BundledConfiguration.of_slices`; None if they were not compiled.

    Raises:
        KernelError: an expression that a program cannot evaluate.
    """
    variant = bundled.kernel.variants[bundled.configuration.variant]
    return ConfigurationEntry(
        computation,
        bundled.gpu.cc,
        variant.name,
        bundled.configuration.values,
        _requirements(bundled, resources),
        tuple(_scratch(bundled, item) for item in variant.scratch),
        tuple(_launch(bundled, launch, compiled[number]) for number, launch in bundled.launches.items()),
        tuple(
            _launch(replace(bundled, apart=True), bundled.launches[number], one)
            for number, one in (slices or {}).items()
        ),
    )


def _requirements(bundled: BundledConfiguration, resources: Resources | None) -> Constraints:
    """Return the conditions that do not hold for all sizes and limits."""
    variant = bundled.kernel.variants[bundled.configuration.variant]
    needed = [(f"{variant.name} needs {reason}", item) for reason, item in variant.requirements]
    if variant.requires is not None and not needed:  # the file has no words for it
        needed = [(f"{variant.name} requires {variant.requires.written}", variant.requires)]
    conditions = [(reason, bundled.fold(item)) for reason, item in (*needed, *variant.constraints_before)]
    if resources is not None:
        constants = {**bundled.constants, **asdict(resources)}
        conditions += [(reason, fold(item, constants)) for reason, item in variant.constraints_after]
    for name, value in bundled.baked.items():
        conditions.append((f"its source was made for {name} = {value}", Expression(("==", name, value))))
    return tuple((reason, holds) for reason, holds in conditions if holds.tree is not True)


def _folded(entry: Any, constants: Mapping[str, Any]) -> Any:
    """Return an entry with all constants worked into its expressions, those of entries in it included."""
    if isinstance(entry, Expression):
        return fold(entry, constants)
    if isinstance(entry, tuple):
        return tuple(_folded(one, constants) for one in entry)
    if not is_dataclass(entry) or isinstance(entry, type):
        return entry
    return replace(entry, **{name: _folded(one, constants) for name, one in vars(entry).items()})


def _scratch(bundled: BundledConfiguration, item: ScratchEntry) -> ScratchEntry:
    folded: ScratchEntry = _folded(item, bundled.constants)
    dtype = bundled.problem.dtypes.get(item.dtype, item.dtype)
    return replace(folded, dtype=dtype, when=_when(item.when, bundled.constants))


def _launch(bundled: BundledConfiguration, launch: LaunchSpec, compiled: CompiledLaunch) -> LaunchEntry:
    constants = bundled.constants
    arguments = [
        _argument(bundled, replace(argument, when=None))
        for argument in launch.arguments
        if argument.when is None or bundled.fold(argument.when).tree is True
    ]
    folded = vars(_folded(replace(launch, arguments=()), constants))
    changed = {
        **vars(compiled),
        "arguments": tuple(a for a in arguments if a.cluster_order is None or a.cluster_order.tree != 0),
        "when": _when(launch.when, constants),
    }
    return LaunchEntry(**{one.name: changed.get(one.name, folded[one.name]) for one in fields(LaunchEntry)})


def _argument(bundled: BundledConfiguration, argument: ArgumentEntry) -> ArgumentEntry:
    kernel, scratch = bundled.kernel, bundled.kernel.variants[bundled.configuration.variant].scratch
    if argument.fields:
        return replace(argument, fields=tuple(_argument(bundled, field) for field in argument.fields))
    if argument.expressions:
        folded: ArgumentEntry = _folded(argument, bundled.constants)
        return folded
    if argument.name in {item.name for item in scratch}:
        return replace(argument, kind="scratch")
    if argument.name in kernel.tensors:
        passed = replace(argument, kind="tensor")
        if not bundled.apart or argument.name not in _slices(kernel):
            return passed
        return ArgumentEntry(fields=(passed, replace(argument, kind="stride")))
    if argument.name in kernel.scalars:
        return replace(argument, kind="scalar")
    return _number(bundled, argument.name)


def _number(bundled: BundledConfiguration, name: str) -> ArgumentEntry:
    """Return the argument for a size, a limit, a pass of a loop, a parameter or an option."""
    if name not in bundled.constants:
        return ArgumentEntry(value=Expression(name))
    value: Value = bundled.constants[name]
    if isinstance(value, str):
        raise KernelError(f"argument {name} is the text {value!r}", "a kernel takes numbers only")
    return ArgumentEntry(value=Expression(value), dtype="float32" if isinstance(value, float) else "int32")


def _transposed(condition: Expression | None, constants: Mapping[str, Any]) -> Expression | None:
    transposed = None if condition is None else fold(condition, constants)
    if transposed is None or not transposed.names:
        return transposed if transposed is not None and transposed.tree else None
    raise KernelError(
        f"{transposed.where}: a layout that depends on sizes",
        "write it with options: a program that calls a winner knows the layout by them",
    )


def _when(condition: Expression | None, constants: Mapping[str, Any]) -> Expression | None:
    """Return a condition; None for one that always holds."""
    holds = None if condition is None else fold(condition, constants)
    return None if holds is None or holds.tree is True else holds
