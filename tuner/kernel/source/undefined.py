"""Names that a source uses and nothing defines: its parameters, sizes that are macros, types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from tuner.kernel.source.signature import Source, read_signatures
from tuner.kernel.source.tokens import Token, end_of
from tuner.kernel.source.types import NO_TYPE, NUMBERS, PASSED_AS
from tuner.kernel.source.use import ASSIGNS

_WORDS = frozenset(
    (
        "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "true", "false", "nullptr", "NULL", "this",
        "return", "if", "else", "for", "while", "do", "switch", "case", "default", "break", "continue", "goto",
        "sizeof", "alignof", "alignas", "new", "delete", "operator", "template", "typename", "using", "namespace",
        "typedef", "public", "private", "protected", "virtual", "override", "final", "friend", "extern", "inline",
        "noexcept", "decltype", "auto", "void", "wchar_t", "static_assert", "static_cast", "reinterpret_cast",
        "const_cast", "asm", "mutable", "explicit", "constexpr", "consteval", "constinit", "concept", "requires",
        "std", "cuda", "nvcuda", "INFINITY", "NAN", "HUGE_VAL", "HUGE_VALF", "RAND_MAX", "EOF", "dim3",
        "cooperative_groups",
    )
)  # fmt: skip
_KNOWN = re.compile(
    r"__\w+|CUDART_\w+|cuda\w+|CU_\w+|M_[A-Z0-9_]+|(?:FLT|DBL|LDBL|INT|UINT|LONG|ULONG|LLONG|ULLONG|SHRT|USHRT|CHAR|SCHAR|UCHAR"
    r"|SIZE|U?INT(?:8|16|32|64))_[A-Z0-9_]+|(?:u?(?:char|short|int|long|longlong)|float|double|half|nv_bfloat16)[1234]?(?:_\w+)?"
    r"|tex\w+|surf\w+|u?int\w*_t|size_t|ssize_t|ptrdiff_t|half|nv_bfloat16"
)
"""What CUDA or its headers define."""
_BEFORE_VALUES = frozenset(
    ("return", "case", "else", "new", "delete", "goto", "throw", "operator", "and", "or", "not", "do")
) | (NO_TYPE - {"struct", "class", "union", "enum", "typename"})
"""Words before a name that do not declare it."""
_TYPES = frozenset((*NUMBERS, *NO_TYPE, *PASSED_AS, "auto", "void"))


def undefined_names(source: Source, headers: Iterable[str] = ()) -> dict[str, bool]:
    """Return names that are defined nowhere, in the order of their use; whether each is used as a type.

    Functions are left out, and what only functions of the CPU use.

    Args:
        source: the kernel's.
        headers: texts of its own headers.
    """
    others = [read_signatures(text) for text in headers]
    host = {token.at for function in source.functions for token in function.tokens}
    tokens = [token for token in source.tokens if token.at not in host]
    macros = dict(source.macros)
    for other in others:
        tokens += other.tokens
        macros |= other.macros
    arguments = {one.name for kernel in source.kernels for one in kernel.parameters}
    known = {*macros, *arguments, *_declared(tokens)}
    used: dict[str, bool] = {}
    for at, token in enumerate(tokens):
        if _is_plain(tokens, at) and token.text not in known:
            after = tokens[at + 1].text if at + 1 < len(tokens) else ""
            used[token.text] = used.get(token.text, False) or after.isidentifier()
    words: list[str] = []
    for macro in (macros[name] for name in macros if name in {token.text for token in tokens}):
        names = re.findall(r"(?<![\w.])[A-Za-z_]\w*(?!\w|\s*\()", macro.value)
        words += [name for name in names if name not in (macro.parameters or ())]
    words += [word for one in (source, *others) for word in sorted(one.asked)]
    fresh = (word for word in words if word not in known and not _is_known(word))
    return used | {word: False for word in fresh if word not in used}


def _is_known(word: str) -> bool:
    return word in _WORDS or word in _TYPES or _KNOWN.fullmatch(word) is not None


def _is_plain(tokens: Sequence[Token], at: int) -> bool:
    """Return whether a token is a name that stands for itself: no member, no function, nothing of CUDA's."""
    text = tokens[at].text
    before = tokens[at - 1].text if at else ""
    after = tokens[at + 1].text if at + 1 < len(tokens) else ""
    if not text.isidentifier() or _is_known(text) or before in (".", "->", "::", "namespace", "goto"):
        return False
    return after not in ("(", "::") and not (before == "using" or (after == "<" and before.isidentifier()))


def _declared(tokens: Sequence[Token]) -> set[str]:
    """Return the names that declarations and assignments introduce."""
    depth = 0
    texts = ["", "", *(token.text for token in tokens), "", ""]
    kinds = ("struct", "class", "union", "typename", "using", "enum")
    types = {after for before, after in pairwise(texts) if before in kinds}
    types |= {
        tokens[end_of(tokens, at, ";") - 1].text for at, one in enumerate(tokens) if one.text == "typedef"
    }
    types |= {before for before, after in pairwise(texts) if after == "{" and before.isidentifier()}
    declared = set(types)
    for at in range(2, len(texts) - 2):
        earlier, before, text, after = texts[at - 2 : at + 2]
        depth += (text in ("(", "[")) - (text in (")", "]"))
        if text == "enum" and "{" in texts[at : at + 6]:
            start = texts.index("{", at)
            declared.update(texts[start : texts.index("}", start)] if "}" in texts[start:] else ())
        if not text.isidentifier():
            continue
        typed = before.isidentifier() and before not in _BEFORE_VALUES
        pointed = before in ("*", "&", "&&") and (
            earlier in ("*", "&")
            or texts[at - 3] == "::"
            or earlier in _TYPES
            or _KNOWN.fullmatch(earlier)
            or earlier in types
        )
        listed = before == "," and depth == 0 and after in (";", ",", "=", "[")
        templated = before == ">" and after in ("=", ";", "(", "{", "[", ",", ")")
        if typed or pointed or listed or templated or (after in ASSIGNS and before not in (".", "->")):
            declared.add(text)
    return declared
