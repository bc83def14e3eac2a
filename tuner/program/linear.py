"""Linear layers of a model that call tuned products by themselves: a replacement that stays with the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tuner.program.kinds import DTYPES, CallMode

if TYPE_CHECKING:
    from tuner.program.replace import Replacement


class TunedLinear(torch.nn.Linear):  # type: ignore[misc]
    """A linear layer without bias that calls a tuned product for some numbers of rows, and torch for others.

    Attributes:
        tuned_rows: those numbers.
        tuned: ``tuned(x, weight)`` is ``x @ weight.T``.
    """

    tuned_rows: frozenset[int]
    tuned: Callable[[Any, Any], Any]

    def forward(self, x: Any) -> Any:
        """Return ``x @ weight.T``."""
        if x.numel() // self.in_features in self.tuned_rows and x.dtype == self.weight.dtype:
            return self.tuned(x, self.weight)
        return super().forward(x)


def replace_linear(replacement: Replacement, model: Any, mode: CallMode | str) -> list[str]:
    """Turn linear layers of a model into tuned ones, where that was decided; return their names.

    Weights and the names of the state stay as they are.

    Args:
        replacement: what has decided.
        model: a module.
        mode: how the model will be called, ``eager`` or ``graph``.
    """
    rows: dict[tuple[int, int, str], set[int]] = {}
    for kind in replacement.decided(CallMode(mode)):
        sizes = dict(kind.sizes)
        if dict(kind.options)["layout"] == "nt":
            rows.setdefault((sizes["n"], sizes["k"], kind.dtype), set()).add(sizes["m"])
    names = []
    for name, layer in model.named_modules():
        if type(layer) is not torch.nn.Linear or layer.bias is not None:
            continue
        weight = layer.weight
        wanted = rows.get((*weight.shape, DTYPES.get(weight.dtype, "")))
        if wanted and weight.device.type == replacement.device and weight.is_contiguous():
            layer.__class__ = TunedLinear
            layer.tuned_rows, layer.tuned = frozenset(wanted), _linear(replacement.product)
            names.append(name)
    return names


def _linear(product: Any) -> Callable[[Any, Any], Any]:
    """Return the linear function of an operation: torch's custom op where it has one, which compiled code can hold."""
    as_op = getattr(product.operation, "torch", None)
    if as_op is not None:
        linear: Callable[[Any, Any], Any] = as_op().linear
        return linear

    def function(x: Any, weight: Any) -> Any:
        if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
            return torch.nn.functional.linear(x, weight)  # a plain function has no gradient
        return product(x.reshape(-1, x.shape[-1]), weight.t()).view(*x.shape[:-1], weight.shape[0])

    return function
