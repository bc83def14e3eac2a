"""Winners timed in turn with libraries and defaults, and beside other tuners: ``teaching.json``, ``kernel-tuner.json``,
``kernel-tuner-examples.json``, ``triton.json`` and ``triton-built.json``; kernels of models: ``products.json`` and
``models.json``."""

from __future__ import annotations

from statistics import geometric_mean
from typing import Any

from scripts.page_figures.evidence import Rows, load, table, us

COLUMNS = {
    "vector_add": {"default": "default", "torch": "torch", "Thrust": "thrust_vector_add"},
    "saxpy": {"default": "default", "torch": "torch", "Thrust": "thrust_saxpy"},
    "transform": {"default": "default", "Thrust": "thrust_transform", "CUB": "cub_transform"},
    "reduce": {"default": "default", "torch": "torch", "CUB": "cub_sum"},
}
"""For each kernel the columns of its table, and what they are called in the evidence."""
HELIONS = {
    name: f"Helion's {name}" for name in ("cross_entropy", "layer_norm", "rms_norm", "silu_mul", "softmax")
}
"""Baselines that are Helion's kernels."""
CUBE = "groups=1024,vectors=1024,length=1024"
DATA_SHEET_GB_S = 4800
"""Of an H200's memory."""

Race = dict[str, dict[str, Any]]


def race(kernel: str, dtype: str, problem: str, *options: str) -> Race:
    """Return what one winner was timed in turn with, by name."""
    wanted = (kernel, dtype, problem, list(options))
    rows = [
        one
        for one in load("teaching")
        if (one["kernel"], one["dtype"], one["problem"], one["options"]) == wanted
    ]
    by_name = {row["rival"]: row for row in rows}
    assert by_name and len(by_name) == len(rows), f"no race of {wanted}, or two"
    return by_name


def means(rows: list[dict[str, Any]], *, options: bool) -> str:
    """Return the geometric mean over each baseline of each kernel, with the least; warm runs are apart.

    Args:
        rows: of ``teaching.py``.
        options: whether a kernel's options are apart, too.
    """
    ratios: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        mode = "warm" if row["mode"] == "warm" else "cold or rotating"
        kernel = " ".join([row["kernel"], *(row["options"] if options else ())])
        ratios.setdefault((kernel, row["rival"], mode), []).append(row["ratio"])
    lines: Rows = [["kernel", "baseline", "mode", "shapes", "mean", "least"]]
    for key, each in sorted(ratios.items()):
        lines.append([*key, str(len(each)), f"{geometric_mean(each):.3f}", f"{min(each):.3f}"])
    return table(lines)


def beside(kernel: str) -> str:
    """Return the means of a kernel of models, those of a product by its options, and the GPUs."""
    for file in ("products", "models"):
        if rows := [row for row in load(file) if row["kernel"] == kernel]:
            break
    named = [{**row, "rival": HELIONS.get(row["rival"], row["rival"])} for row in rows]
    gpus = ", ".join(dict.fromkeys(row["gpu"] for row in rows))
    modes = "[what the modes mean](../measuring.md#modes-what-the-caches-hold)"
    evidence = f"[{file}.txt](../../results/evidence/{file}.txt)"
    return f"{means(named, options=file == 'products')}\n\n{gpus} ({evidence}; {modes})."


def _layout(configuration: dict[str, Any]) -> str:
    name = f"`{configuration['variant']}`"
    if "stream_warps" in configuration:
        tile = f"{configuration['block_m']} x {configuration['block_n']}"
        return f"{name}, {configuration['stream_warps']} streaming warps, tiles of {tile}"
    if "tile_bytes" in configuration:
        stages, size = configuration["stages"], configuration["tile_bytes"]
        ring = f"{stages} stages of {size} bytes" if stages > 1 else f"one tile of {size} bytes"
        return f"{name}, {ring}{', and a bulk store' if configuration['bulk_store'] else ''}"
    side = ", side by side" if configuration.get("arrangement") == "blocked" else ""
    return f"{name}, {configuration['items_per_thread']} x {configuration['vector_width']}{side}"


