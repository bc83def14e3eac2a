"""Whether a configuration is valid for a problem, and whether a search would try it."""

from __future__ import annotations

from tuner.core.errors import TunerError
from tuner.core.model import Configuration, Gpu, Problem
from tuner.kernel.plan import make_plan
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import first_unmet


def invalid_reason(kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration) -> str:
    """Return why a configuration, perhaps of another version of the kernel, cannot be run; empty if it can."""
    variant = kernel.variants.get(configuration.variant)
    if variant is None:
        return f"{kernel.name} has no variant {configuration.variant} any more"
    values = configuration.values
    if values.keys() != variant.parameters.keys() or any(
        values[name] not in parameter.values for name, parameter in variant.parameters.items()
    ):
        return f"the parameters of {variant.name} have changed"
    names = {**kernel.environment(problem, gpu), **values}
    try:
        if reason := variant.refused(names):
            return f"{variant.name} {reason}"
        if (unmet := first_unmet(variant.constraints_before, names)) is not None:
            return unmet
        make_plan(kernel, problem, gpu, configuration)
    except TunerError as error:
        return str(error)
    return ""


def pruning_reason(kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration) -> str:
    """Return the pruning rule by which no search tries a valid configuration; empty if there is none."""
    names = {**kernel.environment(problem, gpu), **configuration.values}
    rules = kernel.variants[configuration.variant].pruning_rules
    return first_unmet(rules, names) or ""
