"""A small torch program, and the products that it calls."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

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
