"""Whether stored winners compute the same bits every time:

    scripts/run python scripts/same_bits.py --db results/tuning.db --kernel gemm

Runs each winner some times on the same inputs, at the size for which it won, with its outputs poisoned in between, and
compares every byte that it wrote. The first output is compared with the reference, too. Exit status 1 if anything
differs.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver as cu

from scripts import harness
from scripts.lab import Lab
from tuner.cli.filters import problem_filter
from tuner.core import paths
from tuner.database.database import Database
from tuner.gpu.buffers import ProblemData
from tuner.gpu.candidate import Loaded, load
from tuner.gpu.driver import Context
from tuner.gpu.verify import Verifier
from tuner.inspect.tools.cases import Case, Unit, compile_cases
from tuner.kernel.load import load_kernel
from tuner.runtime.driver import check
from tuner.studies.bench import stored_winners


def outputs(data: ProblemData) -> list[np.ndarray[Any, np.dtype[np.uint8]]]:
    """Copy every output's bytes."""
    found = []
    for tensor in data.outputs:
        host = np.empty(tensor.size_bytes, np.uint8)
        check(cu.cuMemcpyDtoH(host.ctypes.data, data.address(tensor.name), tensor.size_bytes))
        found.append(host)
    return found


def run_once(context: Context, data: ProblemData, loaded: Loaded) -> None:
    """Run it on restored tensors and poisoned outputs."""
    data.poison()
    with context.launched() as graph:
        data.add_restore(graph)
        loaded.add_to(graph, 0)


def differing(lab: Lab, unit: Unit, calls: int, seed: int) -> str:
    """Run one winner so many times; gives what is wrong, empty for nothing."""
    with closing(ProblemData(lab.helpers, unit.setup.tensors, seed)) as data:
        verifier = Verifier(data, unit.setup.reference)
        data.seal()
        with closing(load(data, unit.candidate)) as loaded:
            check(cu.cuCtxSynchronize())  # what fills the scratch runs on another stream
            first: list[np.ndarray[Any, np.dtype[np.uint8]]] = []
            for call in range(calls):
                run_once(lab.context, data, loaded)
                if damage := data.damage():
                    return f"the kernel {damage}"
                if not first:
                    verified = verifier.check()
                    if not verified.passed:
                        return f"wrong: {verified.message}"
                    first = outputs(data)
                    continue
                for before, now in zip(first, outputs(data), strict=True):
                    if not np.array_equal(before, now):
                        count = int(np.count_nonzero(before != now))
                        return f"{count} of {len(now)} bytes differ in call {call + 1}"
    return ""


def main() -> None:
    options = harness.parser(__doc__)
    add = options.add_argument
    add("--db", type=Path, default=paths.DATABASE)
    add("--kernel", required=True, help="Built-in kernel, or a .toml file.")
    add("--dtype", action="append", default=[], help="Only winners of this dtype.")
    add("--option", action="append", default=[], help="Only of this option: layout=nt.")
    add("--calls", type=int, default=3)
    add("--seed", type=int, default=0, help="Of the inputs.")
    add("--json", action="store_true")
    given = options.parse_args()
    lab, kernel = Lab(jobs=None), load_kernel(given.kernel)
    with Database.open(given.db, write=False) as database:
        fits = problem_filter(given.dtype, given.option)
        winners = [one for one in stored_winners(database, lab.gpu, kernel).rows if fits(one.run.problem)]
    cases = [Case(stored.run.problem, stored.winner.configuration) for stored in winners]
    rows = []
    with lab:
        units, left_out = compile_cases(kernel, lab.gpu, lab.pool, cases, kernel.problem())
    errors = {case.number: differing(lab, case, given.calls, given.seed) for case in units}
    reasons = {cases.index(case): reason for case, reason in left_out}
    for number, case in enumerate(cases):
        error = errors.get(number, reasons.get(number, ""))
        rows.append(
            {
                "sizes": dict(case.problem.sizes),
                "dtype": case.problem.dtype,
                **case.problem.options,
                "configuration": str(case.configuration),
                "calls": given.calls,
                "same": not error,
                "error": error,
            }
        )
        if not given.json:
            print(f"{case.problem}: {error or f'the same bits in {given.calls} calls'}: {case.configuration}")
    if given.json:
        print(json.dumps(rows, indent=1))
    sys.exit(any(not row["same"] for row in rows))


if __name__ == "__main__":
    harness.run(main)
