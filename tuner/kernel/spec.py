"""What a kernel is: the problem it solves, and the variants that solve it.

A :class:`KernelSpec` is what a TOML file says (``tuner.kernel.load`` reads it; ``docs/adding-a-kernel.md``
describes the language). Expressions stay unevaluated here; ``tuner.kernel.plan`` settles them for one configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.errors import ExpressionError, KernelError, UsageError, suggestion
from tuner.expressions.arithmetic import Expression, parse
from tuner.expressions.array import ArrayExpression
from tuner.expressions.elementwise import parse_element
from tuner.kernel.initial_spec import InitialSpec, MatmulSpec
from tuner.kernel.variant_spec import DEVICE_LIMITS, LaunchSpec, VariantSpec
from tuner.model import Configuration, Gpu, Problem, Value

MAX_SIZE = 2**62
"""So that arithmetic with a size, for a million configurations at once, stays within 64 bits."""


@dataclass(frozen=True)
class TensorSpec:
    """An array that the kernel reads or writes, in row-major order unless ``transposed`` holds."""

    name: str
    shape: tuple[Expression, ...]
    dtype: str
    role: str = "input"
    init: str = "normal"
    transposed: Expression | None = None
    when: Expression | None = None
    """Where it does not hold, the problem has no such tensor, and kernels get a null pointer."""


@dataclass(frozen=True)
class ScalarSpec:
    """A number passed to the kernel by value."""

    name: str
    dtype: str
    value: Expression


@dataclass(frozen=True)
class ReferenceSpec:
    """Where the right answer comes from, and how exact an answer must be."""

    numpy: Mapping[str, ArrayExpression] = field(default_factory=dict)
    """Expression for each output."""
    cuda: LaunchSpec | None = None
    golden: Mapping[str, Path] = field(default_factory=dict)
    reduction: Expression | None = None
    """Terms that are added up for one output element; the allowed error grows with it."""
    accumulate: str = "float32"
    """Role or dtype in which they are added."""
    tolerance: Expression = field(default_factory=lambda: parse("1"))
    """Factor on the allowed error, for kernels that round more often than once."""
    operand_rounding: Expression = field(default_factory=lambda: parse("0"))
    """Largest relative error with which the kernel may round each factor of a product."""


@dataclass(frozen=True)
class WorkSpec:
    """What the problem costs at least, for the roofline."""

    flops: Expression
    bytes: Expression
    pipe: str = "vector"
    """``vector`` or ``matrix``: the units whose peak is the roof."""


@dataclass(frozen=True)
class CallSpec:
    """A library's call that computes the same, perhaps only for some problems."""

    text: str
    when: Expression | None = None


@dataclass(frozen=True)
class StepSpec:
    """A step of the kernel's story: a variant, perhaps narrowed, and what it shows."""

    name: str
    variant: str
    parameters: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """The values that a parameter may take; any where it is not named."""
    dtypes: Mapping[str, str] = field(default_factory=dict)
    """What the rung sets of the problem, whatever else is asked for; by role."""
    options: Mapping[str, Value] = field(default_factory=dict)
    doc: str = ""


