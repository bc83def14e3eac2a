"""Write the measured figures of the README and of docs/ from results/evidence, and the options from the commands' help:

    scripts/run python scripts/pages.py            # rewrite the pages
    scripts/run python scripts/pages.py --check    # say what differs; exits 1 if anything does

A page has a figure between markers, a table on lines of its own or a few words inside a sentence:

    <!-- figures: NAME WORDS -->
    | ... |
    <!-- end -->

    ... takes <!-- figures: step gemm 4096 naive time -->61.31 ms<!-- end --> ...

:data:`FIGURES` has the names; the words are their functions' arguments, split as a shell does. After a new measurement,
run this. A test fails where a page differs from what this writes.
"""

from __future__ import annotations

import difflib
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from scripts.page_figures import (
    commands,
    faults,
    gemm,
    ladders,
    measuring,
    printed,
    program,
    races,
    search,
)

ROOT = Path(__file__).resolve().parents[1]
MARKED = re.compile(r"(<!-- figures: ([^>]+?) -->)(.*?)(<!-- end -->)", re.DOTALL)
LEFT_OVER = re.compile(r"<!-- (?:figures: [^>]*|end) -->")

FIGURES: dict[str, Callable[..., str]] = {
    "ablation": gemm.ablation,
    "alternative": gemm.alternative,
    "calls": program.races,
    "calls-host": program.host,
    "chaos": faults.chaos,
    "deep-counters": gemm.counters,
    "decoder-passes": program.passes,
    "decoder-products": program.products,
    "decoder-ratio": program.ratio,
    "deep-timeline": gemm.timeline,
    "fleet": faults.simulated,
    "fleet-measured": faults.measured,
    "gemm-drawn": gemm.drawn,
    "gemm-mean": gemm.mean_of,
    "gemm-overview": gemm.overview,
    "gemm-seconds": gemm.search_seconds,
    "gemm-shapes": gemm.shapes,
    "gemm-summary": gemm.summary,
    "gemm-versions": gemm.versions,
    "gpu-faults": faults.gpu_faults,
    "hostile": faults.hostile,
    "kernel-tuner": races.kernel_tuner,
    "kernel-tuner-examples": races.examples,
    "ladder": ladders.ladder,
    "step": ladders.figure,
    "step-ratio": ladders.ratio,
    "step-percent": ladders.percent,
    "portfolio": gemm.held_out,
    "portfolio-decisions": gemm.decisions,
    "race": races.figure,
    "races": races.races,
    "races-mean_matvec": races.mean_matvec,
    "races-overview": races.overview,
    "freshness": measuring.freshness,
    "honest": measuring.honest,
    "modes": measuring.modes,
    "race-cost": measuring.race_cost,
    "spread": measuring.spread,
    "tools": measuring.tools,
    "torch-operators": program.operators,
    "triton": races.triton,
    "twins": measuring.twins,
    "worst-claim": measuring.worst_claim,
    "search-median": search.median,
    "search-others": search.others,
    "search-own": search.own,
    "search-parts": search.without,
    "search-rivals": search.rivals,
    "search-seeded": search.from_initial,
    "search-stop": search.stopping,
    "search-taught": search.taught,
    "commands": commands.overview,
    "reference": commands.reference,
    "exam": faults.exam,
    "benched": printed.benched,
    "example": printed.example,
    "excerpt": printed.excerpt,
    "explained-steps": printed.explained_steps,
    "python-example": printed.python_example,
    "found": printed.found,
    "front": printed.front,
    "sanitized": printed.sanitized,
    "table-in": printed.table_in,
}


def pages() -> Iterator[Path]:
    """Return the pages that may have figures."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))


def filled(text: str) -> str:
    """Return a page with every figure as the evidence has it.

    Raises:
        ValueError: a marker without its end, or a name that no figure has.
    """

    def fill(found: re.Match[str]) -> str:
        begin, said, before, end = found.groups()
        name, *words = shlex.split(said)
        if name not in FIGURES:
            raise ValueError(f"no figure is called {name}: {', '.join(sorted(FIGURES))}")
        new = FIGURES[name](*words)
        return f"{begin}\n{new}\n{end}" if before.startswith("\n") else f"{begin}{new}{end}"

    if stray := LEFT_OVER.search(MARKED.sub("", text)):
        raise ValueError(f"a marker without the other: {stray[0]}")
    return MARKED.sub(fill, text)


def differences() -> dict[Path, str]:
    """Return the pages that are not what the evidence says, and what they should be."""
    written = {page: page.read_text(encoding="utf-8") for page in pages()}
    return {page: new for page, text in written.items() if (new := filled(text)) != text}


def main() -> int:
    check = "--check" in sys.argv[1:]
    for page, new in differences().items():
        name = str(page.relative_to(ROOT))
        if check:
            old = page.read_text(encoding="utf-8")
            sys.stdout.writelines(
                difflib.unified_diff(old.splitlines(True), new.splitlines(True), name, name, n=0)
            )
        else:
            page.write_text(new, encoding="utf-8")
            print(f"{name}: written")
    return 1 if check and differences() else 0


if __name__ == "__main__":
    sys.exit(main())
