"""Linear layers by tuned products: trained in eager mode, compiled as a whole, and captured in a CUDA graph.

tune gemm --size m=512,n=1024,k=256 --dtype bfloat16 --option layout=nt
tune bundle gemm -o gemm_bundle
python docs/examples/torch/linear.py
"""

from __future__ import annotations

import torch

import tuner

operation = tuner.load("gemm", bundle="gemm_bundle")
gemm = operation.torch()


class TunedLinear(torch.nn.Linear):
    """``torch.nn.Linear`` whose product is a tuned kernel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x @ weight.T + bias``."""
        y = gemm.linear(x, self.weight)
        return y if self.bias is None else y + self.bias


def mean_error(model: torch.nn.Module, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the mean square of the error."""
    return (model(x).float() - target.float()).square().mean()


torch.manual_seed(0)
model = torch.nn.Sequential(TunedLinear(256, 1024), torch.nn.GELU(), TunedLinear(1024, 16))
model = model.to("cuda", torch.bfloat16)
x = torch.randn(512, 256, device="cuda", dtype=torch.bfloat16)
target = x[:, :16].sin()

# Training: gradients are products, too; those in a layout that the bundle has not are torch's.
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
first = mean_error(model, x, target).item()
for _ in range(20):
    optimizer.zero_grad()
    mean_error(model, x, target).backward()
    optimizer.step()
print(f"error {first:.3f} -> {mean_error(model, x, target).item():.3f}")

with torch.no_grad():
    # Compiled: each product is one call in the graph, around which torch fuses what it likes.
    eager = model(x)
    compiled = torch.compile(model, fullgraph=True)
    print(f"compiled: largest difference {(compiled(x) - eager).abs().max().item():.1e}")

    # Captured: what was called once before is prepared; operation.warm(...) does it without a call.
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = model(x)
    graph.replay()
    print(f"replayed: equal bit by bit: {torch.equal(captured, eager)}")
