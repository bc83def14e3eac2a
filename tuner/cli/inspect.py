"""``tune list``, ``tune show`` and ``tune doctor``: what there is to tune, and to tune with."""

from __future__ import annotations

import json
import math
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.kernel.spec import KernelSpec, RungSpec
    from tuner.kernel.variant_spec import VariantSpec
    from tuner.model import Gpu, Problem

REASON_WIDTH = 72
"""So long may the reason be why a seed is not tried: what is longer is a condition that nobody reads in a list."""


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def list_kernels(as_json: bool) -> None:
    """List the built-in kernels with their variants."""
    from tuner.kernel.load import builtin_kernels, load_kernel
    from tuner.report.tables import show as show_table

    kernels = [load_kernel(name) for name in builtin_kernels()]
    if as_json:
        rows = [
            {"kernel": k.name, "summary": k.summary, "variants": list(k.variants), "presets": list(k.presets)}
            for k in kernels
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    show_table(
        ["kernel", "what it computes", "variants", "presets"],
        [[k.name, k.summary, ", ".join(k.variants), ", ".join(k.presets)] for k in kernels],
    )


@click.command()
@click.argument("kernel_name", metavar="KERNEL")
@click.option("-s", "--size", "sizes", multiple=True, metavar="NAME=N[,...]", help="Problem sizes.")
@click.option("--dtype", "dtypes", multiple=True, metavar="[ROLE=]DTYPE", help="The dtype.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="The kernel's options.")
@click.option("--preset", help="A named problem of the kernel.")
@click.option(
    "--cc",
    type=int,
    default=90,
    show_default=True,
    help="Compute capability, times ten, of the GPU whose limits count.",
)
@click.option(
    "--rules",
    multiple=True,
    metavar="NAME[,NAME...]",
    help="Count what rules of thumb exclude: warp_multiple, occupancy, divides_sm, registers, all.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def show(
    kernel_name: str,
    sizes: tuple[str, ...],
    dtypes: tuple[str, ...],
    options: tuple[str, ...],
    preset: str | None,
    cc: int,
    rules: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show a kernel: problem, presets, variants, parameters, constraints with their reasons, and the space's size."""
    from tuner.cli.problems import make_problems
    from tuner.errors import TunerError, UsageError
    from tuner.hardware.roofline import ARCHITECTURES
    from tuner.kernel.load import load_kernel
    from tuner.kernel.rules import parse_rules

    if cc not in ARCHITECTURES:
        raise UsageError(f"no compute capability {cc}", f"choose from: {', '.join(map(str, ARCHITECTURES))}")
    kernel, gpu = load_kernel(kernel_name), ARCHITECTURES[cc]
    problem = make_problems(kernel, sizes, dtypes, options, [preset] if preset else [], [], None)[0]
    data = _describe(kernel, problem, gpu, parse_rules(rules))
    for line in [json.dumps(data, indent=2)] if as_json else _lines(data, kernel):
        click.echo(line)
    if not data["space"].get("left_by_rules", data["space"]["valid"]):
        from tuner.space.space import kind_of

        kind = kind_of(kernel.variants.values())
        raise TunerError(f"no configuration is {kind} for {problem} on {gpu.name}", "change the problem")


def _describe(kernel: KernelSpec, problem: Problem, gpu: Gpu, rules: Sequence[str]) -> dict[str, Any]:
    import numpy as np

    from tuner.kernel.rules import excluded
    from tuner.space.enumeration import enumerate_valid

    usable, refused = kernel.usable_variants(problem, gpu)
    constants, rng = kernel.environment(problem, gpu), np.random.default_rng(0)
    variants = []
    whole: dict[str, Any] = {"before": 0, "valid": 0, "sampled": False}
    if rules:
        whole["left_by_rules"] = 0
    for variant in kernel.variants.values():
        size: dict[str, Any] = {"left_out": refused.get(variant.name, "")}
        if variant in usable:
            allowed = {name: list(range(len(p.values))) for name, p in variant.parameters.items()}
            found = enumerate_valid(variant, allowed, constants, rng)
            before = math.prod(len(places) for places in allowed.values())
            size = {"before": before, "valid": len(found.matrix), "sampled": found.sampled}
            whole["before"] += before
            whole["valid"] += size["valid"]
            whole["sampled"] |= found.sampled
            if not size["valid"]:
                size["left_out"] = found.excluded_by
            if rules:
                by_rules = excluded(variant, found.matrix, constants, rules)
                size |= {"excluded_by_rules": dict(by_rules.by), "left_by_rules": by_rules.left}
                whole["left_by_rules"] += by_rules.left
        variants.append(_describe_variant(variant, size))
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
        "tensors": _describe_tensors(kernel, problem),
        "presets": {name: dict(values) for name, values in kernel.presets.items()},
        "ladder": [_describe_rung(rung) for rung in kernel.ladder],
        "seeds": _describe_seeds(kernel, problem, gpu),
        "variants": variants,
        "space": whole,
    }


def _describe_tensors(kernel: KernelSpec, problem: Problem) -> list[dict[str, Any]]:
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


def _describe_rung(rung: RungSpec) -> dict[str, Any]:
    return {
        "name": rung.name,
        "variant": rung.variant,
        "parameters": {name: list(values) for name, values in rung.parameters.items()},
        "dtypes": dict(rung.dtypes),
        "options": dict(rung.options),
        "doc": rung.doc,
    }


def _describe_seeds(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> list[dict[str, Any]]:
    from tuner.errors import SpaceError
    from tuner.expressions.arithmetic import Expression
    from tuner.search.kernel_initial import settle
    from tuner.space.space import SearchSpace

    if not kernel.seeds:
        return []
    try:
        settled = settle(kernel, problem, gpu, SearchSpace.from_kernel(kernel, problem, gpu))
    except SpaceError:
        return []
    return [
        {
            "variant": found.seed.variant,
            "when": found.seed.when.text if found.seed.when else "",
            "least": found.seed.least.text if found.seed.least else "",
            "parameters": {
                name: given.text if isinstance(given, Expression) else given
                for name, given in found.seed.parameters.items()
            },
            "doc": found.seed.doc,
            "configuration": dict(found.configuration.values) if found.configuration else None,
            "refused": found.refused,
        }
        for found in settled
    ]


def _describe_variant(variant: VariantSpec, size: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": variant.name,
        "summary": variant.summary,
        "requires": variant.requires.text if variant.requires else "",
        "parameters": [
            {"name": p.name, "values": list(p.values), "default": p.default, "doc": p.doc}
            for p in variant.parameters.values()
        ],
        "constraints": [
            {"reason": reason, "condition": condition.text} for reason, condition in variant.constraints
        ],
        "worthwhile": [
            {"reason": reason, "condition": condition.text} for reason, condition in variant.worthwhile
        ],
        "launches": [launch.template.name for launch in variant.launches],
        "space": size,
    }


def _lines(data: dict[str, Any], kernel: KernelSpec) -> list[str]:
    lines = [f"{data['kernel']}: {data['summary']}", f"  file     {kernel.file}"]
    lines.append("  sizes    " + ", ".join(f"{name}={value}" for name, value in data["sizes"].items()))
    lines.append(
        "  dtypes   " + "; ".join(f"{role}: {_choices(choices)}" for role, choices in data["dtypes"].items())
    )
    chosen = {name: values for name, values in data["options"].items() if name not in data["elements"]}
    if chosen:
        lines.append("  options  " + "; ".join(f"{n}: {_choices(values)}" for n, values in chosen.items()))
    for name, of in data["elements"].items():
        lines.append(f"  option   {name}: {data['options'][name][0]}, or any expression of {', '.join(of)}")
    if absent := [tensor["name"] for tensor in data["tensors"] if not tensor["present"]]:
        lines.append(f"  absent   {', '.join(absent)}: this problem has no such tensor")
    for name, values in data["presets"].items():
        lines.append(f"  preset   {name}: " + ", ".join(f"{k}={v}" for k, v in values.items()))
    lines += [f"  ladder   {_rung_line(i, rung)}" for i, rung in enumerate(data["ladder"], 1)]
    lines += _seed_lines(data)
    space = _size(data["space"])
    lines.append(f"\nspace for {kernel.problem(**_settled(data))} on {data['gpu']}: {space}")
    for variant in data["variants"]:
        lines.append(f"\n{variant['name']}  ({_size(variant['space'])})")
        if variant["summary"]:
            lines.append(f"  {variant['summary']}")
        if variant["requires"]:
            lines.append(f"  requires {variant['requires']}")
        width = max((len(p["name"]) for p in variant["parameters"]), default=0)
        lines += [
            f"  {p['name']:<{width}}  {_choices(p['values'])}  (default {p['default']})  {p['doc']}".rstrip()
            for p in variant["parameters"]
        ]
        lines += [f"  - {c['reason']}:  {c['condition']}" for c in variant["constraints"]]
        lines += [f"  - tried only where: {c['reason']}:  {c['condition']}" for c in variant["worthwhile"]]
        lines += [
            f"  - rule of thumb {name}: {_excluded(count)}"
            for name, count in variant["space"].get("excluded_by_rules", {}).items()
        ]
    return lines


def _excluded(count: int | None) -> str:
    return "judged after compiling" if count is None else f"excludes {count}"


def _rung_line(number: int, rung: dict[str, Any]) -> str:
    narrowed = {name: "/".join(map(str, values)) for name, values in rung["parameters"].items()}
    told = [f"{name}={value}" for name, value in {**narrowed, **rung["dtypes"], **rung["options"]}.items()]
    text = f"{number}. {rung['name']}: {' '.join([rung['variant'], *told])}"
    return f"{text}  ({rung['doc']})" if rung["doc"] else text


def _seed_lines(data: dict[str, Any]) -> list[str]:
    """Say what is tried first, then why the other seeds are not; those of variants that do not exist here in one line.

    Reasons are cut short: the seeds' own words say what they are for, and ``--json`` has everything.
    """
    gone = {variant["name"] for variant in data["variants"] if "valid" not in variant["space"]}
    tried, unused = [], []
    without: dict[str, list[str]] = {}
    for number, seed in enumerate(data["seeds"], 1):
        doc = f"  ({seed['doc']})" if seed["doc"] else ""
        if found := seed["configuration"]:
            told = [f"{name}={found[name]}" for name in seed["parameters"] if name in found]
            tried.append(f"  seed     {number}. {' '.join([seed['variant'], *told])}{doc}")
        elif seed["variant"] in gone:
            without.setdefault(seed["variant"], []).append(str(number))
        else:
            reason = textwrap.shorten(seed["refused"], REASON_WIDTH, placeholder=" ...")
            unused.append(f"  unused   {number}. {seed['variant']}{doc}: {reason}")
    if without:
        names = "; ".join(f"{', '.join(numbers)} ({name})" for name, numbers in without.items())
        unused.append(f"  unused   seeds of variants that are left out here: {names}")
    return tried + unused


def _size(size: dict[str, Any]) -> str:
    if "valid" not in size:
        return f"left out: {size['left_out']}"
    text = f"{size['valid']} valid of {size['before']}" + (" (a sample)" if size["sampled"] else "")
    if "left_by_rules" in size:
        text += f"; the rules of thumb leave {size['left_by_rules']}"
    return f"{text}: {size['left_out']}" if size.get("left_out") else text


def _settled(data: dict[str, Any]) -> dict[str, Any]:
    problem = data["problem"]
    free = {
        role: dtype for role, dtype in problem["dtypes"].items() if isinstance(data["dtypes"][role], list)
    }
    return {"sizes": problem["sizes"], "dtypes": free, "options": problem["options"]}


def _choices(values: Any) -> str:
    return ", ".join(map(str, values)) if isinstance(values, list) else f"= {values}"


@click.command()
@click.option("--calibrate", is_flag=True, help="Measure ceilings and noise of the GPU anew.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def doctor(calibrate: bool, as_json: bool) -> None:
    """Say what this machine has, what is missing, and how to get it. Exit status 1 if tuning on a GPU cannot work."""
    from tuner.cli.health import examine

    findings = examine(calibrate=calibrate)
    if as_json:
        click.echo(json.dumps([finding.__dict__ for finding in findings], indent=2))
    else:
        for finding in findings:
            click.echo(
                f"{finding.state:<8} {finding.what:<10} {finding.detail}"
                + (f"\n{'':19} -> {finding.remedy}" if finding.remedy else "")
            )
    if any(finding.state == "missing" for finding in findings):
        sys.exit(1)
