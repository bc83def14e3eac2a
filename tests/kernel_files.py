"""Right files of kernels, which tests change, and what comes of one that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.core.errors import KernelError
from tuner.expressions.array import ArrayExpression
from tuner.kernel.load import read_kernel
from tuner.kernel.reference import SettledReference

GOOD = """\
[kernel]
name = "scale"
summary = "y = 2 x"

[problem]
sizes = { n = 1024 }
dtypes = { input = ["float32", "float16"], output = "input" }
options = { order = ["up", "down"] }
presets.small = { n = 16, order = "down", input = "float16" }

[tensors]
x = { shape = ["n"], dtype = "input" }
y = { shape = ["n"], dtype = "output", role = "output" }

[scalars]
alpha = { dtype = "input", value = "2.0" }

[reference]
numpy = "alpha * x"

[baselines]
torch = "torch.mul(x, alpha, out=y)"

[work]
bytes = "2 * n * itemsize(input)"

[variants.plain]
summary = "one element a thread"
requires = "cc >= 75"

[variants.plain.parameters]
block_size = { values = [64, 128, 256], default = 128, doc = "threads a block" }
fast = { values = [true, false] }

[variants.plain.scratch]
partial = { shape = ["n", "block_size"], dtype = "float32", zeroed = true }

[variants.plain.constraints]
"a block is not larger than the problem" = "block_size <= n"
"nothing spills" = "spill_bytes == 0"

[[variants.plain.launches]]
template = "scale.cu"
entry = "scale"
arguments = ["x", "y", "alpha", "partial", "n", { value = "n * 2", dtype = "int64" }]
grid = ["ceil_div(n, block_size)"]
block = ["block_size"]
"""


def write(folder: Path, text: str | bytes) -> Path:
    (folder / "scale.cu").write_text('extern "C" __global__ void scale() {}\n')
    path = folder / "scale.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(path: Path) -> str:
    with pytest.raises(KernelError) as caught:
        read_kernel(path)
    message = str(caught.value)
    assert "\n" not in message
    assert "scale.toml" in message
    return message


MAP = """\
[kernel]
name = "map"

[problem]
sizes = { n = 1024 }
dtypes = { input = ["float32", "float16"], output = "input" }
options = { order = ["up", "down"], op = { expression = "x+0.50*(20-x)", of = ["x", "y"] } }
presets.product = { op = "x*y", order = "down" }

[tensors]
x = { shape = ["n"], dtype = "input", when = "uses(op, 'x')" }
y = { shape = ["n"], dtype = "input", when = "uses(op, 'y')" }
out = { shape = ["n"], dtype = "output", role = "output" }

[reference]
numpy = "op if order == 'up' else -(op)"
reduction = "max(operations(op), 1)"
tolerance = "2 if input == 'float16' else 1"
operand_rounding = "2 ** -10 if order == 'down' else 0"

[work]
flops = "operations(op) * n"
bytes = "(uses(op, 'x') + uses(op, 'y') + 1) * n * itemsize(input)"

[variants.plain.scratch]
ticket = { shape = ["1"], dtype = "uint32", zeroed = "once" }

[variants.plain.parameters]
block_size = { values = [64, 128] }

[[variants.plain.launches]]
template = "scale.cu"
entry = "map"
arguments = ["x", "y", "out", "ticket"]
grid = ["1"]
block = ["block_size"]
alignment = "4 * itemsize(input)"

[[variants.half.launches]]
template = "scale.cu"
entry = "map"
arguments = ["x", "y", "out"]
grid = ["1"]
block = ["32"]

[[ladder]]
name = "plain, small"
variant = "plain"
parameters = { block_size = 64 }
doc = "first"

[[ladder]]
name = "product"
variant = "half"
dtypes = { input = "float16" }
options = { op = "x * (y)", order = "down" }
"""


def settled(numpy: dict[str, ArrayExpression] | None = None, **changes: object) -> SettledReference:
    """Return a reference on the host, of expressions or as it is told."""
    texts = {name: expression.text for name, expression in (numpy or {}).items()}
    return SettledReference("float32", numpy=texts, **changes)  # type: ignore[arg-type]
