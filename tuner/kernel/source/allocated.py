"""What the calling function allocates for arrays, beside the shapes that a kernel's code shows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from tuner.core.errors import TunerError
from tuner.expressions.arithmetic import parse
from tuner.kernel.draft import TensorDraft, plain
from tuner.kernel.source.expressions import python_text, sum_of, sum_text
from tuner.kernel.source.launch_guess import LaunchGuess
from tuner.kernel.source.names import SourceNames
from tuner.kernel.source.tree import text_of
from tuner.runtime.dtypes import ITEMSIZE

PADDING = 64
"""Elements that a program may allocate behind those that a kernel uses."""


def with_allocations(
    names: SourceNames, guess: LaunchGuess, tensors: Mapping[str, TensorDraft]
) -> dict[str, TensorDraft]:
    """Return tensors, with a mark at those of which the calling function allocates more or less, and as many elements.

    Args:
        names: what the source's names become.
        guess: the launch.
        tensors: as the kernel's code shows them.
    """
    found = dict(tensors)
    called = names.called
    for argument, one in zip(called.arguments if called else (), names.kernel.parameters, strict=False):
        bytes_ = called.allocated.get(text_of(argument)) if called else None
        text = guess.in_file(bytes_) if bytes_ is not None else None
        if text is None or (tensor := found.get(names.named(one.name))) is None:
            continue
        if not names.found.keys().isdisjoint(re.findall(r"\w+", text)):
            continue  # shapes are those of all configurations
        dtype = names.dtypes[tensor.dtype][0] if tensor.dtype in names.dtypes else tensor.dtype
        own, whole = f"({') * ('.join(tensor.shape)})", _divided(text, ITEMSIZE[dtype])
        if not (more := _more(own, whole, names)):
            continue
        note = f"the shape: the source allocates {whole} elements"
        of_sizes = [not names.sizes.keys().isdisjoint(re.findall(r"\w+", text)) for text in (own, whole)]
        if of_sizes != [True, False] or tensor.note.startswith("the shape"):
            role = ("inout", "zeros") if tensor.role == "output" and more > 0 else (tensor.role, tensor.init)
            tensor = replace(tensor, shape=[whole], role=role[0], init=role[1])
            note += f", the code shows {own[1:-1].replace(') * (', ' x ')}"
        found[names.named(one.name)] = replace(tensor, note=note, gap=True)
    return found


def _divided(text: str, itemsize: int) -> str:
    terms = sum_of(python_text(text))
    if terms is None or any(factor % itemsize for factor in terms.values()):
        return f"({text}) // {itemsize}"
    divided = sum_text({product: factor // itemsize for product, factor in terms.items()})
    return divided[1:-1] if len(terms) == 1 and re.fullmatch(r"\(ceil_div\([^()]*\)\)", divided) else divided


def _more(own: str, allocated: str, names: SourceNames) -> float:
    """Return by how many elements more the source allocates (fewer: below 0), at the first of two sets of sizes.

    0 where that is at most some padding at either, or more at one and less at the other.
    """
    sizes = {name: plain(one) for name, one in names.sizes.items()}
    sizes |= {name: one.value[0] for name, one in names.options.items()}
    drawn = {name: 48 * (2 * number + 1) for number, name in enumerate(sizes)}
    drawn |= dict.fromkeys(names.found, 16) | {"sm_count": 132}
    known = {name: int(one) for name, one in sizes.items() if str(one).isdecimal()}
    try:
        kernel, host = (
            [parse(text).number(of) for of in (drawn, drawn | known)] for text in (own, allocated)
        )
    except TunerError:
        return 0
    more = [one - other for one, other in zip(host, kernel, strict=True)]
    alike = min(more) > PADDING or max(more) < 0
    return more[0] if alike and min(host) >= 1 else 0
