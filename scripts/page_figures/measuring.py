"""How far the timing can be relied on: what ``scripts/measuring/`` wrote."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.page_figures.evidence import load, table
from tuner.core.conditions import Mode
from tuner.gpu.freshness import CLAIM_APART_NS, CLAIM_FACTOR


def _us(time_us: float) -> str:
    return f"{time_us:.2f}" if time_us < 100 else f"{time_us:.1f}"


def modes() -> str:
    """Return one addition of vectors, timed in seven ways."""
    rows = load("modes")["rows"]
    names = list(rows[0]["us"])
    return table(
        [["elements", *names], *([f"2^{row['exponent']}", *map(_us, row["us"].values())] for row in rows)]
    )


def spread() -> str:
    """Return how far measurements of one product differ, in each regime."""
    found = load("spread")
    rows = [
        [
            name,
            f"{found[name]['median_us']:.0f} us",
            f"{100 * found[name]['spread']:.2f} %",
            f"{100 * found[name]['samples_within']:.1f} %",
        ]
        for name in ("rested", "sustained", "naive")
    ]
    head = ["", "median", "medians differ by", "samples of one measurement differ by up to"]
    return table([head, *rows])


def twins(kind: str) -> str:
    """Return the verdicts on pairs of kernels: ``equal`` ones, or ``slower`` ones that do a little more work."""
    rows = [row["verdicts"] for row in load("twins")["rows"] if (row["share"] == 0) == (kind == "equal")]
    counts = {word: sum(row[word] for row in rows) for word in ("faster", "same", "ambiguous", "slower")}
    verdicts = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{sum(counts.values())} comparisons: {verdicts}"


def tools() -> str:
    """Return the same calls, timed by several tools."""
    found = load("tools")["us"]
    names = list(next(iter(found.values())))
    return table([["", *names], *([call, *map(_us, times.values())] for call, times in found.items())])


def races() -> str:
    """Return how often a kernel with a race was wrong: alone, and beside each kind of other work."""
    rows = load("races")["rows"]
    loads = list(rows[0]["wrong"])
    head = ["", *(name.replace("_", " ") for name in loads)]
    return table([head, *([row["race"], *(str(row["wrong"][name]) for name in loads)] for row in rows)])


def race_cost(case: str) -> str:
    """Return what a race costs: seconds and rounds; ``different`` configurations, or the ``same`` several times."""
    rows = {"different": "eight configurations", "same": "one under eight names"}
    (row,) = (row for row in load("race-cost")["rows"] if row["case"] == rows[case])
    return f"{row['seconds']:.1f} s ({row['rounds']} rounds)"


def freshness() -> str:
    """Return what comparing fresh launches costs, how near to 1 honest ratios are, and what evict_last would gain."""
    found = load("freshness")
    costs = [
        [
            row["problem"],
            f"{100 * row['cost']:.1f} %",
            f"{row['compared']:.0f} of {row['configurations']}",
            f"{row['ratio']['least']:.3f} .. {row['ratio']['median']:.3f} .. {row['ratio']['most']:.3f}",
            str(row["refused"]),
        ]
        for row in found["rows"]
    ]
    heads = ["problem", "time of the measuring process", "compared", "fresh over repeated", "refused"]
    pinned = [
        [f"{row['mib']:.0f} MiB", _us(row["none_us"]), _us(row["set_aside_us"])]
        for row in found["persisting"]
    ]
    read = table([["read with `evict_last`, us", "none set aside", "L2 set aside"], *pinned])
    return f"{table([heads, *costs])}\n\n{read}"


def honest() -> str:
    """Return how many measurements of honest kernels were refused because their fresh launches take longer."""
    found = load("honest")
    return f"{found['refused']} of {len(found['rows']) * found['runs']} measurements were refused"


def share_of_limit(claim: Sequence[float], mode: Mode) -> float:
    """Return what fresh launches took of what they may take.

    Args:
        claim: the time that a kernel is ranked by, that of fresh launches, and how many launches they are.
        mode: of both.
    """
    claimed_ns, fresh_ns, launches = claim
    return fresh_ns / (CLAIM_FACTOR * claimed_ns + launches * CLAIM_APART_NS[mode])


def claims(mode: str) -> str:
    """Return how near the fresh launches of honest kernels came to what they may take."""
    shares = [
        share_of_limit(row["claim"], Mode(mode)) for row in load("honest")["rows"] if row["mode"] == mode
    ]
    return f"{100 * max(shares):.0f} % ({len(shares)} configurations)"


def worst_claim() -> str:
    """Return how far the worst of ten claims was from what was measured again."""
    return f"{100 * load('ten-runs')['worst']:.2f} %"
