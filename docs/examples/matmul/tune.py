"""The README's first example: tune a matrix product of one's own."""

import tuner

extents, tiles = [16, 8, 32], [1, 2, 4, 8]
r = tuner.tune(
    "matmul.cu",
    params={"BLOCK_X": extents, "BLOCK_Y": [16, 8, 4], "TILE_X": tiles, "TILE_Y": tiles, "DEPTH": extents},
    sizes={"n": 2048},
    shapes={"a": ("n", "n"), "b": ("n", "n"), "c": ("n", "n")},
    outputs=["c"],
    grid=["ceil_div(n, BLOCK_X * TILE_X)", "ceil_div(n, BLOCK_Y * TILE_Y)"],
    block=["BLOCK_X", "BLOCK_Y"],
    reference="a @ b",
    reduction="n",
)
print(r)
