"""A decoder as language models have it, with random weights, by torch or by winners; and its passes, timed in turn."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from scripts.torch_here import torch

functional = torch.nn.functional
Pass = Callable[[], Any]


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder; by default those of Llama 3 8B."""

    layers: int = 32
    hidden: int = 4096
    intermediate: int = 14336
    heads: int = 32
    kv_heads: int = 8
    vocabulary: int = 128256

    @property
    def head(self) -> int:
        return self.hidden // self.heads

    @property
    def products(self) -> dict[str, tuple[int, int]]:
        """The sides of each weight: of its outputs and inputs."""
        wide, narrow, hidden = self.heads * self.head, self.kv_heads * self.head, self.hidden
        return {
            **{"q": (wide, hidden), "k": (narrow, hidden), "v": (narrow, hidden), "o": (hidden, wide)},
            **{"gate_up": (2 * self.intermediate, hidden), "down": (hidden, self.intermediate)},
            "logits": (self.vocabulary, hidden),
        }


TINY = Shape(2, 64, 160, 4, 2, 96)


@dataclass(frozen=True)
class Case:
    """A pass through the decoder.

    Attributes:
        batch: sequences.
        tokens: new ones of each sequence.
        context: tokens of each sequence, with the new ones; what came before lies in the cache.
    """

    name: str
    batch: int
    tokens: int
    context: int


CASES = (
    Case("prefill-2048", 1, 2048, 2048),
    Case("decode-1", 1, 1, 2048),
    Case("decode-16", 16, 1, 2048),
    Case("decode-64", 64, 1, 2048),
)
TINY_CASES = (Case("prefill-24", 1, 24, 24), Case("decode-1", 1, 1, 24), Case("decode-3", 3, 1, 24))


class Inputs:
    """What a pass reads: of each row its token and the angles of its position; each layer's keys and values so far."""

    def __init__(self, shape: Shape, case: Case, device: str, dtype: Any = torch.bfloat16) -> None:
        self.case = case
        generator = torch.Generator(device).manual_seed(1)
        rows = (case.batch * case.tokens,)
        self.tokens = torch.randint(shape.vocabulary, rows, device=device, generator=generator)
        positions = torch.arange(case.context - case.tokens, case.context, device=device, dtype=torch.float32)
        pairs = torch.arange(0, shape.head, 2, device=device, dtype=torch.float32)
        angles = (positions[:, None] * 500_000.0 ** -(pairs / shape.head)).repeat(case.batch, 1)
        halves = angles.cos().to(dtype), angles.sin().to(dtype)
        self.cosine, self.sine = (half.repeat(1, 2).unsqueeze(1) for half in halves)
        self.tables = [half.float() for half in halves]
        size = (case.batch, shape.kv_heads, case.context, shape.head)
        self.caches = [
            [torch.randn(size, device=device, dtype=dtype, generator=generator) for _ in range(2)]
            for _ in range(shape.layers if case.context > case.tokens else 0)
        ]


class Apart:
    """The operations of a pass by torch, each product of its own, for the logits of each sequence's last token."""

    def product(self, x: Any, weight: Any) -> Any:
        return functional.linear(x, weight)

    def norm(self, x: Any, residual: Any, weight: Any) -> tuple[Any, Any]:
        """Return the normalised sum of both, and the sum."""
        total = residual if x is None else x + residual
        return functional.rms_norm(total, weight.shape, weight, 1e-5), total

    def rotate(self, q: Any, k: Any, inputs: Inputs) -> tuple[Any, Any]:
        """Return queries and keys turned by the angles of their positions."""
        cosine, sine = inputs.cosine.to(q.dtype), inputs.sine.to(q.dtype)
        return _rotated(q, cosine, sine), _rotated(k, cosine, sine)

    def gate_up(self, x: Any, weight: Any) -> Any:
        gate, up = (self.product(x, part) for part in weight.chunk(2))
        return functional.silu(gate) * up

    def answer(self, x: Any, weight: Any, inputs: Inputs) -> Any:
        """Return what the last layer's rows come to."""
        return self.product(x.unflatten(0, (-1, inputs.case.tokens))[:, -1], weight)


