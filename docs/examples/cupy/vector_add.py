"""A tuned kernel on arrays of CuPy, on CuPy's current stream.

tune vector_add --size n=1048576 --dtype float32
tune bundle vector_add -o vector_add_bundle
python docs/examples/cupy/vector_add.py
"""

from __future__ import annotations

import cupy

import tuner

add = tuner.load("vector_add", bundle="vector_add_bundle")

with cupy.cuda.Stream(non_blocking=True) as stream:
    a = cupy.arange(1_000_000, dtype=cupy.float32)
    b = cupy.ones_like(a)
    c = add(a, b)  # a new array of CuPy
    add(a, c, out=b)  # into one that is there
    stream.synchronize()
print(f"right: {bool((c == a + 1).all() and (b == a + c).all())}")
