"""The defaults of sizes that a source leaves open: large enough to tell, and small enough for a GPU."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.kernel.draft import Given, LaunchDraft, ParameterDraft, TensorDraft, plain
from tuner.kernel.source.names import SourceNames
from tuner.kernel.source.parameters import SMALL
from tuner.kernel.source.use import CodeUse

DEFAULT_SIZES: dict[int, int | str] = {1: "2**24", 2: 4096, 3: 256}
"""The default of sizes, by how many of them the largest tensor has; of more, 64."""
EXPONENT = 10
"""The default of a size that is an exponent: an array has 2 to the power of it."""
SHARED_SIZE = 1024
"""The default of a size of which a block keeps all in shared memory."""
MOST_BLOCKS = 2**15
"""The default of a size of which each is a block along y or z: a grid has 65535."""
PAIRS_SIZE = 2**14
"""The default where each thread goes through all elements."""
SPARSE_ROWS = "2**20"
"""The rows of a sparse matrix."""
UNSEEN = 64
"""The default of a size that no tensor has: a threshold, or a number of passes."""
PRODUCT_SIZE = 1024
"""The default for tensors of two sizes where there are others or loops, as in a matrix product."""
LEAST_BITS, MANY_BITS = 10, 4
"""Of a size beside extents that are numbers: at least so many, and so many of theirs at least make several smaller."""


def settle_sizes(
    names: SourceNames, tensors: Mapping[str, TensorDraft], use: CodeUse, launched: Sequence[Any]
) -> None:
    """Set the sizes that the source leaves open, so that the largest tensor has about 64 MiB.

    Those that neither tensors nor what is ``launched`` has are marked.
    """
    large = [
        name for name, one in names.sizes.items() if not (SMALL.fullmatch(name) or isinstance(one, Given))
    ]
    shown = re.findall(
        r"\w+", str([[(one.shape, one.init) for one in tensors.values()], names.scalars, *launched])
    )
    for name in large:
        if name not in shown and names.sizes[name] is None:
            names.sizes[name] = Given(UNSEEN, "no array has it: the value that you use?", gap=True)
    words = [
        [word for extent in one.shape for word in re.findall(r"\w+", max(extent.split("+"), key=len))]
        for one in tensors.values()
    ]
    counted = {*large, *names.options}
    most = max((sum(name in counted for name in of) for of in words), default=1)
    product = most == 2 and (len(large) > 2 or (use.quadratic and len(large) == 1))
    usual = _beside(
        PRODUCT_SIZE if product else DEFAULT_SIZES.get(max(most, 1), 64),
        most,
        [one.shape for one in tensors.values()],
    )
    if most == 1 and any(isinstance(one.init, Mapping) and "range" in one.init for one in tensors.values()):
        usual = SPARSE_ROWS
    if most == 1 and use.quadratic:
        usual = PAIRS_SIZE
    for name, value in names.sizes.items():
        names.sizes[name] = value or (usual if name in large else 2)


def _beside(usual: int | str, most: int, shapes: Sequence[Sequence[str]]) -> int | str:
    """Return the default of sizes that is smaller by what extents that are numbers multiply.

    Args:
        usual: the default without these.
        most: sizes that the largest tensor has.
        shapes: of all tensors.
    """
    numbers = [math.prod(int(one) for one in shape if one.isdecimal()) for shape in shapes]
    bits = (max(numbers, default=1) - 1).bit_length()
    if isinstance(usual, str):  # a power of two
        return f"2**{max(int(usual.rpartition('*')[2]) - bits, LEAST_BITS)}"
    return max(usual >> bits // most, UNSEEN) if bits >= MANY_BITS else usual


def fit_blocks(
    names: SourceNames, parameters: Mapping[str, ParameterDraft], constraints: Mapping[str, str]
) -> None:
    """Make the defaults of sizes multiples of those blocks of which constraints demand a whole number."""
    for text in constraints.values():
        whole = re.fullmatch(r"(\w+) % (\w+) == 0", text)
        if not whole or whole[1] not in names.sizes or whole[2] not in parameters:
            continue
        size, block = plain(names.sizes[whole[1]]), plain(parameters[whole[2]].default)
        if isinstance(size, str) and block & (block - 1):
            bits = int(size.rpartition("*")[2]) - (block - 1).bit_length()
            names.sizes[whole[1]] = f"{block} * 2**{max(bits, 0)}"
        elif isinstance(size, int) and size % block and size in (*DEFAULT_SIZES.values(), PRODUCT_SIZE):
            names.sizes[whole[1]] = max(size // block, 1) * block


def limit_sizes(names: SourceNames, tensors: Mapping[str, TensorDraft], launch: LaunchDraft) -> None:
    """Set smaller defaults for sizes that are blocks along an axis, are kept in shared memory, or are exponents."""
    for axis, text in enumerate(plain(launch.grid)):
        large = {name for name in re.findall(r"\w+", text) if isinstance(names.sizes.get(name), str)}
        if axis or len(large) > 1:
            usual = DEFAULT_SIZES.get(len(large), 64) if len(large) > 1 else MOST_BLOCKS
            names.sizes |= dict.fromkeys(large, usual)
    by_default = {name for name, one in names.sizes.items() if one in (*DEFAULT_SIZES.values(), PRODUCT_SIZE)}
    shared = launch.shared_bytes if isinstance(launch.shared_bytes, str) else ""
    kept = names.sizes.keys() & re.findall(r"\w+", shared)
    names.sizes |= dict.fromkeys(by_default & kept, SHARED_SIZE if len(kept) == 1 else UNSEEN)
    exponents = by_default.intersection(re.findall(r"2 \*\* \(?(\w+)", str(tensors)))
    names.sizes |= dict.fromkeys(exponents, EXPONENT)
