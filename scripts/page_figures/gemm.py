"""Products of matrices beside cuBLAS, what each choice of a winner is worth, and a portfolio of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from statistics import geometric_mean
from typing import Any

from scripts.harness import quantiles
from scripts.page_figures.evidence import Rows, load, per_cent, table, us, without_empty_columns

LIBRARIES = {"torch": "torch.mm", "cublaslt": "best of cuBLASLt"}
IN_THE_README = (
    *((8192, 8192, 8192), (4096, 4096, 4096), (512, 512, 512), (4096, 11008, 4096)),
    *((1, 8192, 8192), (512, 512, 65536), (4095, 4097, 4093)),
)

Problem = dict[str, Any]


def raced(file: str, dtype: str, layout: str = "nn") -> list[Problem]:
    """Return the problems of one dtype and layout that were timed."""
    return [
        one
        for one in load(file)["problems"]
        if (one["dtype"], one["layout"]) == (dtype, layout) and one["race"].get("ours")
    ]


def aligned(problems: list[Problem]) -> list[Problem]:
    """Return those whose rows are whole 16 bytes."""
    return [one for one in problems if one["n"] % 8 == one["k"] % 8 == 0]


def mean(problems: list[Problem], *libraries: str, step: str = "race") -> float:
    """Return the geometric mean of a library's time over ours; of several libraries the faster counts; NaN of none."""
    timed = [one[step].get("rivals", {}) for one in problems]
    ratios = [min(one[name]["ratio"] for name in libraries) for one in timed if {*libraries} <= one.keys()]
    return geometric_mean(ratios) if ratios else math.nan


def size(one: Problem) -> str:
    return " x ".join(str(one[length]) for length in "mnk")


# -- how fast


def shapes(dtype: str, layout: str = "nn", file: str = "gemm-shapes") -> str:
    """Return the products of one dtype and layout beside cuBLAS, and the means."""
    problems = raced(file, dtype, layout)
    head = ["m x n x k", "mode", "best, us", "TFLOP/s", *LIBRARIES.values()]
    rows = without_empty_columns(_rows(problems, *head, "torch.mm, back to back", "found in", "variant"))
    whole = aligned(problems)
    means = ", ".join(f"**{mean(whole, library):.3f}** to {name}" for library, name in LIBRARIES.items())
    where = f"{load(file)['gpu']}, {dtype}, layout {layout}, rested"
    evidence = f"[{file}.txt](../../results/evidence/{file}.txt)"
    return (
        f"{where} ({evidence}). Geometric mean over the {len(whole)} shapes with aligned rows: {means}."
        f"\n\n{table(rows)}"
    )


def _rows(problems: Iterable[Problem], *columns: str) -> Rows:
    """Return a table of problems: its head, and a row for each."""
    return [[*columns], *([CELLS[column](one) for column in columns] for one in problems)]


def _against(one: Problem, library: str, step: str = "race") -> str:
    found = one.get(step, {}).get("rivals", {}).get(library)
    return f"{found['ratio']:.3f}, {found['verdict']}" if found else "-"


CELLS: dict[str, Callable[[Problem], str]] = {
    "m x n x k": size,
    "dtype": lambda one: one["dtype"],
    "layout": lambda one: one["layout"],
    "mode": lambda one: one["race"]["mode"],
    "best, us": lambda one: us(one["race"]["ours"]["time_ns"]),
    "time, us": lambda one: us(one["race"]["ours"]["time_ns"]),
    "TFLOP/s": lambda one: f"{one['race']['ours']['tflops'] or 0:.1f}",
    "torch.mm": lambda one: _against(one, "torch"),
    "best of cuBLASLt": lambda one: _against(one, "cublaslt"),
    "speedup over `torch.mm`": lambda one: "{ratio:.3f} ({verdict})".format(**one["race"]["rivals"]["torch"]),
    "torch.mm, back to back": lambda one: _against(one, "torch", "warm"),
    "found in": lambda one: f"{one['search']['seconds']:.0f} s",
    "variant": lambda one: f"`{one['race']['variant']}`",
}
"""What a column says of a problem."""