def _other(row: dict[str, Any] | None) -> str:
    if row is None:
        return "it is the default"
    return f"{us(row['rival_ns'])} ({row['ratio']:.3f}, {row['verdict']})"


def _line(rows: Race, *names: str) -> list[str]:
    best = next(iter(rows.values()))
    figures = [us(best["ours_ns"]), f"{best['gbytes_per_s']:.0f}"]
    return [*figures, *(_other(rows.get(name)) for name in names), _layout(best["configuration"])]


def races(kernel: str, dtypes: str, *exponents: str) -> str:
    """Return a kernel's winners at powers of two, beside the default and libraries."""
    columns = COLUMNS[kernel]
    several = "," in dtypes
    head = ["n", "mode", "best, us", "GB/s", *columns, "what is best"]
    rows: Rows = [["dtype", *head] if several else head]
    for dtype in dtypes.split(","):
        for exponent in exponents:
            found = race(kernel, dtype, f"n=2**{exponent}")
            mode = next(iter(found.values()))["mode"]
            cells = [f"2^{exponent}", mode, *_line(found, *columns.values())]
            rows.append([dtype, *cells] if several else cells)
    return table(rows)


def mean_matvec() -> str:
    """Return the winners of both kinds of products."""
    head = [
        "product",
        "mode",
        "best, us",
        "GB/s",
        "read pass",
        "times the read pass",
        "default",
        "torch",
        "what is best",
    ]
    rows: Rows = [head]
    for product in ("float32", "tf32"):
        found = race("mean_matvec", "float32", CUBE, f"product={product}")
        ours, rate, read, *others = _line(found, "read pass", "default", "torch")
        longer = f"{1 / found['read pass']['ratio']:.3f}"
        rows.append([product, found["read pass"]["mode"], ours, rate, read, longer, *others])
    return table(rows)


def overview() -> str:
    """Return the README's table: each kernel at the largest problem that most of them share."""
    head = [
        "2^28 elements, or 1024 x 1024 x 1024",
        "mode",
        "time, us",
        "of 4.8 TB/s",
        "speedup over",
    ]
    rows: Rows = [head]
    for kernel, dtype, names in (
        ("vector_add", "float32", {"torch": "torch", "Thrust": "thrust_vector_add"}),
        ("vector_add", "float16", {"torch": "torch", "Thrust": "thrust_vector_add"}),
        ("saxpy", "float32", {"torch": "torch", "Thrust": "thrust_saxpy"}),
        ("transform", "float16", {"CUB": "cub_transform", "Thrust": "thrust_transform"}),
        ("reduce", "float32", {"CUB": "cub_sum", "torch": "torch"}),
        ("mean_matvec", "float32", {"a pass that only reads": "read pass", "torch": "torch"}),
    ):
        problem = (CUBE, "product=float32") if kernel == "mean_matvec" else ("n=2**28",)
        found = race(kernel, dtype, *problem)
        best = next(iter(found.values()))
        others = [
            f"{name} {found[key]['ratio']:.3f} ({found[key]['verdict']})" for name, key in names.items()
        ]
        share = f"{100 * best['gbytes_per_s'] / DATA_SHEET_GB_S:.1f} %"
        link = f"[`{kernel}`](docs/kernels/{kernel}.md), {dtype}"
        rows.append([link, best["mode"], us(best["ours_ns"]), share, ", ".join(others)])
    return table(rows)


def figure(kernel: str, dtype: str, problem: str, *rest: str) -> str:
    """Return one figure: a name and what, as ``torch ratio``, ``torch percent`` or ``torch verdict``; or ``us``,
    ``rate`` or ``share`` of the winner itself. Words with ``=`` before it are options."""
    options = [word for word in rest if "=" in word]
    *names, what = (word for word in rest if "=" not in word)
    found = race(kernel, dtype, CUBE if problem == "cube" else f"n={problem}", *options)
    row = found[" ".join(names)] if names else next(iter(found.values()))
    figures: dict[str, str] = {
        "ratio": f"{row['ratio']:.3f}",
        "inverse": f"{1 / row['ratio']:.3f}",
        "percent": f"{100 * (row['ratio'] - 1):.1f} %",
        "verdict": row["verdict"],
        "share": f"{100 * row['gbytes_per_s'] / DATA_SHEET_GB_S:.1f} %",
        "rate": f"{row['gbytes_per_s']:.0f} GB/s",
        "us": us(row["ours_ns"]),
        "difference": f"{(row['ours_ns'] - row['rival_ns']) / 1e3:.0f} us",
    }
    return figures[what]


