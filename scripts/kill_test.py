"""Kill the tuner and its measuring process at random moments, on a fake device, and count the trials.

python scripts/kill_test.py --times 50        # results/evidence/kill-test.txt is its output
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.faults.killing import kill_tuner, kill_worker


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=50, help="kills of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    given = parser.parse_args()
    began = time.monotonic()
    reports = []
    for kill in (kill_tuner, kill_worker):
        with tempfile.TemporaryDirectory() as folder:
            reports.append(kill(given.times, Path(folder), given.seed))
        print(reports[-1])
        for problem in reports[-1].problems:
            print(f"  {problem}")
    clean = all(report.clean for report in reports)
    print(f"{'PASSED' if clean else 'FAILED'} in {time.monotonic() - began:.0f} s")
    sys.exit(not clean)


if __name__ == "__main__":
    main()
