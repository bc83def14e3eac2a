"""A small torch program, the products that it calls, and a tuned operation that is none."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tuner  # noqa: E402
from tuner.core.errors import CallError  # noqa: E402
from tuner.program.calls import Calls  # noqa: E402


class TwoLayers(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, *, bias: bool = False) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(64, 96, bias=False), torch.nn.Linear(96, 64, bias=bias)

    def forward(self, x: Any) -> Any:
        return self.down(self.up(x))  # nothing between, for which inductor would run g++


def counted(calls: Calls) -> dict[str, int]:
    return {f"{kind.problem} {mode}": count for (kind, mode), count in calls.counts.items()}


UP = "gemm m=10 n=96 k=64 float32 layout=nt"
DOWN = "gemm m=10 n=64 k=96 float32 layout=nt"


class FakeGemm:
    """A tuned operation that is as fast as it is told, by torch's own clock: it answers, and counts."""

    name = "gemm"

    def __init__(self, error: float = 0.0, refuses: str = "") -> None:
        self.calls, self.error, self.refuses = 0, error, refuses

    def __call__(self, a: Any, b: Any, out: Any = None) -> Any:
        if self.refuses:
            raise CallError(self.refuses)
        self.calls += 1
        result = torch.from_numpy(a.double().numpy() @ b.double().numpy()).to(a.dtype) * (1 + self.error)
        return result if out is None else out.copy_(result)


def recorded(program: Any, x: Any) -> Calls:
    with tuner.record() as calls:
        program(x)
    return calls