def summary() -> str:
    """Return what the tables of shapes come to in bfloat16: a row for each question, a column for each layout."""
    by_layout = {layout: raced("gemm-shapes", "bfloat16", layout) for layout in ("nn", "nt", "tn", "tt")}
    found = {layout: aligned(problems) for layout, problems in by_layout.items() if problems}
    questions: dict[str, Callable[[list[Problem]], str]] = {
        "as tuned, faster than `torch.mm`": lambda p: _counted(p, "torch", "faster"),
        "slower than `torch.mm`": lambda p: _counted(p, "torch", "slower"),
        "mean to `torch.mm`": lambda p: f"{mean(p, 'torch'):.3f}",
        "faster than the best of cuBLASLt's list": lambda p: _counted(p, "cublaslt", "faster"),
        "slower than the best of the list": lambda p: _counted(p, "cublaslt", "slower"),
        "mean to the best of the list": lambda p: f"{mean(p, 'cublaslt'):.3f}",
        "back to back, faster than `torch.mm`": lambda p: _counted(p, "torch", "faster", "warm"),
        "slower than `torch.mm`, back to back": lambda p: _counted(p, "torch", "slower", "warm"),
        "mean to `torch.mm`, back to back": lambda p: f"{mean(p, 'torch', step='warm'):.3f}",
    }
    rows = [[question, *(says(p) for p in found.values())] for question, says in questions.items()]
    return table([["of the shapes with aligned rows", *(f"layout {layout}" for layout in found)], *rows])


def _counted(problems: list[Problem], library: str, verdict: str, step: str = "race") -> str:
    rivals = [one[step].get("rivals", {}) for one in problems]
    verdicts = [one[library]["verdict"] for one in rivals if library in one]
    return f"{verdicts.count(verdict)} of {len(verdicts)}"


def _range(values: list[float], form: str) -> str:
    return f"{min(values):{form}} to {max(values):{form}}"


def versions() -> str:
    """Return what an earlier version of gemm takes over today's, by dtype, layout and timing."""
    kinds: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in load("gemm-versions")["rows"].values():
        if row["variant"]:
            continue  # a default configuration was not tuned
        dtype, _, *layout = row["problem"].split("-")
        timing = "back to back" if row["mode"] == "warm" else "as tuned"
        kinds.setdefault((dtype, *(layout or ["nn"]), timing), []).append(row)
    head = ["dtype", "layout", "timing", "problems", "old over new, mean", "least and most", "slower"]
    rows = []
    for kind, found in sorted(kinds.items()):
        timed = [one["ratios"]["new"] for one in found if one.get("ratios")]
        ratios = [one["median"] for one in timed]
        slower = sum(one["verdict"] == "slower" for one in timed)
        rows.append(
            [*kind, str(len(timed)), f"{geometric_mean(ratios):.3f}", _range(ratios, ".3f"), str(slower)]
        )
    return table([head, *rows])


def drawn() -> str:
    """Return the drawn products beside `torch.mm`, sorted by the ratio, and what they come to."""
    data = load("gemm-random")
    problems = [one for one in data["problems"] if "torch" in one["race"].get("rivals", {})]
    problems.sort(key=lambda one: one["race"]["rivals"]["torch"]["ratio"])
    head = (
        "m x n x k",
        "dtype",
        "layout",
        "mode",
        "best, us",
        "torch.mm",
        "torch.mm, back to back",
        "variant",
    )
    means = [f"{mean(problems, 'torch', step=step):.3f}" for step in ("race", "warm")]
    slower = [_counted(problems, "torch", "slower", step) for step in ("race", "warm")]
    where = f"{data['gpu']}, seed {data['drawn']['seed']}, rested"
    evidence = "[gemm-random.txt](../../results/evidence/gemm-random.txt)"
    behind = f"Slower than `torch.mm` as tuned: {slower[0]}; back to back: {slower[1]}."
    return (
        f"{where} ({evidence}). {behind} Geometric means: **{means[0]}** and **{means[1]}**."
        f"\n\n{table(_rows(problems, *head))}"
    )


