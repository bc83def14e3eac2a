"""Bundles of cases, made as a user makes them: `tune bundle` from a database of winners."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from scripts.calling.cases import Case
from scripts.harness import tune
from tests.stored_winners import store_winners
from tuner.core.model import Gpu


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
