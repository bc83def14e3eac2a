"""A kernel as its TOML file describes it: the problem, and the variants that compute it.

``tuner.kernel.load`` reads the file; ``docs/kernel-files.md`` describes the language. Expressions stay unevaluated
here; ``tuner.kernel.plan`` evaluates them for one configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.core.errors import ExpressionError, UsageError, suggestion
from tuner.core.model import Configuration, Gpu, Problem, Resources, Value
from tuner.expressions.arithmetic import Expression, parse
from tuner.expressions.array import ArrayExpression
from tuner.expressions.elementwise import parse_element
from tuner.kernel.functions import PythonFunction
from tuner.kernel.variant_spec import LaunchSpec, VariantSpec, first_unmet
from tuner.runtime.entries import ScalarEntry, TensorEntry
from tuner.runtime.launch_limits import DEVICE_LIMITS, MAX_SIZE
from tuner.runtime.repeats import expanded


@dataclass(frozen=True)
class ReferenceSpec:
    """How the correct outputs are computed, and how far a kernel's may be off."""

    numpy: Mapping[str, ArrayExpression] = field(default_factory=dict)
    """Expression for each output."""
    python: PythonFunction | None = None
    """For the outputs without an expression."""
    cuda: LaunchSpec | None = None
    golden: Mapping[str, Path] = field(default_factory=dict)
    reduction: Expression | None = None
    """Number of terms summed for one output element; the allowed error grows with it."""
    accumulate: str = ""
    """Role or dtype in which they are summed; empty for float64 where the output has no less, and float32 elsewhere."""
    tolerance: Expression = field(default_factory=lambda: parse("1"))
    """Factor on the allowed error, for kernels that round more than once."""
    operand_rounding: Expression = field(default_factory=lambda: parse("0"))
    """Largest relative error with which the kernel may round each factor of a product."""
    default: bool = False
    """Whether outputs are compared with those of the default configuration."""

    @property
    def exists(self) -> bool:
        """Whether there is any."""
        return self.any_size or bool(self.golden)

    @property
    def any_size(self) -> bool:
        """Whether there is one for problems of any size, which golden files are not."""
        return bool(self.numpy) or self.python is not None or self.cuda is not None or self.default

    @property
    def checked_against(self) -> str:
        """What results are compared with: ``reference``, ``nothing``, or what is rounded itself.

        That is ``default`` (the default configuration) or ``kernel`` (a CUDA reference that writes no magnitudes).
        """
        if self.default:
            return "default"
        if self.cuda is not None and not any(
            leaf.name.endswith("_magnitude") for argument in self.cuda.arguments for leaf in argument.leaves
        ):
            return "kernel"
        return "reference" if self.exists else "nothing"


@dataclass(frozen=True)
class WorkSpec:
    """The minimum work of the problem, for the roofline."""

    flops: Expression
    bytes: Expression
    pipe: str = "vector"
    """``vector`` or ``matrix``: the units whose peak rate is the ceiling."""
    assumed: bool = False
    """Whether the file does not say the bytes: then they are those of all tensors, and a kernel may need fewer."""


@dataclass(frozen=True)
class CallSpec:
    """A library call that computes the same, for all problems or for those that meet ``when``."""

    text: str
    when: Expression | None = None


@dataclass(frozen=True)
class StepSpec:
    """An optimisation step of the kernel's ladder: a variant, with all or some values of its parameters."""

    name: str
    variant: str
    parameters: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """The values allowed of a parameter; all of them if it is not named."""
    dtypes: Mapping[str, str] = field(default_factory=dict)
    """Dtypes by role that the step sets in every problem."""
    options: Mapping[str, Value] = field(default_factory=dict)
    """Options that the step sets in every problem."""
    doc: str = ""


@dataclass(frozen=True)
class JudgeSpec:
    """How ``tune judge`` judges candidates for a kernel, where the command line does not say it."""

    presets: tuple[str, ...] = ()
    """Problems to judge at; the default problem when empty."""
    baselines: tuple[str, ...] = ()
    """What candidates are compared with, as ``--against`` names it; the usual ones when empty."""
    any_size: bool = True
    """Whether candidates must be right at other sizes, too."""
    limit_s: float = 2.0
    """Seconds that a call may take."""


