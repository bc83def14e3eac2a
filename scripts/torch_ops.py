"""What a warm call of torch's operators costs the host, on the GPU of this machine:

    scripts/run python scripts/torch_ops.py --out results/evidence

The default configurations of all built-in kernels are called, as if they had won, at sizes so small that the GPU keeps
up with the host, in turn: by ``op()``, by ``op.torch()`` and by torch's own function, with and without a gradient.
Whether they are right, also compiled and in graphs, is tested by ``tests/gpu/test_torch_ops.py``.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tuner
from scripts import harness
from scripts.calling.host import host_us
from scripts.calling.races import first_gpu
from scripts.page_figures import evidence, program
from scripts.torch_here import torch
from tests.stored_winners import store_defaults
from tests.torch_cases import OperatorCase, cases

HOST = cases(4096, (256, 256, 256), (16, 16, 64))
DTYPE = "bfloat16"


def measured(case: OperatorCase, operation: Any, device: str) -> dict[str, float]:
    """Return the host's microseconds of a warm call, by what is called."""
    operator = operation.torch()
    function, inputs = case.function(operator), case.inputs(DTYPE, device)
    plain = [each.detach() for each in inputs]
    arrays = [plain[0].flatten(0, -2), plain[1].t()] if case.method else plain
    calls: dict[str, Callable[[], object]] = {
        "op()": partial(operation, *arrays),
        "op.torch()": partial(function, *plain),
        "torch": partial(case.expected, *plain),
        "op.torch(), gradient": partial(function, *inputs),
        "torch, gradient": partial(case.expected, *inputs),
    }
    if case.kernel == "saxpy":
        calls["op.torch().in_place"] = partial(operator.in_place, *plain)
        calls["torch, in place"] = partial(torch.add, plain[1], plain[0], alpha=2.5, out=plain[1])
    return host_us(calls, torch.cuda.synchronize if device == "cuda" else lambda: None)


def main() -> None:
    options = harness.parser(__doc__)
    options.add_argument("--out", type=Path, help="Folder of the evidence.")
    given = options.parse_args()
    gpu, rows = first_gpu(), {}
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(HOST):
            kernel, problems = case.problems(DTYPE)
            database = Path(folder) / f"{number}.db"
            store_defaults(database, kernel, problems, gpu)
            operation = tuner.load(case.kernel, db=database)
            harness.say(case.name)
            rows[f"host {case.name} {DTYPE} small"] = {"us": measured(case, operation, "cuda")}
    where = {"gpu": gpu.name, "driver": gpu.driver, **harness.versions("nvrtc", "torch")}
    where |= {"python": sys.version.split()[0], "day": harness.today()}
    data = {"where": where, "rows": rows}
    text = evidence.shown("torch-ops", data, program.operators)
    print(text)
    harness.write(given.out, "torch-ops", data, text)


if __name__ == "__main__":
    harness.run(main, gpu=True)