@dataclass(frozen=True)
class KernelSpec:
    """A kernel's TOML file, read and checked."""

    name: str
    summary: str
    file: Path
    digest: str
    """Of what the TOML file says, without its baselines, ladder, seeds and heuristics, which change no result."""
    sizes: Mapping[str, int]
    dtypes: Mapping[str, tuple[str, ...] | str]
    """Role to its choices, or to the role or dtype that it follows."""
    options: Mapping[str, tuple[Value, ...]]
    """The values to choose from, the default first; of an element expression the default alone."""
    presets: Mapping[str, Mapping[str, Value]]
    tensors: Mapping[str, TensorSpec]
    scalars: Mapping[str, ScalarSpec]
    reference: ReferenceSpec
    work: WorkSpec
    variants: Mapping[str, VariantSpec]
    compile_options: tuple[str, ...] = ()
    include: tuple[Path, ...] = ()
    baselines: Mapping[str, tuple[CallSpec, ...]] = field(default_factory=dict)
    """Calls of libraries that compute the same, by the names that tables show; the first that fits a problem counts."""
    elements: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The options that are element expressions, with the names that each may use."""
    ladder: tuple[StepSpec, ...] = ()
    """The kernel's story as its file tells it; see :attr:`steps`."""
    initial: tuple[InitialSpec, ...] = ()
    """What a search tries first, where it holds."""
    matmul: MatmulSpec | None = None
    """For kernels that are a product of matrices: how a library's proposals become seeds, too."""

    @property
    def folder(self) -> Path:
        """Where its relative paths start."""
        return self.file.parent

    @property
    def steps(self) -> tuple[StepSpec, ...]:
        """The steps of the kernel's story in order: its ladder, or each variant as it is."""
        return self.ladder or tuple(
            StepSpec(variant.name, variant.name, doc=variant.summary) for variant in self.variants.values()
        )

    def option(self, name: str, value: Value) -> Value:
        """Return an option's value as a problem holds it: one of its values, or a canonical element expression.

        Raises:
            UsageError: this kernel has no such option, or the option no such value.
        """
        values = self.options[_known(name, self.options, "option", self.name)]
        if name not in self.elements:
            return _known(value, values, f"value of option {name}", self.name)  # type: ignore[no-any-return]
        try:
            return self.element(name, str(value))
        except ExpressionError as error:
            raise UsageError(f"option {name} of {self.name}: {error.problem}", error.remedy) from None

    def element(self, name: str, text: str) -> str:
        """Return the canonical text of an option that is an element expression.

        Raises:
            ExpressionError: the text is none, or uses a name that it may not, or no name at all.
        """
        of = self.elements[name]
        found = parse_element(text, of)
        if not found.names:
            raise ExpressionError(
                f"{found.text!r} uses none of {', '.join(of)}", "an element expression needs one"
            )
        return found.text

    def launches(self, problem: Problem, gpu: Gpu, configuration: Configuration) -> tuple[LaunchSpec, ...]:
        """Return the launches that a configuration has for a problem, in order.

        Raises:
            KernelError: it has none.
        """
        variant = self.variants[configuration.variant]
        if all(launch.when is None for launch in variant.launches):
            return variant.launches
        names = {**self.environment(problem, gpu), **configuration.values}
        found = tuple(item for item in variant.launches if item.when is None or item.when.evaluate(names))
        if not found:
            raise KernelError(
                f"variant {variant.name} has no launch for {problem}",
                "one launch's when must hold wherever the variant's requires does",
            )
        return found

    def present(self, problem: Problem) -> dict[str, TensorSpec]:
        """Return the tensors that a problem has."""
        names = {**problem.sizes, **problem.dtypes, **problem.options}
        return {
            name: tensor
            for name, tensor in self.tensors.items()
            if tensor.when is None or tensor.when.evaluate(names)
        }

    def problem(
        self,
        sizes: Mapping[str, int] | None = None,
        dtypes: Mapping[str, str] | None = None,
        options: Mapping[str, Value] | None = None,
        preset: str | None = None,
    ) -> Problem:
        """Settle a problem: the defaults, then the preset, then what is named here.

        Args:
            sizes: problem sizes by name.
            dtypes: dtype by role; the empty role stands for the first one.
            options: options by name.
            preset: name of one of the kernel's presets.

        Raises:
            UsageError: a name or value that this kernel does not have.
        """
        chosen_sizes, chosen_options = dict(self.sizes), {n: values[0] for n, values in self.options.items()}
        chosen_dtypes: dict[str, str] = {}
        if preset is not None:
            for name, value in self.presets[_known(preset, self.presets, "preset", self.name)].items():
                if name in self.sizes:
                    chosen_sizes[name] = int(value)
                elif name in self.options:
                    chosen_options[name] = self.option(name, value)
                else:
                    chosen_dtypes[name] = str(value)
        for name, size in (sizes or {}).items():
            if not 1 <= size <= MAX_SIZE:
                raise UsageError(f"size {name}={size}", "sizes start at 1, and end at 2**62")
            chosen_sizes[_known(name, self.sizes, "size", self.name)] = size
        for name, value in (options or {}).items():
            chosen_options[name] = self.option(name, value)
        for role, dtype in (dtypes or {}).items():
            chosen_dtypes[
                _known(role or next(iter(self.dtypes), ""), self.dtypes, "dtype role", self.name)
            ] = dtype
        return Problem(self.name, chosen_sizes, self._settle_dtypes(chosen_dtypes), chosen_options)

    def _settle_dtypes(self, chosen: Mapping[str, str]) -> dict[str, str]:
        settled: dict[str, str] = {}
        for role, choices in self.dtypes.items():
            if isinstance(choices, str):
                settled[role] = settled.get(choices, choices)
                if role in chosen and chosen[role] != settled[role]:
                    raise UsageError(
                        f"dtype {role}={chosen[role]}", f"{self.name} fixes {role} to {settled[role]}"
                    )
            else:
                settled[role] = _known(chosen.get(role, choices[0]), choices, f"dtype of {role}", self.name)
        return settled

    def environment(self, problem: Problem, gpu: Gpu) -> dict[str, Any]:
        """Return the names that every expression may use: sizes, dtype roles, options and device limits."""
        limits = {name: getattr(gpu, name) for name in DEVICE_LIMITS}
        return {**problem.sizes, **problem.dtypes, **problem.options, **limits}

    def usable_variants(self, problem: Problem, gpu: Gpu) -> tuple[list[VariantSpec], dict[str, str]]:
        """Split the variants into those that the device and the problem allow, and reasons for the others."""
        names = self.environment(problem, gpu)
        usable, refused = [], {}
        for variant in self.variants.values():
            if variant.requires is None or variant.requires.evaluate(names):
                usable.append(variant)
            else:
                refused[variant.name] = f"requires {variant.requires.text}"
        return usable, refused


def _known(value: Any, choices: Iterable[Any], what: str, kernel: str) -> Any:
    choices = list(choices)
    if value in choices:
        return value
    raise UsageError(f"{kernel} has no {what} {value!r}", suggestion(str(value), [str(c) for c in choices]))
