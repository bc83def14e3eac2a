"""TOML -> :class:`KernelSpec`, refusing what it does not know with the file, the key and a remedy.

What is computed is read by ``tuner.kernel.toml.problem``, how by ``tuner.kernel.toml.variants``.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner import paths
from tuner.errors import KernelError, UsageError, suggestion
from tuner.kernel.headers import own_headers
from tuner.kernel.reference import numpy_of
from tuner.kernel.spec import KernelSpec, WorkSpec
from tuner.kernel.toml.baselines import read_baselines
from tuner.kernel.toml.initial import read_initial, read_matmul
from tuner.kernel.toml.problem import read_problem
from tuner.kernel.toml.table import Table
from tuner.kernel.toml.values import (
    Names,
    check_definitions,
    choice,
    exists,
    expression,
    identifier,
    read_definitions,
)
from tuner.kernel.toml.variants import read_ladder, read_variants
from tuner.model import digest

COMPILE_OPTIONS = (
    "std",
    "use_fast_math",
    "ftz",
    "prec-sqrt",
    "prec-div",
    "fmad",
    "maxrregcount",
    "extra-device-vectorization",
    "restrict",
    "generate-line-info",
    "lineinfo",
    "device-debug",
    "G",
    "dopt",
    "disable-warnings",
    "w",
    "diag-suppress",
    "diag-error",
    "diag-warn",
    "modify-stack-limit",
    "Ofast-compile",
    "split-compile",
    "define-macro",
    "undefine-macro",
)
"""NVRTC's options that only change the code: others write files, or change the target."""
MAX_FILE_BYTES = 1 << 20
WITHOUT_RESULTS = ("baselines", "ladder", "seeds", "heuristics")
"""Tables that change no result: adding one must not separate earlier results from later ones."""


def builtin_kernels() -> list[str]:
    """Return the names of the kernels that come with the package."""
    return sorted(path.stem for path in paths.search_spaces().glob("*.toml"))


def load_kernel(name_or_file: str) -> KernelSpec:
    """Find a built-in kernel by name or read the user's own TOML file, and check all of it.

    Raises:
        UsageError: there is no such kernel or file.
        KernelError: the file says something that cannot be.
    """
    if name_or_file.endswith(".toml") or "/" in name_or_file:
        path = Path(name_or_file).expanduser()
        if not path.is_file():
            raise UsageError(f"no kernel file {name_or_file}", "give the path of a kernel's .toml file")
    else:
        path = paths.search_spaces() / f"{name_or_file}.toml"
        if name_or_file not in builtin_kernels():
            remedy = suggestion(name_or_file, builtin_kernels()) + ", or give the path of a .toml file"
            raise UsageError(f"no kernel named {name_or_file!r}", remedy)
    return read_kernel(path.resolve())


def read_kernel(path: Path) -> KernelSpec:
    """Read one kernel file."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            raise KernelError(f"{path}: too large", f"a kernel file has at most {MAX_FILE_BYTES} bytes")
        data = tomllib.loads(raw.decode())
    except OSError as error:
        raise KernelError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise KernelError(f"{path}: not valid TOML: {error}") from None
    return _kernel(path, Table(data, path.name), _digest(data))


def _digest(data: Mapping[str, Any]) -> str:
    """Hash what a file says, in its order, which is that of parameters and values; not how it says it."""
    said = {key: value for key, value in data.items() if key not in WITHOUT_RESULTS}
    if isinstance(variants := said.get("variants"), dict):
        said["variants"] = {name: _without_what_is_searched(variant) for name, variant in variants.items()}
    return digest(json.dumps(said, separators=(",", ":"), default=str))


def _without_what_is_searched(variant: Any) -> Any:
    """Leave out what decides only which of a variant's results are looked for."""
    if not isinstance(variant, dict):
        return variant
    return {key: value for key, value in variant.items() if key != "worthwhile"}


def content_digest(kernel: KernelSpec) -> str:
    """Hash the TOML file and all that its templates may include: results of equal digests can be put together."""
    templates = {launch.template for variant in kernel.variants.values() for launch in variant.launches}
    folders = {template.parent for template in templates} | {paths.templates() / "common"}
    templates |= {path for folder in folders for path in folder.glob("*.j2")}
    texts = [path.read_text(errors="replace") for path in templates]
    files = sorted({*templates, *own_headers(texts, [*sorted(folders), *kernel.include])})
    return digest([kernel.digest, *(digest(path.read_bytes()) for path in files)])


def _kernel(path: Path, top: Table, file_digest: str) -> KernelSpec:
    head = top.table("kernel")
    name = identifier(head, head.get("name", str))
    summary = head.get("summary", str, "")
    head.done()
    problem = read_problem(top, path.parent)
    names = read_definitions(top, problem.names)
    work = _work(top.table("work"), names)
    baselines = read_baselines(top.table("baselines"), problem.tensors, names)
    compiling = top.table("compile")
    compile_options = tuple(_compile_option(compiling, item) for item in compiling.get("options", list, []))
    include = tuple(_folder(compiling, path.parent, item) for item in compiling.get("include", list, []))
    compiling.done()
    variants = read_variants(top, path.parent, names)
    check_definitions(top, names, {name for variant in variants.values() for name in variant.parameters})
    ladder = read_ladder(top, names, variants)
    seeds = read_initial(top, names, variants)
    matmul = read_matmul(top, names, variants)
    top.done()
    kernel = KernelSpec(
        name,
        summary,
        path,
        file_digest,
        names.sizes,
        names.dtypes,
        names.options,
        problem.presets,
        problem.tensors,
        problem.scalars,
        problem.reference,
        work,
        variants,
        compile_options,
        include,
        baselines,
        names.elements,
        ladder,
        seeds,
        matmul,
    )
    for preset in (None, *problem.presets):
        try:
            numpy_of(kernel, kernel.problem(preset=preset))
        except (KernelError, UsageError) as error:
            top.fail(f"reference: {error.problem}", error.remedy)
    return kernel


def _work(table: Table, names: Names) -> WorkSpec:
    work = WorkSpec(
        expression(table, "flops", names, "0"),
        expression(table, "bytes", names),
        choice(table, "pipe", ("vector", "matrix"), "vector"),
    )
    table.done()
    return work


def _compile_option(table: Table, option: Any) -> str:
    name = re.match(r"-{1,2}[A-Za-z][A-Za-z_-]*", str(option))
    if name is None or (
        name.group().lstrip("-") not in COMPILE_OPTIONS and not str(option).startswith(("-D", "-U"))
    ):
        table.fail(
            f"options has {option!r}", f"allowed are -DNAME=VALUE, -UNAME, {', '.join(COMPILE_OPTIONS)}"
        )
    return str(option)


def _folder(table: Table, start: Path, item: Any) -> Path:
    folder = start / str(item)
    if not (exists(folder) and folder.is_dir()):
        table.fail(f"include folder {item!r} does not exist", f"paths start at {start}")
    return folder.resolve()
