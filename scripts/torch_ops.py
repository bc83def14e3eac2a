"""Operations as operators of torch, on the GPU of this machine:

    scripts/run python scripts/torch_ops.py --out results/evidence --seconds 540

The default configurations of all built-in kernels are called, as if they had won, by ``op()``, by ``op.torch()`` and by
torch's own function. For each operator and dtype:

| step | does |
|---|---|
| results | the largest error of the result and of each gradient against float64, as a part of what is allowed |
| opcheck | ``torch.library.opcheck`` |
| compiled | the same errors under ``torch.compile(fullgraph=True, dynamic=True)``, of the first dtype |
| graphs | a replayed CUDA graph beside eager, bit by bit, for several inputs |
| host | the host's time of a warm call, in turn: ``op()``, ``op.torch()``, torch's own; with and without a gradient; of
the first dtype |

What was done is kept in `torch_ops.json` of ``--work`` and not done again, so that the script can be stopped, or given
``--seconds``, and started again; what failed is done again, last. Exit status 1 if something fails, misses its bound,
or could not be done.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch

import tuner
from scripts import harness
from scripts.calling.host import host_us
from scripts.harness import listed, say, today, tune
from tests.stored_winners import store_defaults
from tests.torch_cases import OperatorCase, cases, error_ratios
from tuner.children.nvrtc import nvrtc_version
from tuner.core.errors import TunerError
from tuner.core.model import Gpu

STEPS = ("results", "opcheck", "compiled", "graphs", "host")
DTYPES = ("bfloat16", "float16", "float32")
SHAPES = {
    "even": cases(1 << 20, (512, 512, 512), (64, 96, 128)),
    "odd": cases(1_000_003, (510, 509, 507), (61, 97, 127)),
}
HOST = {case.name: case for case in cases(4096, (256, 256, 256), (16, 16, 64))}
"""So small that the GPU keeps up with the host."""
Make = Callable[[OperatorCase, str], Any]


class Operations:
    """The operations of cases, each from a bundle in a folder."""

    def __init__(self, gpu: Gpu, folder: Path) -> None:
        self._gpu, self._folder = gpu, folder
        self._operations: dict[str, Any] = {}

    def prepare(self, wanted: Iterable[tuple[OperatorCase, str]]) -> None:
        """Compile operations with all cores: one after the other would keep the GPU waiting for minutes."""
        unique = {self._key(*one): one for one in wanted}
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            loaded = list(threads.map(self._load, unique.values(), range(len(unique))))
        self._operations |= dict(zip(unique, loaded, strict=True))

    def __call__(self, case: OperatorCase, dtype: str) -> Any:
        """Return the operation of a case's default configurations."""
        key = self._key(case, dtype)
        if key not in self._operations:
            self._operations[key] = self._load((case, dtype), len(self._operations))
        return self._operations[key]

    def _key(self, case: OperatorCase, dtype: str) -> str:
        return " ".join(problem.key for problem in case.problems(dtype)[1])

    def _load(self, wanted: tuple[OperatorCase, str], number: int) -> Any:
        case, dtype = wanted
        kernel, problems = case.problems(dtype)
        database, bundle = self._folder / f"{number}.db", self._folder / f"{number}_bundle"
        database.unlink(missing_ok=True)
        shutil.rmtree(bundle, ignore_errors=True)
        store_defaults(database, kernel, problems, self._gpu)
        words = ["bundle", "--kernel", case.kernel, "--db", str(database), "-o", str(bundle), "--quiet"]
        tune(*words, "--jobs", "1")
        return tuner.load(case.kernel, bundle=bundle)


Step = tuple[str, str, OperatorCase, str]
"""What it is kept as, the step, and of what."""


