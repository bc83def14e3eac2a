"""A kernel's file with initial configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.faults.kernels import scale_kernel
from tuner.kernel.spec import KernelSpec

INITIAL = """
[[initial]]
variant = "plain"
when = "n >= 1024"
parameters = { block_size = 128, items = "4 if n > sm_count * block_size else 2" }
doc = "large"

[[initial]]
variant = "plain"
parameters = { items = "ceil_div(n, 1024)", block_size = 64 }

[[initial]]
variant = "plain"
when = "order == 'down' or input == 'float16'"
parameters = { block_size = 256 }
"""


def with_initial(folder: Path, text: str = INITIAL, **changes: Any) -> KernelSpec:
    return scale_kernel(folder, extra=text, **changes)
