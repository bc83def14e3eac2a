"""Read a kernel's TOML file into a :class:`KernelSpec`; an error names the file, the key and a remedy.

``tuner.kernel.toml`` has a reader for each table.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.core import paths
from tuner.core.errors import KernelError, TunerError, UsageError, suggestion
from tuner.core.model import Run, digest
from tuner.core.paths import builtin_kernels as builtin_kernels
from tuner.kernel.headers import named_file
from tuner.kernel.options import check_names, read_options
from tuner.kernel.reference import numpy_of
from tuner.kernel.spec import JudgeSpec, KernelSpec, WorkSpec
from tuner.kernel.toml.file import KernelFile, complete_variants, read_file
from tuner.kernel.toml.initial import read_first_tried, read_ladder
from tuner.kernel.toml.problem import read_baselines, read_problem
from tuner.kernel.toml.table import (
    Names,
    Table,
    check_definitions,
    choice,
    exists,
    expression,
    identifier,
    read_definitions,
)
from tuner.kernel.toml.variants import conjunction, read_variants
from tuner.runtime.dtypes import ITEMSIZE
from tuner.runtime.entries import TensorEntry

TABLES = (
    "kernel", "problem", "tensors", "scalars", "reference", "definitions", "work", "baselines", "compile", "variants",
    "ladder", "initial", "costs", "judge",
)  # fmt: skip
SOURCES = (".cu", ".cuh", ".j2", ".cpp", ".h", ".hpp", ".py")
"""Endings of files that a user may take for a kernel file."""
WITHOUT_RESULTS = ("baselines", "ladder", "initial", "costs", "judge")
"""Tables that change no result, and are left out of the digest: results from before and after an edit are
compatible."""


def load_kernel(name_or_file: str) -> KernelSpec:
    """Return a built-in kernel by its name, or the kernel of a user's TOML file.

    Raises:
        UsageError: there is no such kernel or file.
        KernelError: the file is wrong.
    """
    return read_kernel(find_kernel(name_or_file))


def find_kernel(name_or_file: str) -> Path:
    """Return the file of a built-in kernel, or a user's.

    Raises:
        UsageError: there is no such kernel or file.
    """
    if name_or_file.endswith((".toml", *SOURCES)) or "/" in name_or_file:
        given, path = Path(name_or_file), named_file(name_or_file)
        if path is None:
            remedy = "give the path of a kernel's .toml file"
            if given.suffix == ".toml" and named_file(str(source := given.with_suffix(".cu"))):
                remedy = f"write it with: tune init {shlex.quote(str(source))}"
            raise UsageError(f"no kernel file {name_or_file}", remedy)
        if given.suffix in SOURCES:
            remedy = f"write the .toml file that describes it with: tune init {shlex.quote(name_or_file)}"
            if given.suffix in (".j2", ".py"):
                remedy = "give the .toml file that describes it"
            raise UsageError(f"{name_or_file} is a kernel's source", remedy)
    else:
        path = paths.search_spaces() / f"{name_or_file}.toml"
        if name_or_file not in builtin_kernels():
            remedy = suggestion(name_or_file, builtin_kernels()) + ", or give the path of a .toml file"
            if named_file(f"{name_or_file}.toml"):
                remedy = f"did you mean ./{name_or_file}.toml?"
            raise UsageError(f"no kernel named {name_or_file!r}", remedy)
    return path.resolve()


def read_kernel(path: Path) -> KernelSpec:
    """Return the kernel of a TOML file.

    Raises:
        KernelError: the file cannot be read, or is wrong.
    """
    return kernel_of(read_file(path))


def kernel_of(file: KernelFile) -> KernelSpec:
    """Return the kernel that a file describes.

    Raises:
        KernelError: it is wrong.
    """
    data = complete_variants(file.data, file.path.name)
    top, folder = Table(data, file.path.name), file.path.parent
    top.only(*TABLES)
    name, summary = _head(top.table("kernel"))
    problem = read_problem(top, folder)
    names = read_definitions(top, problem.names)
    work = _work(top.table("work"), names, problem.tensors)
    baselines = read_baselines(top.table("baselines"), problem.tensors, names)
    compile_options, include = _compile(top.table("compile"), folder)
    variants = read_variants(top, folder, names)
    loops = {name for variant in variants.values() for launch in variant.launches for name in launch.varying}
    for variant in variants.values():
        inner = replace(names, extra=frozenset(variant.parameters))
        check_names(top.table("compile"), compile_options, folder, inner)
    check_definitions(top, names, loops.union(*(variant.parameters for variant in variants.values())))
    initial, costs = read_first_tried(top, file.initial, names, variants)
    kernel = KernelSpec(
        name=name,
        summary=summary,
        file=file.path,
        digest=_digest(data),
        sizes=names.sizes,
        dtypes=names.dtypes,
        options=names.options,
        presets=problem.presets,
        tensors=problem.tensors,
        scalars=problem.scalars,
        reference=problem.reference,
        work=work,
        variants=variants,
        compile_options=compile_options,
        include=include,
        baselines=baselines,
        elements=names.elements,
        ladder=read_ladder(top, names, variants),
        initial=initial,
        costs=costs,
        definitions=_written(data, file.initial),
        judge=_judge(top.table("judge"), problem.presets),
    )
    top.done(kernel)
    for preset in (None, *problem.presets):
        try:
            numpy_of(kernel, kernel.problem(preset=preset))
        except (KernelError, UsageError) as error:
            top.fail(f"reference: {error.problem}", error.remedy)
    return kernel


def variants_of(path: Path, task: KernelSpec) -> KernelSpec:
    """Return a task that the variants of another file compute; nothing else of that file counts.

    Raises:
        KernelError: the file is wrong, or its tensors are others.
    """
    data = complete_variants(read_file(path).data, path.name)
    variants = data.get("variants", {})
    whole = {**read_file(task.file).data, "variants": variants}
    problem = read_problem(Table(whole, task.file.name), task.folder)
    top = Table({key: data[key] for key in ("definitions", "compile", "variants") if key in data}, path.name)
    if "tensors" in data and (other := _tensors(kernel_of(KernelFile(path, dict(data))))) != _tensors(task):
        differing = sorted(set(dict(other).items()) ^ set(_tensors(task).items()))
        top.fail(f"tensor {differing[0][0]} is not as in {task.file.name}", "compute what the task computes")
    names = read_definitions(top, problem.names)
    options, include = task.compile_options, task.include
    if top.has("compile"):
        options, include = _compile(top.table("compile"), path.parent)
    return replace(
        task, file=path, task=task, variants=read_variants(top, path.parent, names), compile_options=options,
        include=include, ladder=(), initial=(), costs={},
    )  # fmt: skip


def _tensors(kernel: KernelSpec) -> dict[str, str]:
    """Return what variants rely on of each tensor, as text."""
    return {
        name: " ".join([tensor.role, tensor.dtype, *(side.text for side in tensor.shape)])
        for name, tensor in kernel.tensors.items()
    }


def _judge(table: Table, presets: Mapping[str, Any]) -> JudgeSpec:
    named = table.get("presets", list, [])
    for preset in named:
        table.require(str(preset), presets, f"presets names {preset!r}")
    baselines = table.get("baselines", list, [])
    if not all(isinstance(name, str) and name for name in baselines):
        table.fail(f"baselines = {baselines!r}", 'list their names, such as ["default", "torch"]')
    limit_s = float(table.get("limit_s", (int, float), JudgeSpec.limit_s))
    if not 0 < limit_s < math.inf:
        table.fail(f"limit_s = {limit_s}", "give seconds above 0")
    any_size = table.get("any_size", bool, True)
    return table.done(JudgeSpec(tuple(named), tuple(baselines), any_size, limit_s))


def _digest(data: Mapping[str, Any]) -> str:
    """Return a digest of a file's data in its order, which is that of parameters and values."""
    kept = {key: value for key, value in data.items() if key not in WITHOUT_RESULTS}
    if isinstance(variants := kept.get("variants"), dict):
        kept["variants"] = {name: _without_words(variant) for name, variant in variants.items()}
    return digest(json.dumps(kept, separators=(",", ":"), default=str))


