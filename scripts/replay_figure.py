"""Times the main job by replay, on a machine without a GPU: wall time and memory of 200 trials.

scripts/run python scripts/replay_figure.py > results/evidence/replay.txt
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time

COMMAND = ["--kernel", "gemm", "--trials", "200", "--device", "replay"]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "tuner", *COMMAND, "--quiet"],
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
        )
        wall = time.monotonic() - began
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"$ tune {' '.join(COMMAND)}")
    print(done.stdout.rstrip())
    print(f"[{wall:.1f} s on {len(os.sched_getaffinity(0))} cores, at most {peak:.0f} MiB]")


if __name__ == "__main__":
    main()
