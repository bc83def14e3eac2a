"""How often do races show, alone on the GPU and beside other work?

    scripts/run python scripts/measuring/races.py --out results/evidence/races.json [--times 200]

The kernels are those of ``tests/gpu/referee/races.cu``; each is run as the verification runs it.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

from scripts.harness import ROOT, run
from scripts.lab import Lab, keep, parser
from scripts.page_figures.measuring import races
from tuner.core.model import Configuration
from tuner.gpu.beside import Load
from tuner.kernel.contents import OTHER_POISONS
from tuner.kernel.load import load_kernel

KERNEL = ROOT / "tests" / "gpu" / "referee" / "races.toml"
RACES = {
    1: "a warp reads the others' sums without a barrier",
    2: "a tile is overwritten without a second barrier",
    3: "a block takes what another is meant to have written",
    0: "none of these",
}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--times", type=int, default=200, help="How often each kernel runs.")
    given = options.parse_args()
    with Lab() as lab:
        rows = _races(lab, given.times)
        keep(given.out, lab.gpu, races, times=given.times, rows=rows)


def _races(lab: Lab, times: int) -> list[dict[str, Any]]:
    kernel = load_kernel(str(KERNEL))
    problem = kernel.problem({}, {}, {})
    rows = []
    with lab.session(kernel, problem) as session:
        for race, says in RACES.items():
            with closing(
                lab.candidate(session, kernel, problem, Configuration.of("rows", {"RACE": race}))
            ) as one:
                first_ns, _ = session.first_run(one, 0.0)
                wrong = {
                    load.name.lower() if load else "alone": sum(
                        not session.first_run(one, first_ns, OTHER_POISONS[0], load)[1].passed
                        for _ in range(times)
                    )
                    for load in (None, *Load)
                }
            rows.append({"race": says, "wrong": wrong})
    return rows


if __name__ == "__main__":
    run(main)
