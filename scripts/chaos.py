"""Break the tuner in every way that needs no GPU, at random moments, and count what became of its trials:

    scripts/run python scripts/chaos.py                     # everything; results/evidence/chaos.txt is its output
    scripts/run python scripts/chaos.py signals disk        # only these
    scripts/run python scripts/chaos.py head --times 100 --jobs 4 --seed 7

The measuring process is a fake one that answers at once; head, database, compilers and the protocol are the real ones.
Each section prints one line and what went wrong; the exit status is 1 if anything did.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.faults.chaos import SECTIONS  # noqa: E402


def run(section: str, times: int, seed: int, jobs: int) -> bool:
    """Run a section in several processes, print its report, and return whether nothing went wrong."""
    began = time.monotonic()
    each = SECTIONS[section]
    jobs = min(jobs, each.jobs or jobs)
    shares = [share for i in range(jobs) if (share := len(range(i, times, jobs)))]
    with multiprocessing.get_context("fork").Pool(len(shares), maxtasksperchild=1) as pool:
        reports = pool.map(
            partial(_share, section),
            [(share, seed * 1000 + i) for i, share in enumerate(shares)],
            chunksize=1,
        )
    total = reports[0]
    for report in reports[1:]:
        total = total.add(report)
    print(f"{section}: {total} [{time.monotonic() - began:.0f} s, seed {seed}]", flush=True)
    for problem in total.problems:
        print(f"  {problem}", flush=True)
    return bool(total.clean)


def _share(section: str, share: tuple[int, int]):  # type: ignore[no-untyped-def]
    times, seed = share
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        return SECTIONS[section].run(times, Path(folder), seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--times", type=int, help="instead of each section's own number")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    parser.add_argument("--jobs", type=int, default=2, help="processes for each section")
    given = parser.parse_args()
    if unknown := set(given.sections) - set(SECTIONS):
        parser.error(f"no section {', '.join(unknown)}; choose from: {', '.join(SECTIONS)}")
    print(f"$ python scripts/chaos.py {' '.join(sys.argv[1:])}".rstrip(), flush=True)
    chosen = given.sections or list(SECTIONS)
    clean = [run(name, given.times or SECTIONS[name].times, given.seed, given.jobs) for name in chosen]
    print("PASSED" if all(clean) else "FAILED")
    sys.exit(not all(clean))


if __name__ == "__main__":
    main()
