"""What is asked of calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

MOST_RATIO = 1.005
MOST_MS = {"imports": {"bundle": 120.0}, "cold": {"C++": 50.0, "Python": 50.0}}
MOST_US = {"C++": 5.0, "Python": 15.0}
MOST_BYTES = 2_000_000


def misses(data: Mapping[str, Any]) -> list[str]:
    """Return what misses what is asked, a line each; nothing of what was not measured."""
    return list(_misses(data))


def _misses(data: Mapping[str, Any]) -> Iterator[str]:
    for name, row in sorted(data["races"].items()):
        if row.get("error"):
            yield f"{name}: {row['error']}"
            continue
        if not row["verified"]:
            yield f"{name}: a wrong output"
        for way, ratio in row["ratios"].items():
            if ratio["verdict"] == "slower" and not way.startswith("tuner"):  # whose own loads say the noise
                yield f"{name}: {way} takes {ratio['median']:.4f} of the tuner's own launch, beyond its noise"
    for way, ratio in overall(data).items():
        if ratio > MOST_RATIO:
            yield f"{way}: a median ratio of {ratio:.4f}, above {MOST_RATIO}"
    for step, limits in MOST_MS.items():
        for name, limit in limits.items():
            if step in data and median(data[step][name]) > limit:
                yield f"{step}, {name}: {median(data[step][name]):.1f} ms, above {limit:g}"
    for name, limit in MOST_US.items():
        value = host(data).get(name)
        if value is not None and value > limit:
            yield f"a warm call in {name}: {value:.2f} us, above {limit:g}"
    if data.get("size", {}).get("bytes", 0) > MOST_BYTES:
        yield f"ten winners take {data['size']['bytes']} bytes, above {MOST_BYTES}"
    for name, result in data["sanitized"].items():
        if not result["clean"]:
            yield f"{name}: {result['error']}"


def overall(data: Mapping[str, Any]) -> dict[str, float]:
    """Return the median over all races of each way's ratio to the tuner's own launch."""
    found: dict[str, list[float]] = {}
    for row in data["races"].values():
        for way, ratio in row.get("ratios", {}).items():
            found.setdefault(way, []).append(ratio["median"])
    return {way: median(ratios) for way, ratios in found.items()}


def host(data: Mapping[str, Any]) -> dict[str, float]:
    """Return the host's microseconds of warm calls, by where they are made."""
    measured = data.get("host", {})
    numbers = {name: value for name, value in measured.items() if isinstance(value, float)}
    return ({"C++": median(measured["C++"])} if measured else {}) | numbers
