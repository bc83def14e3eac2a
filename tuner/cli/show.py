"""``tune show``: a kernel's problem, presets, variants, parameters and constraints."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.cli.commands.inspection import ShowArguments
from tuner.cli.configuration import refuse_beyond_memory, typical_gpu
from tuner.cli.kernel_description import describe, list_kernels
from tuner.cli.problems import make_problem
from tuner.core.errors import TunerError, UsageError
from tuner.core.model import Value, value_text
from tuner.devices.replay import recorded_options
from tuner.kernel.load import load_kernel
from tuner.kernel.space import narrow, nothing_valid, space_size
from tuner.kernel.spec import KernelSpec
from tuner.report.tables import show_json, show_text

A_PAGE = 50
"""Lines; a kernel of several variants that takes more is shown in short."""
REASON_WIDTH = 72
"""Characters of the reason why an initial configuration is not tried: longer ones are whole conditions, too long to
read in a list."""


def show(asked: ShowArguments) -> None:
    """Print a kernel and the size of its space; many lines only with ``full``, or of the named variants.

    Without a kernel, the built-in ones are listed.

    Raises:
        UsageError: options of a kernel, and none is named; the problem is larger than the GPU's memory.
        TunerError: no configuration is valid.
    """
    if not asked.kernel_name:
        if asked.names_problem or asked.variants or asked.full:
            raise UsageError("these options need a kernel", "name it: tune show gemm")
        list_kernels(as_json=asked.as_json)
        return
    gpu, kernel = typical_gpu(asked.cc), load_kernel(asked.kernel_name)
    problem = make_problem(kernel, asked)
    narrow(kernel, asked.variants, {})  # refuses what is not there
    refuse_beyond_memory(kernel, problem, gpu)
    if asked.variants:
        kernel = replace(
            kernel,
            variants={name: kernel.variants[name] for name in dict.fromkeys(asked.variants)},
            ladder=tuple(step for step in kernel.ladder if step.variant in asked.variants),
            initial=tuple(one for one in kernel.initial if one.variant in asked.variants),
        )
    data = {**describe(kernel, problem, gpu), "recorded": recorded_options(kernel)}
    if asked.as_json:
        show_json(data)
    else:
        lines = _lines(data, kernel, asked.kernel_name, asked.cc, whole=bool(asked.variants))
        if not (asked.full or asked.variants or len(kernel.variants) == 1 or len(lines) <= A_PAGE):
            lines = _overview(data, kernel, asked.kernel_name, asked.cc)
        for first, text in lines:
            show_text(text, first)
    if asked.variants:
        return
    space = data["space"]
    if not space["valid"]:
        error = nothing_valid(
            kernel, kernel.variants.values(), problem, gpu, narrowed=False, sampled=space["sampled"]
        )
        raise TunerError(error.problem, error.remedy)
    if not space["launchable"]:
        reasons = ", ".join(space["unlaunchable"])
        raise TunerError(
            f"no configuration can be launched for {problem} on {gpu.name}: {reasons}", "change the problem"
        )


CONDITIONS = ("  requires ", "  needs ", "  - ", "  unused   ")
"""What the lines with conditions begin with."""
NAME = re.compile(r"[A-Za-z_]\w*")
Line = tuple[str, str]
"""What a line begins with, and the text that is broken under itself where it does not fit."""


def _overview(data: dict[str, Any], kernel: KernelSpec, called: str, cc: int) -> list[Line]:
    """Return the lines for people who see a kernel for the first time: what each variant does, not how.

    ``called`` is the kernel's name or path on the command line, ``cc`` that of its GPU.
    """
    here = [variant for variant in data["variants"] if "valid" in variant["space"]]
    left_out = [variant for variant in data["variants"] if variant not in here]
    width = max(len(variant["name"]) for variant in data["variants"])
    lines = [*_problem_lines(data), *_heading(_space_line(data, kernel, cc))]
    for variant in here:
        lines.append((f"  {variant['name']:<{width}}  ", variant["summary"] or _size(variant["space"])))
        if variant["summary"]:
            lines.append((" " * (width + 4), _size(variant["space"])))
        lines += [(" " * (width + 4), text) for _, text in _default_lines(variant)]
    if left_out:
        lines += _heading("left out for this problem")
        lines += [(f"  {one['name']:<{width}}  ", one["space"]["left_out"]) for one in left_out]
    if data["presets"]:
        lines += _heading("presets: --preset NAME")
        width = max(map(len, data["presets"]))
        for name, values in data["presets"].items():
            given = " ".join(f"{key}={value_text(value)}" for key, value in values.items())
            lines.append((f"  {name:<{width}}  ", given))
    if data["ladder"]:
        steps = "; ".join(step["name"] for step in data["ladder"])
        lines += _heading(f"steps of its ladder (tune ladder {called}): {steps}")
    more = f"parameters and constraints: tune show {called} --variant NAME, or --full"
    return lines + _heading(more)


def _heading(text: str) -> list[Line]:
    return [("", ""), ("", text)]


def _space_line(data: dict[str, Any], kernel: KernelSpec, cc: int) -> str:
    gpu = f"{data['gpu']} (--cc {cc})"
    return f"space for {kernel.problem(**_settled(data))} on {gpu}: {_size(data['space'])}"


def _lines(data: dict[str, Any], kernel: KernelSpec, called: str, cc: int, *, whole: bool) -> list[Line]:
    """Return the lines for people; ``whole``: variants that are left out, too."""
    lines = _problem_lines(data)
    for name, values in data["presets"].items():
        given = ", ".join(f"{key}={value_text(value)}" for key, value in values.items())
        lines.append(("  preset   ", f"{name}: {given}"))
    lines += [("  ladder   ", _step_line(i, step)) for i, step in enumerate(data["ladder"], 1)]
    lines += [*_initial_lines(data), *_heading(_space_line(data, kernel, cc))]
    shown = [variant for variant in data["variants"] if whole or "valid" in variant["space"]]
    for variant in shown:
        lines += _variant_lines(variant, kernel)
    if left_out := [variant for variant in data["variants"] if variant not in shown]:
        lines += _heading(f"left out, all of each with --variant: tune show {called} --variant NAME")
        lines += [(f"  {variant['name']}: ", variant["space"]["left_out"]) for variant in left_out]
    conditions = "\n".join(text for first, text in lines if first in CONDITIONS)
    if used := _used(data["definitions"], conditions):
        lines += _heading("definitions, in the conditions above")
        lines += [(f"  {name} = ", data["definitions"][name]) for name in used]
    return lines


def _used(definitions: Mapping[str, str], text: str) -> list[str]:
    """Return the names of the definitions that a text uses, itself or through others, in their order."""
    used, new = set[str](), {text}
    while new:
        names = set(NAME.findall("\n".join(new))) & definitions.keys() - used
        used |= names
        new = {definitions[name] for name in names}
    return [name for name in definitions if name in used]


def _problem_lines(data: dict[str, Any]) -> list[Line]:
    dtypes = "; ".join(
        f"{role}: {_choices(choices)}" if isinstance(choices, list) else f"{role} = {choices}"
        for role, choices in data["dtypes"].items()
    )
    lines = [
        ("", f"{data['kernel']}: {data['summary']}"),
        ("  file     ", data["file"]),
        ("  sizes    ", ", ".join(f"{name}={value}" for name, value in data["sizes"].items())),
        ("  dtypes   ", dtypes),
    ]
    chosen = {name: values for name, values in data["options"].items() if name not in data["elements"]}
    if chosen:
        lines.append(("  options  ", "; ".join(f"{n}: {_choices(values)}" for n, values in chosen.items())))
    for name, of in data["elements"].items():
        text = f"{name}: {data['options'][name][0]}, or any expression of {', '.join(of)}"
        lines.append(("  option   ", text))
    if absent := [tensor["name"] for tensor in data["tensors"] if not tensor["present"]]:
        lines.append(("  absent   ", f"{', '.join(absent)}: this problem has no such tensor"))
    if data["recorded"]:
        lines.append(("  recorded ", f"replayed with --device replay: {'; '.join(data['recorded'])}"))
    if not data["references"]:
        none = "none: no result can be verified, so nothing is ever best; add [reference]"
        lines.append(("  reference  ", none))
    return lines


def _variant_lines(variant: dict[str, Any], kernel: KernelSpec) -> list[Line]:
    lines = _heading(f"{variant['name']}  ({_size(variant['space'])})")
    if variant["summary"]:
        lines.append(("  ", variant["summary"]))
    needed = kernel.variants[variant["name"]].requirements
    if variant["requires"] and not needed:
        lines.append(("  requires ", variant["requires_written"]))
    lines += [("  needs ", f"{reason}:  {condition.written}") for reason, condition in needed]
    width = max((len(p["name"]) for p in variant["parameters"]), default=0)
    for p in variant["parameters"]:
        text = f"{_choices(p['values'])}  (default {value_text(p['default'])})  {p['doc']}"
        lines.append((f"  {p['name']:<{width}}  ", text.rstrip()))
    lines += _default_lines(variant)
    lines += [("  - ", f"{c['reason']}:  {c['written']}") for c in variant["constraints"]]
    rules = [f"{c['reason']}:  {c['written']}" for c in variant["worthwhile"]]
    return [*lines, *(("  - ", f"tried only where: {rule}") for rule in rules)]


def _default_lines(variant: dict[str, Any]) -> list[Line]:
    if not variant["default_refused"] or "valid" not in variant["space"]:
        return []
    return [("  ", f"the default is not valid here: {variant['default_refused']}")]


def _step_line(number: int, step: dict[str, Any]) -> str:
    narrowed = {name: "/".join(map(value_text, values)) for name, values in step["parameters"].items()}
    given = {**narrowed, **step["dtypes"], **step["options"]}
    values = [f"{name}={value_text(value)}" for name, value in given.items()]
    text = f"{number}. {step['name']}: {' '.join([step['variant'], *values])}"
    return f"{text}  ({step['doc']})" if step["doc"] else text


def _initial_lines(data: dict[str, Any]) -> list[Line]:
    """Return the initial configurations, then those that are not used with the reason, cut short.

    Those of variants that do not exist here share one line. ``--json`` has the whole reasons.
    """
    absent = {variant["name"] for variant in data["variants"] if "valid" not in variant["space"]}
    used: list[Line] = []
    unused: list[Line] = []
    without: dict[str, list[str]] = {}
    for number, one in enumerate(data["seeds"], 1):
        doc = f"  ({one['doc']})" if one["doc"] else ""
        if (configuration := one["configuration"]) is not None:
            named = [name for name in one["parameters"] if name in configuration]
            values = [f"{name}={value_text(configuration[name])}" for name in named]
            what = ", the default" if one["default"] else ""
            used.append(("  initial  ", f"{number}. {' '.join([one['variant'], *values])}{what}{doc}"))
        elif one["variant"] in absent:
            without.setdefault(one["variant"], []).append(str(number))
        else:
            reason = textwrap.shorten(one["refused"], REASON_WIDTH, placeholder=" ...")
            unused.append(("  unused   ", f"{number}. {one['variant']}{doc}: {reason}"))
    if without:
        names = "; ".join(f"{', '.join(numbers)} ({name})" for name, numbers in without.items())
        unused.append(("  unused   ", f"initial configurations of variants that are left out here: {names}"))
    return used + unused


def _size(size: dict[str, Any]) -> str:
    if "valid" not in size:
        return f"left out: {size['left_out']}"
    count, valid, refused = size["launchable"], size["valid"], size["unlaunchable"]
    about = size["about"] * count / max(valid, 1) if size["sampled"] else None
    text = space_size(count, size["before"], about, "launchable" if refused else "valid")
    if refused:
        reasons = ", ".join(f"{number} by {reason}" for reason, number in refused.items())
        text += f"; valid, but not launchable: {reasons}"
    return f"{text}: {size['left_out']}" if size.get("left_out") else text


def _settled(data: dict[str, Any]) -> dict[str, Any]:
    problem = data["problem"]
    free = [role for role, choices in data["dtypes"].items() if isinstance(choices, list)]
    dtypes = {role: problem["dtypes"][role] for role in free}
    return {"sizes": problem["sizes"], "dtypes": dtypes, "options": problem["options"]}


def _choices(values: Sequence[Value]) -> str:
    return ", ".join(map(value_text, values))
