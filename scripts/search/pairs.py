"""Does any recorded task mislead a search on another? Each teaches each other one of its kernel, alone.

    scripts/run python scripts/search/pairs.py results/recorded --seeds 10

A search of 200 trials on the one is known to a search on the other, as ``tune run`` would know it, which begins with
the default. Printed are the median evaluations until a time is within 5 % of the best, with and without. Tasks that are
too unlike to be learnt from are left out.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from statistics import median

from scripts import harness
from scripts.harness import listed
from scripts.search.benchmark import CASES, LESSON_SEEDS, Job, Lesson, Replay, lesson_of
from scripts.search.cases import NEAR, Case, read_cases
from tuner.search.translation import translated
from tuner.tuning.history import teach_other_tasks

TRIALS = 200
GIVEN = Namespace(first="default", trials=TRIALS, warm=TRIALS, rules=[])


def evaluations(number: int, seed: int, teacher: Case | None = None, lesson: Lesson | None = None) -> float:
    """Return the evaluations until a search is near the best."""
    replay = Replay(Job(number, "gp-ei", seed, 0, GIVEN))
    if teacher is not None and lesson is not None:
        results = translated(lesson, replay.search.space)
        teach_other_tasks(replay.search, replay.case.run, [(teacher.run, results)])
    near = NEAR * replay.case.best
    while replay.best_ns > near and (asked := replay.search.ask()) is not None:
        replay.search.tell(asked, replay.measure(asked))
    return float(len(replay.trajectory))


def main() -> None:
    options = harness.parser(__doc__)
    options.add_argument("paths", nargs="+", type=Path, help="folders of recordings, or files")
    options.add_argument("--spaces", type=listed(), default="", help="only files with one of these words")
    options.add_argument(
        "--only", type=listed(), default="", help="only searches on tasks with one of these words"
    )
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--first-seed", type=int, default=0)
    given = options.parse_args()
    CASES.extend(read_cases(given.paths, given.spaces))
    numbers = {case.name: number for number, case in enumerate(CASES)}
    lessons: dict[tuple[str, int], Lesson] = {}
    ratios: list[float] = []
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    for number, case in enumerate(CASES):
        if given.only and not any(word in case.name for word in given.only):
            continue
        cold = median(evaluations(number, seed) for seed in seeds)
        print(f"{case.name}: untaught {cold:g}", flush=True)
        for teacher in case.teachers(CASES, 0):
            taught = []
            for seed in seeds:
                key = teacher.name, seed % LESSON_SEEDS
                if key not in lessons:
                    lessons[key] = lesson_of(Job(numbers[teacher.name], "gp-ei", key[1], 0, GIVEN))
                taught.append(evaluations(number, seed, teacher, lessons[key]))
            ratios.append(median(taught) / cold)
            print(f"  by {teacher.name}: {median(taught):g}, {ratios[-1]:.2f} of that", flush=True)
    print(
        f"{len(ratios)} pairs: median {median(ratios):.2f}, worst {max(ratios):.2f}, "
        f"{sum(one > 1.1 for one in ratios)} above 1.1"
    )


if __name__ == "__main__":
    main()
