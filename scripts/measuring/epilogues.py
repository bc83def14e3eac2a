"""What an expression costs behind a product: one configuration of `linear` with and without, beside torch.

    scripts/run python scripts/measuring/epilogues.py --out results/evidence/epilogues.json

For each size the plain product (bf16, ``x @ w.T``) is tuned; then its very configuration with each expression, and
torch's calls, take turns in CUDA graphs: over sets of matrices that no L2 holds, or back to back on one set. Two graphs
of each, one with three times the calls: the difference is their time, without the start of a graph. A rest follows each
graph. ``over plain`` is the time by that of the plain product in the same round. Needs a GPU and torch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tuner
from scripts import harness
from scripts.measuring.graphs import by_rounds, graph_of
from scripts.page_figures import evidence
from scripts.torch_here import torch
from tuner.api.result import Result
from tuner.core.errors import TunerError
from tuner.core.stats import median, paired_ratio

PLAIN = "x"
FREE = "gelu_tanh(x + bias)"
BY_ITSELF = f"{FREE}, tuned"
"""With a configuration of its own: what a user gets."""
OPS = ("x + bias", "relu(x + bias)", "gelu_tanh(x + bias)", "gelu(x + bias)", "x + residual")
ALLOWED = {8192: 1.01, 4096: 1.03, 2048: 1.06}
"""By size, what a gelu may take of the plain product's time; others :data:`SIMPLE`."""
SIMPLE = 1.02
START_S, SEARCH_S = 3.0, 6.0
MORE, REST = 2, 1.5
"""Calls of the longer graph beside those of the shorter; rests as where the tuner measures, by a graph's time."""
Call = Callable[[Any], object]
"""Of one set of matrices."""

gelu, linear = torch.nn.functional.gelu, torch.nn.functional.linear
TORCH: dict[str, Call] = {
    "torch.mm": lambda of: torch.mm(of.a, of.b, out=of.c),
    "torch.addmm": lambda of: torch.addmm(of.bias, of.a, of.b, out=of.c),
    "F.linear, F.gelu by tanh": lambda of: gelu(
        linear(of.a, of.b.t(), of.bias), approximate="tanh", out=of.c
    ),
    "F.linear, F.gelu": lambda of: gelu(linear(of.a, of.b.t(), of.bias), out=of.c),
    "torch._addmm_activation": lambda of: torch._addmm_activation(
        of.bias, of.a, of.b, use_gelu=True, out=of.c
    ),
}
"""What F.linear calls without and with a bias; with a gelu in another launch; by tanh in the same."""


def tuned(folder: Path, size: int, op: str, parameters: dict[str, Any] | None = None) -> Result:
    """Return the fastest configuration of a cube with an expression; with parameters the one that they say."""
    return tuner.tune(
        "linear",
        params={name: [value] for name, value in (parameters or {}).items() if name != "variant"},
        sizes=dict.fromkeys("mnk", size),
        dtypes={"input": "bfloat16"},
        options={"layout": "nt", "op": op},
        db=folder / f"{size} {op}.db",
        time_s=START_S + SEARCH_S,
        quiet=True,
    )


def call_of(result: Result, op: str) -> Call:
    """Return a winner as a call."""
    operation, more = result.operation, [name for name in ("bias", "residual") if name in op]
    return lambda of: operation(of.a, of.b, *(getattr(of, name) for name in more), out=of.c)


