"""Break the tuner in every way that needs no GPU, at random moments, and count what became of its trials:

    scripts/run python scripts/chaos.py                     # everything; results/evidence/chaos.txt is its output
    scripts/run python scripts/chaos.py signals disk        # only these
    scripts/run python scripts/chaos.py head --times 100 --jobs 4 --seed 7

The measuring process is a fake one that answers at once; head, database, compilers and the protocol are the real ones.
Each section prints one line and what went wrong; the exit status is 1 if anything did. Linux only; ``containers`` and
``disk`` need user namespaces.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripts import harness
from tests import fork_server
from tests.faults.chaos import SECTIONS
from tests.faults.killing import Report


def run(name: str, times: int, seed: int, jobs: int) -> bool:
    """Run a section in several processes, print its report, and return whether nothing went wrong."""
    began = time.monotonic()
    jobs = jobs if SECTIONS[name].parallel else 1
    shares = [len(range(i, times, jobs)) for i in range(min(jobs, times))]
    with multiprocessing.get_context("fork").Pool(len(shares), maxtasksperchild=1) as pool:
        work = [(name, share, 1000 * seed + i) for i, share in enumerate(shares)]
        total, *others = pool.starmap(_share, work, chunksize=1)
    for report in others:
        total.add(report)
    print(f"{name:12} {total}; {time.monotonic() - began:.0f} s", flush=True)
    for problem in total.problems:
        print(f"{'':12} {problem}", flush=True)
    return total.clean


def _share(name: str, times: int, seed: int) -> Report:
    fork_server.OWNER = os.getpid()  # with a server of its own
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        return SECTIONS[name].run(times, Path(folder), seed)


def main() -> None:
    options = harness.parser(__doc__.splitlines()[0])
    add = options.add_argument
    add("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    add("--times", type=int, help="instead of each section's own number")
    add("--seed", type=int, default=0, help="of the random moments")
    add("--jobs", type=int, default=2, help="processes for each section")
    add("--inside", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if unknown := set(given.sections) - set(SECTIONS):
        options.error(f"no section {', '.join(unknown)}; choose from: {', '.join(SECTIONS)}")
    clean = True
    for name in given.sections or SECTIONS:
        section = SECTIONS[name]
        if section.around and not given.inside:
            words = ["--seed", str(given.seed), "--times", str(given.times or section.times), "--inside"]
            command = [*section.around, sys.executable, __file__, name, *words]
            clean &= subprocess.run(command, check=False).returncode == 0
        else:
            clean &= run(name, given.times or section.times, given.seed, given.jobs)
    if not given.inside:
        print("PASSED" if clean else "FAILED")
    sys.exit(not clean)


if __name__ == "__main__":
    main()
