"""Products of many shapes, each tuned from scratch, then timed in turn with cuBLAS:

    scripts/run python scripts/gemm_shapes.py --out results/evidence
    scripts/run python scripts/gemm_shapes.py --layout nn,nt,tn,tt --time 8 --steps search,race,bits --seconds 540
    scripts/run python scripts/gemm_shapes.py --random 40 --random-seed 7 --time 8 --steps search,race --work drawn

For each shape, dtype and layout: `tune gemm --from-scratch --trials 200 --time 20`, with the seconds that it took; then
a race of the winner with `torch.mm` and with the best of cuBLASLt's own list (``scripts/rivals/cublaslt.py``), on the
same buffers, in the same graphs, in shuffled rounds: as it was tuned, cold or rotating, and then warm, back to back on
the same buffers; rested.

Every result is kept in ``--work`` as soon as it is there, and what is there is not measured again: the script can be
stopped, and started with ``--seconds`` for one piece after the other, also on another machine with the same card: what
it needs are the two files `gemm-shapes.*` of that folder. Needs torch.

``--random 40`` draws its problems (``shape_notes.py`` says how), by ``--random-seed``, which is kept and printed.

| step | does |
|---|---|
| search | tunes each problem from scratch |
| race | times the winners in turn beside both, rested: as they were tuned, and back to back |
| ablate | `tune ablate`: what each choice of some winners is worth |
| bits | runs each winner several times on the same inputs, and compares every bit (``scripts/same_bits.py``) |
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from scripts.harness import CommandError, listed, run, say, study_parser, tune, versions
from scripts.shape_notes import (
    ABLATED,
    CUBES,
    LAYOUTS,
    LISTED,
    SHAPES,
    Notes,
    Problem,
    Shape,
    raced,
    raced_text,
    report,
    searched,
)

HERE = Path(__file__).resolve().parent
CUBLASLT = HERE / "rivals" / "cublaslt.py"
SAME_BITS = HERE / "same_bits.py"
EACH = ("search", "race", "ablate")
STEPS = (*EACH, "bits")
FEWEST_ROUNDS = 6
BATCH = 8
"""Problems that are done together: one process races them, and loads torch once."""
RACE_S = 8.0
"""Roughly what the races of a problem take in both modes: no more are begun than there is time for."""


# -- the steps


class Study(Notes):
    """Does the steps, as far as the time goes.

    Args:
        given: of the command line.

    Attributes:
        wanted: all problems.
    """

    def __init__(self, given: argparse.Namespace) -> None:
        super().__init__(given.work, given.seconds)
        self._given = given
        self._jobs = ["--jobs", str(given.jobs)] if given.jobs else []
        self.wanted: Sequence[Problem] = ()

    def run(self, steps: Iterable[str]) -> None:
        """Do the steps that each problem takes for some at a time, so that those are whole, and then the others."""
        steps = list(steps)
        for group in groups(self.wanted, BATCH):
            for step in steps:
                if step in EACH:
                    self.attempt(step, partial(getattr(self, f"_{step}"), group))
        if "bits" in steps:
            for group in groups(self.wanted, max(1, len(self.wanted))):
                self.attempt("bits", partial(self._bits, group))

    def _left(self, step: str, group: Sequence[Problem]) -> Iterator[Problem]:
        """Return what is to be done of some problems, until the time is over."""
        for problem in group:
            if not self.has_time():
                return
            won = step == "search" or self.get(problem, "search").get("exportable")
            if won and not self.has(problem, step):
                yield problem

    def _search(self, group: Sequence[Problem]) -> None:
        limit = ["--time", str(self._given.time)] if self._given.time else []
        trials = ["--from-scratch", "--trials", str(self._given.trials), *limit]
        for problem in self._left("search", group):
            self.attempt(problem.key, partial(self._search_one, problem, trials))

    def _search_one(self, problem: Problem, trials: Sequence[str]) -> None:
        text, seconds = self._tuned(*problem.words, *trials, *self._jobs)
        found = json.loads(text or "[]")
        if found and not self.data["where"]:  # a race says more
            self.data["where"] = {"gpu": found[0]["gpu"], **versions()}
        command = " ".join(["tune gemm", *trials])
        self.note(problem, "search", {"command": command, "seconds": seconds, **searched(found)})
        say(f"{problem.key}: searched in {seconds:.0f} s")

    def _race(self, group: Sequence[Problem]) -> None:
        left = {*self._left("race", group), *self._left("warm", group)}
        group = [one for one in group if one in left]
        if not group or not self.has_time():
            return
        group = group[: max(1, int(min(self.left_s / RACE_S, BATCH)))]
        how = ("--rounds", str(self._given.rounds), "--mode", "auto", "--mode", "warm")
        shapes = [word for problem in group for word in ("--problem", problem.shape.problem)]
        against = ("--against", "torch", "--against", f"{CUBLASLT}:{LISTED}")
        text, _ = self._tuned("bench", *group[0].kind, *shapes, *against, *how)
        for bench in json.loads(text or "[]"):
            step = "warm" if bench["mode"] == "warm" else "race"
            for problem in (p for p in group if bench["problem"]["sizes"] == vars(p.shape)):
                self.data["where"] = {"gpu": bench["gpu"], "driver": bench["driver"], **versions()}
                self.note(problem, step, raced(bench))
                say(f"{problem.key}: {step}: {raced_text(self.get(problem, step))}")

    def _ablate(self, group: Sequence[Problem]) -> None:
        rounds = ["--rounds", str(self._given.ablation_rounds)]
        for problem in self._left("ablate", group):
            if not self._given.shapes and problem.shape not in ABLATED:
                continue
            size = ["--size", problem.shape.problem, *problem.kind[2:]]
            text, seconds = self._tuned("ablate", "gemm", *size, *rounds, *self._jobs)
            if text:
                self.note(problem, "ablate", {"seconds": seconds, **json.loads(text)})
                say(f"{problem.key}: taken apart in {seconds:.0f} s")

    def _tuned(self, *words: str) -> tuple[str, float]:
        return tune(*words, "--db", str(self.winners), "--json", "--quiet")

    def _bits(self, group: Sequence[Problem]) -> None:
        if any(self._left("bits", group)):
            words = ["--db", str(self.winners), *group[0].kind, "--json"]
            done = subprocess.run([sys.executable, SAME_BITS, *words], stdout=subprocess.PIPE, check=False)
            if done.returncode not in (0, 1):
                raise CommandError(f"{SAME_BITS.name}: exit status {done.returncode}")
            for row in json.loads(done.stdout):
                for problem in (p for p in group if row["sizes"] == vars(p.shape)):
                    self.note(problem, "bits", {name: row[name] for name in ("calls", "same", "error")})


def rounds(text: str) -> int:
    """Read a number of rounds: `tune bench` takes no fewer than :data:`FEWEST_ROUNDS`."""
    number = int(text)
    if number < FEWEST_ROUNDS:
        raise argparse.ArgumentTypeError(f"a race has at least {FEWEST_ROUNDS} rounds")
    return number


def groups(problems: Sequence[Problem], most: int) -> Iterator[list[Problem]]:
    """Return problems that one call of the command can name: of one dtype and layout."""
    kinds: dict[tuple[str, ...], list[Problem]] = {}
    for problem in problems:
        kinds.setdefault(tuple(problem.kind), []).append(problem)
    for alike in kinds.values():
        for first in range(0, len(alike), most):
            yield alike[first : first + most]


def problems_of(given: argparse.Namespace, notes: Notes) -> list[Problem]:
    """Settle what is to be done.

    Raises:
        ValueError, argparse.ArgumentTypeError: something is no shape, or was drawn in another way.
    """
    if given.random:
        return notes.draw(given.random, given.random_seed, given.dtypes)
    shapes = [Shape.parse(text) for text in given.shapes]
    return [
        Problem(shape, dtype, layout)
        for layout in given.layout
        for dtype in given.dtypes
        for shape in shapes or (CUBES if layout.startswith("t") else SHAPES)
    ]


def main() -> int:
    """Do what is left, and write what there is; return 1 if something failed."""
    options = study_parser(__doc__, STEPS, "gemm-shapes", "search,race")
    add = options.add_argument
    add("--shapes", type=listed(), default="", help="Only these, with commas between: 4096,512x512x65536.")
    add("--dtypes", type=listed(), default="bfloat16,float16", help="With commas between.")
    add("--layout", type=listed(LAYOUTS), default="nn", help=f"Of {', '.join(LAYOUTS)}, with commas between.")
    add("--random", type=int, default=0, help="So many problems that are drawn.")
    add("--random-seed", type=int, default=0, help="What they are drawn by.")
    add("--jobs", type=int, default=0, help="Compiling processes; 0 for one a core.")
    add("--trials", type=int, default=200)
    add("--time", type=float, default=20.0, help="Seconds of a search; 0 for no limit.")
    add("--rounds", type=rounds, default=20)
    add("--ablation-rounds", type=rounds, default=12)
    given = options.parse_args()
    study = Study(given)
    try:
        study.wanted = problems_of(given, study)
    except (ValueError, argparse.ArgumentTypeError) as error:
        options.error(str(error))
    try:
        study.run(given.steps)
    finally:
        print(report(study, given.out))
    return int(bool(study.failures))


if __name__ == "__main__":
    run(main, gpu=True)