def calls_of(size: int, matrices: Any) -> tuple[dict[str, Any], dict[str, Call], dict[str, str]]:
    """Return the plain product's configuration, what takes turns (it first), and why others do not, by name."""
    calls, failed = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        plain = tuned(Path(folder), size, PLAIN)
        apart = Path(folder) / "by itself"
        apart.mkdir()
        for op in (PLAIN, *OPS, BY_ITSELF):
            try:
                if op == BY_ITSELF:
                    call = call_of(tuned(apart, size, FREE), FREE)
                else:
                    call = call_of(plain if op == PLAIN else tuned(Path(folder), size, op, plain.best), op)
                call(matrices)  # it is compiled now, while the database is there
            except TunerError as error:
                if op == PLAIN:
                    raise
                failed[op] = str(error)
            else:
                calls[op] = call
    for name, call in TORCH.items():
        try:
            call(matrices)
        except (RuntimeError, TypeError) as error:
            failed[name] = str(error).partition("\n")[0]
        else:
            calls[name] = call
    return plain.best, calls, failed


def raced(calls: dict[str, Call], sets: list[Any]) -> list[dict[str, Any]]:
    """Return the microseconds of each call on sets of arrays, and its time by the first's with an interval."""
    graphs = [
        graph_of(call, [(of,) for of in times * sets]) for times in (1, 1 + MORE) for call in calls.values()
    ]
    took = by_rounds(graphs, REST)
    times = [
        [(long - short) * 1e3 / (MORE * len(sets)) for short, long in zip(*pair, strict=True)]
        for pair in zip(took[: len(calls)], took[len(calls) :], strict=True)
    ]
    found = []
    for name, own in zip(calls, times, strict=True):
        ratio = paired_ratio(own, times[0])
        row = {"name": name, "us": median(own), "over_plain": ratio.median}
        found.append(row | {"low": ratio.low, "high": ratio.high})
    return found


def measured(size: int) -> dict[str, Any]:
    """Return the rows of one size."""

    def matrix(*shape: int) -> Any:
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    shapes = {"a": (size, size), "bias": (size,), "residual": (size, size), "c": (size, size)}
    sets = [
        SimpleNamespace(**{name: matrix(*shape) for name, shape in shapes.items()}, b=matrix(size, size).t())
        for _ in range(2 * (8192 // size) ** 2)
    ]
    best, calls, failed = calls_of(size, sets[0])
    rows = [
        {"size": size, "mode": mode, **row}
        for mode, used in (("rotating", sets), ("warm", sets[:1] * len(sets)))
        for row in raced(calls, used)
    ]
    for row in rows:
        if row["name"] in OPS[:4]:
            row["allowed"] = ALLOWED[size] if "gelu" in row["name"] else SIMPLE
    return {"size": size, "configuration": best, "failed": failed, "rows": rows}


def table(rows: list[dict[str, Any]]) -> str:
    """Write the rows for people."""
    lines = [["size", "mode", "what", "us", "over plain", "95 % interval", "allowed"]]
    for row in rows:
        ratios = [f"{row['over_plain']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}"]
        allowed = (
            f"{row['allowed']:.2f}: {'yes' if row['over_plain'] <= row['allowed'] else 'NO'}"
            if "allowed" in row
            else "-"
        )
        lines.append([f"{row['size']}^3", row["mode"], row["name"], f"{row['us']:.1f}", *ratios, allowed])
    return evidence.table(lines)


def main() -> int:
    """Time all sizes; return 1 if an expression could not be timed or costs more than is allowed."""
    options = harness.parser(__doc__)
    options.add_argument(
        "--sizes", type=harness.listed(map(str, ALLOWED)), default=",".join(map(str, ALLOWED))
    )
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    found: dict[str, Any] = {**harness.machine(), "sizes": []}
    for size in map(int, given.sizes):
        harness.say(f"{size}^3")
        found["sizes"].append(one := measured(size))
        print(f"{table(one['rows'])}\n")
        for op, why in one["failed"].items():
            print(f"{op}: {why}")
        if given.out:
            harness.write_json(given.out, found)
    rows = [row for one in found["sizes"] for row in one["rows"] if "allowed" in row]
    failed = any(one["failed"] for one in found["sizes"])
    return int(failed or any(row["over_plain"] > row["allowed"] for row in rows))


if __name__ == "__main__":
    harness.run(main, gpu=True)
