"""The dtypes of tensors and scalars."""

from __future__ import annotations

ITEMSIZE = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "uint32": 4,
    "int8": 1,
    "uint8": 1,
}
"""Bytes of one element of each dtype that a tensor may have."""