@dataclass(frozen=True)
class KernelSpec:
    """A kernel's TOML file, read and checked."""

    name: str
    summary: str
    file: Path
    digest: str
    """Of the TOML file's content, without the tables that change no result."""
    sizes: Mapping[str, int]
    dtypes: Mapping[str, tuple[str, ...] | str]
    """Each role with its choices, the default first, or with the role or dtype that it equals."""
    options: Mapping[str, tuple[Value, ...]]
    """Each option with its values, the default first; for an element expression the default alone."""
    presets: Mapping[str, Mapping[str, Value]]
    tensors: Mapping[str, TensorEntry]
    scalars: Mapping[str, ScalarEntry]
    reference: ReferenceSpec
    work: WorkSpec
    variants: Mapping[str, VariantSpec]
    compile_options: tuple[str, ...] = ()
    include: tuple[Path, ...] = ()
    baselines: Mapping[str, tuple[CallSpec, ...]] = field(default_factory=dict)
    """Library calls that compute the same, by the name shown in tables; the first that fits a problem is used."""
    elements: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The options that are element expressions, with the names that each may use."""
    ladder: tuple[StepSpec, ...] = ()
    """The optimisation steps that the file names; see :attr:`steps`."""
    initial: tuple[InitialSpec, ...] = ()
    """Configurations that a search tries first."""
    costs: Mapping[str, tuple[Expression, ...]] = field(default_factory=dict)
    """Summands of which the times of a variant's configurations are sums: ``tune portfolio`` finds the factors."""
    definitions: Mapping[str, str] = field(default_factory=dict)
    """Names of parts of expressions, with their texts as the file has them, for people: expressions stand alone."""
    judge: JudgeSpec = field(default_factory=lambda: JudgeSpec())
    """How candidates are judged."""
    task: KernelSpec | None = None
    """The kernel that these variants compute in place of its own (:mod:`tuner.kernel.candidates`); None for itself."""
    candidate: str = ""
    """Names what computes it then."""

    @property
    def folder(self) -> Path:
        """The folder that relative paths start from."""
        return self.file.parent

    @property
    def steps(self) -> tuple[StepSpec, ...]:
        """The optimisation steps in order: the file's ladder, or each variant as a step."""
        return self.ladder or tuple(
            StepSpec(variant.name, variant.name, doc=variant.summary) for variant in self.variants.values()
        )

    @property
    def only_size(self) -> str:
        """The name of the only size; empty where there are several."""
        return next(iter(self.sizes)) if len(self.sizes) == 1 else ""

    @property
    def of_one_size(self) -> str:
        """Why its problems have one size, or some of their sizes one value; empty if files say no values."""
        for tensor in self.tensors.values():
            if tensor.file is not None and not tensor.function and any(side.names for side in tensor.shape):
                return f"{tensor.file.name} fits one size"
        golden = self.reference.golden and not self.reference.any_size
        return "golden files fit one size" if golden else ""

    def option(self, name: str, value: Value) -> Value:
        """Return an option's value as a problem holds it: one of its values, or a canonical element expression.

        Raises:
            UsageError: the kernel has no such option, or the option no such value.
        """
        values = self.options[_member(name, self.options, "option", self.name)]
        if name not in self.elements:
            return _member(value, values, f"value of option {name}", self.name)  # type: ignore[no-any-return]
        try:
            text = element_text(str(value), self.elements[name])
        except ExpressionError as error:
            raise UsageError(f"option {name} of {self.name}: {error.problem}", error.remedy) from None
        # What is neither a tensor nor a scalar the kernel computes: without it there would be nothing to tune.
        given = {*self.tensors, *self.scalars}
        computed = parse_element(str(values[0])).names - given
        if computed and not parse_element(text).names - given:
            raise UsageError(
                f"option {name}={text} of {self.name} has nothing of what it computes",
                f"use {' or '.join(sorted(computed))}, as in {name}={values[0]}",
            )
        return text

    def launches(self, problem: Problem, gpu: Gpu, configuration: Configuration) -> tuple[LaunchSpec, ...]:
        """Return those launches of a variant that a problem has, each once, in the file's order.

        Errors as of :func:`tuner.runtime.repeats.expanded`.
        """
        variant = self.variants[configuration.variant]
        if all(launch.when is None and not launch.repeat for launch in variant.launches):
            return variant.launches
        names = {**self.environment(problem, gpu), **configuration.values}
        launched = sorted({index for index, _ in expanded(variant.launches, names, problem)})
        return tuple(variant.launches[index] for index in launched)

    def present(self, problem: Problem) -> dict[str, TensorEntry]:
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
        """Return the problem with these values; the preset and then the defaults supply the others.

        Args:
            sizes: by name.
            dtypes: by role; the empty role stands for the first.
            options: by name.
            preset: name of one of the kernel's presets.

        Raises:
            UsageError: the kernel has no such name or value.
        """
        chosen_sizes, chosen_options = dict(self.sizes), {n: values[0] for n, values in self.options.items()}
        chosen_dtypes: dict[str, str] = {}
        if preset is not None:
            for name, value in self.presets[_member(preset, self.presets, "preset", self.name)].items():
                if name in self.sizes:
                    chosen_sizes[name] = int(value)
                elif name in self.options:
                    chosen_options[name] = self.option(name, value)
                else:
                    chosen_dtypes[name] = str(value)
        for name, size in (sizes or {}).items():
            if not 1 <= size <= MAX_SIZE:
                raise UsageError(f"size {name}={size}", "a size is from 1 to 2**62")
            chosen_sizes[_member(name, self.sizes, "size", self.name)] = size
        for name, value in (options or {}).items():
            chosen_options[name] = self.option(name, value)
        for role, dtype in (dtypes or {}).items():
            role = _member(role or next(iter(self.dtypes), ""), self.dtypes, "dtype role", self.name)
            chosen_dtypes[role] = dtype
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
                given = chosen.get(role, choices[0])
                meant = dict.fromkeys(settled.get(choice, choice) for choice in choices)
                settled[role] = _member(
                    settled.get(given, given), tuple(meant), f"dtype of {role}", self.name
                )
        return settled

    def chosen_dtypes(self, problem: Problem) -> dict[str, str]:
        """Return the dtypes that a problem has chosen, by role; for one that is another's by default, that role."""
        return {
            role: choices[0]
            if problem.dtypes.get(choices[0]) == problem.dtypes[role]
            else problem.dtypes[role]
            for role, choices in self.dtypes.items()
            if not isinstance(choices, str) and role in problem.dtypes
        }

    def environment(self, problem: Problem, gpu: Gpu) -> dict[str, Any]:
        """Return values by name for expressions: sizes, dtype roles, options and device limits."""
        limits = {name: getattr(gpu, name) for name in DEVICE_LIMITS}
        return {**problem.sizes, **problem.dtypes, **problem.options, **limits}

    def usable_variants(self, problem: Problem, gpu: Gpu) -> tuple[list[VariantSpec], dict[str, str]]:
        """Return the variants that the GPU and the problem allow, and the reasons against the others by name."""
        names = self.environment(problem, gpu)
        refused = {name: reason for name, one in self.variants.items() if (reason := one.refused(names))}
        return [one for name, one in self.variants.items() if name not in refused], refused

    def unmet_after(
        self, problem: Problem, gpu: Gpu, configuration: Configuration, reported: Sequence[Resources]
    ) -> str | None:
        """Return the first constraint that does not hold for what the compiler reported; None if all do."""
        constraints = self.variants[configuration.variant].constraints_after
        if not constraints or not reported:  # of a call nothing is
            return None
        resources = vars(Resources.of(reported))
        return first_unmet(
            constraints, {**self.environment(problem, gpu), **configuration.values, **resources}
        )