def _without_words(variant: Any) -> Any:
    """Return a variant without the words for what it needs, and without pruning rules: these decide what is tried."""
    if not isinstance(variant, dict):
        return variant
    kept = {key: value for key, value in variant.items() if key != "pruning"}
    if isinstance(needed := kept.get("requires"), dict):
        kept["requires"] = conjunction(map(str, needed.values()))
    return kept


def _written(data: Mapping[str, Any], initial: KernelFile | None) -> dict[str, str]:
    """Return the definitions of a kernel's files as they are written there."""
    both = {**data.get("definitions", {}), **(initial.data.get("definitions", {}) if initial else {})}
    return {name: " ".join(str(text).split()) for name, text in both.items()}


def _head(table: Table) -> tuple[str, str]:
    name = identifier(table, table.get("name", str))
    return table.done((name, table.get("summary", str, "")))


def _compile(table: Table, folder: Path) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    options = read_options(table)
    include = tuple(_folder(table, folder, item) for item in table.get("include", list, []))
    return table.done((options, include))


def _work(table: Table, names: Names, tensors: Mapping[str, TensorEntry]) -> WorkSpec:
    given = table.has("bytes")
    work = WorkSpec(
        expression(table, "flops", names, "0"),
        expression(table, "bytes", names, _every_byte(names, tensors)),
        choice(table, "pipe", ("vector", "matrix"), "vector"),
        assumed=not given,
    )
    return table.done(work)


def _every_byte(names: Names, tensors: Mapping[str, TensorEntry]) -> str:
    """Return the expression of the bytes that are moved if each tensor is read or written once, an inout both."""
    terms = []
    for tensor in tensors.values():
        itemsize = (
            f"itemsize({tensor.dtype})" if tensor.dtype in names.dtypes else str(ITEMSIZE[tensor.dtype])
        )
        factors = [f"({extent.text})" for extent in tensor.shape] + [itemsize]
        term = " * ".join(["2", *factors] if tensor.role == "inout" else factors)
        terms.append(term if tensor.when is None else f"({term} if {tensor.when.text} else 0)")
    return " + ".join(terms)


def _folder(table: Table, start: Path, item: Any) -> Path:
    folder = start / str(item)
    if not (exists(folder) and folder.is_dir()):
        table.fail(f"include folder {item!r} does not exist", f"paths start at {start}")
    return folder.resolve()


def kernel_of_run(run: Run) -> KernelSpec:
    """Load the kernel of a stored run: from its file, or the built-in one of its name.

    Raises:
        TunerError: neither is there any more, or the run is another tool's.
    """
    if run.foreign:
        raise TunerError(
            f"run {run.id[:8]} comes from another tool's file ({run.foreign}), which has no kernel to run",
            "tune the kernel itself: tune FILE.toml",
        )
    name = run.problem.kernel
    builtin = name in builtin_kernels() and not Path(run.kernel_file).is_file()
    return load_kernel(name if builtin else run.kernel_file)