def overview() -> str:
    """Return the README's table."""
    problems = raced("gemm-shapes", "bfloat16")
    shown = [one for one in problems if (one["m"], one["n"], one["k"]) in IN_THE_README]
    return table(_rows(shown, "m x n x k", "mode", "time, us", "TFLOP/s", "speedup over `torch.mm`"))


def mean_of(dtype: str, *libraries: str) -> str:
    """Return one mean over the shapes with aligned rows."""
    return f"{mean(aligned(raced('gemm-shapes', dtype)), *libraries):.3f}"


def search_seconds(dtype: str) -> str:
    """Return from how many seconds to how many the searches took."""
    return _range([one["search"]["seconds"] for one in raced("gemm-shapes", dtype)], ".0f")


# -- what each choice is worth


def ablation(variant: str) -> str:
    """Return what each choice of a variant's winners is worth, a column for each product."""
    found = [one for one in load("gemm-ablation") if one["variant"] == variant]
    columns = [{choice["parameter"]: choice for choice in one["choices"]} for one in found]
    names = dict.fromkeys(name for column in columns for name in column)
    ordered = sorted(names, key=lambda name: -max(_worth(column.get(name)) for column in columns))
    body: Rows = [
        [f"`{name}`", *(_choice(column[name]) if name in column else "-" for column in columns)]
        for name in ordered
    ]
    evidence = "[gemm-ablation.txt](../../results/evidence/gemm-ablation.txt)"
    where = f"{found[0]['gpu']}, {_conditions(found)} ({evidence})."
    return f"{where}\n\n{table([['parameter', *map(_product, found)], *body])}"


def _conditions(found: list[Problem]) -> str:
    """Return how the products were timed: all of them, or which how."""
    same = [one["problem"]["dtypes"]["input"] for one in found] + [one["regime"] for one in found]
    by_mode: dict[str, list[str]] = {}
    for one in found:
        by_mode.setdefault(one["mode"], []).append(_product(one))
    modes = [f"{mode}: {', '.join(products)}" for mode, products in by_mode.items()]
    return f"{', '.join(dict.fromkeys(same))}, {'; '.join(modes if len(modes) > 1 else by_mode)}"


def _product(one: Problem) -> str:
    return size(one["problem"]["sizes"])


def _worth(choice: dict[str, Any] | None) -> float:
    return (choice or {}).get("worth") or 0.0


def _choice(choice: dict[str, Any]) -> str:
    """Return what was chosen, and what the best of the others costs."""
    timed = [one for one in choice["alternatives"] if one["ratio"] is not None]
    if not timed:
        return f"{choice['value']}; no other is valid"
    best = min(timed, key=lambda one: one["ratio"])
    said = {"faster": f"{best['ratio']:.3f}", "slower": f"{best['ratio']:.3f}, better"}
    besides = "".join(f" with {name} {value}" for name, value in best["besides"].items())
    left_out = " *" if best["unsearched"] else ""
    return (
        f"{choice['value']}; {best['value']}{besides}{left_out}: {said.get(best['verdict'], best['verdict'])}"
    )


def alternative(shape: str, parameter: str, value: str, digits: str = "0") -> str:
    """Return how much longer a product takes with another value of one parameter, such as ``8192 raster hilbert``."""
    lengths = (shape.split("x") * 3)[:3]
    (ratio,) = (
        other["ratio"]
        for one in load("gemm-ablation")
        if [str(one["problem"]["sizes"][length]) for length in "mnk"] == lengths
        for choice in one["choices"]
        if choice["parameter"] == parameter
        for other in choice["alternatives"]
        if str(other["value"]) == value
    )
    return per_cent(ratio, int(digits))


