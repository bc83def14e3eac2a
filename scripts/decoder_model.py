"""A decoder as language models have it, in plain torch, with random weights; and passes of it, timed in turn."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional


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


class Decoder:
    """Blocks of attention and a gated MLP, and the logits of the last token.

    Args:
        shape: sizes.
        device: where.
        dtype: of weights and activations.
    """

    def __init__(self, shape: Shape, device: str, dtype: Any = torch.bfloat16) -> None:
        self.shape, self.device, self.dtype = shape, device, dtype
        generator = torch.Generator(device).manual_seed(0)

        def weight(rows: int, columns: int) -> Any:
            made = torch.empty(rows, columns, device=device, dtype=dtype)
            return made.normal_(0, columns**-0.5, generator=generator)

        wide, narrow = shape.heads * shape.head, shape.kv_heads * shape.head
        self._blocks = [
            {
                "qkv": [weight(rows, shape.hidden) for rows in (wide, narrow, narrow)],
                "o": weight(shape.hidden, wide),
                "gate_up": [weight(shape.intermediate, shape.hidden) for _ in range(2)],
                "down": weight(shape.hidden, shape.intermediate),
            }
            for _ in range(shape.layers)
        ]
        self._embedding = weight(shape.vocabulary, shape.hidden)
        self._logits = weight(shape.vocabulary, shape.hidden)
        self._ones = torch.ones(shape.hidden, device=device, dtype=dtype)

    def inputs(self, case: Case) -> Inputs:
        """Return what a pass reads, random."""
        return Inputs(self.shape, case, self.device, self.dtype)

    @torch.no_grad()
    def __call__(self, inputs: Inputs, wide: bool = False) -> Any:
        """Return the logits of each sequence's last token (batch x vocabulary); ``wide`` computes all in float32."""
        dtype = torch.float32 if wide else self.dtype
        x = functional.embedding(inputs.tokens, self._embedding).to(dtype)
        for number, block in enumerate(self._blocks):
            x = x + self._attend(block, self._norm(x), inputs, number)
            normed = self._norm(x)
            gate, up = (_linear(normed, weight) for weight in block["gate_up"])
            x = x + _linear(functional.silu(gate) * up, block["down"])
        return _linear(self._norm(x[:, -1:]), self._logits)[:, 0]

    def _norm(self, x: Any) -> Any:
        return functional.rms_norm(x, (self.shape.hidden,), self._ones.to(x.dtype), 1e-5)

    def _attend(self, block: dict[str, Any], x: Any, inputs: Inputs, number: int) -> Any:
        shape, tokens = self.shape, x.shape[1]
        q, k, v = (
            _linear(x, weight).unflatten(-1, (-1, shape.head)).transpose(1, 2) for weight in block["qkv"]
        )
        q, k = (rotated(part, inputs.cos.to(x.dtype), inputs.sin.to(x.dtype)) for part in (q, k))
        if inputs.caches:
            keys, values = (cache.to(x.dtype) for cache in inputs.caches[number])
            keys[:, :, -tokens:], values[:, :, -tokens:] = k, v
            k, v = keys, values
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=tokens > 1, enable_gqa=True)
        return _linear(y.transpose(1, 2).flatten(2), block["o"])


class Inputs:
    """What a pass reads: tokens, the angles of their positions, and each layer's keys and values so far."""

    def __init__(self, shape: Shape, case: Case, device: str, dtype: Any) -> None:
        generator = torch.Generator(device).manual_seed(1)
        self.tokens = torch.randint(
            shape.vocabulary, (case.batch, case.tokens), device=device, generator=generator
        )
        positions = torch.arange(case.context - case.tokens, case.context, device=device, dtype=torch.float32)
        rates = 500_000.0 ** -(
            torch.arange(0, shape.head, 2, device=device, dtype=torch.float32) / shape.head
        )
        angles = torch.cat([positions[:, None] * rates] * 2, -1)
        self.cos, self.sin = angles.cos().to(dtype), angles.sin().to(dtype)
        size = (case.batch, shape.kv_heads, case.context, shape.head)
        self.caches = [
            [torch.randn(size, device=device, dtype=dtype, generator=generator) for _ in range(2)]
            for _ in range(shape.layers if case.context > case.tokens else 0)
        ]


def _linear(x: Any, weight: Any) -> Any:
    return functional.linear(x, weight.to(x.dtype))


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    """Return queries or keys turned by the angles of their positions."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Program:
    """A pass that can be repeated.

    Args:
        function: does it once.
        around: what must hold meanwhile.
    """

    def __init__(self, function: Callable[[], Any], around: AbstractContextManager[Any]) -> None:
        self._function, self._around = function, around

    def __call__(self) -> Any:
        with self._around:
            return self._function()

    def timed_ns(self, cuda: bool) -> float:
        """Return what one pass takes."""
        with self._around:
            if not cuda:
                began = time.perf_counter_ns()
                self._function()
                return float(time.perf_counter_ns() - began)
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            self._function()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) * 1e6


def captured(function: Callable[[], Any], around: AbstractContextManager[Any]) -> Program:
    """Return a pass as a CUDA graph, which is captured within a context."""
    with around:
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

    return Program(replay, nullcontext())


def in_turn(programs: Sequence[Program], rounds: int, cuda: bool) -> list[list[float]]:
    """Return the times of programs in ns, one of each for each round, in shuffled order."""
    samples: list[list[float]] = [[] for _ in programs]
    turns = random.Random(0)
    for _ in range(2):
        for program in programs:
            program()
    for _ in range(rounds):
        order = list(range(len(programs)))
        turns.shuffle(order)
        for number in order:
            samples[number].append(programs[number].timed_ns(cuda))
    return samples
