"""Write the measured figures of the README and of docs/ from results/evidence, and the options from the commands' help:

    scripts/run python scripts/pages.py            # rewrite the pages
    scripts/run python scripts/pages.py --check    # say what differs; exits 1 if anything does

A page has a figure between markers, a table on lines of its own or a few words inside a sentence:

    <!-- figures: NAME WORDS -->
    | ... |
    <!-- end -->

    ... takes <!-- figures: ladders.figure gemm 4096 naive time -->61.31 ms<!-- end --> ...

A name is a function of ``scripts/page_figures``, such as ``gemm.shapes``; the words are its arguments, split as a shell
does. After a new measurement, run this. A test fails where a page differs from what this writes.
"""

from __future__ import annotations

import difflib
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from inspect import isfunction
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

MODULES = (commands, faults, gemm, ladders, measuring, printed, program, races, search)
FIGURES: dict[str, Callable[..., str]] = {
    f"{module.__name__.rpartition('.')[2]}.{name}": function
    for module in MODULES
    for name, function in vars(module).items()
    if isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
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
