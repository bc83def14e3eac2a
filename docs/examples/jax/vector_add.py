"""A tuned kernel on arrays of JAX, outside of ``jax.jit``: JAX has no current stream, so that a call waits for the GPU.

tune vector_add --size n=1048576 --dtype float32
tune bundle vector_add -o vector_add_bundle
XLA_PYTHON_CLIENT_PREALLOCATE=false python docs/examples/jax/vector_add.py
"""

from __future__ import annotations

import jax.numpy as jnp

import tuner

add = tuner.load("vector_add", bundle="vector_add_bundle")

a = jnp.arange(1_000_000, dtype=jnp.float32)
b = jnp.ones_like(a)
c = add(a, b)  # a new array of JAX, read and made by DLPack
print(f"right: {bool((c == a + 1).all())}")