# -- where the time of a deep product goes


def timeline() -> str:
    """Return when a launch of 512 x 512 x 65536 reaches each mark, in microseconds from its beginning."""
    found = load("deep-k")
    head = [f"us, SMs at {found['ghz']:.2f} GHz", "first block", "median", "last"]
    return table([head, *([mark, *(f"{us:.1f}" for us in times)] for mark, times in found["marks"].items())])


def counters() -> str:
    """Return what Nsight Compute counted of the same product, beside the two kernels of torch.mm."""
    kernels = load("deep-k")["kernels"]
    (ours,), (without,) = kernels["ours"], kernels["without gpc_locality"]
    products, sums = kernels["torch.mm"]
    columns = {
        "ours": ours,
        "without `gpc_locality`": without,
        "`torch.mm`: products": products,
        "`torch.mm`: sum": sums,
    }
    forms = {
        name: ",.0f" if name.startswith("sectors") else ".1f" for name in ours if "," in name or " " in name
    }
    body = [[name, *(format(one[name], form) for one in columns.values())] for name, form in forms.items()]
    return table([["", *columns], *body])


def held_out() -> str:
    """Return the figures of held-out problems, beside what is asked."""
    data = load("portfolio")
    figures, asked = data["summary"], data["asked"]
    timed = [row for row in data["problems"].values() if "error" not in row]
    rows: Rows = [[f"over {len(timed)} sizes that did not make it", "measured", "asked"]]
    for name, text in (("median", "median"), ("p95", "95th percentile"), ("worst", "worst")):
        rows.append([f"chosen over tuned by itself, {text}", f"{figures[name]:.3f}", f"{asked[name]:.2f}"])
    for layout, values in figures["layouts"].items():
        texts = ", ".join(f"{values[key]:.3f}" for key in ("median", "p95", "worst"))
        rows.append([f"{layout} alone: median, 95th percentile, worst", texts, ""])
    members = {
        "the fastest member over tuned by itself": [
            row["over_tuned"] / row["over_best_kept"] for row in timed
        ],
        "chosen over the fastest member": [row["over_best_kept"] for row in timed],
    }
    for text, ratios in members.items():
        texts = ", ".join(f"{value:.3f}" for value in quantiles(ratios).values())
        rows.append([f"{text}: median, 95th percentile, worst", texts, ""])
    right = sum(row["over_best_kept"] <= 1.01 for row in timed)
    rows.append(["chosen within 1 % of the fastest member", f"{right} of {len(timed)}", ""])
    rows.append(["slowdown that was expected, median", f"{figures['said']['median']:.3f}", ""])
    for name, text in (("invalid", "invalid"), ("slower_than_default", "slower than the default")):
        rows.append([text, str(figures[name]), "0"])
    rows.append(["cubins", str(figures["cubins"]), str(asked["cubins"])])
    rows.append(["seconds of the GPU", f"{figures['seconds']:.0f}", f"{asked['seconds']:.0f}"])
    return f"{table(rows)}\n\n{data['gpu']['name']}, driver {data['gpu']['driver']}."


def decisions() -> str:
    """Return how ways to decide do on measured sizes that are left out."""
    rows: Rows = [["what decides", "median", "95th percentile", "worst"]]
    for name, figures in load("portfolio")["decisions"].items():
        rows.append([name, *(f"{figures[key]:.3f}" for key in ("median", "p95", "worst"))])
    return table(rows)


def cubins() -> str:
    """Return what fewer cubins lose at measured sizes, each left out in turn."""
    rows: Rows = [["cubins", "median", "95th percentile", "worst"]]
    for one in load("portfolio")["curve"]:
        rows.append([str(one["cubins"]), *(f"{one[key]:.3f}" for key in ("median", "p95", "worst"))])
    return table(rows)