class Study(harness.Study):
    """Does steps for cases, and keeps what came out."""

    def __init__(self, make: Make, device: str, state: Path, seconds: float = 0.0) -> None:
        super().__init__(state, seconds)
        self._make, self._device = make, device
        self.broken = False
        """Whether a fault has ended all work on the GPU by this process."""

    def left(self, steps: Sequence[str], dtypes: Sequence[str]) -> list[Step]:
        """Return what is not done; last what failed."""
        left = []
        for step in steps:
            shapes = SHAPES
            if step == "host":
                shapes = {"small": list(HOST.values())}
            elif step in ("opcheck", "compiled"):  # of symbols, so that one shape is enough
                shapes = dict(list(SHAPES.items())[:1])
            for dtype in dtypes[:1] if step in ("compiled", "host") else dtypes:
                for size, group in shapes.items():
                    left += [(f"{step} {case.name} {dtype} {size}", step, case, dtype) for case in group]
        left = [one for one in left if "error" in self.data.get(one[0], {"error": ""})]
        return sorted(left, key=lambda one: one[0] in self.data)

    def do(self, steps: Sequence[str], dtypes: Sequence[str]) -> bool:
        """Do what is not done; return whether all is."""
        for key, step, case, dtype in self.left(steps, dtypes):
            if not self.has_time() or self.broken:
                return False
            self._do(key, partial(getattr(self, f"_{step}"), case, dtype))
        return True

    def _do(self, key: str, work: Callable[[], dict[str, Any]]) -> None:
        torch._dynamo.reset()
        try:
            self.data[key] = work()
        except Exception as error:  # noqa: BLE001 - a finding: the others are tried all the same
            self.data[key] = {"error": f"{type(error).__name__}: {str(error).strip()[:500]}"}
            self.broken = not self._computes()
        say(f"{key}: {json.dumps(self.data[key])}")
        self.keep()

    def _computes(self) -> bool:
        """Return whether the device still draws and adds: not after a capture that broke, or an illegal address."""
        try:
            return bool(torch.isfinite(torch.randn(8, device=self._device).sum()))
        except RuntimeError:
            return False

    def _function(self, case: OperatorCase, dtype: str) -> Callable[..., Any]:
        return case.function(self._make(case, dtype).torch())

    def _results(self, case: OperatorCase, dtype: str) -> dict[str, Any]:
        return {"ratios": error_ratios(case, self._function(case, dtype), dtype, self._device)}

    def _compiled(self, case: OperatorCase, dtype: str) -> dict[str, Any]:
        backend = "inductor" if self._device == "cuda" else "aot_eager"
        compiled = torch.compile(self._function(case, dtype), fullgraph=True, dynamic=True, backend=backend)
        return {"ratios": error_ratios(case, compiled, dtype, self._device)}

    def _opcheck(self, case: OperatorCase, dtype: str) -> dict[str, Any]:
        operator = self._make(case, dtype).torch()
        overload = operator.linear_overload if case.method else operator.overload
        return {"tests": torch.library.opcheck(overload, case.inputs(dtype, self._device))}

    def _graphs(self, case: OperatorCase, dtype: str) -> dict[str, Any]:
        function = self._function(case, dtype)
        inputs = [each.detach() for each in case.inputs(dtype, self._device)]
        function(*inputs)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = function(*inputs)
        equal = 0
        for _ in range(5):
            for each in inputs:
                each.copy_(torch.randn_like(each))
            expected = function(*inputs).clone()
            captured.zero_()
            graph.replay()
            equal += torch.equal(captured, expected)
        return {"equal": equal, "of": 5}

    def _host(self, case: OperatorCase, dtype: str) -> dict[str, Any]:
        operation = self._make(case, dtype)
        operator = operation.torch()
        function, inputs = case.function(operator), case.inputs(dtype, self._device)
        plain = [each.detach() for each in inputs]
        arrays = [plain[0].flatten(0, -2), plain[1].t()] if case.method else plain
        calls = {
            "op()": lambda: operation(*arrays),
            "op.torch()": lambda: function(*plain),
            "torch": lambda: case.expected(*plain),
            "op.torch(), gradient": lambda: function(*inputs),
            "torch, gradient": lambda: case.expected(*inputs),
        }
        if case.kernel == "saxpy":
            calls["op.torch().in_place"] = lambda: operator.in_place(*plain)
            calls["torch, in place"] = lambda: torch.add(plain[1], plain[0], alpha=2.5, out=plain[1])
        wait = torch.cuda.synchronize if self._device == "cuda" else lambda: None
        return {"us": host_us(calls, wait)}


def faults(data: Mapping[str, Any]) -> list[str]:
    """Return what failed, or is beyond its bound."""
    wrong = []
    for key, row in data.items():
        if "error" in row:
            wrong.append(f"{key}: {row['error']}")
        elif max(row.get("ratios", [0.0])) > 1:
            wrong.append(f"{key}: an error is {max(row['ratios']):.2f} of what is allowed")
        elif row.get("equal", 0) != row.get("of", 0):
            wrong.append(f"{key}: {row['equal']} of {row['of']} replays equal eager")
    return wrong


def table(data: Mapping[str, Any]) -> str:
    """Return the results in words and a table."""
    lines = []
    for step in STEPS[:-1]:
        rows = [row for key, row in data.items() if key.startswith(f"{step} ")]
        wrong = faults({key: row for key, row in data.items() if key.startswith(f"{step} ")})
        largest = max((max(row["ratios"]) for row in rows if "ratios" in row), default=None)
        worst = f"; largest error {largest:.2f} of what is allowed" if largest is not None else ""
        lines.append(f"{step}: {len(rows) - len(wrong)} of {len(rows)} pass{worst}")
    timed = {key: row for key, row in data.items() if key.startswith("host ") and "us" in row}
    hosts = {key.split(" ", 1)[1]: row["us"] for key, row in timed.items()}
    if hosts:
        lines.append("\nhost's time of a call, us:")
        names = list(dict.fromkeys(name for row in hosts.values() for name in row))
        width = max(map(len, hosts))
        lines.append(" " * width + "".join(f"  {name}" for name in names))
        for key, row in hosts.items():
            cells = (f"{row[name]:.2f}" if name in row else "" for name in names)
            texts = (f"  {cell:>{len(name)}}" for cell, name in zip(cells, names, strict=True))
            lines.append(key.ljust(width) + "".join(texts))
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Measure; return 0 where all is as it should be."""
    options = harness.study_parser(__doc__, STEPS, "torch_ops")
    options.add_argument("--dtypes", type=listed(), default=",".join(DTYPES))
    given = options.parse_args(words)
    from scripts.calling.races import first_gpu

    gpu = first_gpu()
    given.work.mkdir(parents=True, exist_ok=True)
    operations = Operations(gpu, given.work)
    study = Study(operations, "cuda", given.work / "torch_ops.json", given.seconds)
    what = given.steps, given.dtypes
    operations.prepare((case, dtype) for _, _, case, dtype in study.left(*what))
    whole = study.do(*what)
    if study.broken and words is None and any(key not in study.data for key, *_ in study.left(*what)):
        study.restart()
    where = {
        "gpu": gpu.name, "driver": gpu.driver, "nvrtc": nvrtc_version(), "torch": torch.__version__,
        "python": sys.version.split()[0], "day": today(),
    }  # fmt: skip
    text = f"{', '.join(f'{name} {value}' for name, value in where.items())}\n{table(study.data)}"
    print(text)
    harness.write(given.out, "torch-ops", {"where": where, "rows": study.data}, text)
    wrong = faults(study.data) + ([] if whole else ["not all was done: start it again"])
    print(*wrong, sep="\n", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TunerError as error:
        sys.exit(f"error: {error}")
