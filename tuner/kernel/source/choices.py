"""What of a kernel's code is its author's choice: steps and depths of loops, arrays in shared memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tuner.kernel.source.expressions import python_of, sum_of
from tuner.kernel.source.tokens import close_of, joined
from tuner.kernel.source.use import CodeUse


def stepped(use: CodeUse, axis: str) -> str:
    """Return the name by which a loop goes from one element of a thread to its next; empty for none."""
    text = joined(use.body)
    for at, token in enumerate(use.body[:-2]):
        if use.body[at + 1].text != "+=" or not use.body[at + 2].text.isidentifier():
            continue
        name = token.text
        beside = [use.begins.get(name, "")]
        if name not in use.bounds:
            beside += re.findall(rf"([\w.]+) \+ {name}\b(?! *\*)", text)
            beside += re.findall(rf"(?<!\* )\b{name} \+ ([\w.]+)", text)
        for one in beside:
            of = [part for part in (sum_of(python_of(one), use.first) or {}) if "threadIdx" in str(part)]
            if of == [(f"threadIdx_{axis}",)]:
                return use.body[at + 2].text
    return ""


def chosen(use: CodeUse, name: str) -> bool | None:
    """Return whether a macro is a choice of the code, as what unrolls or steps a loop is.

    None if that is likely: it bounds a loop, or is an extent of an array of the code.
    """
    text = joined(use.body)
    bounds = " ".join(part for one in use.bounds.values() for product in one for part in product)
    if re.search(rf"\+= {name}\b", text) or re.search(rf"// \(?{name}\b", bounds):
        return True
    shapes = " ".join(one for pointer in use.pointers for one in use.shape(pointer) if one)
    if re.search(rf"\b{name}\b", shapes):
        return False
    if name in use.asked:
        return True
    in_array = re.search(rf"[\w,] \w+ (\[[^]]*\] ?)*?\[[^]]*\b{name}\b", text)
    return None if in_array or bounds_loops(use, name) else False


def bounds_loops(use: CodeUse, name: str) -> bool:
    """Return whether the head of a ``for`` has a name."""
    heads = (range(at, close_of(use.body, at + 1)) for at, one in enumerate(use.body) if one.text == "for")
    return any(use.body[at].text == name for head in heads for at in head)


def shared(use: CodeUse) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the static arrays in shared memory: words of the type, and extents."""
    for text in re.findall(r"(?<!extern )__shared__ ([^;]*);", joined(use.body)):
        kind = text.partition("[")[0].split()[:-1]
        for extents in re.findall(r"\w ?((?:\[[^]]*\] ?)+)", text):
            yield kind, re.findall(r"\[([^]]*)\]", extents)
