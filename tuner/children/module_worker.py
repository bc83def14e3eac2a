"""The child that runs a torch module's file once, to see its inputs and outputs; the file may do anything."""

from __future__ import annotations

import importlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from tuner.core.errors import TunerError
from tuner.core.messages import Channel, Record
from tuner.core.processes import ParentPipe
from tuner.kernel.functions import first_line
from tuner.kernel.modules import MODEL, build, inputs_of

LOOKED_AT = 1 << 14
"""Elements of an input that say how it was drawn."""
NEAR, SPREAD = 0.05, 2.0
"""How far their mean and standard deviation may be from those of a distribution, and how much further for few: that
over the root of their number."""
COMPUTED = 1 << 22
"""Elements of all inputs up to which outputs are computed to see their shapes; without computing that takes 4 s."""


class Port(Record, frozen=True):
    """An input or output."""

    shape: tuple[int, ...]
    dtype: str
    init: str | tuple[float, float] = "normal"
    """Of an input: the name of how it was drawn, or the range; empty where its numbers have to be taken as they are."""


class Ports(Record, frozen=True):
    """The inputs and outputs, or why there are none."""

    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    error: str = ""


LOOKING: Channel[Path, Ports] = Channel(Path, Ports)
"""From a file with ``Model``."""


def ports(path: Path) -> Ports:
    """Return the inputs and outputs of a module.

    Raises:
        TunerError: an input is no tensor.
    """
    torch = importlib.import_module("torch")
    inputs = inputs_of(path)
    if not inputs or not all(isinstance(one, torch.Tensor) and one.dim() for one in inputs):
        raise TunerError("get_inputs returns other things than tensors with dimensions")
    value = None
    if sum(one.numel() for one in inputs) > COMPUTED:
        # Shapes need no computing; but some operations have no such form.
        with suppress(Exception), torch.device("meta"), torch.no_grad():
            value = build(MODEL, path, path)(*(one.to("meta") for one in inputs))
    if value is None:
        with torch.no_grad():
            value = build(MODEL, path, path)(*inputs)
    outputs = value if isinstance(value, list | tuple) else [value]
    return Ports(
        tuple(Port(tuple(one.shape), _dtype(one), _init(one)) for one in inputs),
        tuple(Port(tuple(one.shape) or (1,), _dtype(one)) for one in outputs),
    )


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _init(tensor: Any) -> str | tuple[float, float]:
    """Return how an input was drawn, as its numbers show it."""
    some = tensor.reshape(-1)[:LOOKED_AT].double()
    low, high = float(tensor.min()), float(tensor.max())
    if low == high:
        return {0.0: "zeros", 1.0: "ones"}.get(low, (low, high))
    if not tensor.is_floating_point():
        return low, high
    mean, deviation = float(some.mean()), float(some.std())
    near = NEAR + SPREAD * len(some) ** -0.5
    if low < -1.0 and high > 1.0 and abs(mean) < near and abs(deviation - 1.0) < near:
        return "normal"
    width = high - low
    if abs(mean - (low + high) / 2) > near * width or abs(deviation * 12**0.5 - width) > near * width:
        return ""
    return "uniform" if low >= 0 and 1 - near < high <= 1 else (low, high)


def main() -> None:
    """Answer one request."""
    pipe = ParentPipe(LOOKING)
    if (path := pipe.receive()) is None:
        return
    try:
        reply = ports(path)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's file throws
        reply = Ports(error=str(error) if isinstance(error, TunerError) else first_line(error))
    pipe.send(reply)
    os._exit(0)


if __name__ == "__main__":
    main()
