"""C types as sources write them, and what a launch can pass for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuner.runtime.dtypes import ITEMSIZE

DTYPE_OF = {
    "float": "float32", "double": "float64",
    "half": "float16", "__half": "float16", "__nv_bfloat16": "bfloat16", "nv_bfloat16": "bfloat16",
    "__nv_fp8_e4m3": "float8_e4m3fn",
    "char": "int8", "signed char": "int8", "unsigned char": "uint8", "uchar": "uint8",
    "short": "int16", "unsigned short": "uint16", "ushort": "uint16", "bool": "bool",
    "int": "int32", "unsigned int": "uint32", "uint": "uint32",
    "long": "int64", "long long": "int64", "unsigned long": "uint64", "unsigned long long": "uint64",
    "int8_t": "int8", "uint8_t": "uint8", "int16_t": "int16", "uint16_t": "uint16", "int32_t": "int32",
    "uint32_t": "uint32", "int64_t": "int64", "uint64_t": "uint64",
    "ptrdiff_t": "int64", "ssize_t": "int64", "clock_t": "int64", "size_t": "uint64", "intptr_t": "int64",
    "uintptr_t": "uint64", "ulong": "uint64",
    "cuComplex": "complex64", "cuFloatComplex": "complex64", "cuDoubleComplex": "complex128",
    "complex<float>": "complex64", "complex<double>": "complex128",
    "thrust::complex<float>": "complex64", "thrust::complex<double>": "complex128",
}  # fmt: skip
"""The dtype of each C type that a tensor's elements may have."""
PASSED_AS = {
    **DTYPE_OF,
    **dict.fromkeys(
        ("unsigned long", "unsigned long long", "uint64_t", "size_t", "uintptr_t", "ulong"), "int64"
    ),
}
"""The dtype as which a number of each C type is passed: eight bytes are the same whether signed or not."""
_VECTOR = re.compile(
    r"(?P<of>float|double|u?(?:char|short|int|long|longlong)|half|__half|nv_bfloat16|__nv_bfloat16)(?P<lanes>[234])(?:_\w+)?\Z"
)
_SHORT = {
    "longlong": "long long", "ulonglong": "unsigned long long", "ulong": "unsigned long", "uchar": "unsigned char",
    "uint": "unsigned int", "ushort": "unsigned short",
}  # fmt: skip
NUMBERS = frozenset(("signed", "unsigned", "char", "short", "int", "long", "float", "double", "bool"))
NO_TYPE = frozenset(
    (
        "const", "volatile", "restrict", "__restrict__", "__restrict", "__grid_constant__", "register", "struct",
        "class", "enum", "union", "typename", "static", "constexpr",
    )
)  # fmt: skip
"""Words of a declaration that do not change what its type is to a launch."""
_SIGNS = frozenset(("signed", "unsigned"))


@dataclass(frozen=True)
class CType:
    """A C type as it is written, and what a launch can pass for it."""

    text: str
    """Without qualifiers, such as ``float*`` or ``unsigned int``."""
    base: str
    """What a pointer points to in the end, aliases of the file replaced: ``float``, also of ``float4``."""
    pointers: int = 0
    const: bool = False
    """Of a pointer: whether what it points to is."""

    lanes: int = 1
    """The numbers in one element: 4 of ``float4``."""

    @property
    def dtype(self) -> str | None:
        """The dtype of a pointer's elements, or as which a number is passed; None if the tuner has none for it."""
        if self.pointers > 1 or (self.lanes > 1 and not self.pointers):
            return None
        return (DTYPE_OF if self.pointers else PASSED_AS).get(self.base)

    @property
    def role(self) -> str:
        """The dtype role whose type this is, as ``input`` of ``input_type``; empty for none."""
        return (
            self.base.removesuffix("_type") if self.base.endswith("_type") and "::" not in self.base else ""
        )


def remedy_for(kind: CType) -> str:
    """Return what to do about a parameter that no launch can pass."""
    if "{{" in kind.text:
        return "give a source without Jinja's {{ }}, or write its file yourself"
    if kind.base.startswith(("cudaTexture", "cudaSurface")):
        return "let the kernel read the array by a pointer, const T* __restrict__: the tuner has no texture objects"
    if kind.pointers > 1:
        return "let the kernel take one array and find its rows by offsets: nothing fills an array with addresses"
    if kind.pointers:
        return (
            "write its file yourself: any pointer is a tensor of what it points to, and structs are their words, such"
            " as uint32 of shape [n, 3]"
        )
    return (
        "write its file yourself: a struct by value is an argument { fields = [...] }, its members in order; "
        "or let tuner.Kernel write it, which takes one of NumPy's"
    )


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel, or a member of a class; one without a name has that of its place, ``argument3``."""

    name: str
    type: CType
    rows: tuple[str, ...] = ()
    """Extents of what it points to, ``N`` of ``float x[][N]`` and of ``float (*x)[N]``."""
    default: str = ""
    """What it is where a call leaves it out."""


def base_of(words: Sequence[str]) -> str:
    """Return a type's words in one order, without qualifiers and ``*``: ``unsigned int`` for ``int const unsigned``."""
    words = [word for word in words if word not in NO_TYPE and word != "*"]
    if not words or not set(words) <= NUMBERS:
        return "".join(_spaced(words)).removeprefix("cuda::").removeprefix("std::")
    kind = [word for word in words if word not in _SIGNS and word != "int"] or ["int"]
    sign = "unsigned" if "unsigned" in words else "signed" if "signed" in words and kind == ["char"] else ""
    return " ".join([*([sign] if sign else []), *kind])


def _spaced(words: Sequence[str]) -> Iterator[str]:
    for before, word in zip(("", *words), words, strict=False):
        yield f" {word}" if before.isidentifier() and word.isidentifier() else word


def vector_of(base: str) -> tuple[str, int]:
    """Return the type and number of what is in one of CUDA's vectors, such as ``float4``; of another type itself."""
    vector = _VECTOR.match(base)
    return (_SHORT.get(vector["of"], vector["of"]), int(vector["lanes"])) if vector else (base, 1)


def bytes_of(kind: CType) -> int:
    """Return the bytes of what a pointer points to, or of a number; 0 for another type."""
    base, lanes = vector_of(kind.base)
    return ITEMSIZE[PASSED_AS[base]] * lanes * kind.lanes if base in PASSED_AS else 0


def is_type(text: str) -> bool:
    """Return whether an alias may stand for a number's type or a pointer to one."""
    base = base_of(text.replace("*", " * ").replace("std::", "").split())
    return base in DTYPE_OF or re.fullmatch(r"[A-Za-z_][\w:]*(?: \w+)*", base) is not None
