"""Hostile values, and mutations of JSON, TOML, CSV and bytes that use them."""

from __future__ import annotations

import json
import random
import re
from typing import Any

TEXTS = (
    "",
    "\0",
    "\x1b[2J\x1b[1;31mred",
    "\x1b]0;title\x07\x1b]8;;http://x\x1b\\link",
    "\x9b31m\x90q\x9c",
    "\r\x08\x7f",
    "a\nb\r\nc\x0bd\x0c\x85e\u2028f\u2029g",
    "\u202eright to left\u2066\u2069\u200f",
    "=1+1",
    "+cmd|' /C calc'!A0",
    "@SUM(A1)",
    "*/ int broken; /*",
    '"; int broken; //',
    "\\",
    "line one\\\nline two",
    "??/\n??>??<",
    "\n#error broken\n",
    ')raw" int broken; R"(',
    "%s%n%d{0}{{x}}{% for i in range(10**9) %}{% endfor %}",
    "${HOME}`id`$(id)",
    "../../../victim",
    "/etc/passwd",
    "'; DROP TABLE runs; --",
    '" OR 1=1 --',
    "%",
    "\ud800".encode("utf-8", "replace").decode(),
    "\U0010ffff\U0001f600e\u0301" * 3,
    "ﷺ" * 200,
    "int",
    "__proto__",
    "nan",
    "null",
    "1e999",
    "٣",
    "a" * 300,
    "(" * 5000,
    "not " * 1500 + "1",
    "9" * 5000,
    "2**2**2**2**2**2",
    "'a' * 10**10",
    "n.__class__",
    "[x for x in range(10**9)]",
    "1/0",
    "float32",
    "n",
)
NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 7, 255, 2**31 - 1, 2**31, 2**32, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64,
    10**30, 10**400, 0.0, -0.0, 0.5, -1.5, 1e-320, 5e-324, 1e-30, 1e30, 1e308, -1e308,
    float("inf"), float("-inf"), float("nan"), True, False,
)  # fmt: skip


def nested(depth: int, leaf: Any = 1, *, mapping: bool = False) -> Any:
    for _ in range(depth):
        leaf = {"a": leaf} if mapping else [leaf]
    return leaf


def value(rng: random.Random) -> Any:
    """Return something that JSON can write, of any kind."""
    kind = rng.randrange(9)
    if kind < 3:
        return rng.choice(TEXTS)
    if kind < 6:
        return rng.choice(NUMBERS)
    return rng.choice(
        [None, [], {}, [[]], [None], {"": None}, {"a": 1}, [1, "a"], nested(40), nested(900),
         nested(300, mapping=True), list(range(5000)), {str(i): i for i in range(3000)}, ["x"] * 3000]
    )  # fmt: skip


def json_texts(rng: random.Random) -> str:
    """Return a text that is not what a JSON writer would write."""
    return rng.choice(
        ["", "{", "[" * 100_000, '{"a":' * 50_000, "[" * 900 + "]" * 900, "9" * 5000, "1e999", "-", "NaN",
         "[NaN, Infinity]", '{"a":1,"a":2}', '"\\ud800"', '{"\\ud800":1}', "\ufeff{}", "{}{}", "[1,]",
         '"' + "x" * 2_000_000 + '"', "[" + "0," * 200_000 + "0]", "null", "true", "0", '""', "[]", "{}"]
    )  # fmt: skip


def nodes(data: Any) -> list[tuple[Any, Any]]:
    """Return each place in parsed JSON: a container and a key or index."""
    found: list[tuple[Any, Any]] = []
    stack = [data]
    while stack:
        container = stack.pop()
        for key in container if isinstance(container, dict) else range(len(container)):
            found.append((container, key))
            if isinstance(container[key], (dict, list)):
                stack.append(container[key])
    return found


def mutate_json(data: Any, rng: random.Random, times: int = 1) -> Any:
    """Change parsed JSON in place, at so many places; returns what stands for all of it afterwards."""
    for _ in range(times):
        if not isinstance(data, (dict, list)) or not data:
            return value(rng)
        # Short paths as often as long ones: there are a thousand samples for each name of a field.
        places = nodes(data)
        container, key = rng.choice(places[:40] if rng.random() < 0.5 else places)
        kind = rng.randrange(8)
        if kind < 4:
            container[key] = value(rng)
        elif kind == 4:
            del container[key]
        elif kind == 5 and isinstance(container, dict):
            container[rng.choice(TEXTS)] = container.pop(key)
        elif kind == 6 and isinstance(container, list):
            container.extend(container[:1000] * rng.choice([1, 2, 10]))
        else:
            other, place = rng.choice(places)
            container[key] = json.loads(dump(other[place])) if _has(other, place) else None
    return data


def _has(container: Any, key: Any) -> bool:
    return key in container if isinstance(container, dict) else key < len(container)


def dump(data: Any) -> str:
    """Return JSON text, with Python's words for infinities and NaN."""
    try:
        return json.dumps(data)
    except (RecursionError, ValueError):
        return "[" * 20_000


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut, delete, double or insert bytes."""
    text = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8, 64])):
        at = rng.randrange(len(text) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(text):
            text[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del text[at:]
        elif kind == 2:
            del text[at : at + rng.choice([1, 3, 50])]
        elif kind == 3:
            text[at:at] = text[at : at + rng.choice([1, 20, 500])]
        elif kind == 4:
            text[at:at] = rng.choice(TEXTS).encode("utf-8", "replace")[:2000]
        else:
            text[at:at] = rng.choice([b"\xff\xfe", b"\xef\xbb\xbf", b"\0", b"\xc3", b"\r", b'"', b"[", b"{"])
    return bytes(text)


_STRING = r'"(?:[^"\\\n]|\\.)*"'
TOML_TOKEN = re.compile(
    rf"{_STRING}|\[[^\[\]\n]*\]|\{{[^{{}}\n]*\}}|\b[0-9][0-9_.e+*-]*\b|\btrue\b|\bfalse\b"
    r"|^[A-Za-z_][\w.]*(?= *=)",
    re.MULTILINE,
)
CSV_CELL = re.compile(r"[^,\n]+")
_LITERALS = (
    "0", "-1", "1", "9223372036854775807", "9223372036854775808", "1" + "0" * 5000, "1e308", "inf", "nan",
    "0x7fffffff", "1979-05-27T07:32:00Z", "true", "[]", "{}", '""', "[[[[]]]]", "[1, 'a']", "{ a = 1 }",
    "[" * 300 + "]" * 300, "[" * 30_000, "{ a = " * 300 + "1" + " }" * 300, "[" + "1," * 20_000 + "]",
    '"0"', '"1"', '"-1"', '"n"', '"n * 2**40"', '"1/0"', '"n / 0"', '"float32"', '"input"', '"unknown"',
)  # fmt: skip


def mutate_text(text: str, token: re.Pattern[str], rng: random.Random) -> str:
    """Change tokens and lines of a text, so that most of it stays what it was."""
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        lines, found = text.split("\n"), [*token.finditer(text)]
        kind = rng.randrange(10)
        if kind < 8 and found:
            one = rng.choice(found)
            new = rng.choice([rng.choice(_LITERALS), _quoted(rng.choice(TEXTS)), rng.choice(found)[0]])
            text = text[: one.start()] + new + text[one.end() :]
        else:
            at = rng.randrange(len(lines))
            lines[at : at + 1] = [] if kind == 8 else [rng.choice(lines), lines[at]]
            text = "\n".join(lines)
    return text


def _quoted(text: str) -> str:
    """Return a TOML string of any text."""
    return json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False).replace("\x7f", "\\u007f")
