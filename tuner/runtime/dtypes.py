"""The dtypes of tensors and numbers: the only table of them in Python. ``manifest.hpp`` has its twin in C++."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dtype:
    """What is known of a dtype."""

    kind: str
    """``float``, ``bfloat``, ``float8``, ``complex``, ``int``, ``uint`` or ``bool``."""
    size_bytes: int
    """Of an element."""
    c_type: str
    """Its name with the common header, ``templates/common/types.cuh.j2``; of complex numbers CUDA's vector of two."""
    packed: str
    """As the module ``struct`` has it: of bfloat16 and float8 the bits, of a complex number both parts."""

    @property
    def whole(self) -> bool:
        """Whether it has integers, truth values among them."""
        return self.kind in ("int", "uint", "bool")

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the largest integer."""
        if self.kind == "bool":
            return 0, 1
        bits = 8 * self.size_bytes
        return (0, 2**bits - 1) if self.kind == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    @property
    def exact(self) -> str:
        """The dtype in which NumPy has all of its numbers, and references compute."""
        if self.kind == "complex":
            return "complex128"
        return "float64" if not self.whole else "uint64" if self.limits[1] >= 2**63 else "int64"


DTYPES = {
    "float64": Dtype("float", 8, "double", "d"),
    "float32": Dtype("float", 4, "float", "f"),
    "float16": Dtype("float", 2, "half_t", "e"),
    "bfloat16": Dtype("bfloat", 2, "bf16_t", "H"),
    "int64": Dtype("int", 8, "long long", "q"),
    "int32": Dtype("int", 4, "int", "i"),
    "uint32": Dtype("uint", 4, "unsigned int", "I"),
    "int8": Dtype("int", 1, "signed char", "b"),
    "uint8": Dtype("uint", 1, "unsigned char", "B"),
    "int16": Dtype("int", 2, "short", "h"),
    "uint16": Dtype("uint", 2, "unsigned short", "H"),
    "uint64": Dtype("uint", 8, "unsigned long long", "Q"),
    "bool": Dtype("bool", 1, "bool", "?"),
    "complex64": Dtype("complex", 8, "float2", "2f"),
    "complex128": Dtype("complex", 16, "double2", "2d"),
    "float8_e4m3fn": Dtype("float8", 1, "e4m3_t", "B"),
}
FORMAT_1 = tuple(DTYPES)[:9]
"""Those that bundles of the first format may have."""
ITEMSIZE = {name: dtype.size_bytes for name, dtype in DTYPES.items()}
"""Bytes of one element of each dtype that a tensor may have."""
PARTS = {"complex64": "float32", "complex128": "float64"}
"""The dtype of real and imaginary part."""

BITS = {"bfloat16": "uint16", "float8_e4m3fn": "uint8"}
"""The dtypes that NumPy lacks, and that of their bits."""

_KINDS = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "complex": 5, "bool": 6, "float8": 10}
DLPACK = {(_KINDS[dtype.kind], 8 * dtype.size_bytes): name for name, dtype in DTYPES.items()}
"""The dtype of each pair of DLPack's type code and bits, of one lane."""

ALIASES = {
    "half": "float16", "fp16": "float16", "f16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn",
    "float": "float32", "fp32": "float32", "f32": "float32", "double": "float64", "fp64": "float64", "f64": "float64",
    "int": "int32", "uint": "uint32", "long": "int64", "short": "int16", "ushort": "uint16", "cfloat": "complex64",
    "cdouble": "complex128",
}  # fmt: skip
"""Other names that people have for dtypes."""


def dtype_named(text: str) -> str:
    """Return the dtype that a name means; a name of none as it is."""
    return ALIASES.get(text.lower(), text)
