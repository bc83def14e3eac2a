"""What a call costs the host, and a bundle its program: fresh processes wherever something happens once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from scripts.calling.bundles import problem_line
from scripts.calling.cases import Case
from scripts.harness import output_of

IMPORTS = {
    "bindings": "from cuda.bindings import driver",
    "bundle": "import {bundle}",
    "tuner.load": "import tuner; tuner.load",
}
"""What a program imports that calls a bundle: its own package, or the installed tuner; and the bindings alone."""
IMPORT = "import time; began = time.perf_counter(); {statement}; print(1e3 * (time.perf_counter() - began))"
COLD = """
import sys, time
from cuda.bindings import driver as cu
cu.cuInit(0)
cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(0)[1])
cu.cuMemAlloc(16)
import {bundle}
began = time.perf_counter()
{bundle}.load(dtypes={dtypes!r}, options={options!r}).warm([{sizes!r}])
cu.cuCtxSynchronize()
print(1e3 * (time.perf_counter() - began))
"""


def import_ms(bundle: Path, times: int) -> dict[str, list[float]]:
    """Return how long imports take, each in fresh processes in turn, after one that is not counted."""
    found: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for turn in range(times + 1):
        for name, statement in IMPORTS.items():
            text = IMPORT.format(statement=statement.format(bundle=bundle.name))
            ms = float(_python(text, bundle.parent))
            if turn:
                found[name].append(ms)
    return found


def cold_ms(bundle: Path, case: Case, measure: Path, times: int) -> dict[str, list[float]]:
    """Return how long fresh processes that have a context take to open a bundle and prepare one problem."""
    problem = case.problem
    text = COLD.format(
        bundle=bundle.name,
        dtypes=dict(problem.dtypes),
        options=dict(problem.options),
        sizes=dict(problem.sizes),
    )
    found: dict[str, list[float]] = {"C++": [], "Python": []}
    for turn in range(times + 1):
        ours = cpp_row(bundle, case, measure)["cold_ms"]
        if turn:  # the first finds the files on the disk
            found["C++"].append(ours)
            found["Python"].append(float(_python(text, bundle.parent)))
    return found


def cpp_row(bundle: Path, case: Case, measure: Path) -> dict[str, Any]:
    """Return what ``measure.cpp`` prints for a problem.

    Raises:
        RuntimeError: it ends with an error.
    """
    problems = bundle.with_suffix(".problems")
    problems.write_text(f"{problem_line(case)}\n")
    said = output_of([str(measure), str(bundle), str(problems)], deadline_s=300.0)
    row: dict[str, Any] = next(json.loads(line) for line in said.splitlines() if line.startswith("{"))
    return row


def host_us(bundle: Path, case: Case, measure: Path, times: int) -> dict[str, Any]:
    """Return the host's microseconds of warm calls: in C++, in Python, and torch's own beside them.

    Python's are medians of batches in turn, in one process; C++'s of as many processes.
    """
    found: dict[str, Any] = {"problem": case.key}
    rows = [cpp_row(bundle, case, measure) for _ in range(times)]
    found["launches"] = rows[0]["launches"]
    found["C++"] = [row["host_us"] for row in rows]
    parts = (case.problem.sizes, case.problem.dtypes, case.problem.options)
    words = [str(bundle), json.dumps([dict(part) for part in parts])]
    said = output_of([sys.executable, str(Path(__file__).with_name("host.py")), *words], deadline_s=300)
    found |= json.loads(said.splitlines()[-1])
    return found


def _python(text: str, folder: Path) -> str:
    """Return what a program prints in a fresh process with a folder on its path."""
    text = f"import sys; sys.path.insert(0, {str(folder)!r})\n{text}"
    return output_of([sys.executable, "-c", text], deadline_s=300).splitlines()[-1]
