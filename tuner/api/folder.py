"""The folder of a kernel that was described by a call: its file, the sources, and the values of its tensors."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tuner.api.caller import TO_KEEP, asks_its_program, caller_file
from tuner.api.description import Described
from tuner.api.kinds import path_of
from tuner.core import paths
from tuner.core.errors import ExpressionError, KernelError, SpaceError, TunerError, UsageError
from tuner.core.files import temporary_folder, whole_folder
from tuner.core.model import Gpu, Problem
from tuner.kernel.default import default_configuration
from tuner.kernel.headers import own_headers, read_source
from tuner.kernel.identity import template_texts
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import invalid_reason, numbers_of, tensors_of
from tuner.kernel.reference import numpy_of, settle_reference
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.kernel.toml.file import read_file
from tuner.runtime.dtypes import BITS

KERNELS = "kernels"
"""Folder beside a database, with one for each kernel that was described by a call."""
MOST_ELEMENTS = 1 << 20
"""Of tensors for which a NumPy expression is computed once: it takes some milliseconds."""
MOST_TRIED = 1000
"""Configurations of which one must be launchable; of more, some are when they are compiled, or none."""


def contents(described: Described) -> dict[str, Any]:
    """Return what the folder holds: bytes, or an array, by name; the kernel's file comes first.

    Raises:
        UsageError: text that was passed is no Unicode.
    """
    try:
        files = {f"{described.draft.name}.toml": described.draft.toml().encode(), **described.files}
    except UnicodeEncodeError as error:
        text = error.object[max(0, error.start - 20) : error.end]
        raise UsageError(
            f"a file cannot hold the half of a character in {text!r}", "pass text without it"
        ) from None
    if described.reference is not None:
        files["caller.py"] = caller_file(described.reference, described.available).encode()
    return files


@contextmanager
def kept(described: Described, database: Path, used: Callable[[], bool]) -> Iterator[KernelSpec]:
    """Return the kernel from a folder beside the database: equal calls have the same one.

    A folder that is new is removed where the block fails before it is used, unless another call uses it.

    Raises:
        UsageError: the file is wrong.
        TunerError: it cannot be written.
    """
    files = contents(described)
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{getattr(content, 'dtype', '')}{getattr(content, 'shape', '')}\0".encode())
        digest.update(content if isinstance(content, bytes) else np.ascontiguousarray(content).data)
    folder = database.absolute().parent / KERNELS / f"{described.draft.name}-{digest.hexdigest()[:12]}"
    new = not (folder / next(iter(files))).is_file()
    if new:
        write(folder, files)
    lock = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_SH)
        yield loaded(folder / next(iter(files)))
    except BaseException:
        with suppress(OSError):
            if new and not used():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
                folder.parent.rmdir()
        raise
    finally:
        os.close(lock)


def loaded(file: Path) -> KernelSpec:
    """Return the kernel of a file that was written for a call.

    Raises:
        UsageError: it is wrong.
    """
    try:
        return load_kernel(str(file))
    except KernelError as error:
        problem, remedy = _of_call(error.problem, file), _of_call(error.remedy, file)
        unknown = re.match(r"(?!reference|tolerance|reduction).* uses unknown name '(\w+)'", problem)
        if unknown and "did you mean" not in remedy:
            remedy += f", or add {unknown[1]} to params"
        raise UsageError(problem, remedy) from None


_IN_FILE = {
    r"\bvariants: main: |\blaunches\[0\]: ": "",
    r"^constraints: (.*) = '\1'": r"where = '\1'",
    r"^repeat\[\d\]: count\b": "repeat",
    r"^shared_bytes\b": "shared_memory",
    r"^arguments: value\b": "args",
    r"^compile: options\b": "compile_options",
    r"^reference: numpy\b": "reference",
    r"\bfolders of headers are in \[compile\] include": "headers lie beside the source's file",
    r"^reference: (tolerance|reduction)\b": r"\1",
}
"""Where a file has what a call gives: patterns, and the words of the call."""


def _of_call(problem: str, file: Path) -> str:
    """Return what is wrong with a file in the words of the call, which has no such file."""
    problem = problem.replace(f"{file.name}: ", "", 1)
    for pattern, words in _IN_FILE.items():
        problem = re.sub(pattern, words, problem, count=2)
    return problem


def require_launchable(described: Described) -> None:
    """Refuse a kernel whose file is wrong, or of which no GPU can launch a configuration.

    Raises:
        UsageError: that.
        TunerError: no configuration is valid, or an expression has no value.
    """
    refused = ""
    with written(described, hollow=True) as kernel:
        for gpu in sorted(ARCHITECTURES.values(), key=lambda gpu: -gpu.shared_bytes_optin):
            problem = kernel.problem()
            settle_reference(kernel, problem, gpu)
            _require_shapes(kernel, problem, gpu)
            default = default_configuration(kernel, problem, gpu)
            if default is not None and not invalid_reason(kernel, problem, gpu, default):
                return
            try:
                space = SearchSpace.from_kernel(kernel, problem, gpu)
            except SpaceError as error:
                refused = refused or error.problem.replace(f" on {gpu.name}", "")
                continue
            for configuration in islice(space.configurations(), MOST_TRIED):
                if not (reason := invalid_reason(kernel, problem, gpu, configuration)):
                    return
                reason = _of_call(reason, kernel.file).replace("this GPU allows", "GPUs allow at most")
                refused = refused or f"{configuration} cannot be launched: {reason}"
            if len(space) > MOST_TRIED:
                return
    raise UsageError(refused, "correct params, where, grid or block")


def _require_shapes(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> None:
    """Refuse a NumPy expression whose shape is not its output's, if it is soon computed.

    Raises:
        UsageError: that.
    """
    tensors = tensors_of(kernel, problem, gpu)
    if sum(tensor.count for tensor in tensors) > MOST_ELEMENTS:
        return
    names: dict[str, Any] = numbers_of(kernel, problem, gpu)
    for one in tensors:
        names[one.name] = np.ones(one.meant_shape, "float32" if one.dtype in BITS else one.dtype)
    for name, expression in numpy_of(kernel, problem).items():
        shape = names[name].shape
        try:
            value = expression.evaluate(names, most=MOST_ELEMENTS)[0].shape
            fits = np.broadcast_shapes(value, shape) == shape
        except ExpressionError as error:
            if "broadcast" in error.problem:
                raise UsageError(error.problem, f"{name} has {shape}") from None
            continue
        except ValueError:
            fits = False
        if not fits:
            raise UsageError(f"reference has {name} of shape {value}", f"let it have {shape}")


def write(folder: Path, files: Mapping[str, Any]) -> None:
    """Write a folder: all of it or nothing; one of this name that is there is replaced.

    Raises:
        TunerError: it cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with whole_folder(folder) as partial:
            fill(partial, files)
    except OSError as error:
        raise TunerError(f"{folder}: {error.strerror}", "name another folder, with db=") from None


