"""Values to try for a parameter of which only the name, its place in the launch and perhaps a default are known."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tuner.expressions.arithmetic import parse
from tuner.kernel.draft import ParameterDraft

_SIZE = re.compile(
    r"(?i)[nmkl]|[nmkwhd][xyz]|(?:num_?|n_?|total_?|image_?|matrix_?|problem_?|domain_?|data_?|input_?|output_?"
    r"|grid_?(?=width|height|depth|length|rows?|col))*"
    r"(?:rows?|cols?|columns?|elements?|points?|sizes?|width|height|depth|length|len|dims?|channels?|batch(?:es)?|items|count)"
    r"(?:_?[xyzmnkwh])?\Z"
)
_STRIDE = re.compile(r"(?i)(\w+_)?ld[a-z]?(_\w+)?|\w*(stride|pitch)\w*")
NO_SIZE = re.compile(
    r"(?i)((\w+_)?ld[a-z]?(_\w+)?|\w*(stride|pitch|offset|iter|repeat|repetition)\w*|seed|start|begin|inc_?[a-z]|\w*steps?|\w*flags?|mode|n?reps|\w*thresh(old)?)"
)
"""Numbers that a kernel is passed which are no sizes."""
SMALL = re.compile(r"(?i)\w*(radius|halo|order|taps|filter|window|per_row|ksize|kernel|pool)\w*")
_BLOCK = re.compile(
    r"(?i)(?!.*per)(.*(block|threads|tpb|blk|bdim|work_?group|wg).*|[bt][xyz]|ntx|nty|n_?threads|local_?size(_?[xyz])?)"
    r"|.*threads?_?per_?(block|cta|work_?group|wg).*"
)
_SWITCH = re.compile(r"(?i)(use|enable|with|has|is|do|no)_\w+|\w+_(enabled|flag|on)")
_KINDS = (
    (re.compile(r"(?i)(log2?|lg)_?\w*(block|threads)\w*"), (5, 6, 7, 8, 9, 10), 8),
    (re.compile(r"(?i)(threads|lanes)_?per_?\w+"), (1, 2, 4, 8, 16, 32), 8),
    (re.compile(r"(?i).*warps?.*"), (1, 2, 4, 8, 16), 4),
    (re.compile(r"(?i).*(stages?|pipeline|buffers).*"), (1, 2, 3, 4), 2),
    (re.compile(r"(?i).*(vec|lanes|simd).*"), (1, 2, 4), 1),
    (re.compile(r"(?i)b[mn]|(block|tile)_?(m|n)"), (16, 32, 64, 128), 64),
    (re.compile(r"(?i)bk|(block|tile)_?k|\w*depth"), (8, 16, 32), 16),
)
"""Names, with their values and the default."""
_BLOCKS = {
    "": ((32, 64, 128, 256, 512, 1024), 256),
    "x": ((8, 16, 32, 64, 128), 32),
    "xy": ((8, 16, 32), 16),
    "y": ((1, 2, 4, 8, 16, 32), 8),
    "z": ((1, 2, 4, 8), 1),
}
"""Threads of a block: in all, and along each axis or two where there are several."""
PER_THREAD = (1, 2, 4, 8)


def is_size(name: str) -> bool:
    """Return whether a macro's name says that it is a size of the problem rather than a choice of the kernel."""
    return _SIZE.fullmatch(name) is not None and not is_block(name)


def is_block(name: str) -> bool:
    """Return whether a macro's name says that it is a number of threads."""
    return _BLOCK.fullmatch(name) is not None


def is_stride(name: str) -> bool:
    """Return whether a number's name says that it is how far rows lie from each other."""
    return _STRIDE.fullmatch(name) is not None


def is_choice(name: str) -> bool:
    """Return whether a macro's name says that it is a choice of the kernel."""
    says = re.search(r"(?i)tile|unroll|per_|coarse", name) or _SWITCH.fullmatch(name) or is_block(name)
    return bool(says) or any(kind[0].fullmatch(name) for kind in _KINDS)


def parameter_draft(
    name: str, default: int | None = None, block: str | None = None, chosen: Collection[int] = ()
) -> ParameterDraft:
    """Return a parameter with values to try.

    Args:
        name: the parameter's.
        default: its value in the source, which is then one of the values.
        block: of threads of a block their axis, or empty if that is the only one; None for another parameter.
        chosen: the values with which conditionals choose a branch, if they do.
    """
    doc = ""
    values: tuple[int, ...]
    if block is not None:
        values, usual = _BLOCKS[block]
        doc = f"threads of a block{f' along {block}' if block else ''}"
    elif chosen:
        values, usual = tuple(chosen), min(chosen)
    elif _SWITCH.fullmatch(name):
        values, usual = (0, 1), 0
    else:
        fitting = (kind for kind in _KINDS if kind[0].fullmatch(name))
        _, values, usual = next(fitting, (None, PER_THREAD, PER_THREAD[0]))
        if default is not None and not values[0] <= default <= values[-1]:
            values = tuple(
                sorted({max(default // 4, 1), max(default // 2, 1), default, 2 * default, 4 * default})
            )
    default = usual if default is None else default
    return ParameterDraft(sorted({*values, default}), default, doc)


def reduce_defaults(
    parameters: dict[str, ParameterDraft], block: Sequence[str], most: int, bounds: Mapping[str, int]
) -> None:
    """Take smaller defaults for the threads of a block, the last first, until the kernel can have so many.

    Then others until expressions are within their bounds: what brings one down the most goes first, of equal ones what
    divides, or else is the largest.
    """
    defaults = {name: int(parameters[name].default or 1) for name in block}
    for name in reversed(block):
        smaller = [value for value in map(int, parameters[name].values) if value <= defaults[name]]
        while math.prod(defaults[one] for one in block) > most and len(smaller) > 1:
            smaller.pop()
            defaults[name] = smaller[-1]
    for name, default in defaults.items():
        parameters[name] = replace(parameters[name], default=default)
    for text, bound in bounds.items():
        asked = [name for name in parameters if re.search(rf"\b{name}\b", text)]
        defaults = {name: int(parameters[name].default or max(parameters[name].values)) for name in asked}
        while (now := parse(text).number(defaults)) > bound:
            changed = [
                (
                    parse(text).number({**defaults, name: value}),
                    value < defaults[name],
                    -defaults[name],
                    name,
                    value,
                )
                for name in asked
                for value in _beside(defaults[name], [*map(int, parameters[name].values)])
            ]
            least, _, _, name, value = min(changed, default=(now, False, 0, "", 0))
            if least >= now:
                break
            defaults[name] = value
            parameters[name] = replace(parameters[name], default=value)


def _beside(value: int, values: Sequence[int]) -> list[int]:
    """Return the next smaller and the next larger of some values."""
    smaller, larger = [one for one in values if one < value], [one for one in values if one > value]
    return [*([max(smaller)] if smaller else ()), *([min(larger)] if larger else ())]