def kernel_tuner() -> str:
    """Return how long a call of this tuner and one of Kernel Tuner take."""
    found = load("kernel-tuner")
    rows: Rows = [["elements", "answer given", "`tuner.tune`, s", "`tune_kernel`, s"]]
    for one in found["rows"]:
        seconds = [f"{one[whose]['seconds']:.1f}" for whose in ("ours", "kernel_tuner")]
        rows.append([f"{one['n']:,}".replace(",", " "), "yes" if one["answer"] else "no", *seconds])
    return table(rows)


def triton() -> str:
    """Return how long each takes from nothing to a kernel, and the speedups of ours over the others'."""
    rows: Rows = [
        ["problem", "GPU", "`tune`", "Triton's autotuner", "Helion"]
        + [f"speedup over {name}" for name in ("Triton", "Helion", "torch")]
    ]
    for one in load("triton"):
        (bench,) = one["bench"]
        by_name = {row["contestant"].partition(".py:")[0]: row for row in bench["contestants"]}
        over = [by_name.get(name) for name in ("kernels", "helion_kernels", "torch")]
        helion = one.get("helion")
        rows.append(
            [
                f"{one['kernel']} {' x '.join(map(str, one['sizes'].values()))}, {one['dtype']}",
                bench["gpu"].removeprefix("NVIDIA ").partition(" ")[0],
                f"{one['tune']['seconds']:.0f} s, {one['tune']['trials']} trials",
                f"{one['triton']['seconds']:.0f} s, {one['triton']['configurations']} configurations",
                f"{helion['seconds']:.0f} s, effort {helion['effort']}" if helion else "",
                *(f"{row['ratio']:.3f} ({row['verdict']})" if row else "" for row in over),
            ]
        )
    return table(rows)


def built() -> str:
    """Return how long a search of Triton's configurations takes here and in Triton, and how fast what they chose is."""
    rows: Rows = [
        [
            "kernel, whose search came first",
            "problem",
            "configurations",
            "`tuner.tune`, s",
            "Triton, s",
            "speedup",
        ]
    ]
    for one in load("triton-built"):
        theirs = one["bench"][0]["contestants"][1]
        rows.append(
            [
                one["kernel"].replace(" in Triton", ""),
                f"{' x '.join(map(str, one['sizes'].values()))}, {one['dtype']}",
                str(one["triton"]["configurations"]),
                *(f"{one[whose]['seconds']:.1f}" for whose in ("tune", "triton")),
                f"{theirs['ratio']:.3f} ({theirs['verdict']})",
            ]
        )
    return table(rows)


def examples() -> str:
    """Return the table of Kernel Tuner's examples: lines changed, best times of both tools, and seconds."""
    rows: Rows = [
        ["example", "lines changed", "kernel", "here", "Kernel Tuner", "seconds here", "Kernel Tuner"]
    ]
    for name, sides in load("kernel-tuner-examples")["examples"].items():
        ours, theirs = sides["ours"], sides.get("theirs", {"calls": [], "seconds": None})
        for number, call in enumerate(ours["calls"] or [{"kernel": "", "best_ms": None}]):
            other = theirs["calls"][number] if number < len(theirs["calls"]) else {"best_ms": None}
            first = number == 0
            rows.append(
                [
                    name if first else "",
                    str(ours["lines"]) if first else "",
                    call["kernel"],
                    _milliseconds(call["best_ms"]),
                    _milliseconds(other["best_ms"]),
                    f"{ours['seconds']:.0f}" if first else "",
                    f"{theirs['seconds']:.0f}" if first and theirs["seconds"] else "",
                ]
            )
    return table(rows)


def _milliseconds(time_ms: float | None) -> str:
    return "-" if time_ms is None else f"{time_ms:.4g} ms"
