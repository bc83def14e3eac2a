"""A kernel as plain data: its problem, parameters and constraints, and how many configurations are valid. And
``tune show``: the built-in kernels."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from tuner.core.model import Configuration, Gpu, Problem
from tuner.expressions.arithmetic import Expression
from tuner.kernel.initial import settle, settled_default
from tuner.kernel.launchable import unlaunchable
from tuner.kernel.load import builtin_kernels, load_kernel
from tuner.kernel.plan import invalid_reason
from tuner.kernel.space import Allowed, narrow, valid_configurations
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import VariantSpec
from tuner.report.next_steps import show_next
from tuner.report.tables import picked, show, show_json


def describe(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> dict[str, Any]:
    """Return what ``tune show`` shows of a kernel.

    Args:
        kernel: which one.
        problem: for which its configurations are counted.
        gpu: on which.
    """
    sizes = _space_sizes(kernel, problem, gpu)
    counted = [size for size in sizes.values() if "valid" in size]
    space: dict[str, Any] = {
        name: sum(size[name] for size in counted) for name in ("before", "valid", "about", "launchable")
    }
    space["sampled"] = any(size["sampled"] for size in counted)
    reasons = dict.fromkeys(reason for size in counted for reason in size["unlaunchable"])
    space["unlaunchable"] = {r: sum(size["unlaunchable"].get(r, 0) for size in counted) for r in reasons}
    return {
        "kernel": kernel.name,
        "summary": kernel.summary,
        "file": str(kernel.file),
        "problem": problem.to_json(),
        "gpu": gpu.name,
        "sizes": dict(kernel.sizes),
        "dtypes": {role: list(c) if isinstance(c, tuple) else c for role, c in kernel.dtypes.items()},
        "options": {name: list(values) for name, values in kernel.options.items()},
        "elements": {name: list(of) for name, of in kernel.elements.items()},
        "tensors": _tensors(kernel, problem),
        "references": _references(kernel),
        "presets": {name: dict(values) for name, values in kernel.presets.items()},
        "ladder": [picked(step, "name variant parameters dtypes options doc") for step in kernel.ladder],
        "seeds": _initial(kernel, problem, gpu) if space["valid"] else [],
        "variants": [
            _variant(one, sizes[one.name], invalid_reason(kernel, problem, gpu, default))
            for one in kernel.variants.values()
            for default in [Configuration.of(one.name, one.defaults)]
        ],
        "definitions": dict(kernel.definitions),
        "space": space,
    }


def _space_sizes(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> dict[str, dict[str, Any]]:
    """Return for each variant how many of its configurations are valid, or why it is left out."""
    usable, refused = kernel.usable_variants(problem, gpu)
    rng = np.random.default_rng(0)
    sizes: dict[str, dict[str, Any]] = {}
    for variant in kernel.variants.values():
        if variant not in usable:
            sizes[variant.name] = {"left_out": refused.get(variant.name, "")}
            continue
        valid = valid_configurations(kernel, variant, problem, gpu, rng)
        before = math.prod(len(p.values) for p in variant.parameters.values())
        refusals = unlaunchable(kernel, variant, problem, gpu, valid.matrix)
        size: dict[str, Any] = {
            "before": before,
            "valid": len(valid.matrix),
            "sampled": valid.sampled,
            "about": round(valid.about),
            "launchable": len(valid.matrix) - sum(refusals.values()),
            "unlaunchable": refusals,
        }
        if not size["valid"]:
            size["left_out"] = valid.excluded_by
        sizes[variant.name] = size
    return sizes


def _references(kernel: KernelSpec) -> list[str]:
    """Return the kinds of reference that say what is right."""
    reference = kernel.reference
    kinds = {
        "numpy": bool(reference.numpy),
        "python": reference.python is not None,
        "cuda": reference.cuda is not None,
        "golden": bool(reference.golden),
        "default": reference.default,
    }
    return [kind for kind, is_there in kinds.items() if is_there]


def _tensors(kernel: KernelSpec, problem: Problem) -> list[dict[str, Any]]:
    present = kernel.present(problem)
    return [
        {
            "name": tensor.name,
            "role": tensor.role,
            "dtype": problem.dtypes.get(tensor.dtype, tensor.dtype),
            "shape": [expression.text for expression in tensor.shape],
            "when": tensor.when.text if tensor.when else "",
            "present": tensor.name in present,
        }
        for tensor in kernel.tensors.values()
    ]


def _initial(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> list[dict[str, Any]]:
    conditions = Allowed(kernel, problem, gpu, narrow(kernel, (), {}))
    settled = settle(kernel, problem, gpu, conditions.contains)
    default = settled_default(kernel, problem, gpu, conditions.contains)
    return [
        {
            "variant": one.spec.variant,
            "when": one.spec.when.text if one.spec.when else "",
            "least": one.spec.minimize.text if one.spec.minimize else "",
            "parameters": {
                name: given.text if isinstance(given, Expression) else given
                for name, given in one.spec.parameters.items()
            },
            "doc": one.spec.doc,
            "configuration": dict(one.configuration.values) if one.configuration else None,
            "refused": one.refused,
            "default": default is not None and one.configuration == default,
        }
        for one in settled
    ]


def _conditions(pairs: Iterable[tuple[str, Expression]]) -> list[dict[str, str]]:
    return [{"reason": reason, "condition": one.text, "written": one.written} for reason, one in pairs]


def _variant(variant: VariantSpec, size: dict[str, Any], default_refused: str) -> dict[str, Any]:
    return {
        "name": variant.name,
        "summary": variant.summary,
        "default_refused": default_refused,
        "requires": variant.requires.text if variant.requires else "",
        "requires_written": variant.requires.written if variant.requires else "",
        "parameters": [
            {"name": p.name, "values": list(p.values), "default": p.default, "doc": p.doc}
            for p in variant.parameters.values()
        ],
        "constraints": _conditions(variant.constraints),
        "worthwhile": _conditions(variant.pruning_rules),
        "launches": [launch.template.name for launch in variant.launches],
        "space": size,
    }


def list_kernels(*, as_json: bool) -> None:
    """Print the built-in kernels, and as JSON their variants and presets."""
    kernels = [load_kernel(name) for name in builtin_kernels()]
    if as_json:
        keys = ("kernel", "summary", "variants", "presets")
        rows = [(kernel.name, kernel.summary, [*kernel.variants], [*kernel.presets]) for kernel in kernels]
        show_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    show(("kernel", "what it computes"), [(kernel.name, kernel.summary) for kernel in kernels])
    show_next({"tune show gemm": "its sizes, presets and variants", "tune gemm": "tune it"})
