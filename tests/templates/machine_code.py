"""What the machine code of a kernel moves, read from a cubin; and GPUs to compile it for."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tuner.core.model import Gpu

THREADS_PER_SM = {75: 1024, 80: 2048, 86: 1536, 89: 1536, 90: 2048, 100: 2048, 120: 1536}
SHARED_KIB = {75: 64, 80: 163, 90: 227, 100: 227}
"""Most that a block may have; 99 on the others."""
LDG, STG, LDGSTS, UBLKCP = (0x381, 0x981), (0x386, 0x986), (0xFAE,), (0x3BA,)
SIZES = {2: 2, 3: 2, 4: 4, 5: 8, 6: 16}


def gpu(cc: int = 90) -> Gpu:
    shared = SHARED_KIB.get(cc, 99) << 10
    return Gpu(
        f"sm_{cc}", cc, 132, 60 << 20, 141 << 30, shared, shared + 1024, max_threads_per_sm=THREADS_PER_SM[cc]
    )


def code_of(cubin: bytes) -> bytes:
    """Find the machine code of the only kernel in a cubin, which is a 64-bit ELF file."""
    table, size, count, names = struct.unpack_from("<Q10xHHH", cubin, 0x28)
    sections = [struct.unpack_from("<IIQQQQ", cubin, table + i * size) for i in range(count)]
    for name, _, _, _, offset, length in sections:
        if cubin.startswith(b".text.", sections[names][4] + name):
            return cubin[offset : offset + length]
    raise AssertionError("no code in the cubin")


def moves(cubin: bytes, opcodes: tuple[int, ...]) -> Iterator[int]:
    """Return the bytes of each global load or store: bits 0-11 hold the opcode, bits 73-75 the width."""
    for low, high in struct.iter_unpack("<QQ", code_of(cubin)):
        if low & 0xFFF in opcodes:
            yield SIZES[high >> 9 & 7]


def count_of(cubin: bytes, opcodes: tuple[int, ...]) -> int:
    """Count the instructions of an opcode."""
    return sum(low & 0xFFF in opcodes for low, _ in struct.iter_unpack("<QQ", code_of(cubin)))
