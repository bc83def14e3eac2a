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

DLPACK = {
    (2, 64): "float64",
    (2, 32): "float32",
    (2, 16): "float16",
    (4, 16): "bfloat16",
    (0, 64): "int64",
    (0, 32): "int32",
    (1, 32): "uint32",
    (0, 8): "int8",
    (1, 8): "uint8",
}
"""The dtype of each pair of DLPack's type code (0 signed, 1 unsigned, 2 float, 4 bfloat) and bits, of one lane."""

ALIASES = {
    "half": "float16", "fp16": "float16", "f16": "float16", "bf16": "bfloat16",
    "float": "float32", "fp32": "float32", "f32": "float32", "double": "float64", "fp64": "float64", "f64": "float64",
    "int": "int32", "uint": "uint32", "long": "int64",
}  # fmt: skip
"""Other names that people have for dtypes."""


def dtype_named(text: str) -> str:
    """Return the dtype that a name means; a name of none as it is."""
    return ALIASES.get(text.lower(), text)
