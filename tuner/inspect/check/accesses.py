"""What to do about an access outside of an array on the CPU: a line that is a guess, a guard, a constraint, indices."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator

from tuner.core.errors import TunerError
from tuner.core.model import Configuration, Problem
from tuner.expressions.arithmetic import parse
from tuner.inspect.check.host_children import Run
from tuner.inspect.check.toml_lines import Key, TomlLines
from tuner.kernel.contents import RANDOM
from tuner.kernel.draft import GAP
from tuner.kernel.spec import KernelSpec
from tuner.runtime.dtypes import DTYPES

_OUTSIDE = re.compile(r"outside an array: (?P<name>\w+)(?P<before>\[-)?")


def remedy_of_access(
    kernel: KernelSpec, run: Run, at: Problem | None, fault: str, fixed: str, lines: TomlLines
) -> str:
    """Return what to do about a fault; empty if it is no access outside of an array.

    Args:
        kernel: that is checked.
        run: of a configuration, or of the CUDA reference.
        at: the problem at which it is.
        fault: what the run said.
        fixed: what to do about a size that the source has as a number; empty if it has none.
        lines: of the kernel's file.
    """
    found, configuration = _OUTSIDE.search(fault), run.request.configuration
    if not found:
        return ""
    name, constraint, guesses = found["name"], "", list[str]()
    if configuration is not None:
        guesses = [str(line) for line in _guesses(kernel, configuration, name, lines)]
        if at is not None and not found["before"]:
            constraint = _constraint(kernel, run, at, configuration, name)
    by = f"a constraint: {constraint}" if constraint else "a constraint of the variant"
    remedy = f"guard it, or exclude such sizes by {by}{fixed}"
    if guesses:
        several = "s" if len(guesses) > 1 else ""
        remedy = f"correct line{several} {' and '.join(guesses)}, marked {GAP}; else {remedy}"
    if index := next((one for one in _random_integers(kernel) if one != name), ""):
        remedy += f'; if {index} has indices, say of what: init = {{ uniform = [0, "SIZE - 1"] }}'
    return remedy


def _constraint(kernel: KernelSpec, run: Run, at: Problem, configuration: Configuration, name: str) -> str:
    """Return the constraint, as a file has it, by which blocks have no rest in an array's size; empty if none helps.

    It must exclude the problem at which the fault is, and not the file's own.
    """
    if name not in kernel.tensors:
        return ""
    variant, gpu = kernel.variants[configuration.variant], run.request.gpu
    sizes = {size for extent in kernel.tensors[name].shape for size in extent.names} & kernel.sizes.keys()
    for side in (side for launch in variant.launches for side in launch.grid):
        match parse(side.text).syntax:
            case ast.Call(func=ast.Name(id="ceil_div"), args=[ast.Name(id=size), by]) if size in sizes:
                of_block = ast.unparse(by)
                text = f"{size} % {of_block if isinstance(by, ast.Name) else f'({of_block})'} == 0"
                condition = parse(text)
                if not condition.names & variant.parameters.keys():
                    continue
                with contextlib.suppress(TunerError):
                    own, there = (
                        condition.holds({**kernel.environment(problem, gpu), **configuration.values})
                        for problem in (kernel.problem(), at)
                    )
                    if own and not there:
                        return f'"{size} is a whole number of blocks" = "{text}"'
    return ""


def _guesses(kernel: KernelSpec, configuration: Configuration, name: str, lines: TomlLines) -> Iterator[int]:
    """Yield the lines of grids, an array's shape and blocks that are marked as guesses, each once."""
    numbers = range(len(kernel.variants[configuration.variant].launches))
    launches = [("variants", configuration.variant, "launches", number) for number in numbers]
    keys: list[Key] = [(*launch, "grid") for launch in launches]
    keys += [("tensors", name, "shape"), *((*launch, "block") for launch in launches)]
    yield from dict.fromkeys(filter(None, map(lines.guessed, keys)))


def _random_integers(kernel: KernelSpec) -> Iterator[str]:
    """Yield the inputs of random integers without a range, which may be meant as indices."""
    dtypes = kernel.problem().dtypes
    for tensor in kernel.tensors.values():
        whole = DTYPES[dtypes.get(tensor.dtype, tensor.dtype)].whole
        if whole and tensor.role != "output" and tensor.init in RANDOM and not tensor.between:
            yield tensor.name
