"""Data from a database as C++ tokens that cannot be anything else: names, integers, comments, strings."""

from __future__ import annotations

import re

from tuner.core.errors import DatabaseError, ExpressionError
from tuner.expressions.elementwise import parse_element
from tuner.kernel.toml.values import CPP_KEYWORDS

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_RESERVED = CPP_KEYWORDS.union(
    (
        # macros of compilers and common headers
        "linux", "unix", "i386", "vax", "sparc", "NULL", "EOF", "TRUE", "FALSE", "NDEBUG", "assert",
        "errno", "stdin", "stdout", "stderr",
    )
)  # fmt: skip
_COMMENT = re.compile(r"\*/|/\*|[^A-Za-z0-9 ._,:;()+=%<>@#&|~^!'\"{}\[\]*/-]", re.ASCII)
_EXPRESSION = re.compile(r"[A-Za-z0-9 _.,()<>=!+*/-]{1,500}", re.ASCII)
_STRING = re.compile(r"[^A-Za-z0-9 ._,:;()+=/@#-]", re.ASCII)
MAX_INTEGER = (1 << 63) - 1
NAMESPACE = "kernel_tune"


def identifier(name: object, what: str) -> str:
    """Return a name if C++ can use it anywhere.

    Raises:
        DatabaseError: not an identifier, too long, a keyword, reserved or a common macro.
    """
    text = str(name)
    reserved = text in _RESERVED or "__" in text or re.match(r"_[A-Z]", text)
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(text) or reserved:
        raise DatabaseError(
            f"{what} {text[:80]!r} cannot be a name in C++",
            "rename it in the kernel, or leave it out with --kernel",
        )
    return text


def enumerator(value: object, what: str) -> str:
    """Return a value's name in an enumeration: a text itself, or with a ``v`` before a digit; ``v`` and a number."""
    if not isinstance(value, str):
        value = f"v{value}".replace("-", "minus").replace(".", "_")
    elif re.fullmatch(r"[0-9][A-Za-z0-9_]{0,62}", value, re.ASCII):
        value = f"v{value}"
    return identifier(value, what)


def is_expression(value: object) -> bool:
    """Return whether a value can only be an element expression: its canonical text, and no name."""
    if not isinstance(value, str) or _IDENTIFIER.fullmatch(value) or not _EXPRESSION.fullmatch(value):
        return False
    try:
        element = parse_element(value)
    except ExpressionError:
        return False
    return element.text == value and bool(element.names)


def expression(value: object, what: str) -> str:
    """Return the inside of a string literal that holds an element expression.

    Raises:
        DatabaseError: it is not one, or not in its canonical form.
    """
    if isinstance(value, str) and (_IDENTIFIER.fullmatch(value) or is_expression(value)):
        return value
    raise DatabaseError(f"{what} {str(value)[:80]!r} is no element expression", "leave it out with --kernel")


def integer(value: object, what: str) -> int:
    """Return a whole number if C++ has a literal for it.

    Raises:
        DatabaseError: not a whole number, or one too large.
    """
    if not isinstance(value, int) or abs(value) > MAX_INTEGER:
        raise DatabaseError(
            f"{what} = {str(value)[:80]!r} cannot be exported",
            "a header holds whole numbers, yes or no, and names",
        )
    return int(value)


def comment(text: object) -> str:
    """Return text that cannot begin or end a comment or join lines: printable ASCII without ``\\`` and ``?``."""
    return _COMMENT.sub("_", str(text)[:200]).strip()


def string(text: object) -> str:
    """Return the inside of a string literal: printable ASCII without quotes, ``\\`` and ``?``."""
    return _STRING.sub("_", str(text)[:128])
