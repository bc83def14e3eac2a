"""The readers of manifests in Python and C++ accept the same, however a manifest was damaged."""

from __future__ import annotations

import copy
import json
import random
import subprocess
from collections.abc import Iterator
from typing import Any

from tests.cpp_interface import sanitized
from tests.runtime.manifests import MANIFEST, PLAIN, REPEATED, SHA, TILED
from tuner.core.errors import BundleError
from tuner.runtime.manifest import read_manifest

PORTFOLIO = {
    "computation": 0, "gpu": "NVIDIA H200", "bound": 1.05, "neighbours": 2, "reach": 1024, "cost_weight": 512,
    "members": [{"configuration": 0}, {"configuration": 1, "cost": ["*", "m", "n"]}],
    "points": [
        {"sizes": {"m": 4096, "n": 4096, "k": 4096}, "residuals": [0, 12]},
        {"sizes": {"m": 16, "n": 4096, "k": 4096}, "residuals": [-3, None]},
    ],
}  # fmt: skip
STRUCT = {"fields": [{"scalar": "alpha"}, {"value": "m", "dtype": "uint64"}], "alignment": 16}
FILLED = {
    **PLAIN["launches"][0],
    "arguments": [{"fields": [{"tensor": "a"}, {"scratch": "tickets"}, STRUCT]}],
    "constants": [["weights", "a"], ["_ZN1a1bE", "b"]],
}
SLICED = {
    **PLAIN["launches"][0],
    "arguments": [{"fields": [{"tensor": "c"}, {"stride": "c"}]}, {"stride": "a"}],
}
REPEATING = {**TILED, "launches": [*TILED["launches"], REPEATED, FILLED], "slices": [SLICED]}
WHOLE = {**MANIFEST, "configurations": [PLAIN, REPEATING, {**PLAIN, "cc": 80}], "portfolios": [PORTFOLIO]}
VALUES = [
    *(
        None, True, False, 0, 1, -1, 2, 90, 91, 1 << 62, 1 << 63, -(1 << 63), 1 << 64, 0.0, 0.5, 1e300, "",
        "a", "m",
    ),
    *(
        "M", "m n", "1a", "cc", "float32", "bfloat16", "float8", "input", "output", "inout", "é",
        "a\u0085b", "x" * 201,
    ),
    *(
        "n" * 10_001, SHA, SHA[1:], SHA.upper(), "90", "090", [], {}, [1], ["m"], [["+", 1, "m"]],
        ["+", 1], ["?", 1],
    ),
    *(
        ["*", "m", 2], ["if", 1, 2, 3], ["and"], ["min"], {"tensor": "a"}, {"tensor": "z"},
        {"stride": "c"}, {"stride": "tickets"}, {"scalar": "alpha"},
    ),
    *(
        {"cluster_order": 8}, {"name": "level", "count": "m"},
        {"one_of": ["bias", "tickets"], "index": "level"}, {"value": 1, "dtype": "int32"},
        {"value": 1, "dtype": "bfloat16"}, {"scratch": "copy"}, {"fields": [{"tensor": "a"}]},
        {"fields": [{"cluster_order": 8}]}, {"fields": []}, ["weights", "a"], ["weights", "z"],
        "complex128", "bool", 3, 256,
    ),
    *({"map": ["a"], "box": [1, 2]}, {"map": [], "box": [1, 2]}, {"value": "z", "dtype": "int32"}),
]  # fmt: skip
KEYS = [
    "", "when", "what", "zeroed", "zeroed_once", "probe", "sizes", "carveout", "mode", "transposed",
    "swizzle", "repeat", "index", "fields", "alignment", "constants", "m",
]  # fmt: skip
BYTES = b'{}[]",:0123456789.eE+-\\u\x80\xff truefalsnm*/%'


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container with each of its keys."""
    for key, value in list(data.items() if isinstance(data, dict) else enumerate(data)):
        yield data, key
        if isinstance(value, (dict, list)):
            yield from places(value)


def damaged(draw: random.Random) -> bytes:
    """Return a manifest of which one value, key or byte is another, or is not there."""
    data = copy.deepcopy(WHOLE)
    within, key = draw.choice(list(places(data)))
    match draw.randrange(6):
        case 0:
            del within[key]
        case 1 if isinstance(within, dict):
            within[draw.choice(KEYS)] = draw.choice(VALUES)
        case 2 if isinstance(within, list):
            within.insert(key, copy.deepcopy(within[draw.randrange(len(within))]))
        case 3:
            other, there = draw.choice(list(places(data)))
            within[key] = copy.deepcopy(other[there])
        case 4:
            text = bytearray(json.dumps(data).encode())
            at = draw.randrange(len(text))
            text[at : at + draw.randrange(2)] = bytes([draw.choice(BYTES)])
            return bytes(text)
        case _:
            within[key] = draw.choice(VALUES)
    return json.dumps(data, ensure_ascii=draw.random() < 0.5).encode()


def at_limits() -> Iterator[bytes]:
    """Yield manifests of which one whole number of the portfolio is at a power of two, or one beyond it."""
    data = copy.deepcopy(WHOLE)
    for within, key in places(data["portfolios"]):
        if type(number := within[key]) is int:
            for power in (10, 20, 62):
                for within[key] in (2**power, 2**power + 1, -(2**power), -(2**power) - 1):
                    yield json.dumps(data).encode()
            within[key] = number


def deep_and_long() -> Iterator[bytes]:
    """Yield manifests with structs in structs, the most and one more and many more, and with many sizes."""
    for depth in (16, 17, 80, 300):
        data, inner = copy.deepcopy(WHOLE), {"tensor": "a"}
        for _ in range(depth):
            inner = {"fields": [inner]}
        data["configurations"][1]["launches"][-1]["arguments"] = [inner, inner]
        yield json.dumps(data).encode()
    yield json.dumps({**WHOLE, "sizes": [f"s{number}" for number in range(100_000)]}).encode()


def test_what_is_damaged_is_refused_alike() -> None:
    draw = random.Random(11)
    manifests = [json.dumps(WHOLE).encode(), *(damaged(draw) for _ in range(250))]
    manifests += [*at_limits(), *deep_and_long()]
    given = b"".join(b"%d\n%s" % (len(data), data) for data in manifests)
    done = subprocess.run(sanitized("manifests"), input=given, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    answers = done.stdout.decode().splitlines()
    assert len(answers) == len(manifests) and answers[0].startswith("0 ")
    different, accepted = [], 0
    for data, answer in zip(manifests, answers, strict=True):
        try:
            read_manifest(data)
            reason = ""
            accepted += 1
        except BundleError as error:
            reason = str(error)
        if (answer[0] == "0") != (reason == ""):
            different.append(f"C++: {answer}; Python: {reason or 'accepted'}")
    assert not different, "\n".join(different)
    assert 15 < accepted < len(manifests) - 15
