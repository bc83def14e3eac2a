"""Kernels that others wrote for a task: they take the place of its variants, and are verified and timed as these.

The task keeps its problems, tensors, reference, tolerances and work. A candidate is a ``.cu`` with its launches in
``// tune:`` lines, a cubin with them in a file beside it, a kernel's file, of which the variants count, or a Python
function on GPU tensors.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

from tuner.core.errors import KernelError, UsageError, suggestion
from tuner.core.trees import parsed
from tuner.kernel.baselines import Baseline, checked_launch, existing, launches_in, parse_baseline
from tuner.kernel.functions import BaselineKind, PythonFunction
from tuner.kernel.headers import read_source
from tuner.kernel.load import find_kernel, variants_of
from tuner.kernel.modules import MODEL_NEW
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import LaunchSpec, VariantSpec

CANDIDATE = "candidate"
"""Name of the variant, and of a Python file's function where none is named."""
SUFFIXES = (".cu", ".cubin", ".py", ".toml")
FILES = f"give one that ends in {', '.join(SUFFIXES)}"


def candidate_kernel(task: KernelSpec, text: str) -> KernelSpec:
    """Return a task that a candidate computes.

    Args:
        task: a kernel.
        text: a file, or as :func:`tuner.kernel.baselines.parse_baseline` takes it.

    Raises:
        UsageError, KernelError: there is no such file, or it is wrong.
    """
    path = Path(text).expanduser()
    if path.suffix == ".toml":
        path = find_kernel(text)
        return replace(variants_of(path, task), candidate=str(path))
    if path.suffix == ".py":
        file = existing(text, FILES)
        return _called(task, PythonFunction(file, _function_in(file)))
    if path.suffix in (".cu", ".cubin"):
        file = existing(text, FILES)
        named = [
            Baseline(file.name, BaselineKind.LAUNCH, " ".join(one.split()), file) for one in launches_in(file)
        ]
        return _computed_by(task, str(file), file, tuple(checked_launch(one, task) for one in named))
    baseline = parse_baseline(text) if any(f"{suffix}:" in text for suffix in SUFFIXES) else None
    if baseline is None or baseline.file is None:
        raise UsageError(f"no candidate {text!r}", f"give a file that ends in {', '.join(SUFFIXES)}")
    if baseline.kind is BaselineKind.PYTHON:
        return _called(task, PythonFunction(baseline.file, _function_in(baseline.file, baseline.text)))
    return _computed_by(
        task, f"{baseline.file}:{baseline.text}", baseline.file, (checked_launch(baseline, task),)
    )


def _called(task: KernelSpec, function: PythonFunction) -> KernelSpec:
    return _computed_by(task, f"{function.file}:{function.name}", function.file, call=function)


def _computed_by(
    task: KernelSpec,
    text: str,
    file: Path,
    launches: tuple[LaunchSpec, ...] = (),
    call: PythonFunction | None = None,
) -> KernelSpec:
    variant = VariantSpec(CANDIDATE, "", None, {}, (), (), launches, call=call)
    return replace(
        task, file=file, task=task, candidate=text, variants={CANDIDATE: variant}, ladder=(), initial=(),
        costs={},
    )  # fmt: skip


def _function_in(path: Path, named: str = "") -> str:
    """Return the name of a Python file's function: the named one, ``candidate``, ``ModelNew``, or the only one.

    Nothing is run: any other place where the file says a name may be one where it gets it.
    """
    try:
        tree = parsed(read_source(path))
    except (SyntaxError, ValueError, RecursionError) as error:
        raise KernelError(f"{path.name} is no Python: {error}") from None
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    if named:
        said = {word for node in ast.walk(tree) for word in vars(node).values() if isinstance(word, str)}
        if named in said or "*" in said:
            return named
        raise UsageError(f"{path.name} has no function {named!r}", suggestion(named, functions))
    bound = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assigned = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    bound |= {target.id for target in assigned if isinstance(target, ast.Name)}
    for name in (CANDIDATE, MODEL_NEW):
        if name in bound:
            return name
    if len(functions) == 1:
        return functions[0]
    raise UsageError(f"{path.name} has no function {CANDIDATE!r}", suggestion(CANDIDATE, functions))
