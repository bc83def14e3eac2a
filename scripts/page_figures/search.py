"""How good the search is: by ``benchmark.py`` on recorded spaces, and by ``winners.py`` on a GPU."""

from __future__ import annotations

import re
from typing import Any

from scripts.page_figures.evidence import Rows, load, table, text

DEFAULT = "gp-ei"
OWN = {
    "gemm, 4096, float16": "gemm,m=4096,n=4096,k=4096,float16,layout=nn",
    "gemm, 2048, float16": "gemm,m=2048,n=2048,k=2048,float16",
    "gemm, 4096, float32": "gemm,m=4096,n=4096,k=4096,float32",
    "gemm, 1024, bfloat16": "gemm,m=1024,n=1024,k=1024,bfloat16,layout=nn",
    "mean_matvec, float32": "product=float32",
    "reduce, 2^20": "reduce,n=1048576,",
    "vector_add, 2^20": "vector_add,n=1048576,",
}


def _spaces(name: str, sampler: str = DEFAULT) -> dict[str, Any]:
    found = load(name)["samplers"][sampler]
    return {**found["spaces"], "all runs": found["all"]}


def _median(one: dict[str, Any]) -> str:
    return f"{one['to_5_percent']:g}"


def others() -> str:
    """Return the evaluations that six spaces of other people's kernels take."""
    ours, batch, tpe = _spaces("search-others"), _spaces("search-batch"), _spaces("search-baselines", "tpe")
    head = [
        "space",
        "to 5 %",
        "9 of 10 runs",
        "at 25",
        "at 50",
        "at 100",
        "batches of 8, to 5 %",
        "`tpe`, to 5 %",
    ]
    rows: Rows = [head]
    for space, one in ours.items():
        both = list(zip(one["fraction_median"], one["fraction_p10"], strict=True))[:3]
        shares = [f"{median:.3f} / {low:.3f}" for median, low in both]
        worst = f"{one['to_5_percent_p90']:g}"
        rows.append([space, _median(one), worst, *shares, _median(batch[space]), _median(tpe[space])])
    return table(rows)


def own() -> str:
    """Return the evaluations that our own recordings take, by sampler."""
    samplers = {"`gp-ei`": "gp-ei", "`tpe`": "tpe", "`random`": "random"}
    rows: Rows = [["space", *samplers]]
    for name, part in OWN.items():
        cells = []
        for sampler in samplers.values():
            (one,) = (one for space, one in _spaces("search-own", sampler).items() if part in space)
            cells.append(_median(one))
        rows.append([name, *cells])
    return table(rows)


def median(name: str, sampler: str = DEFAULT) -> str:
    """Return a sampler's median over the spaces of one file of the evidence."""
    return f"{load(name)['samplers'][sampler]['headline']:.1f}"


def stopping(name: str, *patience: str) -> str:
    """Return what stopping costs and saves by one file of the evidence, for some numbers of proposals in a row."""
    head = [
        "in a row",
        "saved",
        "same best",
        "lost more than the noise floor",
        "mean loss",
        "worst loss",
    ]
    rows: Rows = [head]
    for count in patience:
        _, _, _, saved, same, beyond_noise, mean, _, worst = _stopped(name, count)["all runs"]
        rows.append([count, saved, same, beyond_noise, mean, worst])
    return table(rows)


def _stopped(name: str, patience: str) -> dict[str, list[str]]:
    """Return a file's first table for a patience: cells by space."""
    printed = text(f"{name}.txt")
    block = printed.split(f"noise floor 0.2 %, {patience} proposals in a row\n")[1].split("\n\n")[0]
    tidy = {"%": " %", "/": " of "}
    cells = {}
    for space, line in re.findall(r"^(\S+(?: runs)?)  +(\d.*)$", block, re.MULTILINE):
        words = line.replace(" %", "%").split()
        cells[space] = [re.sub("[%/]", lambda found: tidy[found[0]], word) for word in words]
    return cells


def without(part: str) -> str:
    """Return how many times as many evaluations to 5 % a search takes with another setting."""
    found = re.search(rf"^gp-ei\+\S*{part}\S*: to 5% (\S+)", text("search-parts.txt"), re.MULTILINE)
    assert found is not None
    return f"{float(found[1]):.2f}"


def _blocks(name: str) -> dict[str, str]:
    """Return what a file says of each sampler, taught or not, by the line above it."""
    return dict(re.findall(r"^(\S.*)\n(space  .*(?:\n.+)+)", text(name), re.MULTILINE))


def taught() -> str:
    """Return the evaluations that problems of gemm take, taught by none, one and three of the others."""
    arms = [
        dict(re.findall(r"^gemm-H200:gemm,(\S+) +([\d.]+)", b, re.MULTILINE))
        for b in _blocks("search-taught.txt").values()
    ]
    rows: Rows = [["problem", "untaught", "taught by one", "taught by three"]]
    for problem in arms[0]:
        rows.append([problem.replace(",", ", "), *(f"{float(arm[problem]):g}" for arm in arms)])
    return table(rows)


def rivals() -> str:
    """Return how the default sampler and Kernel Tuner's strategies do on the six spaces."""
    rows: Rows = [["strategy", "to 5 %", "to 1 %", "hit", "score"]]
    for sampler, block in _blocks("search-kernel-tuner.txt").items():
        found = re.search(
            r"^all runs.*?(\d+)%.*to 5 %: (\S+)\n.*to 1 %: (\S+);.*score: (\S+)",
            block,
            re.MULTILINE | re.DOTALL,
        )
        assert found is not None
        hit, near, nearest, score = found.groups()
        name = "`gp-ei`" if sampler == DEFAULT else sampler.replace("Kernel Tuner: ", "Kernel Tuner, ")
        rows.append(
            [
                name,
                near.replace("-", "> 200"),
                nearest.replace("-", "> 200"),
                f"{hit} %",
                score.replace("-", "\u2212"),
            ]
        )
    return table(rows)


def winners(step: str) -> str:
    """Return how far winners are behind: in the mean, and where it is most."""
    of = load("winners")["summary"][step]
    behind = [f"{round(100 * (of[which] - 1), 1) + 0.0:.1f} %" for which in ("geomean", "worst")]
    return f"{of['problems']} problems, {behind[0]} in the mean, {behind[1]} at most ({of['worst_problem']})"


def from_initial() -> str:
    """Return what searches from scratch reach with the kernel's initial configurations, and without."""
    first_run = text("search-seeded.txt").split("The second run")[0]
    steps = ["5", "20", "end"]
    head = [
        "m x n x k",
        "initial",
        *(f"after {step}" for step in steps),
        *(f"without: {step}" for step in steps),
    ]
    rows: Rows = [[word.replace("after end", "at the end") for word in head]]
    for m, n, k, lines in re.findall(
        r"^gemm m=(\d+) n=(\d+) k=(\d+) .*\n(?:.*\n){2}((?:  \w.*\n)+)", first_run, re.MULTILINE
    ):
        arms = {words[0]: words[2:] for words in map(str.split, lines.splitlines())}
        rows.append([f"{m} x {n} x {k}", arms["kernel"][0], *_shares(arms["kernel"]), *_shares(arms["none"])])
    return table(rows)


def _shares(words: list[str]) -> list[str]:
    _, _, at_5, _, at_20, _, _, at_200 = words
    return [at_5, at_20, at_200]
