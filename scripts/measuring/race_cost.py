"""What a race costs: finalists of about a millisecond, as heavy as kernels get.

    scripts/run python scripts/measuring/race_cost.py --out results/evidence/race-cost.json

Tunes a float16 product of 5888^3, about a millisecond for this tuner's best configuration, and says how long the race
of its finalists took.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from lab import keep, parser


def main() -> None:
    given = parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "tuner", "--kernel", "gemm", "--size", "m=5888,n=5888,k=5888"),
            *("--trials", "120", "--db", str(Path(folder) / "race.db"), "--json", "--quiet"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    (result,) = json.loads(done.stdout)
    race = result["race"]
    print(
        f"{race['finalists']} finalists of {result['winner']['time_ns'] / 1e6:.3f} ms: {race['rounds']} rounds "
        f"in {race['seconds']:.2f} s"
    )
    keep(given.out, {"gpu": result["gpu"], "time_ns": result["winner"]["time_ns"], "race": race})


if __name__ == "__main__":
    main()
