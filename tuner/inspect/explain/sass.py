"""SASS, the GPU's own instructions, as ``nvdisasm`` prints them -> basic blocks.

NVIDIA documents the names of the instructions ("CUDA Binary Utilities") and little else: what is not known here counts
as "other".
"""

from __future__ import annotations

import re

from tuner.inspect.explain.instructions import BULK, MEMORY, Code, Instruction, Kind, build

_LINE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*);")
_LABEL = re.compile(r"^(\.L[\w.$]*):", re.MULTILINE)
_TARGET = re.compile(r"\((\.L[\w.$]*)\)")
_REGISTER = re.compile(r"(?<![\w.])U?(?:R|P)\d+")
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}

_KINDS = {
    "LDG": Kind.GLOBAL_LOAD, "LD": Kind.GLOBAL_LOAD, "STG": Kind.GLOBAL_STORE, "ST": Kind.GLOBAL_STORE,
    "ATOMG": Kind.ATOMIC, "ATOM": Kind.ATOMIC, "RED": Kind.ATOMIC, "REDG": Kind.ATOMIC,
    "LDGSTS": Kind.ASYNC_COPY, "UBLKCP": Kind.BULK_COPY, "UTMALDG": Kind.BULK_COPY,
    "UTMASTG": Kind.BULK_STORE, "UTMAREDG": Kind.BULK_STORE, "UBLKRED": Kind.BULK_STORE,
    "LDS": Kind.SHARED_LOAD, "LDSM": Kind.SHARED_LOAD, "STS": Kind.SHARED_STORE, "STSM": Kind.SHARED_STORE,
    "ATOMS": Kind.SHARED_STORE, "LDL": Kind.LOCAL_LOAD, "STL": Kind.LOCAL_STORE,
    "BAR": Kind.BARRIER, "MEMBAR": Kind.BARRIER, "WARPGROUP": Kind.BARRIER,
    "LDGDEPBAR": Kind.COMMIT, "DEPBAR": Kind.WAIT, "CALL": Kind.CALL, "MUFU": Kind.FLOAT,
}  # fmt: skip
_MATRIX = re.compile(r"(?:[HIDBQO]|IG|HG|QG|BG|UTC[HIQOM]?\w*)MMA$")
_FLOAT = re.compile(r"(?:[FDH](?:ADD|MUL|FMA|MNMX)2?)$")
_NO_RESULT = ("BRA", "BRX", "BSSY", "BSYNC", "EXIT", "RET", "NOP", "WARPSYNC", "YIELD", "NANOSLEEP")


def parse_sass(text: str, entry: str) -> Code:
    """Read one kernel of a listing by ``nvdisasm -c``.

    Raises:
        ValueError: the listing has no such kernel.
    """
    start = text.find(f".text.{entry}:")
    if start < 0:
        raise ValueError(f"no kernel {entry} in the listing")
    end = text.find("//-----", start)
    items: list[str | Instruction] = []
    for line in text[start : end if end > 0 else len(text)].splitlines():
        if label := _LABEL.match(line):
            items.append(label[1])
        elif match := _LINE.search(line):
            items.append(_instruction(match[1] or "", match[2], match[3]))
    return build(items, ordered=True)


def _instruction(predicate: str, opcode: str, rest: str) -> Instruction:
    word, *words = opcode.split(".")
    operands = [part.strip() for part in rest.split(",")] if rest.strip() else []
    guard = tuple(_REGISTER.findall(predicate))
    kind = _kind(word)
    if kind is Kind.CALL and _TARGET.search(rest):
        kind = Kind.OTHER  # a jump that is too far for BRA, within the kernel
    width = _width(word, words) if kind in MEMORY and kind not in BULK else 0
    first = 1 if operands and "[" not in operands[0] and word not in _NO_RESULT else 0
    writes = tuple(name for text in operands[:first] for name in _REGISTER.findall(text))
    if kind in (Kind.GLOBAL_LOAD, Kind.SHARED_LOAD, Kind.LOCAL_LOAD) and writes:
        writes = _range(writes[0], width)
    reads = guard + tuple(name for text in operands[first:] for name in _REGISTER.findall(text))
    jumps = word.startswith(("BRA", "BRX", "JMP"))
    return Instruction(
        opcode, kind, width, writes, reads,
        targets=tuple(_TARGET.findall(rest)) if jumps or word == "CALL" else (),
        ends=(jumps or word in ("EXIT", "RET")) and not guard and not (jumps and reads),
        groups=_groups(rest) if kind is Kind.WAIT else 0,
        guard=predicate,
    )  # fmt: skip


def _kind(word: str) -> Kind:
    if word in _KINDS:
        return _KINDS[word]
    if _MATRIX.match(word):
        return Kind.MATRIX
    return Kind.FLOAT if _FLOAT.match(word) else Kind.OTHER


def _width(word: str, words: list[str]) -> int:
    """Return the bytes of a thread; four where the instruction names no width."""
    if word in ("LDSM", "STSM"):  # matrices of 8 x 8 elements of 16 bits: 4 bytes for each thread
        return 4 * int(words[-1]) if words and words[-1] in ("2", "4") else 4
    return next((_WIDTHS[name] for name in reversed(words) if name in _WIDTHS), 4)


def _range(first: str, width: int) -> tuple[str, ...]:
    """Return the registers that a load fills, from the first on."""
    name, number = re.fullmatch(r"(U?R)(\d+)", first), max(1, width // 4)
    return tuple(f"{name[1]}{int(name[2]) + i}" for i in range(number)) if name else (first,)


def _groups(operands: str) -> int:
    """Return what ``DEPBAR.LE SB0, 0x1`` leaves under way."""
    number = re.search(r"0x([0-9a-f]+)", operands)
    return int(number[1], 16) if number else 0
