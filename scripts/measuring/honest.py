"""How often honest kernels are refused because their fresh launches take longer: the default of every variant.

    scripts/run python scripts/measuring/honest.py --out results/evidence/honest.json [--runs 3]

The kernels are those of the library, of docs/examples and of ``tests/gpu/referee/honest.toml``; cold and rotating. Of
the comparison nearest to its limit the claim is kept, too, and what the fastest quarter of fresh launches took.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

from scripts.harness import run
from scripts.lab import Lab, keep, parser, unfinished
from scripts.page_figures.measuring import share_of_limit
from tuner.core.conditions import Mode
from tuner.core.model import Status
from tuner.gpu.candidate import Timed
from tuner.gpu.freshness import Comparison, Freshness
from tuner.gpu.measure import CandidateMeasurement
from tuner.gpu.problem import ProblemSession
from tuner.kernel.load import builtin_kernels, load_kernel
from tuner.kernel.space import SearchSpace

ROOT = Path(__file__).parents[2]
OWN = (*sorted((ROOT / "docs/examples").glob("*/*.toml")), ROOT / "tests/gpu/referee/honest.toml")


class Kept(Freshness):
    """A comparison that keeps, of the claim nearest to its limit, its time, that of fresh launches, and how many."""

    def __init__(self, session: ProblemSession) -> None:
        super().__init__(session)
        self.nearest: tuple[float, float, int] | None = None

    def objection(self, timed: Timed, claimed_ns: float, first: Comparison | None) -> str:
        """Keep a claim if it is the nearest, and say what speaks against it."""
        if first is not None:
            claim = (claimed_ns, first.quick_ns, first.launches)
            claims, mode = (claim, self.nearest or claim), self._session.conditions.mode
            self.nearest = max(claims, key=lambda one: share_of_limit(one, mode))
        return super().objection(timed, claimed_ns, first)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=3)
    given = options.parse_args()
    with Lab() as lab, unfinished(given.out, lab.gpu.name) as kept:
        for name in (*builtin_kernels(), *OWN):
            kernel = load_kernel(str(name))
            problem = kernel.problem({}, {}, {})
            space = SearchSpace.from_kernel(kernel, problem, lab.gpu)
            for mode in (Mode.COLD, Mode.ROTATING):
                with lab.session(kernel, problem, mode) as session:
                    for variant in space.variants:
                        key = f"{kernel.name} {variant.name} {mode}"
                        if not len(variant) or key in kept.data:
                            continue
                        default = variant.configuration(variant.nearest_to({}))
                        with closing(lab.candidate(session, kernel, problem, default)) as loaded:
                            freshness = Kept(session)
                            measurement = CandidateMeasurement(session, lambda: False, freshness)
                            found = [
                                measurement.measure(loaded, 0.0, thorough=True, verify_only=False)
                                for _ in range(given.runs)
                            ]
                        row = {
                            "kernel": kernel.name,
                            "variant": variant.name,
                            "mode": str(mode),
                            "statuses": Counter(str(one.status) for one in found),
                            "claim": freshness.nearest,
                            "reasons": [one.error for one in found if one.status is not Status.OK],
                        }
                        print(row, flush=True)
                        kept.keep(**{key: row})
        rows = [*kept.data.values()]
        refused = sum(row["statuses"].get(str(Status.REPEATS), 0) for row in rows)
        print(f"{len(rows)} configurations, {given.runs} runs each: {refused} refused")
        keep(given.out, lab.gpu, runs=given.runs, refused=refused, rows=rows)


if __name__ == "__main__":
    run(main)
