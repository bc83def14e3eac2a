import numpy as np
import tuner

n = 2048
a, b = np.random.default_rng(0).standard_normal((2, n, n), dtype=np.float32)
c = np.zeros_like(a)
values = {"BLOCK_X": [16, 8, 32], "BLOCK_Y": [16, 8, 4], "TILE_X": [1, 2, 4, 8], "TILE_Y": [1, 2, 4, 8], "DEPTH": [16, 8, 32]}
r = tuner.tune(
    "matmul.cu", [a, b, c, n], values, outputs=["c"], reference=lambda a, b: a @ b,
    grid=["ceil_div(n, BLOCK_X * TILE_X)", "ceil_div(n, BLOCK_Y * TILE_Y)"], block=["BLOCK_X", "BLOCK_Y"],
)
print(r)