class Together(Apart):
    """Gate and up in one product; at the end the losses of a prefill, or the shares of a decoding step, of each row."""

    def gate_up(self, x: Any, weight: Any) -> Any:
        return self.gated(self.product(x, weight))

    def answer(self, x: Any, weight: Any, inputs: Inputs) -> Any:
        logits = self.product(x, weight)
        return self.losses(logits, inputs.tokens) if inputs.case.tokens > 1 else self.shares(logits)

    def gated(self, x: Any) -> Any:
        gate, up = x.chunk(2, 1)
        return functional.silu(gate) * up

    def losses(self, logits: Any, targets: Any) -> Any:
        return functional.cross_entropy(logits.float(), targets, reduction="none")

    def shares(self, logits: Any) -> Any:
        return torch.softmax(logits, 1)


class ByWinners(Together):
    """The same operations by winners.

    Args:
        operators: of torch, by kernel.
    """

    def __init__(self, operators: Mapping[str, Any]) -> None:
        self._of = operators

    def product(self, x: Any, weight: Any) -> Any:
        return self._of["gemm"].linear(x, weight)

    def norm(self, x: Any, residual: Any, weight: Any) -> Any:
        return self._of["norm"](torch.zeros_like(residual) if x is None else x, residual, weight)

    def rotate(self, q: Any, k: Any, inputs: Inputs) -> Any:
        return self._of["rope"](q, k, *inputs.tables)

    def gated(self, x: Any) -> Any:
        return self._of["gated"](x)

    def losses(self, logits: Any, targets: Any) -> Any:
        return self._of["cross_entropy"](logits, targets)

    def shares(self, logits: Any) -> Any:
        return self._of["softmax"](logits)


class Decoder:
    """Layers of attention, which is torch's own in any case, and a gated MLP; on rows of tokens.

    Args:
        shape: sizes.
        device: where.
        dtype: of weights and activations.
    """

    def __init__(self, shape: Shape, device: str, dtype: Any = torch.bfloat16) -> None:
        self.shape, self.dtype = shape, dtype
        generator = torch.Generator(device).manual_seed(0)

        def weight(rows: int, columns: int) -> Any:
            made = torch.empty(rows, columns, device=device, dtype=dtype)
            return made.normal_(0, columns**-0.5, generator=generator)

        of_layers = {name: sides for name, sides in shape.products.items() if name != "logits"}
        self._layers = [
            {name: weight(*sides) for name, sides in of_layers.items()} for _ in range(shape.layers)
        ]
        self._embedding, self._logits = (weight(*shape.products["logits"]) for _ in range(2))
        self._ones = torch.ones(shape.hidden, device=device, dtype=dtype)

    def __call__(self, of: Apart, inputs: Inputs, wide: bool = False) -> Any:
        """Return a pass's answer by some operations; ``wide`` computes all in float32."""
        dtype = torch.float32 if wide else self.dtype
        x, total = None, functional.embedding(inputs.tokens, self._embedding).to(dtype)
        ones = self._ones.to(dtype)
        for number, layer in enumerate(self._layers):
            weights = {name: weight.to(dtype) for name, weight in layer.items()}
            normed, total = of.norm(x, total, ones)
            y = self._attend(of, weights, normed, inputs, number)
            normed, total = of.norm(of.product(y, weights["o"]), total, ones)
            x = of.product(of.gate_up(normed, weights["gate_up"]), weights["down"])
        return of.answer(of.norm(x, total, ones)[0], self._logits.to(dtype), inputs)

    def _attend(self, of: Apart, weights: Mapping[str, Any], x: Any, inputs: Inputs, number: int) -> Any:
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


def _rotated(x: Any, cosine: Any, sine: Any) -> Any:
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat([-second, first], -1) * sine


# -- passes


def within(context: AbstractContextManager[Any], function: Pass) -> Pass:
    """Return a pass that runs within a context."""

    def call() -> Any:
        with context:
            return function()

    return call


def captured(function: Pass) -> Pass:
    """Return a pass as a CUDA graph, which is captured now."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = function()

    def replay() -> Any:
        graph.replay()
        return output

    return replay


def timed_ns(function: Pass, cuda: bool) -> float:
    """Return what one pass takes."""
    if not cuda:
        began = time.perf_counter_ns()
        function()
        return float(time.perf_counter_ns() - began)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    function()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e6


def in_turn(passes: Sequence[Pass], rounds: int, cuda: bool) -> list[list[float]]:
    """Return the times of passes in ns, one of each for each round, in shuffled order."""
    samples: list[list[float]] = [[] for _ in passes]
    turns = random.Random(0)
    for _ in range(2):
        for function in passes:
            function()
    for _ in range(rounds):
        for number in turns.sample(range(len(passes)), len(passes)):
            samples[number].append(timed_ns(passes[number], cuda))
    return samples
