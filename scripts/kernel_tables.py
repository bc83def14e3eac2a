"""The measured tables of docs/kernels/gemm-hopper.md, from the evidence:

    scripts/run python scripts/kernel_tables.py

writes them anew into the page, between ``<!-- measured: NAME -->`` and ``<!-- end -->``. A test compares the page with
the evidence, so that what was measured again must be written again. Until there is evidence the page says so.

| NAME | made from |
|---|---|
| shapes DTYPE, shapes DTYPE nt | `gemm-shapes.json`, by ``scripts/gemm_shapes.py`` |
| shapes DTYPE of FILE | another file that it made, such as `gemm-more.json` |
| ablation VARIANT | `gemm-ablation.json`, by its step ``ablate`` |
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EVIDENCE = ROOT / "results" / "evidence"
PAGE = ROOT / "docs" / "kernels" / "gemm-hopper.md"
PLACE = re.compile(r"(<!-- measured: (.+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
RIVALS = {"torch": "torch.mm", "cublaslt": "best of cuBLASLt"}


def filled(text: str, evidence: Path = EVIDENCE) -> str:
    """Return a page with every table as the evidence has it."""

    def fill(found: re.Match[str]) -> str:
        kind, _, name = found[2].partition(" ")
        body = {"shapes": shapes, "ablation": ablation}[kind](name, evidence)
        return f"{found[1]}{body}\n{found[4]}"

    return PLACE.sub(fill, text)


def read(evidence: Path, name: str) -> Any:
    """Return a file of the evidence; None where it is not there."""
    path = evidence / name
    return json.loads(path.read_text()) if path.is_file() else None


def link(name: str) -> str:
    """Refer to a file of the evidence."""
    return f"[{name}](../../results/evidence/{name})"


def rows(cells: Iterable[Iterable[str]]) -> str:
    """Write a table; the first row is its head."""
    lines = [f"| {' | '.join(line)} |" for line in cells]
    lines.insert(1, "|---" * (lines[0].count("|") - 1) + "|")
    return "\n".join(lines)


# -- how fast


def shapes(kind: str, evidence: Path) -> str:
    """Write the products of one dtype and layout beside cuBLAS."""
    kind, _, other = kind.partition(" of ")
    dtype, _, layout = kind.partition(" ")
    name = other or "gemm-shapes"
    found = read(evidence, f"{name}.json")
    timed = [
        one
        for one in (found or {}).get("problems", [])
        if (one["dtype"], one["layout"]) == (dtype, layout or "nn") and one["race"].get("ours")
    ]
    if found is None or not timed:
        return f"Not measured yet: `scripts/gemm_shapes.py --dtypes {dtype}` writes this table."
    head = [
        *("m x n x k", "mode", "best, us", "TFLOP/s", *RIVALS.values(), "sustained", "found in", "variant"),
    ]
    columns = list(zip(head, *(_shape(one) for one in timed), strict=True))
    body = list(zip(*(column for column in columns if set(column[1:]) != {"-"}), strict=True))
    means = [text for name in RIVALS if (text := _mean(name, timed))]
    where = f"{found['gpu']}, {dtype}, layout {timed[0]['layout']}, rested ({link(f'{name}.txt')})."
    return f"{where} {' '.join(means)}\n\n{rows(body)}"


def _shape(one: dict[str, Any]) -> list[str]:
    race, sustained = one["race"], one["sustained"].get("rivals", {})
    return [
        " x ".join(str(one[length]) for length in "mnk"),
        race["mode"],
        f"{race['ours']['time_ns'] / 1e3:.2f}",
        f"{race['ours']['tflops'] or 0:.1f}",
        *(_against(race["rivals"].get(name)) for name in RIVALS),
        f"{sustained['torch']['ratio']:.3f}" if "torch" in sustained else "-",
        f"{one['search']['seconds']:.0f} s",
        f"`{race['variant']}`",
    ]


def _against(rival: dict[str, Any] | None) -> str:
    return f"{rival['ratio']:.3f}, {rival['verdict']}" if rival else "-"


def _mean(name: str, timed: list[dict[str, Any]]) -> str:
    """Say the geometric mean over the shapes whose rows are whole 16 bytes."""
    even = [one for one in timed if one["n"] % 8 == 0 and one["k"] % 8 == 0]
    ratios = [one["race"]["rivals"][name]["ratio"] for one in even if name in one["race"]["rivals"]]
    if not ratios:
        return ""
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return f"Geometric mean over the {len(ratios)} shapes with whole rows, against {RIVALS[name]}: **{mean:.3f}**."


# -- what each choice is worth


def ablation(variant: str, evidence: Path) -> str:
    """Write what each choice of a variant's winners is worth, a column for each product."""
    found = [one for one in read(evidence, "gemm-ablation.json") or [] if one["variant"] == variant]
    if not found:
        return f"Not measured yet for `{variant}`: `scripts/gemm_shapes.py --steps search,ablate` writes this table."
    columns = [{choice["parameter"]: choice for choice in one["choices"]} for one in found]
    names = dict.fromkeys(name for column in columns for name in column)
    several = len({_dtype(one) for one in found}) > 1
    head = ["parameter", *(_product(one) + (f", {_dtype(one)}" if several else "") for one in found)]
    body = [
        [f"`{name}`", *(_choice(column[name]) if name in column else "-" for column in columns)]
        for name in sorted(names, key=lambda name: -max(_worth(column.get(name)) for column in columns))
    ]
    where = f"{found[0]['gpu']}, {_conditions(found)}"
    return f"{where} ({link('gemm-ablation.txt')}).\n\n{rows([head, *body])}"


def _conditions(found: list[dict[str, Any]]) -> str:
    """Say how the products were timed; where not all the same way, which how."""
    same = [_dtype(one) for one in found] + [one["regime"] for one in found]
    modes = dict.fromkeys(one["mode"] for one in found)
    which = [
        f"{mode}: {', '.join(dict.fromkeys(_product(one) for one in found if one['mode'] == mode))}"
        for mode in modes
    ]
    return f"{', '.join(dict.fromkeys(same))}, {'; '.join(which if len(modes) > 1 else modes)}"


def _product(one: dict[str, Any]) -> str:
    return " x ".join(str(one["problem"]["sizes"][length]) for length in "mnk")


def _dtype(one: dict[str, Any]) -> str:
    return str(one["problem"]["dtypes"]["input"])


def _worth(choice: dict[str, Any] | None) -> float:
    return (choice or {}).get("worth") or 0.0


def _choice(choice: dict[str, Any]) -> str:
    """Say what was chosen, and what the best of the others costs."""
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


def main() -> None:
    text = PAGE.read_text()
    new = filled(text)
    if new != text:
        PAGE.write_text(new)
    print(f"{PAGE.relative_to(ROOT)}: {'written anew' if new != text else 'as it was'}")


if __name__ == "__main__":
    main()
