"""Blocks of a transformer by the tuner's operators, beside torch eager and torch.compile:

    scripts/run python scripts/block.py --work block --out results/evidence --seconds 540

Layers of Llama 3 8B's shape with random weights in bfloat16: rms_norm with the residual added, products, rotary
embedding, attention (torch's own for all), `silu(gate) * up`; then the logits, and their losses (a prefill of 2048
tokens) or shares (one token for each of 16 sequences). Three programs do this: torch, torch compiled as a whole, and
the operators of `tuner.load` for all but attention. They are replayed in turn as CUDA graphs, and then called in turn
without graphs. Their outputs are compared with those in float32.

Everything is kept in ``--work``, and what is there is not done again: start it again with ``--seconds`` until all
passes are in the table.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from statistics import median
from typing import Any

import torch
from torch.nn import functional

import tuner
from scripts import harness
from scripts.decoder import where
from scripts.decoder_model import (
    CASES,
    TINY,
    TINY_CASES,
    Case,
    Inputs,
    Program,
    Shape,
    captured,
    in_turn,
    rotated,
)
from scripts.harness import say, tune
from scripts.page_figures import evidence, program
from tuner.core.errors import TunerError, UsageError
from tuner.core.stats import paired_ratio

STEPS = ("tune", "measure")
OPTIONS = {
    "gemm": ["layout=nt"],
    "norm": ["before=x + residual"],
    "rope": ["style=half"],
    "gated": [],
    "cross_entropy": ["gradient=none"],
    "softmax": [],
}
"""The kernels, with what is not their default."""
PROBLEM_S, MEASURE_S = 6.0, 60.0
"""What a problem takes to be tuned, and a pass to be measured, roughly: nothing is begun that there is no time for."""


Load = Callable[[str], Any]
Pass = Callable[[], Any]
Compiler = Callable[[Pass], Pass]


class Rows(Inputs):
    """What a pass reads: of each row its embedding, its angles and what should follow."""

    def __init__(self, shape: Shape, case: Case, device: str) -> None:
        super().__init__(shape, case, device, torch.bfloat16)
        generator = torch.Generator(device).manual_seed(2)
        size, self.case = (case.batch * case.tokens, shape.hidden), case
        self.embedded = torch.randn(size, device=device, dtype=torch.bfloat16, generator=generator)
        self.tokens = self.tokens.flatten()
        self.cos, self.sin = (part.repeat(case.batch, 1) for part in (self.cos, self.sin))
        self.tables = [part.float().chunk(2, 1)[0].contiguous() for part in (self.cos, self.sin)]


class OfTorch:
    """The operations of a block by torch, on rows of tokens."""

    def product(self, x: Any, weight: Any) -> Any:
        return functional.linear(x, weight)

    def norm(self, x: Any, residual: Any, weight: Any) -> tuple[Any, Any]:
        total = x + residual
        return functional.rms_norm(total, weight.shape, weight, 1e-5), total

    def rotate(self, q: Any, k: Any, angles: Rows) -> tuple[Any, Any]:
        cosine, sine = (part.to(q.dtype).unsqueeze(1) for part in (angles.cos, angles.sin))
        return rotated(q, cosine, sine), rotated(k, cosine, sine)

    def gated(self, x: Any) -> Any:
        gate, up = x.chunk(2, 1)
        return functional.silu(gate) * up

    def losses(self, logits: Any, targets: Any) -> Any:
        return functional.cross_entropy(logits.float(), targets, reduction="none")

    def shares(self, logits: Any) -> Any:
        return torch.softmax(logits, 1)


class OfTuner:
    """The same operations by winners.

    Args:
        load: returns the operation of a kernel.
    """

    def __init__(self, load: Load) -> None:
        operators = {name: load(name).torch() for name in OPTIONS}
        self.product, self.norm = operators["gemm"].linear, operators["norm"]
        self.gated, self.losses, self.shares = (
            operators[name] for name in ("gated", "cross_entropy", "softmax")
        )
        self._rope = operators["rope"]

    def rotate(self, q: Any, k: Any, angles: Rows) -> Any:
        return self._rope(q, k, *angles.tables)


class Blocks:
    """Layers, and what becomes of their result."""

    def __init__(self, shape: Shape, device: str) -> None:
        self.shape, self.device = shape, device
        generator = torch.Generator(device).manual_seed(0)

        def weight(rows: int, columns: int) -> Any:
            made = torch.empty(rows, columns, device=device, dtype=torch.bfloat16)
            return made.normal_(0, columns**-0.5, generator=generator)

        self._ones = torch.ones(shape.hidden, device=device, dtype=torch.bfloat16)
        self._layers = [
            {name: weight(*sides) for name, sides in products(shape).items() if name != "logits"}
            for _ in range(shape.layers)
        ]
        self._logits = weight(*products(shape)["logits"])

    def __call__(self, of: Any, inputs: Rows, dtype: Any = torch.bfloat16) -> Any:
        """Return the losses of a prefill, or the shares of a decoding step: those of each row."""
        total, ones = inputs.embedded.to(dtype), self._ones.to(dtype)
        x = torch.zeros_like(total)
        for number, layer in enumerate(self._layers):
            weights = {name: weight.to(dtype) for name, weight in layer.items()}
            normed, total = of.norm(x, total, ones)
            y = self._attend(of, weights, normed, inputs, number)
            normed, total = of.norm(of.product(y, weights["o"]), total, ones)
            x = of.product(of.gated(of.product(normed, weights["gate_up"])), weights["down"])
        logits = of.product(of.norm(x, total, ones)[0], self._logits.to(dtype))
        return of.losses(logits, inputs.tokens) if inputs.case.tokens > 1 else of.shares(logits)

    def _attend(self, of: Any, weights: dict[str, Any], x: Any, inputs: Rows, number: int) -> Any:
        case, head = inputs.case, self.shape.head
        q, k, v = (of.product(x, weights[name]).unflatten(1, (-1, head)) for name in "qkv")
        q, k = of.rotate(q, k, inputs)
        q, k, v = (part.unflatten(0, (case.batch, case.tokens)).transpose(1, 2) for part in (q, k, v))
        if inputs.caches:
            keys, values = (cache.to(x.dtype) for cache in inputs.caches[number])
            keys[:, :, -case.tokens :], values[:, :, -case.tokens :] = k, v
            k, v = keys, values
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=case.tokens > 1, enable_gqa=True)
        return y.transpose(1, 2).flatten(2).flatten(0, 1)


def products(shape: Shape) -> dict[str, tuple[int, int]]:
    """Return the sides of each weight: of its outputs and inputs."""
    wide, narrow, hidden = shape.heads * shape.head, shape.kv_heads * shape.head, shape.hidden
    of_mlp = {"gate_up": (2 * shape.intermediate, hidden), "down": (hidden, shape.intermediate)}
    of_attention = {"q": (wide, hidden), "k": (narrow, hidden), "v": (narrow, hidden), "o": (hidden, wide)}
    return {**of_attention, **of_mlp, "logits": (shape.vocabulary, hidden)}


def problems(kernel: str, shape: Shape, cases: Sequence[Case]) -> Iterator[str]:
    """Yield the sizes at which passes call a kernel."""
    for case in cases:
        rows = case.batch * case.tokens
        if kernel == "gemm":
            yield from dict.fromkeys(f"m={rows},n={n},k={k}" for n, k in products(shape).values())
        elif kernel == "rope":
            yield f"tokens={rows},q_heads={shape.heads},k_heads={shape.kv_heads},pairs={shape.head // 2}"
        elif kernel in ("norm", "gated", "cross_entropy" if case.tokens > 1 else "softmax"):
            columns = {"norm": shape.hidden, "gated": shape.intermediate}.get(kernel, shape.vocabulary)
            yield f"rows={rows},columns={columns}"


class Study(harness.Study):
    """Does the steps, as far as the time goes.

    Args:
        given: of the command line.
        load: returns the operation of a kernel; by default the winners of the database.
        compiler: of a whole pass.
    """

    def __init__(self, given: argparse.Namespace, load: Load | None, compiler: Compiler) -> None:
        how = {"layers": given.layers, "device": given.device, "trials": given.trials}
        super().__init__(
            given.work / "block.state.json", given.seconds, how=how, tuned=[], cases={}, failed={}
        )
        if self.data["how"] != how:
            raise UsageError(f"{given.work} was measured with {self.data['how']}", "name another --work")
        self._given, self._load, self._compiler = given, load, compiler
        self._cuda = given.device == "cuda"
        self._shape = TINY if given.tiny else Shape(layers=given.layers)
        self.cases: Sequence[Case] = (TINY_CASES if given.tiny else CASES)[::2]

    def _tune(self) -> None:
        for kernel, options in OPTIONS.items():
            texts = list(problems(kernel, self._shape, self.cases))
            if self._load is not None or kernel in self.data["tuned"]:
                continue
            if not self.has_time(PROBLEM_S * len(texts)):
                return
            words = [word for text in texts for word in ("--problem", text)]
            words += [word for option in options for word in ("--option", option)]
            words += ["--dtype", "bfloat16", "--trials", str(self._given.trials)]
            words += ["--time", str(self._given.time)]
            tune("run", kernel, *words, "--db", str(self._given.work / "block.db"), "--quiet")
            self.keep(tuned=[*self.data["tuned"], kernel])

    def _measure(self) -> None:
        if self._load is None and set(self.data["tuned"]) != set(OPTIONS):
            say("the problems are to be tuned first")
            return
        left = [case for case in self.cases if case.name not in self.data["cases"]]
        if not left:
            return
        database = self._given.work / "block.db"
        tuned = OfTuner(self._load or (lambda kernel: tuner.load(kernel, db=database)))
        blocks = Blocks(self._shape, self._given.device)
        for case in left:
            if not self.has_time(MEASURE_S if self._cuda else 0.0):
                return
            try:
                self.data["cases"][case.name] = self._measured(blocks, case, tuned)
                self.data["failed"].pop(case.name, None)
            except Exception as error:  # noqa: BLE001 - the others are measured all the same
                self.data["failed"][case.name] = f"{type(error).__name__}: {str(error).strip()[:500]}"
            self.keep(where=where(self._given.device))

    def _measured(self, blocks: Blocks, case: Case, tuned: OfTuner) -> dict[str, Any]:
        inputs, torchs = Rows(self._shape, case, self._given.device), OfTorch()

        def by_torch() -> Any:
            return blocks(torchs, inputs)

        passes: dict[str, Pass] = {
            "torch": by_torch,
            "compiled": self._compiler(by_torch),
            "tuned": lambda: blocks(tuned, inputs),
        }
        true = blocks(torchs, inputs, torch.float32)
        found: dict[str, Any] = {"errors": {}}
        for name, function in passes.items():
            found["errors"][name] = float((function().float() - true).norm() / true.norm())
        for mode in ("graph", "eager") if self._cuda else ("eager",):
            programs = [
                captured(function, nullcontext()) if mode == "graph" else Program(function, nullcontext())
                for function in passes.values()
            ]
            times = dict(zip(passes, in_turn(programs, self._given.rounds, self._cuda), strict=True))
            ratios = {name: paired_ratio(times[name], times["tuned"]) for name in ("torch", "compiled")}
            found[mode] = {
                "us": {name: median(samples) / 1000 for name, samples in times.items()},
                "over_tuned": {name: [one.median, one.low, one.high] for name, one in ratios.items()},
            }
        say(f"{case.name}: {found}")
        return found


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    options = harness.study_parser(__doc__, STEPS, "block")
    add = options.add_argument
    add("--layers", type=int, default=4)
    add("--trials", type=int, default=100)
    add("--time", type=float, default=6.0, help="Seconds of each search, its start included.")
    add("--rounds", type=int, default=60)
    add("--device", default="cuda", choices=["cuda", "cpu"])
    add("--tiny", action="store_true", help="Two small layers, to try it.")
    return options.parse_args(words)


def compiled(function: Pass) -> Pass:
    """Return a pass that torch compiles as a whole for its shapes."""
    made: Pass = torch.compile(function, fullgraph=True, dynamic=False)
    return made


def main(words: Sequence[str] | None = None, load: Load | None = None, compiler: Compiler = compiled) -> int:
    """Do what the command line asks for; return 0 if nothing is left, else 1."""
    given = parsed(words)
    try:
        study = Study(given, load, compiler)
        with torch.no_grad():
            study.run(given.steps)
    except TunerError as error:
        say(str(error))
        return 2
    figures = (program.blocks,) if study.data["cases"] else ()
    failed = [f"FAILED: {name}: {error}" for name, error in study.data["failed"].items()]
    text = "\n".join([evidence.shown("block", study.data, *figures), *failed, *study.failures])
    print(text)
    harness.write(given.out, "block", study.data, text)
    return int(len(study.data["cases"]) < len(study.cases))


if __name__ == "__main__":
    sys.exit(main())
