"""Interrupt runs on recordings at random moments, resume them, and compare them with the unbroken runs.

python scripts/resume_test.py --runs 100        # results/evidence/resume.txt is its output
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.faults.interrupting import Comparison, Plan, compare
from tuner import __version__
from tuner.formats.recording import read_recording

ROOT = Path(__file__).resolve().parents[1]
WAYS = ((1, 0), (8, 0), (12, 4), (24, 16))
"""Trials under way, and compilers."""
SAMPLERS = ("gp-ei", "random", "tpe")


def plan_of(number: int, files: list[Path], draw: random.Random) -> Plan:
    lookahead, compilers = WAYS[number // len(SAMPLERS) % len(WAYS)]
    recording = files[number % len(files)]
    problem = draw.choice(read_recording(recording).problems).problem
    return Plan(
        recording,
        problem,
        SAMPLERS[number % len(SAMPLERS)],
        seed=number,
        trials=draw.randrange(20, 60),
        lookahead=lookahead,
        compilers=compilers,
        from_scratch=draw.random() < 0.5,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first run's number")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    given = parser.parse_args()
    began = time.monotonic()
    files = sorted((ROOT / "results" / "recorded").glob("*.json.gz"))
    print(f"kernel-tune {__version__}: {' '.join(sys.argv[1:]) or 'no options'}")
    done: list[Comparison] = []
    for number in range(given.first, given.first + given.runs):
        draw = random.Random(f"{given.seed} {number}")
        with tempfile.TemporaryDirectory() as folder:
            done.append(compare(plan_of(number, files, draw), Path(folder), draw))
        if not (done[-1].same_sequence and done[-1].same_winner):
            print(f"  differs: {done[-1].plan}; {', '.join(done[-1].ends)}")
    ends = Counter(end for comparison in done for end in comparison.ends if end != "to its end")
    print(f"{len(done)} runs of {sum(c.trials for c in done)} trials, {sum(ends.values())} interruptions:")
    print(f"  {', '.join(f'{count} by {end}' for end, count in ends.most_common())}")
    for what in ("sampler", "problem.kernel", "lookahead", "from_scratch"):
        counts = Counter(str(value(c.plan, what)) for c in done)
        print(f"  {what}: {', '.join(f'{count} {name}' for name, count in sorted(counts.items()))}")
    same = sum(c.same_sequence for c in done)
    winners = sum(c.same_winner for c in done)
    print(
        f"the same sequence of trials and samples: {same} of {len(done)}; the same winner: {winners} of {len(done)}"
    )
    print(f"{'PASSED' if same == winners == len(done) else 'FAILED'} in {time.monotonic() - began:.0f} s")
    sys.exit(not same == winners == len(done))


def value(plan: Plan, name: str) -> object:
    return plan.problem.kernel if name == "problem.kernel" else getattr(plan, name)


if __name__ == "__main__":
    main()