def element_text(text: str, allowed: tuple[str, ...]) -> str:
    """Return the canonical text of an element expression.

    Raises:
        ExpressionError: it is none, uses a name that is not allowed, or no name at all.
    """
    expression = parse_element(text, allowed)
    if not expression.names:
        raise ExpressionError(
            f"{expression.text!r} uses none of {', '.join(allowed)}", "an element expression needs one"
        )
    return expression.text


def _member(value: Any, choices: Iterable[Any], what: str, kernel: str) -> Any:
    """Return a value that is one of the choices; anything else is a usage error."""
    choices = list(choices)
    if value in choices:
        return value
    raise UsageError(f"{kernel} has no {what} {value!r}", suggestion(str(value), [str(c) for c in choices]))


@dataclass(frozen=True)
class InitialSpec:
    """A configuration to try first, for the problems and GPUs for which ``when`` is true."""

    variant: str
    parameters: Mapping[str, Value | Expression | tuple[Value, ...]]
    """A value, several to choose from, or an expression over the problem, the device's limits and the parameters
    before it; a parameter that is not named has its default."""
    when: Expression | None = None
    """Condition over the problem, the limits and all parameters, as set here; None for always."""
    minimize: Expression | None = None
    """Among several choices, the combination that minimizes this expression over the same names is taken."""
    doc: str = ""
    file: str = ""
    """Name of the file that it stands in."""
    default: Expression | None = None
    """Condition over the same under which it is the default configuration; None for never."""
