"""Bundles of cases, as a user makes them by `tune bundle`; and the launcher for C++, built here, called with ctypes."""

from __future__ import annotations

import ctypes
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.calling.cases import Case
from scripts.harness import ROOT, output_of, tune
from tests.stored_winners import store_winners
from tuner.children.headers import header_folders
from tuner.core import paths
from tuner.core.model import Gpu, Problem


def write_bundles(cases: Iterable[Case], gpu: Gpu, folder: Path) -> dict[str, Path]:
    """Return a bundle for each kernel, made now unless it is there.

    Raises:
        SystemExit: `tune bundle` fails.
    """
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.kernel.name, []).append(case)
    folder.mkdir(parents=True, exist_ok=True)
    return {name: _written(group, gpu, folder / f"{name}_bundle") for name, group in groups.items()}


def _written(group: Sequence[Case], gpu: Gpu, bundle: Path) -> Path:
    winners = [(case.problem, case.configuration) for case in group]
    holds = sorted(f"{gpu.name} {problem.key} {configuration.key}" for problem, configuration in winners)
    note = bundle.with_suffix(".json")
    if note.is_file() and bundle.is_dir() and json.loads(note.read_text()) == holds:
        return bundle
    database = bundle.with_suffix(".db")
    for path in (database, note):
        path.unlink(missing_ok=True)
    shutil.rmtree(bundle, ignore_errors=True)
    store_winners(database, group[0].kernel, winners, gpu)
    file = group[0].kernel.file
    tune("bundle", "--kernel", str(file), "--db", str(database), "-o", str(bundle), "--quiet")
    note.write_text(json.dumps(holds))
    return bundle


def computation_of(bundle: Path, case: Case) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the manifest says of a case's computation and of its winner's configuration.

    Raises:
        KeyError: it has no such winner.
    """
    manifest = json.loads((bundle / "manifest.json").read_text())
    wanted = (dict(case.problem.dtypes), dict(case.problem.options))
    for winner in manifest["winners"]:
        computation = manifest["computations"][winner["computation"]]
        kind = (computation["dtypes"], computation["options"])
        if kind == wanted and winner["sizes"] == dict(case.problem.sizes):
            return computation, manifest["configurations"][winner["configuration"]]
    raise KeyError(f"{bundle} has no winner for {case.key}")


def problem_line(case: Case) -> str:
    """Return a case as ``measure.cpp`` reads it."""
    problem = case.problem
    parts = (problem.sizes, problem.dtypes, problem.options)
    return "\t".join(
        ";".join(f"{name}={option_text(value)}" for name, value in part.items()) for part in parts
    )


def option_text(value: object) -> str:
    """Return an option's value as the launcher for C++ takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


CPP = ROOT / "scripts" / "cpp"
TOOLKIT = Path("/usr/local/cuda")
EXACT = 2
"""The number of ``kernel_tune::Policy::exact``."""
MESSAGE_BYTES = 4096


def compilers() -> dict[str, str]:
    """Return the C++ compilers of this machine by their names in the evidence: g++, and nvcc where it is found."""
    found = {
        "g++": shutil.which("g++"),
        "nvcc": shutil.which("nvcc") or shutil.which("nvcc", path=TOOLKIT / "bin"),
    }
    return {name: path for name, path in found.items() if path}


def build(name: str, compiler: str, source: str, output: Path, *, shared: bool) -> Path:
    """Return one of ``scripts/cpp`` built by a compiler.

    Args:
        name: of the compiler.
        compiler: its path.
        source: name of the file.
        output: the program, or the library.
        shared: whether it is a library.

    Raises:
        RuntimeError: it does not compile.
    """
    include = paths.package() / "runtime" / "include"
    command = [compiler, "-std=c++17", "-O2", "-I", str(include), "-o", str(output)]
    if name == "nvcc":
        command += ["-x", "cu", *(["-shared", "-Xcompiler", "-fPIC"] if shared else [])]
    else:
        command += [*(["-shared", "-fPIC"] if shared else []), "-pthread"]
        folders = [*header_folders(), TOOLKIT / "include"]
        command += [f"-isystem{folder}" for folder in folders if (folder / "cuda.h").is_file()]
    output.parent.mkdir(parents=True, exist_ok=True)
    output_of([*command, str(CPP / source), "-ldl"])
    return output


class CppPlan:
    """A plan of a bundle, prepared: no memory is allocated and nothing is waited for when it runs.

    Args:
        library: the C interface.
        bundle: a folder.
        problem: what is computed, by the winner of exactly these sizes.

    Attributes:
        workspace_bytes: memory that :meth:`prepare` and :meth:`run` must be given.
        tensors: names of its tensors, in the order of the addresses.

    Raises:
        RuntimeError: the launcher refuses.
    """

    def __init__(self, library: Path, bundle: Path, problem: Problem) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.kt_workspace_bytes.restype = ctypes.c_size_t
        self._text = ctypes.create_string_buffer(MESSAGE_BYTES)
        self._bundle, self._plan = ctypes.c_void_p(), ctypes.c_void_p()
        opened = ctypes.byref(self._bundle)
        self._call("kt_open", str(bundle).encode(), opened)
        of = [_lines(part) for part in (problem.sizes, problem.dtypes, problem.options)]
        self._call("kt_plan", self._bundle, *of, 0, EXACT, 0, ctypes.byref(self._plan))
        self.workspace_bytes = int(self._library.kt_workspace_bytes(self._plan))
        self._library.kt_describe(self._plan, self._text, ctypes.c_size_t(MESSAGE_BYTES))
        self.tensors = [line.split()[0] for line in self._text.value.decode().splitlines()[1:]]

    def prepare(self, workspace: int, stream: int) -> None:
        """Load the kernels and zero what must be zero once."""
        there = (ctypes.c_ulonglong(workspace), ctypes.c_size_t(self.workspace_bytes))
        self._call("kt_prepare", self._plan, *there, ctypes.c_void_p(stream))

    def run(self, addresses: Sequence[int], workspace: int, stream: int) -> None:
        """Launch it on tensors, by their addresses."""
        tensors = (ctypes.c_uint64 * len(addresses))(*addresses), ctypes.c_size_t(len(addresses))
        there = (ctypes.c_ulonglong(workspace), ctypes.c_size_t(self.workspace_bytes))
        self._call("kt_run", self._plan, *tensors, *there, ctypes.c_void_p(stream))

    def close(self) -> None:
        """Forget plan and bundle."""
        self._library.kt_close_plan(self._plan)
        self._library.kt_close(self._bundle)

    def _call(self, name: str, *arguments: Any) -> None:
        """Call a function of the interface, whose last arguments take a message."""
        if getattr(self._library, name)(*arguments, self._text, ctypes.c_size_t(MESSAGE_BYTES)):
            raise RuntimeError(self._text.value.decode(errors="replace"))


def _lines(values: Mapping[str, object]) -> bytes:
    return "\n".join(f"{name}={option_text(value)}" for name, value in values.items()).encode()
