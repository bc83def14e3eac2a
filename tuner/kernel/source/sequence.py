"""Kernels that a function launches one after the other, each with what those before it have written, as one file."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.core.errors import TunerError
from tuner.expressions.arithmetic import parse
from tuner.kernel.draft import Draft, Given, LaunchDraft, TensorDraft
from tuner.kernel.source.declarations import KernelSignature, Source
from tuner.kernel.source.drafting import draft_of
from tuner.kernel.source.launches import WrittenLaunch
from tuner.kernel.source.tree import text_of
from tuner.kernel.toml.table import is_name, name_for

MOST_NAMED = 3
"""Kernels whose names the file's has; of more the first and the last."""


def draft_of_sequence(source: Source, file: str) -> tuple[Draft, list[str]] | None:
    """Return the draft of kernels that one function launches in order, and their names; None if no single one does.

    Each reads what one before it has written: kernels that a benchmark compares do not. Arrays and numbers have the
    names that the function has for them.

    Args:
        source: what their source declares.
        file: the source's name, in the folder of the file to be written.

    Raises:
        KernelError: a parameter has a type that no launch can pass.
    """
    functions: dict[str, list[WrittenLaunch]] = {}
    for launch in source.launches:
        functions.setdefault(launch.function, []).append(launch)
    found = [merged for launches in functions.values() if (merged := _merged(source, launches, file))]
    return found[0] if len(found) == 1 else None


def _merged(source: Source, launches: Sequence[WrittenLaunch], file: str) -> tuple[Draft, list[str]] | None:
    names = [launch.kernel for launch in launches]
    of = {one.short_name: one for one in source.kernels}
    one_each = (
        len(set(names)) == len(names) > 1 and len(of) == len(source.kernels) and of.keys() >= set(names)
    )
    if not one_each or any(one.conditional or one.loops != launches[0].loops for one in launches):
        return None
    if any(len(one.arguments) != len(of[one.kernel].parameters) for one in launches):
        return None
    drafts: list[Draft] = []
    taken = {text_of(node) for launch in launches for node in launch.arguments}
    for launch in launches:
        kernel = of[launch.kernel]
        renamed = _renamed(kernel, launch, taken, source.macros)
        taken |= set(renamed.values())
        one = draft_of(source, kernel, file, called=launch, renamed=renamed, taken=taken)
        taken |= {*one.parameters, *one.sizes, *one.scalars, *one.tensors}
        drafts.append(one)
    merged = _joined(drafts)
    if merged is None:
        return None
    name = "_".join(names) if len(names) <= MOST_NAMED else f"{names[0]}_to_{names[-1]}"
    return replace(merged, name=name), names


def _renamed(
    kernel: KernelSignature, launch: WrittenLaunch, taken: Collection[str], macros: Collection[str]
) -> dict[str, str]:
    """Return what the file calls a kernel's parameters: as the calling function does, where that has a name."""
    renamed = {}
    for one, node in zip(kernel.parameters, launch.arguments, strict=False):
        text = text_of(node)
        if node.type == "identifier" and text not in macros:
            renamed[one.name] = text if is_name(text) else name_for(text)
        elif one.name in taken:
            renamed[one.name] = f"{kernel.short_name}_{one.name}"
    return {name: new for name, new in renamed.items() if name != new}


def _joined(drafts: Sequence[Draft]) -> Draft | None:
    """Return drafts as one, with their launches in order; None where they do not fit or follow on each other."""
    tensors: dict[str, TensorDraft] = {}
    tables: dict[str, dict[str, Any]] = {"sizes": {}, "scalars": {}, "parameters": {}, "options": {}}
    constraints: dict[str, Any] = {}
    for number, one in enumerate(drafts):
        read = {name for name, tensor in one.tensors.items() if tensor.role != "output"}
        written = {name for name, tensor in tensors.items() if tensor.role != "input"}
        if number and not read & written:
            return None
        for name, tensor in one.tensors.items():
            before = tensors.get(name, tensor)
            if before.dtype != tensor.dtype or len(before.shape) != len(tensor.shape):
                return None
            tensors[name] = _both(before, tensor)
        for of, table in tables.items():
            for name, value in getattr(one, of).items():
                table[name] = (
                    _smaller(table.get(name, value), value) if of == "sizes" else table.get(name, value)
                )
        for reason, condition in one.constraints.items():
            other = constraints.get(reason, condition) != condition
            constraints[f"{reason} ({one.name})" if other else reason] = condition
    used = {tensor.dtype for tensor in tensors.values()}
    roles = {role: dtypes for one in drafts for role, dtypes in one.dtypes.items() if role in used}
    differ = any(
        roles[role] != dtypes for one in drafts for role, dtypes in one.dtypes.items() if role in roles
    )
    loops = [one.launches[0].more for one in drafts if one.launches[0].more]  # they are in the same ones
    if differ or any(one != loops[0] for one in loops):
        return None
    launches = [_passing(one.launches[0], tables["sizes"], one.scalars) for one in drafts]
    launches = [replace(one, more=loops[0] if loops else {}) for one in launches]
    scalars = {name: given for name, given in tables["scalars"].items() if name not in tables["sizes"]}
    used_names = set(re.findall(r"\w+", str([tensors, launches, constraints, scalars])))
    sizes = {name: size for name, size in tables["sizes"].items() if name in used_names}
    return replace(
        drafts[0],
        sizes=sizes,
        tensors=tensors,
        launches=launches,
        parameters=tables["parameters"],
        constraints=constraints,
        dtypes=roles or drafts[0].dtypes,
        options=tables["options"],
        scalars=scalars,
        head=list(dict.fromkeys(line for one in drafts for line in one.head)),
    )


def _both(first: TensorDraft, second: TensorDraft) -> TensorDraft:
    """Return an array that two kernels use in order."""
    clear = second if first.gap and not second.gap else first
    if first.role == second.role == "input":
        return replace(
            first, shape=clear.shape, note=clear.note, gap=clear.gap, init=first.init or second.init
        )
    role = "output" if first.role == "output" else "inout"
    init = None if role == "output" else first.init
    return replace(first, shape=clear.shape, note=clear.note, gap=clear.gap, role=role, init=init)


def _smaller(one: Any, other: Any) -> Any:
    """Return the smaller of two sizes, or the one without a mark."""

    def number(given: Any) -> tuple[bool, float]:
        gap = isinstance(given, Given) and given.gap
        try:
            return gap, parse(str(given.value if isinstance(given, Given) else given)).number({})
        except TunerError:
            return gap, float("inf")

    return min(one, other, key=number)


def _passing(launch: LaunchDraft, sizes: Mapping[str, Any], scalars: Mapping[str, Any]) -> LaunchDraft:
    """Return a launch whose numbers are sizes where another kernel has them so."""

    def argument(given: Any) -> Any:
        pair = scalars.get(given) if isinstance(given, str) and given in sizes else None
        dtype = (pair.value if isinstance(pair, Given) else pair)[0] if pair is not None else "int32"
        return given if dtype in ("int32", "uint32") else {"value": given, "dtype": dtype}

    return replace(launch, arguments=[argument(given) for given in launch.arguments])
