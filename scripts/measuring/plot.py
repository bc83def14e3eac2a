"""The figures of docs/measuring.md, drawn from what the scripts beside this one measured; no GPU is needed.

    scripts/run python scripts/measuring/plot.py results/evidence docs/images

Equal measurements give equal files: each SVG's identifiers come from a fixed salt, and no date is in it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from scripts import harness
from tuner.core.errors import TunerError
from tuner.report.plots import COLOURS, make_logarithmic, sheet

WIDTH = 9.0
"""Of a figure, in inches."""
RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
BLUE, ORANGE, GREEN, PINK, SKY, RED, GREY, BLACK = COLOURS
MODES = {
    "real rotation": ("real rotation, apart from the tuner", BLACK, "x", "solid"),
    "rotating": ("tuner: rotating", BLUE, "o", "solid"),
    "cold": ("tuner: cold, flushed by reading", SKY, "s", "solid"),
    "warm": ("tuner: warm", PINK, "P", "solid"),
    "cold behind real buffers": ("one call behind calls on other buffers", ORANGE, "^", "dashed"),
    "cold behind a memset": ("one call behind a memset", RED, "D", "dashed"),
    "no flush": ("one call, no flush", GREY, "v", "dotted"),
}
"""What each is called, its colour, marker and line."""
REGIMES = {
    "naive": ("events on a stream, no rest", RED, "D"),
    "sustained": ("tuner: cold, sustained", GREEN, "s"),
    "rested": ("tuner: cold, rested", BLUE, "o"),
}
SHARES = {
    0.0: ("the same kernel twice", BLUE),
    0.005: ("0.5 % more work", ORANGE),
    0.01: ("1 % more work", RED),
}
LINEAR = 5.0
"""Percent up to which differences are drawn to scale."""
BIN = 0.02
"""Width of a bin of ratios, in percent."""
PERCENT = (-50, -20, -10, -5, 0, 5, 10, 20, 50, 100, 200, 500)


def main() -> None:
    options = harness.parser(__doc__)
    add = options.add_argument
    add("evidence", type=Path, help="Folder of the measurements.")
    add("images", type=Path, help="Folder of the figures.")
    given = options.parse_args()
    drawings: dict[str, Callable[[Any, Path], None]] = {
        "modes": modes, "twins": twins, "spread": spread
    }  # fmt: skip
    given.images.mkdir(parents=True, exist_ok=True)
    for name, draw in drawings.items():
        source, image = given.evidence / f"{name}.json", given.images / f"{name}.svg"
        if not source.exists():
            sys.exit(f"{source} is missing; docs/measuring.md says what makes it")
        try:
            draw(json.loads(source.read_text(encoding="utf-8")), image)
        except TunerError as error:
            sys.exit(str(error))
        print(f"{image}: {image.stat().st_size / 1e3:.0f} KB")


def modes(data: Any, image: Path) -> None:
    """Draw time over size in each mode, and below it the difference from a rotation written apart."""
    rows = data["rows"]
    exponents = [row["exponent"] for row in rows]
    times = {name: [row["us"][name] for row in rows] for name in MODES}
    off = {
        name: [percent(t / t0) for t, t0 in zip(times[name], times["real rotation"], strict=True)]
        for name in MODES
    }
    with sheet(image, WIDTH, 9.0, 2, "both", heights=(3, 2)) as (_, (upper, lower)):
        for name, (said, colour, marker, line) in MODES.items():
            style = {"color": colour, "marker": marker, "linestyle": line, "markersize": 5.5}
            upper.plot(exponents, times[name], label=said, **style)
            lower.plot(exponents, off[name], zorder=3 if name == "rotating" else 2, **style)
        for what in ("between two events", "in a batch"):
            empty = data["empty_us"][what]
            upper.axhline(empty, color="#666666", linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
            said = f"empty kernel {what}: {empty:.2g} us"
            upper.text(exponents[-1], 1.03 * empty, said, va="bottom", ha="right", fontsize=8)
        make_logarithmic(upper, "y", (1.0, 2.0, 5.0))
        upper.set_ylim(data["empty_us"]["in a batch"] / 1.4, 1.5 * max(map(max, times.values())))
        upper.set_ylabel("time (us), logarithmic")
        upper.set_title(
            f"c = a + b in float32, 16-byte loads: one kernel timed in seven ways on {data['gpu']}"
        )
        upper.legend(frameon=False, loc="upper left")
        lower.set_yscale("symlog", linthresh=LINEAR, linscale=1.0)
        low, high = min(map(min, off.values())), max(map(max, off.values()))
        lower.set_ylim(1.4 * min(low, -LINEAR), 1.4 * max(high, LINEAR))
        lower.set_yticks([tick for tick in PERCENT if 1.4 * low < tick < 1.4 * high])
        lower.set_yticks([], minor=True)
        lower.yaxis.set_major_formatter(signed)
        lower.set_ylabel(f"against real rotation;\nlinear to {LINEAR:g} %, then logarithmic")
        lower.set_xlabel("elements, and bytes of the three tensors")
        upper.sharex(lower)
        upper.tick_params(labelbottom=False)
        lower.set_xticks(exponents, [raised(f"2^{e}\n{in_bytes(12 << e)}") for e in exponents])


def twins(data: Any, image: Path) -> None:
    """Draw how the ratios of twins are distributed, case by case, with the noise floor of each."""
    rows = sorted(data["rows"], key=lambda row: row["share"])
    from matplotlib.patches import Patch

    with sheet(image, WIDTH, 1.9 + 0.5 * len(rows)) as (figure, (axes,)):
        tallest = max(max(_histogram(row)[1]) for row in rows)
        bottoms = [len(rows) - 1 - number for number in range(len(rows))]
        for bottom, row in zip(bottoms, rows, strict=True):
            floor = 100 * row["noise_floor"]
            axes.fill_between([-floor, floor], bottom, bottom + 0.94, color="#e2e2e2", linewidth=0, zorder=0)
            limits, counts = _histogram(row)
            heights = [bottom + 0.9 * count / tallest for count in counts]
            axes.stairs(heights, limits, baseline=bottom, fill=True, color=SHARES[row["share"]][1], zorder=2)
            axes.vlines(
                percent(row["ratio"]["median"]), bottom, bottom + 0.94, color=BLACK, linewidth=1.2, zorder=3
            )
            ordered = sorted(row["verdicts"].items(), key=lambda pair: -pair[1])
            verdicts = [f"{count} {verdict}" for verdict, count in ordered if count]
            across = axes.get_yaxis_transform()
            axes.text(1.01, bottom + 0.35, ", ".join(verdicts), transform=across, fontsize=9)
        axes.set_ylim(-0.1, len(rows))
        axes.set_yticks([bottom + 0.4 for bottom in bottoms], [_case(row) for row in rows])
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_formatter(signed)
        axes.set_xlabel(f"second twin's time against the first's, in bins of {BIN} %; black: the median")
        axes.set_title(
            f"Twins raced {rows[0]['times']} times each on {data['gpu']}, and the verdicts on the second"
        )
        handles = [Patch(color=colour, label=said) for said, colour in SHARES.values()]
        handles.append(Patch(color="#e2e2e2", label="noise floor"))
        figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)


def spread(data: Any, image: Path) -> None:
    """Draw the medians of one product over the minutes, with the range of the samples of each."""
    lines = data["lines"]
    minutes = [(line["time"] - lines[0]["time"]) / 60 for line in lines]
    with sheet(image, WIDTH, 5.2, grid="both") as (_, (axes,)):
        for number, (name, (said, colour, marker)) in enumerate(REGIMES.items()):
            shifted = [minute + (number - 1) * max(minutes) / 110 for minute in minutes]
            times, fastest, slowest = (
                [line[name][key] for line in lines] for key in ("us", "fastest", "slowest")
            )
            samples, apart = lines[0][name]["samples"], 100 * data[name]["spread"]
            label = f"{said}: medians (of {samples} samples each) within {apart:.2g} %"
            axes.vlines(shifted, fastest, slowest, color=colour, linewidth=2.5, alpha=0.45)
            axes.plot(shifted, times, color=colour, marker=marker, markersize=6, linewidth=1.0, label=label)
        low, high = axes.get_ylim()
        axes.set_ylim(low, high + 0.3 * (high - low))  # room for the legend
        axes.set_ylabel("time of one call (us); not from zero")
        axes.set_xlabel("minutes since the first measurement; bars: from the fastest sample to the slowest")
        axes.set_title(
            f"cuBLAS, 8192 x 8192 x 8192, bfloat16, measured {len(lines)} times on {lines[0]['gpu']}"
        )
        axes.legend(frameon=False, loc="upper left")


def _case(row: Mapping[str, Any]) -> str:
    return f"{row['case']}, {signed(100 * row['share'])}" if row["share"] else str(row["case"])


def _histogram(row: Mapping[str, Any]) -> tuple[list[float], list[int]]:
    """Return the limits of the bins, in percent from 1, and how many ratios are in each."""
    bins = [round(percent(ratio) / BIN) for ratio in row["ratios"]]
    numbers = range(min(bins), max(bins) + 1)
    limits = [(number - 0.5) * BIN for number in (*numbers, numbers[-1] + 1)]
    return limits, [bins.count(number) for number in numbers]


def percent(ratio: float) -> float:
    return 100 * (ratio - 1)


def signed(value: float, _: Any = None) -> str:
    return f"{value:+.3g} %".replace("-", "\u2212") if abs(value) > 1e-9 else "0"


def raised(text: str) -> str:
    """Write 2^10 as one does by hand."""
    return re.sub(r"\^(\d+)", lambda power: power[1].translate(RAISED), text)


def in_bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:g} {unit}"
        count /= 1024
    return f"{count:g} GiB"


if __name__ == "__main__":
    main()
