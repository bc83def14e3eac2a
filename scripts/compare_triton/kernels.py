"""A matrix product and a softmax in Triton, tuned by Triton's own autotuner: what its users would write.

`tune bench` calls them with the problem's tensors; the first call tunes. :data:`BUILT` has the same configurations for
`tuner.tune`.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

WARPS = (1, 2, 4, 8, 16, 32)
TILES = ((64, 64, 4), (64, 128, 4), (128, 64, 4), (128, 128, 4), (128, 128, 8), (128, 256, 8), (256, 128, 8))
PRODUCT_CONFIGURATIONS = [
    triton.Config({"block_m": m, "block_n": n, "block_k": k, "group_m": 8}, num_warps=warps, num_stages=stages)
    for m, n, warps in TILES
    for k in (32, 64, 128)
    for stages in (3, 4)
]  # fmt: skip
SOFTMAX_CONFIGURATIONS = [triton.Config({}, num_warps=warps) for warps in WARPS]


@triton.autotune(configs=PRODUCT_CONFIGURATIONS, key=["m", "n", "k"])
@triton.jit
def _product(
    a, b, c, m, n, k, a_row, b_row,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, group_m: tl.constexpr,
):  # fmt: skip
    """A tile of C a program; group_m rows of tiles run together, so that L2 has what they share."""
    index = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(m, block_m), tl.cdiv(n, block_n)
    group = index // (group_m * tiles_n)
    first = group * group_m
    rows_of_group = tl.minimum(tiles_m - first, group_m)
    tile_m = first + (index % (group_m * tiles_n)) % rows_of_group
    tile_n = (index % (group_m * tiles_n)) // rows_of_group
    rows = tile_m * block_m + tl.arange(0, block_m)
    columns = tile_n * block_n + tl.arange(0, block_n)
    inner = tl.arange(0, block_k)
    a_at = a + (rows % m)[:, None] * a_row + inner[None, :]
    b_at = b + inner[:, None] * b_row + (columns % n)[None, :]
    accumulators = tl.zeros((block_m, block_n), dtype=tl.float32)
    for step in range(tl.cdiv(k, block_k)):
        left = k - step * block_k
        a_tile = tl.load(a_at, mask=inner[None, :] < left, other=0.0)
        b_tile = tl.load(b_at, mask=inner[:, None] < left, other=0.0)
        accumulators = tl.dot(a_tile, b_tile, accumulators)
        a_at += block_k
        b_at += block_k * b_row
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], accumulators.to(c.dtype.element_ty), mask=inside)


def product(a: Any, b: Any, c: Any) -> None:
    """Write the product of a and b, whose rows are contiguous, into c, which is as a whole."""
    assert a.stride(1) == b.stride(1) == 1 and c.is_contiguous()
    (m, k), n = a.shape, b.shape[1]

    def grid(chosen: dict[str, int]) -> tuple[int]:
        return (triton.cdiv(m, chosen["block_m"]) * triton.cdiv(n, chosen["block_n"]),)

    _product[grid](a, b, c, m, n, k, a.stride(0), b.stride(0))


@triton.autotune(configs=SOFTMAX_CONFIGURATIONS, key=["columns"])
@triton.jit
def _softmax(x, y, columns, block: tl.constexpr):
    """A row a program, which keeps it in registers."""
    at = tl.program_id(0).to(tl.int64) * columns + tl.arange(0, block)
    inside = tl.arange(0, block) < columns
    row = tl.load(x + at, mask=inside, other=-float("inf")).to(tl.float32)
    powers = tl.exp(row - tl.max(row, axis=0))
    tl.store(y + at, (powers / tl.sum(powers, axis=0)).to(y.dtype.element_ty), mask=inside)


def softmax(x: Any, y: Any) -> None:
    """Write the softmax of each row of x into y."""
    rows, columns = x.shape
    _softmax[(rows,)](x, y, columns, block=triton.next_power_of_2(columns))


def build_product(tile: str, block_k: int, num_stages: int) -> Any:
    """Return the product with one configuration."""
    block_m, block_n, warps = map(int, tile.split())

    def launch(a: Any, b: Any, c: Any) -> None:
        (m, k), n = a.shape, b.shape[1]
        grid = (triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)
        blocks = {"block_m": block_m, "block_n": block_n, "block_k": block_k, "group_m": 8}
        how = {"num_warps": warps, "num_stages": num_stages}
        _product.fn[grid](a, b, c, m, n, k, a.stride(0), b.stride(0), **blocks, **how)

    return launch


def build_softmax(num_warps: int) -> Any:
    """Return the softmax with one configuration."""

    def launch(x: Any, y: Any) -> None:
        rows, columns = x.shape
        _softmax.fn[(rows,)](x, y, columns, block=triton.next_power_of_2(columns), num_warps=num_warps)

    return launch


BUILT = {
    "product": (
        build_product,
        {
            "tile": [" ".join(map(str, tile)) for tile in TILES],
            "block_k": [32, 64, 128],
            "num_stages": [3, 4],
        },
    ),
    "softmax": (build_softmax, {"num_warps": list(WARPS)}),
}
"""For each function of two tensors or more, what builds it, and the values of its parameters."""
