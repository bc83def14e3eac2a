"""A kernel of one's own as an operator of torch, with its gradient: the softmax of the folder beside this one.

tune docs/examples/softmax/softmax.toml --size rows=1024,columns=512 --dtype float32
tune bundle docs/examples/softmax/softmax.toml -o softmax_bundle
python docs/examples/torch/own_kernel.py
"""

from __future__ import annotations

import torch

import tuner


def backward(grad: torch.Tensor, _inputs: tuple[torch.Tensor, ...], y: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the only input: torch's own operations, or other tuned ones."""
    return y * (grad - (grad * y).sum(1, keepdim=True))


softmax = tuner.load("softmax", bundle="softmax_bundle").torch(backward)

x = torch.randn(1024, 512, device="cuda", requires_grad=True)
weights = torch.randn_like(x)
(mine,) = torch.autograd.grad((softmax(x) * weights).sum(), x)
(torchs,) = torch.autograd.grad((torch.softmax(x, 1) * weights).sum(), x)
print(f"{softmax}: largest difference {(mine - torchs).abs().max().item():.1e}")