def fill(folder: Path, files: Mapping[str, Any], *, hollow: bool = False) -> None:
    """Write files; where they are ``hollow``, arrays without their values."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif hollow:
            np.lib.format.open_memmap(path, "w+", content.dtype, content.shape)
        else:
            np.save(path, content)


@contextmanager
def written(described: Described, *, hollow: bool = False) -> Iterator[KernelSpec]:
    """Return the kernel from a temporary folder; where that is ``hollow``, arrays lack their values."""
    with temporary_folder() as new:
        files = contents(described)
        fill(new, files, hollow=hollow)
        yield loaded(new / next(iter(files)))


def save(kernel: KernelSpec, given: str | Path) -> Path:
    """Copy a kernel's file, and what it needs beside it, to a file of another name; return that.

    Where a Python file or an array of another content has one of the names, as of another kernel that was saved there,
    these files go into a folder that is called as the file is.

    Raises:
        UsageError: the path is no ``.toml``, a file of a name that it needs is there, or it needs one of elsewhere;
            nothing is written.
        TunerError: it cannot be written.
    """
    target = path_of("the path", given, f"save('{kernel.name}.toml')")
    if target.suffix != ".toml":
        raise UsageError(f"{target} is no .toml", f"write to a file such as {kernel.file.name}")
    places = {kernel.file: target}
    for path in (*_needed(kernel), *kernel.include):
        if path.is_relative_to(paths.templates()) or path.is_relative_to(paths.search_spaces()):
            continue  # found there from any folder
        if not path.is_relative_to(kernel.folder):
            raise UsageError(f"{kernel.file.name} needs {path}, outside of its folder", "copy both yourself")
        places.setdefault(path, target.parent / path.relative_to(kernel.folder))
    try:
        text = read_source(kernel.file)
        values = [path for path in places if path.suffix in (".py", ".npy")]
        if any(_is_other(places[path], path.read_bytes()) for path in values):
            for path in values:
                name = path.relative_to(kernel.folder).as_posix()
                places[path] = target.parent / target.stem / name
                text = re.sub(rf"""(["']){re.escape(name)}(?=["':])""", rf"\1{target.stem}/{name}", text)
        for path, to in places.items():
            if not path.is_dir() and _is_other(to, text.encode() if to == target else path.read_bytes()):
                raise UsageError(
                    f"{to} is there, and is another file", "save to a folder of its own, or remove it"
                )
        for path, to in places.items():
            (to if path.is_dir() else to.parent).mkdir(parents=True, exist_ok=True)
            if to == target:
                to.write_text(text, encoding="utf-8")
            elif not to.exists():
                shutil.copyfile(path, to)
    except OSError as error:
        raise TunerError(f"{target}: {os.strerror(error.errno or 0)}", "name another file") from None
    if (function := kernel.reference.python) is not None and asks_its_program(function.file):
        warnings.warn(
            f"the reference is a function of this program, and {target} can be tuned only while it runs; {TO_KEEP}",
            stacklevel=3,
        )
    return target


def _is_other(path: Path, content: bytes) -> bool:
    return path.exists() and not (path.is_file() and path.read_bytes() == content)


def _needed(kernel: KernelSpec) -> set[Path]:
    """Return the files that a kernel's file needs: sources and what they include, values, what Python files name."""
    files = {*kernel.reference.golden.values()}
    files |= {tensor.file for tensor in kernel.tensors.values() if tensor.file is not None}
    if (initial := read_file(kernel.file).initial) is not None:
        files.add(initial.path)
    calls = [kernel.reference.python, *(variant.call for variant in kernel.variants.values())]
    files |= {call.file for call in calls if call is not None}
    launches = [launch for variant in kernel.variants.values() for launch in variant.launches]
    launches += [kernel.reference.cuda] if kernel.reference.cuda is not None else []
    texts: dict[Path, str] = {}

    def read(path: Path) -> str:
        return texts.setdefault(path, read_source(path))

    templates = {launch.template for launch in launches}
    for template in templates:
        list(template_texts(kernel.folder, template, read))
    folders = [*sorted({template.parent for template in templates}), *kernel.include]
    files |= {*texts, *own_headers(texts.values(), folders, templates=True)}
    pending = [path for path in files if path.suffix == ".py"]
    while pending:
        words = set(re.findall(r"[\w.-]+", text := read_source(path := pending.pop())))
        for beside in {*path.parent.iterdir()} - files:
            imported = beside.suffix == ".py" and beside.stem in words
            if beside.is_file() and (imported or beside.name in text):
                files.add(beside)
                pending += [beside] if beside.suffix == ".py" else []
    return files
