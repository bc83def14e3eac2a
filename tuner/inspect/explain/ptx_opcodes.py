"""What a PTX opcode does, and how many bytes one thread moves with it; the names are the PTX ISA reference manual's."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuner.inspect.explain.instructions import Kind

_BITS = re.compile(r"\.(?:b|u|s|f)(8|16|32|64|128)(?![\dx])")
_SHAPE = re.compile(r"\.m(\d+)n(\d+)k(\d+)")
_FLOAT = re.compile(r"\.(?:f16|f16x2|bf16|bf16x2|f32|f32x2|f64)(?!\w)")
_ARITHMETIC = (
    *("add", "sub", "mul", "fma", "mad", "div", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"),
    *("min", "max", "abs", "neg"),
)


def kind_of(opcode: str) -> Kind:
    """Tell what an instruction does; what is not known here is "other"."""
    words = opcode.split(".")
    parts = set(re.split(r"[.:]+", opcode))
    match words[0]:
        case "ld" | "ldu":
            return _load(parts)
        case "st":
            return _store(parts)
        case "atom" | "red" | "multimem":
            return Kind.SHARED_STORE if "shared" in parts else Kind.ATOMIC
        case "ldmatrix":
            return Kind.SHARED_LOAD
        case "stmatrix":
            return Kind.SHARED_STORE
        case "mma":
            return Kind.MATRIX
        case "wmma":
            if words[1] == "mma":
                return Kind.MATRIX
            shared = "shared" in parts
            loads = Kind.SHARED_LOAD if shared else Kind.GLOBAL_LOAD
            stores = Kind.SHARED_STORE if shared else Kind.GLOBAL_STORE
            return loads if words[1] == "load" else stores
        case "wgmma":
            return Kind.MATRIX if words[1] == "mma_async" else Kind.BARRIER
        case "tcgen05":
            return Kind.MATRIX if words[1] == "mma" else Kind.OTHER
        case "cp":
            return _copy(words, parts)
        case "bar" | "barrier" | "membar" | "fence":
            return Kind.BARRIER
        case "call":
            return Kind.CALL
        case word if word in _ARITHMETIC and _FLOAT.search(opcode):
            return Kind.FLOAT
    return Kind.OTHER


def _load(parts: set[str]) -> Kind:
    if "param" in parts or "const" in parts:
        return Kind.OTHER
    if "shared" in parts:
        return Kind.SHARED_LOAD
    # An address of which the compiler does not know where it points ("generic") counts as global.
    return Kind.LOCAL_LOAD if "local" in parts else Kind.GLOBAL_LOAD


def _store(parts: set[str]) -> Kind:
    if "param" in parts:
        return Kind.OTHER
    if "shared" in parts:
        return Kind.SHARED_STORE
    return Kind.LOCAL_STORE if "local" in parts else Kind.GLOBAL_STORE


def _copy(words: list[str], parts: set[str]) -> Kind:
    """Name a ``cp``: asynchronous copies, by threads or in bulk, their groups and waits."""
    if "commit_group" in parts:
        return Kind.OTHER if "bulk" in parts else Kind.COMMIT
    if "wait_group" in parts or "wait_all" in parts:
        return Kind.OTHER if "bulk" in parts else Kind.WAIT
    if "mbarrier" in parts and "arrive" in parts:
        return Kind.OTHER
    if "bulk" in parts:
        if "prefetch" in parts:
            return Kind.OTHER
        # cp.async.bulk.<destination>.<source>: the space that is named first is written.
        spaces = [word for word in re.split(r"[.:]+", ".".join(words)) if word in ("shared", "global")]
        return Kind.BULK_COPY if spaces[:1] == ["shared"] else Kind.BULK_STORE
    return Kind.ASYNC_COPY


def width_of(opcode: str, operands: Sequence[str]) -> int:
    """Return the bytes that one thread moves; 0 where the instruction does not say."""
    word = opcode.split(".")[0]
    if word == "cp":
        sizes = [text for text in operands[2:3] if text.isdigit()]
        return int(sizes[0]) if sizes and "bulk" not in opcode else 0
    if word in ("ldmatrix", "stmatrix"):
        number = re.search(r"\.x([124])", opcode)
        return 4 * int(number[1]) if number else 4
    bits = _BITS.search(opcode)
    if word == "wmma":
        return _fragment(opcode)
    if word not in ("ld", "ldu", "st", "atom", "red") or bits is None:
        return 0
    vector = re.search(r"\.v([248])(?!\d)", opcode)
    return int(bits[1]) // 8 * (int(vector[1]) if vector else 1)


def _fragment(opcode: str) -> int:
    """Return the bytes of a thread's share of a matrix that a warp loads or stores."""
    shape, kind = _SHAPE.search(opcode), re.match(r"wmma\.(?:load|store)\.([abcd])", opcode)
    dtype = re.search(r"\.(f16|bf16|tf32|f32|f64|s8|u8|s32)(?!\w)", opcode)
    if shape is None or kind is None or dtype is None:
        return 0
    m, n, k = (int(size) for size in shape.groups())
    elements = {"a": m * k, "b": k * n}.get(kind[1], m * n)
    size = {"f16": 2, "bf16": 2, "s8": 1, "u8": 1, "f64": 8}.get(dtype[1], 4)
    return elements * size // 32


def groups_of(opcode: str, operands: Sequence[str]) -> int:
    """Return how many groups of asynchronous copies a wait leaves under way."""
    if not opcode.startswith("cp.async.wait_group") or not operands or not operands[0].isdigit():
        return 0
    return int(operands[0])
